/*
 * calendar.h: hours, days, weeks, months and years as the clocks of a time zone show them.
 *
 * A window begins at the first instant at which those clocks show its beginning or have passed it,
 * and ends where the next one begins:
 *
 *   an hour (or a day) that the clocks skip is no window; the one before it ends where they jump;
 *   of hours, one more begins at the instant at which the clocks are set back: an hour that they show twice is two
 *   windows, half an hour twice is one of 60 and one of 30 minutes;
 *   a day, week, month or year that has ended does not begin again when the clocks are set back.
 *
 * So windows follow each other without a gap, and none comes twice, whatever the zone does.
 *
 * Months and years may begin on another day, that of an anchor. A month without such a day begins on its last one, and
 * the next one on the anchor's again.
 *
 * Zones come from the system's tzdata (GLib reads it, and aborts if memory is short), only while
 * the configuration is read. Afterwards nothing is allocated, opened, or able to fail: a calendar remembers the edges
 * around the last time it was asked for, and works them out anew when that window is over.
 */
#ifndef RL_LIMIT_CALENDAR_H
#define RL_LIMIT_CALENDAR_H

#include <stdbool.h>
#include <stdint.h>

enum calendar_unit { CALENDAR_HOUR, CALENDAR_DAY, CALENDAR_WEEK, CALENDAR_MONTH, CALENDAR_YEAR };

/* As in the configuration, in the order of their numbers. */
#define CALENDAR_UNITS    "hour day week month year"
#define CALENDAR_WEEKDAYS "monday tuesday wednesday thursday friday saturday sunday"

enum { CALENDAR_ZONE_MAX = 63 };

struct calendar_edges {
    int64_t begin_s; /* of the present window; seconds since the epoch */
    int64_t end_s;   /* of the present window: where the next one begins */
    int64_t next_s;  /* end of the next one */
};

struct calendar;

enum { CALENDAR_NO_MEMORY = -1, CALENDAR_NO_ZONE = -2 };

/* The calendar of a zone (an IANA name; UTC is always there), shared by all who ask for the same. It lives as long as
 * the process: there are only so many zones. With may_open false only zones that are open are found, and no library
 * allocates. 0, or one of the above. */
int calendar_get(const char *zone_name, enum calendar_unit unit, int week_start, bool may_open, struct calendar **ret);

/* The same months or years, each from 00:00 of that day on; of months only `day` (1 to 31) counts, `month` is 1 to 12.
 * It shares the zone, so no library allocates. NULL without memory. */
struct calendar *calendar_anchored(const struct calendar *calendar, int month, int day);

/* The edges around `at_s`, which lies in [begin_s, end_s). Valid until the calendar is asked again. */
const struct calendar_edges *calendar_around(struct calendar *calendar, int64_t at_s);

/* When the zone's clocks show local_s, which is counted as if they showed UTC: seconds since the epoch, the first time
 * if they do so twice. False: they skip it. */
bool calendar_instant(const struct calendar *calendar, int64_t local_s, int64_t *ret_s);

enum calendar_unit calendar_unit(const struct calendar *calendar);
const char *calendar_unit_name(const struct calendar *calendar);
const char *calendar_zone_name(const struct calendar *calendar);
const char *calendar_week_start_name(const struct calendar *calendar); /* "monday" if the unit is no week */
int64_t calendar_longest_s(const struct calendar *calendar);           /* no window is longer */

/* Where the system keeps its zones: $TZDIR, or /usr/share/zoneinfo. */
const char *calendar_zone_dir(void);

#endif
