/*
 * calendar.c: see calendar.h.
 *
 * "Local" seconds are what the zone's clocks show, counted as if they were UTC: a day of them has
 * always 86400, so that the arithmetic of days, weeks, months and years knows nothing of zones. Only
 * reached_s() goes back from them to real time.
 */
#include "limit/calendar.h"

#include <fcntl.h>
#include <glib.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"

enum {
    HOUR_S = 3600,
    DAY_S = 86400,
    WEEK_DAYS = 7,
    SPREAD_S = 26 * HOUR_S, /* no clock differs from UTC by more, and none is ever set by more */
    EPOCH_WEEKDAY = 3,      /* 1970-01-01 was a thursday */
    EPOCH_DAYS = 719468,    /* from 0000-03-01 */
    ERA_DAYS = 146097,      /* 400 years */
};

struct calendar {
    struct calendar *next;
    GTimeZone *zone; /* owned; NULL = UTC, which is there without tzdata */
    char zone_name[CALENDAR_ZONE_MAX + 1];
    enum calendar_unit unit;
    int week_start; /* 0 = monday; of weeks, else 0 */
    int month, day; /* the first one's: 0 to 11 of years, else 0; 1 to 31 of months and years, else 1 */
    struct calendar_edges edges;
};

static const char *const unit_names[] = {"hour", "day", "week", "month", "year"};
static const char *const weekdays[] = {"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"};

