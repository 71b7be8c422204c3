/* test_calendar_window.c: a count that ends with the day, whoever's clock says what day it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "fakes/one_limit.h"
#include "limit/calendar.h"

#define DAY_MS      INT64_C(86400000)
#define MIDNIGHT_MS (19800 * DAY_MS) /* 2024-03-18, UTC */

static struct policy *policy_of(const char *zone, enum calendar_unit unit, int week_start, int64_t limit)
{
    struct diag diag;
    struct policy *policy = policy_new("p", 1);
    assert_non_null(policy);
    policy->limits[0].algo = ALGO_CALENDAR_WINDOW;
    policy->limits[0].limit = limit;
    assert_int_equal(calendar_get(zone, unit, week_start, true, &policy->limits[0].calendar), 0);
    assert_int_equal(policy_prepare_limit(&policy->limits[0], NULL, &diag), 0);
    policy_seal(policy);
    return policy;
}

static struct one_limit one_of(const char *zone, enum calendar_unit unit, int64_t limit)
{
    struct one_limit one = {.policy = policy_of(zone, unit, 0, limit)};
    one.limit = &one.policy->limits[0];
    return one;
}

/* The same key under another policy, as after a reload. */
static void change(struct one_limit *one, const char *zone, enum calendar_unit unit, int64_t limit)
{
    policy_free(one->policy);
    one->policy = policy_of(zone, unit, 0, limit);
    one->limit = &one->policy->limits[0];
}

static struct decision at(struct one_limit *one, int64_t ms, int64_t cost)
{
    return one_check(one, ms * 1000, cost);
}

static void a_days_count_ends_at_midnight(void **state)
{
    (void)state;
    struct one_limit one = one_of("UTC", CALENDAR_DAY, 5);
    assert_int_equal(at(&one, MIDNIGHT_MS, 2).reset_after_ms, DAY_MS);
    assert_int_equal(at(&one, MIDNIGHT_MS + 1, 3).remaining, 0);
    struct decision denied = at(&one, MIDNIGHT_MS + DAY_MS - 1, 1);
    assert_false(denied.allowed);
    assert_int_equal(denied.retry_after_ms, 1);
    assert_int_equal(at(&one, MIDNIGHT_MS + DAY_MS, 1).remaining, 4);
    one_limit_fini(&one);
}

static void a_limit_may_be_as_large_as_any_counts_exactly(void **state)
{
    (void)state;
    const int64_t most = INT64_C(1) << 34;
    struct one_limit one = one_of("UTC", CALENDAR_YEAR, most);
    assert_int_equal(at(&one, MIDNIGHT_MS, most - 1).remaining, 1);
    assert_int_equal(at(&one, MIDNIGHT_MS, 1).remaining, 0);
    assert_false(at(&one, MIDNIGHT_MS, 1).allowed);
    one_limit_fini(&one);
}

static void twice_the_limit_passes_around_an_edge_and_no_more(void **state)
{
    (void)state;
    struct one_limit one = one_of("Europe/Berlin", CALENDAR_HOUR, 5);
    int64_t admitted = 0;
    for (int64_t ms = MIDNIGHT_MS - 1800000; ms < MIDNIGHT_MS + 1800000; ms += 1000)
        admitted += at(&one, ms, 1).granted;
    assert_int_equal(admitted, 10);
    one_limit_fini(&one);
}

static void a_clock_that_steps_back_over_midnight_forgets_the_later_day(void **state)
{
    (void)state;
    struct one_limit one = one_of("UTC", CALENDAR_DAY, 5);
    at(&one, MIDNIGHT_MS, 5);
    assert_int_equal(one_peek(&one, (MIDNIGHT_MS - 1) * 1000, 0).remaining, 5);
    assert_int_equal(at(&one, MIDNIGHT_MS - 1, 1).remaining, 4);
    assert_int_equal(at(&one, MIDNIGHT_MS, 1).remaining, 4);
    one_limit_fini(&one);
}

static void within_the_day_a_step_back_changes_nothing(void **state)
{
    (void)state;
    struct one_limit one = one_of("UTC", CALENDAR_DAY, 5);
    at(&one, MIDNIGHT_MS + 5000, 3);
    struct decision decision = at(&one, MIDNIGHT_MS + 1000, 1);
    assert_int_equal(decision.remaining, 1);
    assert_int_equal(decision.reset_after_ms, DAY_MS - 1000);
    one_limit_fini(&one);
}

static void under_a_longer_window_the_shorter_one_runs_out_first(void **state)
{
    (void)state;
    struct one_limit one = one_of("UTC", CALENDAR_DAY, 5);
    at(&one, MIDNIGHT_MS, 4);
    change(&one, "UTC", CALENDAR_MONTH, 10);
    struct decision decision = at(&one, MIDNIGHT_MS + 1000, 1);
    assert_int_equal(decision.remaining, 5);
    assert_int_equal(decision.reset_after_ms, DAY_MS - 1000);
    assert_int_equal(at(&one, MIDNIGHT_MS + DAY_MS, 1).remaining, 9);
    one_limit_fini(&one);
}

static void under_a_shorter_window_the_longer_one_is_forgotten(void **state)
{
    (void)state;
    struct one_limit one = one_of("UTC", CALENDAR_MONTH, 5);
    at(&one, MIDNIGHT_MS, 5);
    change(&one, "UTC", CALENDAR_DAY, 5);
    struct decision decision = at(&one, MIDNIGHT_MS + 1000, 1);
    assert_int_equal(decision.remaining, 4);
    assert_int_equal(decision.reset_after_ms, DAY_MS - 1000);
    one_limit_fini(&one);
}

