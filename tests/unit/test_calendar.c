/* test_calendar.c: where the windows of the calendar begin and end, in zones that do hard things. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "limit/calendar.h"

enum { MONDAY = 0, WEDNESDAY = 2, SUNDAY = 6 };

static int64_t utc(const char *text)
{
    struct tm tm = {0};
    const char *end = strptime(text, strlen(text) > 16 ? "%Y-%m-%d %H:%M:%S" : "%Y-%m-%d %H:%M", &tm);
    if (end == NULL || *end != '\0') fail_msg("%s", text);
    return timegm(&tm);
}

static struct calendar *calendar_of(const char *zone, enum calendar_unit unit, int week_start)
{
    struct calendar *calendar = NULL;
    if (calendar_get(zone, unit, week_start, true, &calendar) != 0) fail_msg("no zone %s; is tzdata installed?", zone);
    return calendar;
}

/* All times in UTC. */
static const struct {
    const char *zone;
    enum calendar_unit unit;
    int week_start;
    const char *at, *begin, *end, *next;
} cases[] = {
    /* the calendar itself */
    {"UTC", CALENDAR_HOUR, 0, "2024-02-29 23:59:59", "2024-02-29 23:00", "2024-03-01 00:00", "2024-03-01 01:00"},
    {"UTC", CALENDAR_DAY, 0, "2024-02-28 12:00", "2024-02-28 00:00", "2024-02-29 00:00", "2024-03-01 00:00"},
    {"UTC", CALENDAR_DAY, 0, "2023-02-28 12:00", "2023-02-28 00:00", "2023-03-01 00:00", "2023-03-02 00:00"},
    {"UTC", CALENDAR_DAY, 0, "2100-02-28 12:00", "2100-02-28 00:00", "2100-03-01 00:00", "2100-03-02 00:00"},
    {"UTC", CALENDAR_MONTH, 0, "2024-02-01 00:00", "2024-02-01 00:00", "2024-03-01 00:00", "2024-04-01 00:00"},
    {"UTC", CALENDAR_MONTH, 0, "2024-11-30 23:59:59", "2024-11-01 00:00", "2024-12-01 00:00", "2025-01-01 00:00"},
    {"UTC", CALENDAR_MONTH, 0, "2024-12-31 23:59:59", "2024-12-01 00:00", "2025-01-01 00:00", "2025-02-01 00:00"},
    {"UTC", CALENDAR_YEAR, 0, "2024-12-31 23:59:59", "2024-01-01 00:00", "2025-01-01 00:00", "2026-01-01 00:00"},
    {"UTC", CALENDAR_YEAR, 0, "1970-01-01 00:00", "1970-01-01 00:00", "1971-01-01 00:00", "1972-01-01 00:00"},
    {"UTC", CALENDAR_YEAR, 0, "2255-06-01 00:00", "2255-01-01 00:00", "2256-01-01 00:00", "2257-01-01 00:00"},
    {"UTC", CALENDAR_WEEK, MONDAY, "2024-12-31 00:00", "2024-12-30 00:00", "2025-01-06 00:00", "2025-01-13 00:00"},
    {"UTC", CALENDAR_WEEK, SUNDAY, "2024-12-31 00:00", "2024-12-29 00:00", "2025-01-05 00:00", "2025-01-12 00:00"},
    {"UTC", CALENDAR_WEEK, WEDNESDAY, "2024-12-31 00:00", "2024-12-25 00:00", "2025-01-01 00:00", "2025-01-08 00:00"},
    {"UTC", CALENDAR_WEEK, MONDAY, "1970-01-01 00:00", "1969-12-29 00:00", "1970-01-05 00:00", "1970-01-12 00:00"},
    /* odd offsets */
    {"Asia/Kolkata", CALENDAR_DAY, 0, "2024-01-01 18:29:59", "2023-12-31 18:30", "2024-01-01 18:30",
     "2024-01-02 18:30"},
    {"Asia/Kolkata", CALENDAR_HOUR, 0, "2024-01-01 12:00", "2024-01-01 11:30", "2024-01-01 12:30", "2024-01-01 13:30"},
    {"Asia/Kathmandu", CALENDAR_HOUR, 0, "2024-01-01 12:00", "2024-01-01 11:15", "2024-01-01 12:15",
     "2024-01-01 13:15"},
    {"Pacific/Kiritimati", CALENDAR_MONTH, 0, "2024-01-31 10:00", "2024-01-31 10:00", "2024-02-29 10:00",
     "2024-03-31 10:00"},
    {"Africa/Monrovia", CALENDAR_DAY, 0, "1971-06-01 12:00", "1971-06-01 00:44:30", "1971-06-02 00:44:30",
     "1971-06-03 00:44:30"},
    {"America/New_York", CALENDAR_DAY, 0, "1970-01-01 00:00", "1969-12-31 05:00", "1970-01-01 05:00",
     "1970-01-02 05:00"},
    /* a day of 23 hours, one of 25; their weeks and months */
    {"Europe/Berlin", CALENDAR_DAY, 0, "2024-03-31 12:00", "2024-03-30 23:00", "2024-03-31 22:00", "2024-04-01 22:00"},
    {"Europe/Berlin", CALENDAR_DAY, 0, "2024-10-27 12:00", "2024-10-26 22:00", "2024-10-27 23:00", "2024-10-28 23:00"},
    {"Europe/Berlin", CALENDAR_WEEK, MONDAY, "2024-03-31 21:59:59", "2024-03-24 23:00", "2024-03-31 22:00",
     "2024-04-07 22:00"},
    {"Europe/Berlin", CALENDAR_WEEK, SUNDAY, "2024-03-31 12:00", "2024-03-30 23:00", "2024-04-06 22:00",
     "2024-04-13 22:00"},
    {"Europe/Berlin", CALENDAR_MONTH, 0, "2024-10-01 00:00", "2024-09-30 22:00", "2024-10-31 23:00",
     "2024-11-30 23:00"},
    {"America/New_York", CALENDAR_YEAR, 0, "2025-01-01 04:59:59", "2024-01-01 05:00", "2025-01-01 05:00",
     "2026-01-01 05:00"},
    /* beyond the transitions that tzdata lists */
    {"Europe/Berlin", CALENDAR_DAY, 0, "2050-03-27 12:00", "2050-03-26 23:00", "2050-03-27 22:00", "2050-03-28 22:00"},
    /* an hour that is skipped, one that is shown twice: two windows */
    {"Europe/Berlin", CALENDAR_HOUR, 0, "2024-03-31 00:30", "2024-03-31 00:00", "2024-03-31 01:00", "2024-03-31 02:00"},
    {"Europe/Berlin", CALENDAR_HOUR, 0, "2024-10-27 00:30", "2024-10-27 00:00", "2024-10-27 01:00", "2024-10-27 02:00"},
    {"Europe/Berlin", CALENDAR_HOUR, 0, "2024-10-27 01:00", "2024-10-27 01:00", "2024-10-27 02:00", "2024-10-27 03:00"},
    /* half an hour skipped, half an hour shown twice: windows of 60 and of 30 minutes */
    {"Australia/Lord_Howe", CALENDAR_HOUR, 0, "2024-10-05 15:29", "2024-10-05 14:30", "2024-10-05 15:30",
     "2024-10-05 16:00"},
    {"Australia/Lord_Howe", CALENDAR_HOUR, 0, "2024-10-05 15:30", "2024-10-05 15:30", "2024-10-05 16:00",
     "2024-10-05 17:00"},
    {"Australia/Lord_Howe", CALENDAR_HOUR, 0, "2024-04-06 14:59:59", "2024-04-06 14:00", "2024-04-06 15:00",
     "2024-04-06 15:30"},
    {"Australia/Lord_Howe", CALENDAR_HOUR, 0, "2024-04-06 15:15", "2024-04-06 15:00", "2024-04-06 15:30",
     "2024-04-06 16:30"},
    /* midnight is skipped */
    {"America/Sao_Paulo", CALENDAR_DAY, 0, "2018-11-04 12:00", "2018-11-04 03:00", "2018-11-05 02:00",
     "2018-11-06 02:00"},
    {"America/Sao_Paulo", CALENDAR_DAY, 0, "2018-11-03 12:00", "2018-11-03 03:00", "2018-11-04 03:00",
     "2018-11-05 02:00"},
    {"Asia/Beirut", CALENDAR_DAY, 0, "2024-03-31 12:00", "2024-03-30 22:00", "2024-03-31 21:00", "2024-04-01 21:00"},
    {"Asia/Beirut", CALENDAR_MONTH, 0, "2024-04-01 00:00", "2024-03-31 21:00", "2024-04-30 21:00", "2024-05-31 21:00"},
    /* the hour before midnight is shown twice; the hour after it; a minute of the next day before that */
    {"Asia/Beirut", CALENDAR_DAY, 0, "2024-10-26 21:30", "2024-10-25 21:00", "2024-10-26 22:00", "2024-10-27 22:00"},
    {"America/Havana", CALENDAR_DAY, 0, "2024-11-03 05:30", "2024-11-03 04:00", "2024-11-04 05:00", "2024-11-05 05:00"},
    {"America/Havana", CALENDAR_HOUR, 0, "2024-11-03 05:30", "2024-11-03 05:00", "2024-11-03 06:00",
     "2024-11-03 07:00"},
    {"America/St_Johns", CALENDAR_DAY, 0, "2006-10-29 02:45", "2006-10-29 02:30", "2006-10-30 03:30",
     "2006-10-31 03:30"},
    {"America/St_Johns", CALENDAR_HOUR, 0, "2006-10-29 02:45", "2006-10-29 02:31", "2006-10-29 03:30",
     "2006-10-29 04:30"},
    {"America/St_Johns", CALENDAR_HOUR, 0, "2006-10-29 02:29", "2006-10-29 01:30", "2006-10-29 02:30",
     "2006-10-29 02:31"},
    /* a day that never was */
    {"Pacific/Apia", CALENDAR_DAY, 0, "2011-12-30 09:59", "2011-12-29 10:00", "2011-12-30 10:00", "2011-12-31 10:00"},
    {"Pacific/Apia", CALENDAR_DAY, 0, "2011-12-30 10:00", "2011-12-30 10:00", "2011-12-31 10:00", "2012-01-01 10:00"},
    {"Pacific/Apia", CALENDAR_DAY, 0, "2011-12-29 09:59", "2011-12-28 10:00", "2011-12-29 10:00", "2011-12-30 10:00"},
    {"Pacific/Apia", CALENDAR_MONTH, 0, "2011-12-30 10:00", "2011-12-01 10:00", "2011-12-31 10:00", "2012-01-31 10:00"},
};

