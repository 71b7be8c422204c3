/*
 * test_client_wait.c: when a denied call is made again. The clock is a number here; what really sleeps is asked of a
 * real daemon in tests/integration.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/wait.h"

enum { NOW_MS = 1000000, SEEDS = 200 };

static struct wait waiting(enum wait_kind kind, int64_t most_ms, uint64_t seed)
{
    struct wait wait;
    wait_start(&wait, kind, most_ms, NOW_MS, seed);
    return wait;
}

static void a_pause_is_what_the_denial_says_and_up_to_a_tenth_more(void **state)
{
    (void)state;
    int64_t least = INT64_MAX, most = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct wait wait = waiting(WAIT_FOR_UNITS, -1, seed * UINT64_C(0x9e3779b97f4a7c15));
        int64_t pause = wait_next_ms(&wait, 1000, NOW_MS);
        if (pause < least) least = pause;
        if (pause > most) most = pause;
    }
    assert_in_range(least, 1000, 1010);
    assert_in_range(most, 1090, 1100);
}

static void a_pause_is_at_least_10_ms(void **state)
{
    (void)state;
    for (int64_t retry = 0; retry < 10; retry++) {
        struct wait wait = waiting(WAIT_FOR_UNITS, -1, 7);
        assert_in_range(wait_next_ms(&wait, retry, NOW_MS), 10, 11);
    }
}

static void what_no_waiting_helps_against_is_over_at_once(void **state)
{
    (void)state;
    for (enum wait_kind kind = WAIT_FOR_UNITS; kind <= WAIT_FOR_SLOT; kind++) {
        struct wait wait = waiting(kind, -1, 7);
        assert_int_equal(wait_next_ms(&wait, -1, NOW_MS), WAIT_OVER);
    }
}

static void a_pause_that_would_outlast_the_wait_is_not_slept(void **state)
{
    (void)state;
    struct wait wait = waiting(WAIT_FOR_UNITS, 5000, 7);
    assert_int_equal(wait_next_ms(&wait, 5001, NOW_MS), WAIT_OVER);
    assert_int_equal(wait_next_ms(&wait, 4000, NOW_MS + 1001), WAIT_OVER);
    assert_int_equal(wait_next_ms(&wait, 0, NOW_MS + 5000), WAIT_OVER);
    assert_int_equal(wait_next_ms(&wait, 0, NOW_MS + 9000), WAIT_OVER);
}

static void jitter_and_the_least_pause_do_not_outlast_the_wait(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct wait wait = waiting(WAIT_FOR_UNITS, 5000, seed);
        assert_in_range(wait_next_ms(&wait, 4990, NOW_MS), 4990, 5000);
        assert_in_range(wait_next_ms(&wait, 2, NOW_MS + 4997), 3, 3);
    }
}

static void a_slot_is_asked_for_after_50_ms_and_then_ever_less_often(void **state)
{
    (void)state;
    static const int64_t pauses[] = {50, 100, 200, 400, 800, 1000, 1000, 1000};
    struct wait wait = waiting(WAIT_FOR_SLOT, -1, 7);
    for (size_t i = 0; i < sizeof pauses / sizeof pauses[0]; i++)
        assert_in_range(wait_next_ms(&wait, 3600000, NOW_MS), pauses[i], pauses[i] + pauses[i] / 10);
}

static void a_slot_is_asked_for_once_more_at_the_end(void **state)
{
    (void)state;
    struct wait wait = waiting(WAIT_FOR_SLOT, 80, 7);
    assert_in_range(wait_next_ms(&wait, 3600000, NOW_MS), 50, 55);
    assert_int_equal(wait_next_ms(&wait, 3600000, NOW_MS + 60), 20);
    assert_int_equal(wait_next_ms(&wait, 3600000, NOW_MS + 80), WAIT_OVER);
}

static void what_no_daemon_says_overflows_nothing(void **state)
{
    (void)state;
    struct wait wait = waiting(WAIT_FOR_UNITS, INT64_MAX, 0);
    assert_int_equal(wait_left_ms(&wait, NOW_MS), INT64_MAX);
    assert_true(wait_next_ms(&wait, INT64_MAX, NOW_MS) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pause_is_what_the_denial_says_and_up_to_a_tenth_more),
        cmocka_unit_test(a_pause_is_at_least_10_ms),
        cmocka_unit_test(what_no_waiting_helps_against_is_over_at_once),
        cmocka_unit_test(a_pause_that_would_outlast_the_wait_is_not_slept),
        cmocka_unit_test(jitter_and_the_least_pause_do_not_outlast_the_wait),
        cmocka_unit_test(a_slot_is_asked_for_after_50_ms_and_then_ever_less_often),
        cmocka_unit_test(a_slot_is_asked_for_once_more_at_the_end),
        cmocka_unit_test(what_no_daemon_says_overflows_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
