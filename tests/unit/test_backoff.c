/* test_backoff.c: the waits between attempts to connect. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "redis/backoff.h"

enum { SEEDS = 200 };

static void a_wait_is_never_zero_and_never_above_the_ceiling(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct backoff backoff;
        backoff_init(&backoff, seed);
        backoff_set(&backoff, 50, 500, 5000);
        uint32_t ceiling = 50;
        for (int i = 0; i < 100; i++) {
            assert_in_range(backoff_next(&backoff, false), 1, ceiling);
            ceiling = ceiling * 2 < 500 ? ceiling * 2 : 500;
        }
    }
}

static void waits_spread_over_the_whole_range(void **state)
{
    (void)state;
    struct backoff backoff;
    backoff_init(&backoff, 1);
    backoff_set(&backoff, 500, 500, 5000);
    int n_low = 0, n_high = 0;
    for (int i = 0; i < 1000; i++) {
        uint32_t wait_ms = backoff_next(&backoff, false);
        n_low += wait_ms <= 100;
        n_high += wait_ms > 400;
    }
    assert_in_range(n_low, 120, 280);
    assert_in_range(n_high, 120, 280);
}

static void two_seeds_do_not_keep_step(void **state)
{
    (void)state;
    struct backoff a, b;
    backoff_init(&a, 1);
    backoff_init(&b, 2);
    backoff_set(&a, 50, 500, 5000);
    backoff_set(&b, 50, 500, 5000);
    int n_equal = 0;
    for (int i = 0; i < 100; i++) n_equal += backoff_next(&a, false) == backoff_next(&b, false);
    assert_in_range(n_equal, 0, 20);
}

static void a_refusal_waits_at_least_half_of_its_maximum(void **state)
{
    (void)state;
    struct backoff backoff;
    backoff_init(&backoff, 3);
    backoff_set(&backoff, 50, 500, 5000);
    for (int i = 0; i < 1000; i++) assert_in_range(backoff_next(&backoff, true), 2500, 5000);
}

static void a_reset_begins_with_the_smallest_ceiling_again(void **state)
{
    (void)state;
    struct backoff backoff;
    backoff_init(&backoff, 4);
    backoff_set(&backoff, 50, 500, 5000);
    for (int i = 0; i < 10; i++) (void)backoff_next(&backoff, false);
    backoff_reset(&backoff);
    assert_in_range(backoff_next(&backoff, false), 1, 50);
}

static void odd_settings_are_survived(void **state)
{
    (void)state;
    struct backoff backoff;
    backoff_init(&backoff, 5);
    backoff_set(&backoff, 0, 0, 0);
    for (int i = 0; i < 100; i++) assert_int_equal(backoff_next(&backoff, i % 2), 1);
    backoff_set(&backoff, UINT32_MAX, UINT32_MAX, UINT32_MAX);
    for (int i = 0; i < 100; i++) assert_in_range(backoff_next(&backoff, i % 2), 1, UINT32_MAX);
    backoff_set(&backoff, 500, 50, 10); /* a minimum above the maximum */
    for (int i = 0; i < 100; i++) assert_in_range(backoff_next(&backoff, false), 1, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_is_never_zero_and_never_above_the_ceiling),
        cmocka_unit_test(waits_spread_over_the_whole_range),
        cmocka_unit_test(two_seeds_do_not_keep_step),
        cmocka_unit_test(a_refusal_waits_at_least_half_of_its_maximum),
        cmocka_unit_test(a_reset_begins_with_the_smallest_ceiling_again),
        cmocka_unit_test(odd_settings_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