static void known_windows_have_their_edges(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct calendar *calendar = calendar_of(cases[i].zone, cases[i].unit, cases[i].week_start);
        const struct calendar_edges *edges = calendar_around(calendar, utc(cases[i].at));
        if (edges->begin_s != utc(cases[i].begin) || edges->end_s != utc(cases[i].end) ||
            edges->next_s != utc(cases[i].next))
            fail_msg("%s, %s at %s: %+lld %+lld %+lld s off", cases[i].zone, calendar_unit_name(calendar), cases[i].at,
                     (long long)(edges->begin_s - utc(cases[i].begin)), (long long)(edges->end_s - utc(cases[i].end)),
                     (long long)(edges->next_s - utc(cases[i].next)));
    }
}

static void an_anchor_moves_the_first_day_without_drift(void **state)
{
    static const struct {
        const char *zone;
        enum calendar_unit unit;
        int month, day;
        const char *at, *begin, *end, *next;
    } anchored[] = {
        {"UTC", CALENDAR_MONTH, 1, 31, "2026-02-27 23:59:59", "2026-01-31 00:00", "2026-02-28 00:00",
         "2026-03-31 00:00"},
        {"UTC", CALENDAR_MONTH, 1, 31, "2026-02-28 00:00", "2026-02-28 00:00", "2026-03-31 00:00", "2026-04-30 00:00"},
        {"UTC", CALENDAR_MONTH, 1, 31, "2026-04-30 00:00", "2026-04-30 00:00", "2026-05-31 00:00", "2026-06-30 00:00"},
        {"UTC", CALENDAR_MONTH, 1, 31, "2026-01-01 00:00", "2025-12-31 00:00", "2026-01-31 00:00", "2026-02-28 00:00"},
        {"UTC", CALENDAR_MONTH, 6, 30, "2024-02-29 00:00", "2024-02-29 00:00", "2024-03-30 00:00", "2024-04-30 00:00"},
        {"UTC", CALENDAR_MONTH, 6, 29, "2023-02-28 00:00", "2023-02-28 00:00", "2023-03-29 00:00", "2023-04-29 00:00"},
        {"UTC", CALENDAR_MONTH, 6, 15, "1969-12-20 00:00", "1969-12-15 00:00", "1970-01-15 00:00", "1970-02-15 00:00"},
        {"UTC", CALENDAR_YEAR, 2, 29, "2024-02-28 23:59:59", "2023-02-28 00:00", "2024-02-29 00:00",
         "2025-02-28 00:00"},
        {"UTC", CALENDAR_YEAR, 2, 29, "2024-02-29 00:00", "2024-02-29 00:00", "2025-02-28 00:00", "2026-02-28 00:00"},
        {"UTC", CALENDAR_YEAR, 2, 29, "2100-03-01 00:00", "2100-02-28 00:00", "2101-02-28 00:00", "2102-02-28 00:00"},
        {"UTC", CALENDAR_YEAR, 10, 1, "2026-09-30 23:59:59", "2025-10-01 00:00", "2026-10-01 00:00",
         "2027-10-01 00:00"},
        {"Europe/Berlin", CALENDAR_MONTH, 3, 31, "2024-03-31 12:00", "2024-03-30 23:00", "2024-04-29 22:00",
         "2024-05-30 22:00"},
        {"America/Sao_Paulo", CALENDAR_YEAR, 11, 4, "2018-11-04 02:59:59", "2017-11-04 02:00", "2018-11-04 03:00",
         "2019-11-04 03:00"}, /* whose midnight is skipped in 2018 */
    };
    (void)state;
    for (size_t i = 0; i < sizeof anchored / sizeof anchored[0]; i++) {
        struct calendar *plain = calendar_of(anchored[i].zone, anchored[i].unit, 0);
        struct calendar *calendar = calendar_anchored(plain, anchored[i].month, anchored[i].day);
        const struct calendar_edges *edges = calendar_around(calendar, utc(anchored[i].at));
        if (edges->begin_s != utc(anchored[i].begin) || edges->end_s != utc(anchored[i].end) ||
            edges->next_s != utc(anchored[i].next))
            fail_msg("%zu, %s at %s: %+lld %+lld %+lld s off", i, anchored[i].zone, anchored[i].at,
                     (long long)(edges->begin_s - utc(anchored[i].begin)),
                     (long long)(edges->end_s - utc(anchored[i].end)),
                     (long long)(edges->next_s - utc(anchored[i].next)));
    }
}