static void in_another_zone_the_nearer_midnight_counts(void **state)
{
    (void)state;
    struct one_limit one = one_of("UTC", CALENDAR_DAY, 5);
    at(&one, MIDNIGHT_MS, 3);
    change(&one, "America/New_York", CALENDAR_DAY,
           5); /* four hours behind: its midnight is nearer, so this count goes */
    assert_int_equal(at(&one, MIDNIGHT_MS + 1000, 1).reset_after_ms, 4 * 3600000 - 1000);
    change(&one, "UTC", CALENDAR_DAY, 5); /* and here the nearer one is kept until it comes */
    struct decision decision = at(&one, MIDNIGHT_MS + 2000, 1);
    assert_int_equal(decision.remaining, 3);
    assert_int_equal(decision.reset_after_ms, 4 * 3600000 - 2000);
    one_limit_fini(&one);
}

/* The constants for the script, and the end of the present window that it finds with them. */
static void the_stores_clock_chooses_the_window(void **state)
{
    (void)state;
    static const struct {
        int64_t host_ms, store_ms, end_ms;
    } cases[] = {
        {0, 0, DAY_MS},
        {DAY_MS - 1, 0, DAY_MS},
        {0, -1, 0}, /* the host has midnight behind it, the store has not */
        {DAY_MS - 1, DAY_MS, 2 * DAY_MS},
        {DAY_MS - 1, 2 * DAY_MS - 1, 2 * DAY_MS},
        {DAY_MS - 1, 2 * DAY_MS, 3 * DAY_MS}, /* from here on as long as the last one */
        {DAY_MS - 1, 100 * DAY_MS, 101 * DAY_MS},
        {DAY_MS - 1, -100 * DAY_MS, 0}, /* and before the host's, all that there was */
    };
    struct policy *policy = policy_of("UTC", CALENDAR_DAY, 0, 5);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct constants constants;
        struct view view;
        limit_constants(&constants, &policy->limits[0], 0, 0, (MIDNIGHT_MS + cases[i].host_ms) * 1000);
        assert_int_equal(constants.calendar.begin_ms, MIDNIGHT_MS);
        assert_int_equal(constants.calendar.end_ms, MIDNIGHT_MS + DAY_MS);
        assert_int_equal(constants.calendar.next_ms, MIDNIGHT_MS + 2 * DAY_MS);
        limit_at(&view, &policy->limits[0], &constants, (MIDNIGHT_MS + cases[i].store_ms) * 1000);
        assert_int_equal(view.edge, MIDNIGHT_MS + cases[i].end_ms);
    }
    policy_free(policy);
}

static void no_constant_is_negative_at_the_epoch(void **state)
{
    (void)state;
    struct constants constants;
    struct policy *policy = policy_of("America/New_York", CALENDAR_WEEK, 0, 5);
    limit_constants(&constants, &policy->limits[0], 0, 0, 0);
    assert_int_equal(constants.calendar.begin_ms, 0);
    assert_int_equal(constants.calendar.end_ms, (4 * 24 + 5) * INT64_C(3600000)); /* monday, the 5th */
    policy_free(policy);
}

static void the_fingerprint_knows_the_calendar(void **state)
{
    (void)state;
    struct policy *policies[] = {
        policy_of("UTC", CALENDAR_DAY, 0, 5),           policy_of("UTC", CALENDAR_HOUR, 0, 5),
        policy_of("Europe/Berlin", CALENDAR_DAY, 0, 5), policy_of("UTC", CALENDAR_WEEK, 0, 5),
        policy_of("UTC", CALENDAR_WEEK, 1, 5),
    };
    enum { N = sizeof policies / sizeof policies[0] };
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++) assert_int_not_equal(policies[i]->version, policies[j]->version);
    for (int i = 0; i < N; i++) policy_free(policies[i]);
}

static void what_it_does_not_have_is_refused(void **state)
{
    (void)state;
    char text[256];
    assert_non_null(one_limit_fault(ALGO_CALENDAR_WINDOW, 5, 1, 3, false, text, sizeof text));
    assert_non_null(one_limit_fault(ALGO_CALENDAR_WINDOW, 5, 1, 0, true, text, sizeof text));
    assert_non_null(one_limit_fault(ALGO_CALENDAR_WINDOW, (INT64_C(1) << 34) + 1, 1, 0, false, text, sizeof text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_days_count_ends_at_midnight),
        cmocka_unit_test(a_limit_may_be_as_large_as_any_counts_exactly),
        cmocka_unit_test(twice_the_limit_passes_around_an_edge_and_no_more),
        cmocka_unit_test(a_clock_that_steps_back_over_midnight_forgets_the_later_day),
        cmocka_unit_test(within_the_day_a_step_back_changes_nothing),
        cmocka_unit_test(under_a_longer_window_the_shorter_one_runs_out_first),
        cmocka_unit_test(under_a_shorter_window_the_longer_one_is_forgotten),
        cmocka_unit_test(in_another_zone_the_nearer_midnight_counts),
        cmocka_unit_test(the_stores_clock_chooses_the_window),
        cmocka_unit_test(no_constant_is_negative_at_the_epoch),
        cmocka_unit_test(the_fingerprint_knows_the_calendar),
        cmocka_unit_test(what_it_does_not_have_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
