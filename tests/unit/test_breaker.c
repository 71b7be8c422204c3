/* test_breaker.c: what opens the breaker, and what does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "redis/breaker.h"

static int n_opened;

static void on_opened(struct redis_breaker *breaker)
{
    (void)breaker;
    n_opened++;
}

static struct redis_breaker breaker_of(uint32_t errors, uint32_t late)
{
    struct redis_breaker breaker = {.on_opened = on_opened};
    n_opened = 0;
    redis_breaker_set(&breaker, errors, late);
    return breaker;
}

static void so_many_refusals_in_a_row_open_it_once(void **state)
{
    (void)state;
    struct redis_breaker breaker = breaker_of(3, 3);
    redis_breaker_refused(&breaker);
    redis_breaker_refused(&breaker);
    assert_false(redis_breaker_is_open(&breaker));
    redis_breaker_refused(&breaker);
    assert_int_equal(breaker.cause, BREAKER_REFUSED);
    redis_breaker_refused(&breaker);
    assert_int_equal(n_opened, 1);
}

static void a_batch_that_writes_ends_a_row_of_refusals_and_one_that_reads_does_not(void **state)
{
    (void)state;
    struct redis_breaker breaker = breaker_of(2, 2);
    redis_breaker_refused(&breaker);
    redis_breaker_answered(&breaker, 0, 0, 0, true);
    redis_breaker_refused(&breaker);
    assert_false(redis_breaker_is_open(&breaker));
    redis_breaker_answered(&breaker, 0, 0, 0, false);
    redis_breaker_refused(&breaker);
    assert_true(redis_breaker_is_open(&breaker));
}

static void late_batches_in_a_row_open_it_answered_or_lost(void **state)
{
    (void)state;
    struct redis_breaker breaker = breaker_of(2, 3);
    redis_breaker_answered(&breaker, 1000, 0, 0, true);
    redis_breaker_answered(&breaker, 1000, 0, 0, true);
    redis_breaker_answered(&breaker, 0, 0, 0, false);
    redis_breaker_answered(&breaker, 1000, 0, 0, true);
    redis_breaker_lost(&breaker, 0, 0, 0);
    redis_breaker_answered(&breaker, 1000, 0, 0, false);
    assert_false(redis_breaker_is_open(&breaker));
    redis_breaker_lost(&breaker, 1000, 0, 0);
    assert_int_equal(breaker.cause, BREAKER_LATE);
}

static void it_holds_the_least_that_a_batch_of_the_row_allowed(void **state)
{
    (void)state;
    struct redis_breaker breaker = breaker_of(2, 3);
    redis_breaker_answered(&breaker, 500, 0, 0, true);
    redis_breaker_answered(&breaker, 0, 0, 0, true);
    redis_breaker_answered(&breaker, 9000, 0, 0, true);
    redis_breaker_lost(&breaker, 2000, 0, 0);
    redis_breaker_answered(&breaker, 7000, 0, 0, true);
    assert_int_equal(breaker.cause, BREAKER_LATE);
    redis_breaker_answered(&breaker, 100, 0, 0, true); /* it was sent before it opened */
    assert_int_equal(breaker.missed_us, 2000);
}

/* A Redis that forked for 25 ms answered all that was on the wire late, and was not asked for 250 ms. */
static void one_pause_opens_it_never_and_a_second_one_does(void **state)
{
    (void)state;
    struct redis_breaker breaker = breaker_of(0, 3);
    for (int i = 0; i < 32; i++) redis_breaker_answered(&breaker, 20, i, 1000 + i, true);
    redis_breaker_lost(&breaker, 20, 999, 1040);
    assert_false(redis_breaker_is_open(&breaker));
    redis_breaker_answered(&breaker, 0, 1010, 1050, true);
    for (int i = 0; i < 32; i++) redis_breaker_answered(&breaker, 20, 1100 + i, 2000 + i, true);
    assert_false(redis_breaker_is_open(&breaker));
    redis_breaker_answered(&breaker, 20, 2000, 3000, true);
    assert_true(redis_breaker_is_open(&breaker));
}

static void zero_switches_off_one_cause_alone(void **state)
{
    (void)state;
    struct redis_breaker breaker = breaker_of(0, 1);
    for (int i = 0; i < 100; i++) redis_breaker_refused(&breaker);
    assert_false(redis_breaker_is_open(&breaker));
    redis_breaker_answered(&breaker, 1000, 0, 0, true);
    assert_int_equal(breaker.cause, BREAKER_LATE);

    breaker = breaker_of(1, 0);
    for (int i = 0; i < 100; i++) redis_breaker_lost(&breaker, 1000, 0, 0);
    assert_false(redis_breaker_is_open(&breaker));
}

static void a_reload_that_switches_its_cause_off_closes_it(void **state)
{
    (void)state;
    struct redis_breaker breaker = breaker_of(1, 1);
    redis_breaker_refused(&breaker);
    redis_breaker_set(&breaker, 5, 0);
    assert_true(redis_breaker_is_open(&breaker));
    redis_breaker_set(&breaker, 0, 5);
    assert_false(redis_breaker_is_open(&breaker));
}

static void it_counts_afresh_after_it_was_closed(void **state)
{
    (void)state;
    struct redis_breaker breaker = breaker_of(2, 2);
    redis_breaker_refused(&breaker);
    redis_breaker_refused(&breaker);
    redis_breaker_answered(&breaker, 0, 0, 0, true); /* sent before it opened: the probe decides */
    assert_true(redis_breaker_is_open(&breaker));
    redis_breaker_close(&breaker);
    redis_breaker_refused(&breaker);
    assert_false(redis_breaker_is_open(&breaker));
    redis_breaker_refused(&breaker);
    assert_int_equal(n_opened, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_refusals_in_a_row_open_it_once),
        cmocka_unit_test(a_batch_that_writes_ends_a_row_of_refusals_and_one_that_reads_does_not),
        cmocka_unit_test(late_batches_in_a_row_open_it_answered_or_lost),
        cmocka_unit_test(it_holds_the_least_that_a_batch_of_the_row_allowed),
        cmocka_unit_test(one_pause_opens_it_never_and_a_second_one_does),
        cmocka_unit_test(zero_switches_off_one_cause_alone),
        cmocka_unit_test(a_reload_that_switches_its_cause_off_closes_it),
        cmocka_unit_test(it_counts_afresh_after_it_was_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