static void there_is_one_calendar_of_a_zone_for_each_day(void **state)
{
    (void)state;
    struct calendar *month = calendar_of("Asia/Kolkata", CALENDAR_MONTH, 0),
                    *year = calendar_of("Asia/Kolkata", CALENDAR_YEAR, 0);
    assert_ptr_equal(calendar_anchored(month, 5, 1), month);
    assert_ptr_equal(calendar_anchored(month, 5, 9), calendar_anchored(month, 6, 9));
    assert_ptr_equal(calendar_anchored(calendar_anchored(month, 5, 9), 6, 1), month);
    assert_ptr_equal(calendar_anchored(year, 1, 1), year);
    assert_ptr_not_equal(calendar_anchored(year, 5, 9), calendar_anchored(year, 6, 9));
    mem_fail_nth(1);
    assert_null(calendar_anchored(year, 7, 17));
    assert_non_null(calendar_anchored(year, 7, 17));
}

static void a_local_time_is_the_first_instant_that_the_clocks_show_it_at(void **state)
{
    static const struct {
        const char *zone, *local, *instant;
    } shown[] = {
        {"UTC", "2026-01-01 00:00", "2026-01-01 00:00"},
        {"Europe/Berlin", "2026-03-29 01:59:59", "2026-03-29 00:59:59"},
        {"Europe/Berlin", "2026-03-29 03:00", "2026-03-29 01:00"},
        {"Europe/Berlin", "2026-10-25 02:00", "2026-10-25 00:00"}, /* twice */
        {"Europe/Berlin", "2026-10-25 02:59:59", "2026-10-25 00:59:59"},
        {"Europe/Berlin", "2026-10-25 03:00", "2026-10-25 02:00"},
        {"Asia/Kathmandu", "2024-01-01 12:00", "2024-01-01 06:15"},
        {"Australia/Lord_Howe", "2026-04-05 01:45", "2026-04-04 14:45"}, /* twice, half an hour apart */
    };
    (void)state;
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        int64_t instant_s = 0;
        const struct calendar *calendar = calendar_of(shown[i].zone, CALENDAR_HOUR, 0);
        if (!calendar_instant(calendar, utc(shown[i].local), &instant_s) || instant_s != utc(shown[i].instant))
            fail_msg("%s %s: is at %lld", shown[i].zone, shown[i].local, (long long)instant_s);
    }
}