/* The loop reads policies of requests while a thread reads the configuration. */
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static struct calendar *known; /* owned, each; never freed */

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Days since the epoch of the first of a month, and back (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
 * A year begins in march there, so that the leap day is its last. `month` is 0 to 11. */
static int64_t first_of_month(int64_t year, int month)
{
    if (month < 2) year--;
    int64_t era = floor_div(year, 400), of_era = year - era * 400, from_march = (month + 10) % 12;
    return era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + (153 * from_march + 2) / 5 - EPOCH_DAYS;
}

static void month_of_day(int64_t days, int64_t *ret_year, int *ret_month)
{
    days += EPOCH_DAYS;
    int64_t era = floor_div(days, ERA_DAYS), of_era = days - era * ERA_DAYS;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    int from_march = (int)((5 * of_year + 2) / 153);
    *ret_month = (from_march + 2) % 12;
    *ret_year = year + era * 400 + (*ret_month < 2);
}

/* The day on which a month begins, which is the given one since the year 0. */
static int64_t month_begin(const struct calendar *calendar, int64_t month)
{
    int64_t year = floor_div(month, 12), after = floor_div(month + 1, 12);
    int64_t first = first_of_month(year, (int)(month - 12 * year));
    int64_t n_days = first_of_month(after, (int)(month + 1 - 12 * after)) - first;
    return first + (calendar->day < n_days ? calendar->day : n_days) - 1;
}

/* The beginning, in local seconds, of the day, week, month or year that lies `after` units behind the one around
 * local_s. */
static int64_t unit_begin(const struct calendar *calendar, int64_t local_s, int after)
{
    int64_t days = floor_div(local_s, DAY_S), year;
    int month, n_months = calendar->unit == CALENDAR_YEAR ? 12 : 1;

    switch (calendar->unit) {
    case CALENDAR_HOUR: break; /* see hour_end() */
    case CALENDAR_DAY: return (days + after) * DAY_S;
    case CALENDAR_WEEK:
        days -= calendar->week_start - EPOCH_WEEKDAY; /* now weeks begin at multiples of seven */
        days = (floor_div(days, WEEK_DAYS) + after) * WEEK_DAYS;
        return (days + calendar->week_start - EPOCH_WEEKDAY) * DAY_S;
    case CALENDAR_MONTH:
    case CALENDAR_YEAR:
        month_of_day(days, &year, &month);
        int64_t begin = year * 12 + (calendar->unit == CALENDAR_YEAR ? calendar->month : month);
        if (month_begin(calendar, begin) > days) begin -= n_months;
        return month_begin(calendar, begin + after * n_months) * DAY_S;
    }
    CHECK(false);
    return 0;
}

static int interval_at(const struct calendar *calendar, int64_t at_s)
{
    return calendar->zone != NULL ? g_time_zone_find_interval(calendar->zone, G_TIME_TYPE_UNIVERSAL, at_s) : 0;
}

static int offset_in(const struct calendar *calendar, int interval)
{
    return calendar->zone != NULL ? g_time_zone_get_offset(calendar->zone, interval) : 0;
}

/* The first second in (from_s, to_s] of a later interval than from_s's; to_s is in one. */
static int64_t next_interval(const struct calendar *calendar, int64_t from_s, int64_t to_s)
{
    int present = interval_at(calendar, from_s);
    while (to_s - from_s > 1) {
        int64_t middle_s = from_s + (to_s - from_s) / 2;
        if (interval_at(calendar, middle_s) > present)
            to_s = middle_s;
        else
            from_s = middle_s;
    }
    return to_s;
}

/* The first instant at which the zone's clocks show local_s, or have passed it. */
static int64_t reached_s(const struct calendar *calendar, int64_t local_s)
{
    int64_t from_s = local_s - SPREAD_S, to_s = local_s + SPREAD_S;
    int last = interval_at(calendar, to_s);
    for (;;) {
        int interval = interval_at(calendar, from_s);
        int64_t at_s = local_s - offset_in(calendar, interval);
        if (at_s < from_s) at_s = from_s; /* jumped over */
        if (interval == last) return at_s;

        int64_t until_s = next_interval(calendar, from_s, to_s);
        if (at_s < until_s) return at_s;
        from_s = until_s;
    }
}

bool calendar_instant(const struct calendar *calendar, int64_t local_s, int64_t *ret_s)
{
    int64_t at_s = reached_s(calendar, local_s);
    if (at_s + offset_in(calendar, interval_at(calendar, at_s)) != local_s) return false;
    *ret_s = at_s;
    return true;
}

/* The first instant behind at_s at which the clocks show another hour, or are set back. */
static int64_t hour_end(const struct calendar *calendar, int64_t at_s)
{
    for (;;) {
        int interval = interval_at(calendar, at_s), offset = offset_in(calendar, interval);
        int64_t hour = floor_div(at_s + offset, HOUR_S), end_s = (hour + 1) * HOUR_S - offset;
        if (interval_at(calendar, end_s - 1) == interval) return end_s;

        at_s = next_interval(calendar, at_s, end_s - 1);
        int changed = offset_in(calendar, interval_at(calendar, at_s));
        if (changed < offset || floor_div(at_s + changed, HOUR_S) != hour) return at_s;
    }
}

const struct calendar_edges *calendar_around(struct calendar *calendar, int64_t at_s)
{
    struct calendar_edges *edges = &calendar->edges;
    if (at_s >= edges->begin_s && at_s < edges->end_s) return edges;
    if (calendar->unit == CALENDAR_HOUR) {
        int64_t begin_s = at_s - 2 * HOUR_S, end_s = hour_end(calendar, begin_s); /* an hour never takes longer */
        while (end_s <= at_s) {
            begin_s = end_s;
            end_s = hour_end(calendar, begin_s);
        }
        *edges = (struct calendar_edges){begin_s, end_s, hour_end(calendar, end_s)};
        return edges;
    }

    int64_t local_s = unit_begin(calendar, at_s + offset_in(calendar, interval_at(calendar, at_s)), 0);
    int64_t begin_s = reached_s(calendar, local_s);
    int64_t end_s = reached_s(calendar, local_s = unit_begin(calendar, local_s, 1));
    while (end_s <= at_s) { /* it had begun before the clocks were set back, or has no length */
        begin_s = end_s;
        end_s = reached_s(calendar, local_s = unit_begin(calendar, local_s, 1));
    }

    int64_t next_s = end_s;
    while (next_s <= end_s) next_s = reached_s(calendar, local_s = unit_begin(calendar, local_s, 1));
    *edges = (struct calendar_edges){begin_s, end_s, next_s};
    return edges;
}

/* Zones */

const char *calendar_zone_dir(void)
{
    const char *dir = getenv("TZDIR");
    return dir != NULL && dir[0] != '\0' ? dir : "/usr/share/zoneinfo";
}

/* Opens a zone by its path, because GLib could read a bare name as a rule such as EST5. GLib trusts the file, so it
 * must be in the system's folder of zones and begin like a zone file. NULL if it is not. */
static GTimeZone *open_zone(const char *name)
{
    char path[4096], magic[4];
    size_t name_len = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-/");
    if (name_len == 0 || name_len > CALENDAR_ZONE_MAX || name[name_len] != '\0' || name[0] == '/') return NULL;
    int len = snprintf(path, sizeof path, "%s/%s", calendar_zone_dir(), name);
    if (len < 0 || (size_t)len >= sizeof path || path[0] != '/') return NULL;

    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return NULL;
    ssize_t n = read(fd, magic, sizeof magic);
    close(fd);
    bool is_zone = n == (ssize_t)sizeof magic && memcmp(magic, "TZif", sizeof magic) == 0;
    return is_zone ? g_time_zone_new_identifier(path) : NULL;
}

static struct calendar *find_known(const struct calendar *like)
{
    struct calendar *calendar = known;
    while (calendar != NULL && (calendar->unit != like->unit || calendar->week_start != like->week_start ||
                                calendar->month != like->month || calendar->day != like->day ||
                                strcmp(calendar->zone_name, like->zone_name) != 0))
        calendar = calendar->next;
    return calendar;
}

/* The one that is like it, or a new one. */
static int get(const struct calendar *like, bool may_open, struct calendar **ret)
{
    const char *zone_name = like->zone_name;
    pthread_mutex_lock(&known_lock);
    *ret = find_known(like);
    const struct calendar *other = known; /* with the same zone */
    while (other != NULL && strcmp(other->zone_name, zone_name) != 0) other = other->next;
    pthread_mutex_unlock(&known_lock);
    if (*ret != NULL) return 0;

    bool is_utc = strcmp(zone_name, "UTC") == 0;
    if (!is_utc && other == NULL && !may_open) return CALENDAR_NO_ZONE;
    struct calendar *calendar = mem_alloc(sizeof *calendar);
    if (calendar == NULL) return CALENDAR_NO_MEMORY;
    *calendar = *like;
    if (!is_utc) calendar->zone = other != NULL ? g_time_zone_ref(other->zone) : open_zone(zone_name);
    if (!is_utc && calendar->zone == NULL) {
        mem_free(calendar);
        return CALENDAR_NO_ZONE;
    }

    pthread_mutex_lock(&known_lock);
    *ret = find_known(like); /* another thread may have been faster */
    if (*ret == NULL) {
        calendar->next = known;
        *ret = known = calendar;
    }
    pthread_mutex_unlock(&known_lock);

    if (*ret != calendar) {
        if (calendar->zone != NULL) g_time_zone_unref(calendar->zone);
        mem_free(calendar);
    }
    return 0;
}

int calendar_get(const char *zone_name, enum calendar_unit unit, int week_start, bool may_open, struct calendar **ret)
{
    struct calendar like = {.unit = unit, .week_start = unit == CALENDAR_WEEK ? week_start : 0, .day = 1};
    CHECK(like.week_start >= 0 && like.week_start < WEEK_DAYS);
    if (strlen(zone_name) > CALENDAR_ZONE_MAX) return CALENDAR_NO_ZONE;
    snprintf(like.zone_name, sizeof like.zone_name, "%s", zone_name);
    return get(&like, may_open, ret);
}

struct calendar *calendar_anchored(const struct calendar *calendar, int month, int day)
{
    bool is_year = calendar->unit == CALENDAR_YEAR;
    struct calendar like = {.unit = calendar->unit, .month = is_year ? month - 1 : 0, .day = day}, *ret = NULL;
    CHECK((is_year || calendar->unit == CALENDAR_MONTH) && month >= 1 && month <= 12 && day >= 1 && day <= 31);
    snprintf(like.zone_name, sizeof like.zone_name, "%s", calendar->zone_name);
    return get(&like, false, &ret) == 0 ? ret : NULL;
}

enum calendar_unit calendar_unit(const struct calendar *calendar)
{
    return calendar->unit;
}

const char *calendar_zone_name(const struct calendar *calendar)
{
    return calendar->zone_name;
}

const char *calendar_unit_name(const struct calendar *calendar)
{
    return unit_names[calendar->unit];
}

const char *calendar_week_start_name(const struct calendar *calendar)
{
    return weekdays[calendar->week_start];
}

int64_t calendar_longest_s(const struct calendar *calendar)
{
    static const int64_t units_s[] = {HOUR_S, DAY_S, WEEK_DAYS * DAY_S, 31 * DAY_S, 366 * DAY_S};
    return units_s[calendar->unit] + SPREAD_S;
}
