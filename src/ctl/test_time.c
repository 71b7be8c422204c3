/* test_time.c: reads points in time, for test_file.c. */
#include "ctl/test_time.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/exact.h"
#include "base/units.h"
#include "limit/calendar.h"
#include "policy/value.h"

enum { DATE_LEN = 19 /* 2026-03-29T01:59:59 */, MINUTE_S = 60, HOUR_S = 3600, FRACTION_MAX = 6 };

/* A time of the file while it is read. */
struct reading {
    const char *key;
    const struct tree_node *node;
    struct faults *faults;
};

static bool refuse(const struct reading *reading, const char *what)
{
    char shown[FAULTS_SHOWN_MAX];
    faults_add(reading->faults, reading->node->line, reading->key, "%s %s", faults_shown(shown, reading->node->text),
               what);
    return false;
}

/* Two or four digits; -1 if they are none. */
static int number_at(const char *text, int len)
{
    int number = 0;
    for (int i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9') return -1;
        number = number * 10 + text[i] - '0';
    }
    return number;
}

/* As if the clock showed UTC, in seconds since the epoch. */
static bool read_clock(const char *text, int64_t *ret_s)
{
    if (strlen(text) < DATE_LEN || text[4] != '-' || text[7] != '-' || (text[10] != 'T' && text[10] != 't') ||
        text[13] != ':' || text[16] != ':')
        return false;

    const struct tm written = {.tm_year = number_at(text, 4) - 1900,
                               .tm_mon = number_at(text + 5, 2) - 1,
                               .tm_mday = number_at(text + 8, 2),
                               .tm_hour = number_at(text + 11, 2),
                               .tm_min = number_at(text + 14, 2),
                               .tm_sec = number_at(text + 17, 2)};
    struct tm normal = written; /* the 30th of february becomes the 2nd of march */
    *ret_s = timegm(&normal);
    return normal.tm_year == written.tm_year && normal.tm_mon == written.tm_mon && normal.tm_mday == written.tm_mday &&
           normal.tm_hour == written.tm_hour && normal.tm_min == written.tm_min && normal.tm_sec == written.tm_sec;
}

/* ".25": what follows it, or NULL. */
static const char *read_fraction(const char *text, int64_t *ret_us)
{
    *ret_us = 0;
    if (*text != '.') return text;
    int64_t unit_us = SECOND_US / 10;
    int n = 0;
    for (text++; *text >= '0' && *text <= '9' && n < FRACTION_MAX; text++, n++, unit_us /= 10)
        *ret_us += (*text - '0') * unit_us;
    return n > 0 ? text : NULL;
}

/* "+02:00" */
static bool read_offset(const char *text, int64_t *ret_s)
{
    int hours = number_at(text + 1, 2), minutes = hours >= 0 && text[3] == ':' ? number_at(text + 4, 2) : -1;
    if (hours < 0 || hours > 23 || minutes < 0 || minutes >= MINUTE_S || text[6] != '\0') return false;
    *ret_s = hours * HOUR_S + minutes * MINUTE_S;
    if (text[0] == '-') *ret_s = -*ret_s;
    return true;
}

static bool read_in_zone(const struct reading *reading, const char *zone, int64_t local_s, int64_t *ret_s)
{
    struct calendar *calendar;
    char what[128 + CALENDAR_ZONE_MAX];
    if (calendar_get(zone, CALENDAR_HOUR, 0, true, &calendar) != 0)
        return refuse(reading, "has no time zone that this machine knows; write one such as Europe/Berlin, Z, or an "
                               "offset such as +01:00");
    if (calendar_instant(calendar, local_s, ret_s)) return true;
    snprintf(what, sizeof what, "is never shown in %s, whose clocks skip it; write a time before or after it", zone);
    return refuse(reading, what);
}

static bool read_date(const struct reading *reading, int64_t *ret_us)
{
    const char *text = reading->node->text;
    int64_t s = 0, offset_s = 0, us = 0;
    if (!read_clock(text, &s)) return refuse(reading, "is no date with a time; write one such as 2026-03-29T01:59:59Z");

    const char *zone = read_fraction(text + DATE_LEN, &us);
    if (zone == NULL) return refuse(reading, "has a dot without digits; write them, or leave it out");
    if (*zone == '\0')
        return refuse(reading, "has no time zone; write Z, an offset such as +01:00, or a zone such as Europe/Berlin "
                               "behind it");
    bool is_utc = strcmp(zone, "Z") == 0 || strcmp(zone, "z") == 0;
    if (*zone == ' ') {
        if (!read_in_zone(reading, zone + strspn(zone, " "), s, &s)) return false;
    } else if (!is_utc && ((*zone != '+' && *zone != '-') || !read_offset(zone, &offset_s))) {
        return refuse(reading, "has no time zone; write Z, an offset such as +01:00, or a space and a zone such as "
                               "Europe/Berlin behind it");
    }

    *ret_us = (s - offset_s) * SECOND_US + us;
    if (*ret_us >= 0 && *ret_us <= EXACT_MAX) return true;
    return refuse(reading, "is out of bounds; write a time from 1970 to 2255");
}

bool test_time_read_start(const char *key, const struct tree_node *node, struct faults *faults, int64_t *ret_us)
{
    const struct reading reading = {key, node, faults};
    return value_parse_text(key, node, faults) != NULL && read_date(&reading, ret_us);
}

bool test_time_read(const char *key, const struct tree_node *node, int64_t start_us, struct faults *faults,
                    int64_t *ret_us)
{
    const struct reading reading = {key, node, faults};
    char what[256];
    int64_t us;
    const char *text = value_parse_text(key, node, faults);
    if (text == NULL) return false;
    bool has_year = strlen(text) > 4 && number_at(text, 4) >= 0 && text[4] == '-';
    if (has_year) return read_date(&reading, ret_us);

    const char *wrong = units_duration(text, &us);
    if (wrong != NULL) {
        snprintf(what, sizeof what, "is %s", wrong);
        return refuse(&reading, what);
    }
    if (us > EXACT_MAX - start_us) return refuse(&reading, "is too long after the start; a test ends before 2255");
    *ret_us = start_us + us;
    return true;
}