static void a_local_time_that_the_clocks_skip_is_none(void **state)
{
    static const struct {
        const char *zone, *local;
    } skipped[] = {
        {"Europe/Berlin", "2026-03-29 02:00"},
        {"Europe/Berlin", "2026-03-29 02:59:59"},
        {"America/New_York", "2026-03-08 02:30"},
        {"Pacific/Apia", "2011-12-30 12:00"}, /* a whole day */
    };
    (void)state;
    for (size_t i = 0; i < sizeof skipped / sizeof skipped[0]; i++) {
        int64_t instant_s;
        const struct calendar *calendar = calendar_of(skipped[i].zone, CALENDAR_HOUR, 0);
        assert_false(calendar_instant(calendar, utc(skipped[i].local), &instant_s));
    }
}

static void windows_follow_each_other_without_a_gap(void **state)
{
    (void)state;
    static const char *const zones[] = {"UTC",
                                        "Europe/Berlin",
                                        "America/New_York",
                                        "Australia/Lord_Howe",
                                        "Pacific/Apia",
                                        "America/St_Johns",
                                        "America/Havana",
                                        "Asia/Beirut",
                                        "Asia/Kolkata",
                                        "Africa/Casablanca",
                                        "America/Santiago",
                                        "Africa/Cairo",
                                        "Africa/Monrovia"};
    srand(1);
    for (size_t z = 0; z < sizeof zones / sizeof zones[0]; z++) {
        for (enum calendar_unit unit = CALENDAR_HOUR; unit <= CALENDAR_YEAR; unit++) {
            struct calendar *calendar = calendar_of(zones[z], unit, rand() % 7);
            for (int i = 0; i < 200; i++) {
                int64_t at = rand() % 4000000000 + rand() % 3 * INT64_C(2000000000);
                struct calendar_edges present = *calendar_around(calendar, at);
                assert_true(present.begin_s <= at && at < present.end_s && present.end_s < present.next_s);
                assert_true(present.end_s - present.begin_s <= calendar_longest_s(calendar));
                struct calendar_edges next = *calendar_around(calendar, present.end_s);
                assert_int_equal(next.begin_s, present.end_s);
                assert_int_equal(next.end_s, present.next_s);
                struct calendar_edges before = *calendar_around(calendar, present.begin_s - 1);
                assert_int_equal(before.end_s, present.begin_s);
                assert_int_equal(before.next_s, present.end_s);
            }
        }
    }
}

static void who_asks_for_the_same_gets_the_same(void **state)
{
    (void)state;
    struct calendar *day = calendar_of("Europe/Paris", CALENDAR_DAY, 0);
    assert_ptr_equal(day, calendar_of("Europe/Paris", CALENDAR_DAY, 3)); /* of weeks only */
    assert_ptr_not_equal(day, calendar_of("Europe/Paris", CALENDAR_HOUR, 0));
    assert_ptr_not_equal(day, calendar_of("Europe/Rome", CALENDAR_DAY, 0));
    assert_ptr_not_equal(calendar_of("UTC", CALENDAR_WEEK, 0), calendar_of("UTC", CALENDAR_WEEK, 1));
    assert_string_equal(calendar_zone_name(day), "Europe/Paris");
    assert_string_equal(calendar_unit_name(day), "day");
    assert_string_equal(calendar_week_start_name(calendar_of("UTC", CALENDAR_WEEK, SUNDAY)), "sunday");
}

static void what_is_no_installed_zone_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"",
                                        "Europe/Berln",
                                        "europe",
                                        "Europe",
                                        "EST5",
                                        "EST5EDT4,M3.2.0,M11.1.0",
                                        "+05:30",
                                        "zone.tab",
                                        "tzdata.zi",
                                        "../../etc/passwd",
                                        "/usr/share/zoneinfo/Europe/Berlin",
                                        "Europe/Berlin ",
                                        ":Europe/Berlin",
                                        "Europe/Berlin/Mitte",
                                        "A123456789/123456789/123456789/123456789/123456789/123456789/1234"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct calendar *calendar;
        assert_int_equal(calendar_get(names[i], CALENDAR_DAY, 0, true, &calendar), CALENDAR_NO_ZONE);
    }
}

static void without_tzdata_there_is_utc(void **state)
{
    (void)state;
    struct calendar *calendar;
    setenv("TZDIR", "/nowhere", 1);
    assert_int_equal(calendar_get("UTC", CALENDAR_WEEK, 4, true, &calendar), 0);
    assert_int_equal(calendar_get("Europe/Vienna", CALENDAR_DAY, 0, true, &calendar), CALENDAR_NO_ZONE);
    unsetenv("TZDIR");
}

static void who_may_not_open_zones_finds_those_that_are_open(void **state)
{
    (void)state;
    struct calendar *calendar;
    assert_int_equal(calendar_get("Asia/Tokyo", CALENDAR_DAY, 0, false, &calendar), CALENDAR_NO_ZONE);
    calendar_of("Asia/Tokyo", CALENDAR_DAY, 0);
    assert_int_equal(calendar_get("Asia/Tokyo", CALENDAR_MONTH, 0, false, &calendar), 0);
    assert_int_equal(calendar_around(calendar, utc("2024-01-31 15:00"))->begin_s, utc("2024-01-31 15:00"));
    assert_int_equal(calendar_get("UTC", CALENDAR_WEEK, 5, false, &calendar), 0);
}

static void short_memory_is_reported(void **state)
{
    (void)state;
    struct calendar *calendar;
    mem_fail_nth(1);
    assert_int_equal(calendar_get("Europe/Madrid", CALENDAR_DAY, 0, true, &calendar), CALENDAR_NO_MEMORY);
    mem_fail_nth(0);
    assert_int_equal(calendar_get("Europe/Madrid", CALENDAR_DAY, 0, true, &calendar), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_windows_have_their_edges),
        cmocka_unit_test(an_anchor_moves_the_first_day_without_drift),
        cmocka_unit_test(there_is_one_calendar_of_a_zone_for_each_day),
        cmocka_unit_test(a_local_time_is_the_first_instant_that_the_clocks_show_it_at),
        cmocka_unit_test(a_local_time_that_the_clocks_skip_is_none),
        cmocka_unit_test(windows_follow_each_other_without_a_gap),
        cmocka_unit_test(who_asks_for_the_same_gets_the_same),
        cmocka_unit_test(what_is_no_installed_zone_is_refused),
        cmocka_unit_test(without_tzdata_there_is_utc),
        cmocka_unit_test(who_may_not_open_zones_finds_those_that_are_open),
        cmocka_unit_test(short_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
