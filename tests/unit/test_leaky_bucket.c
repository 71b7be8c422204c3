/*
 * test_leaky_bucket.c: what the bucket promises where checks may wait. Without a wait it is a token bucket, which
 * test_limit.c is about.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "fakes/one_limit.h"

#define SECOND_US INT64_C(1000000)
#define START_US  (1700000000 * SECOND_US)

static uint64_t seed;

static int64_t draw(int64_t n)
{
    return (int64_t)random_below(&seed, (uint64_t)n);
}

static bool passes_at_once(struct one_limit *one, int64_t now_us, int64_t cost)
{
    return one_peek_within(one, now_us, cost, 0).allowed;
}

/* Of a state with nothing to come: the delay, remaining and reset are those of a bucket without a wait; the retry is
 * that of the check's own wait. */
static void contract_holds(struct one_limit *one, int64_t now_us, int64_t cost, int64_t max_wait_us)
{
    int64_t full = one->limit->full;
    struct decision idle = one_peek(one, now_us, 0), asked = one_peek_within(one, now_us, cost, max_wait_us);
    assert_true(idle.remaining == 0 || passes_at_once(one, now_us, idle.remaining));
    assert_false(passes_at_once(one, now_us, idle.remaining + 1));
    assert_true(passes_at_once(one, now_us + idle.reset_after_ms * 1000, full));
    if (idle.reset_after_ms > 0) assert_false(passes_at_once(one, now_us + (idle.reset_after_ms - 1) * 1000, full));
    assert_int_equal(one_peek(one, now_us, full + 1).retry_after_ms, RETRY_NEVER);
    if (asked.allowed) {
        assert_int_equal(asked.retry_after_ms, 0);
        assert_true(asked.delay_ms <= (max_wait_us + 999) / 1000);
        assert_true(passes_at_once(one, now_us + asked.delay_ms * 1000, cost));
        if (asked.delay_ms > 0) assert_false(passes_at_once(one, now_us + (asked.delay_ms - 1) * 1000, cost));
        return;
    }
    assert_int_equal(asked.delay_ms, 0);
    assert_true(asked.retry_after_ms > 0);
    assert_true(one_peek_within(one, now_us + asked.retry_after_ms * 1000, cost, max_wait_us).allowed);
    assert_false(one_peek_within(one, now_us + (asked.retry_after_ms - 1) * 1000, cost, max_wait_us).allowed);
}

static void every_answer_keeps_the_contract(void **state)
{
    (void)state;
    static const struct {
        int64_t limit, window_us, burst, max_wait_us;
    } cases[] = {{10, SECOND_US, 1, SECOND_US}, {7, SECOND_US, 3, 250123}, {1000000, 1000, 5, 100000}, {3, 7, 3, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct one_limit one =
            one_leaky_bucket(cases[i].limit, cases[i].window_us, cases[i].burst, cases[i].max_wait_us);
        int64_t now_us = START_US;
        seed = i;
        for (int step = 0; step < 2000; step++) {
            now_us += draw(2 * cases[i].window_us / cases[i].limit + 2);
            int64_t cost = 1 + draw(cases[i].burst);
            int64_t max_wait_us = draw(3) == 0 ? draw(cases[i].max_wait_us + 1) : cases[i].max_wait_us;
            contract_holds(&one, now_us, cost, max_wait_us);
            struct decision promised = one_peek_within(&one, now_us, cost, max_wait_us);
            struct decision given = one_check_within(&one, now_us, cost, max_wait_us);
            assert_memory_equal(&promised, &given, sizeof given);
        }
        one_limit_fini(&one);
    }
}

static void what_comes_at_once_goes_ahead_evenly(void **state)
{
    (void)state;
    struct one_limit one = one_leaky_bucket(10, SECOND_US, 1, SECOND_US);
    for (int i = 0; i <= 10; i++) {
        struct decision queued = one_check(&one, START_US, 1);
        assert_true(queued.allowed);
        assert_int_equal(queued.delay_ms, 100 * i);
        assert_int_equal(queued.remaining, 0);
        assert_int_equal(queued.reset_after_ms, 100 * (i + 1));
        assert_int_equal(queued.granted, 1);
    }
    struct decision denied = one_check(&one, START_US, 1);
    assert_false(denied.allowed);
    assert_int_equal(denied.retry_after_ms, 100);
    assert_int_equal(denied.delay_ms, 0);
    assert_int_equal(one_peek(&one, START_US + SECOND_US / 10, 1).delay_ms, 1000);
    one_limit_fini(&one);
}

/* In the order of asking, and the bound of the token bucket, reached. */
static void what_goes_ahead_never_exceeds_the_bound_of_the_bucket(void **state)
{
    (void)state;
    enum { LIMIT = 4, BURST = 4, STEPS = 20000 };
    static int64_t ahead_at_us[STEPS];
    struct one_limit one = one_leaky_bucket(LIMIT, SECOND_US, BURST, SECOND_US);
    int64_t now_us = START_US;
    size_t n = 0, most = 0;
    for (int i = 0; i < STEPS; i++) {
        now_us += 1000 * draw(draw(10) == 0 ? 3000 : 300);
        struct decision decision = one_check(&one, now_us, 1);
        if (!decision.allowed) continue;
        ahead_at_us[n] = now_us + decision.delay_ms * 1000;
        assert_true(n == 0 || ahead_at_us[n] >= ahead_at_us[n - 1]);
        size_t in_window = 0;
        while (in_window <= n && ahead_at_us[n - in_window] > ahead_at_us[n] - SECOND_US) in_window++;
        if (in_window > most) most = in_window;
        n++;
    }
    assert_int_equal(most, BURST + LIMIT - 1);
    one_limit_fini(&one);
}

static void a_check_may_wait_less_than_the_policy_and_never_more(void **state)
{
    (void)state;
    struct one_limit one = one_leaky_bucket(10, SECOND_US, 1, 500000);
    assert_int_equal(one_check_within(&one, START_US, 1, 0).delay_ms, 0);
    struct decision denied = one_check_within(&one, START_US, 1, 99999);
    assert_false(denied.allowed);
    assert_int_equal(denied.retry_after_ms, 1);
    assert_int_equal(one_check_within(&one, START_US, 1, 100000).delay_ms, 100);
    for (int i = 2; i <= 5; i++) assert_int_equal(one_check_within(&one, START_US, 1, 9 * SECOND_US).delay_ms, 100 * i);
    denied = one_check_within(&one, START_US, 1, 9 * SECOND_US);
    assert_false(denied.allowed);
    assert_int_equal(denied.retry_after_ms, 100);
    denied = one_check_within(&one, START_US, 1, 0); /* and leaves the queue as it is */
    assert_int_equal(denied.retry_after_ms, 600);
    assert_int_equal(denied.reset_after_ms, 600);
    assert_int_equal(one_check(&one, START_US + 100000, 1).delay_ms, 500);
    one_limit_fini(&one);
}

static void one_check_costs_at_most_the_burst_whatever_the_wait_allows(void **state)
{
    (void)state;
    struct one_limit one = one_leaky_bucket(10, SECOND_US, 2, SECOND_US);
    assert_int_equal(one_check(&one, START_US, 3).retry_after_ms, RETRY_NEVER);
    assert_int_equal(one_check(&one, START_US, 2).delay_ms, 0);
    assert_int_equal(one_check(&one, START_US, 2).delay_ms, 200);
    one_limit_fini(&one);
}

static void a_cost_of_0_is_allowed_behind_any_queue(void **state)
{
    (void)state;
    struct one_limit one = one_leaky_bucket(10, SECOND_US, 1, SECOND_US);
    for (int i = 0; i <= 10; i++) assert_true(one_check(&one, START_US, 1).allowed);
    struct decision look = one_check_within(&one, START_US, 0, 0);
    assert_true(look.allowed);
    assert_int_equal(look.delay_ms, 1000); /* what is above the brim */
    assert_int_equal(look.remaining, 0);
    assert_int_equal(look.granted, 0);
    one_limit_fini(&one);
}

static void a_clock_stepped_back_leaves_a_full_queue_at_most(void **state)
{
    (void)state;
    struct one_limit one = one_leaky_bucket(10, SECOND_US, 1, SECOND_US);
    for (int i = 0; i <= 10; i++) assert_true(one_check(&one, START_US, 1).allowed);
    struct decision denied = one_check_within(&one, START_US - 60 * SECOND_US, 1, 0);
    assert_false(denied.allowed);
    assert_int_equal(denied.reset_after_ms, 1100); /* the policy's wait counts, not the check's */
    assert_int_equal(one_check(&one, START_US - 60 * SECOND_US + 100000, 1).delay_ms, 1000);
    one_limit_fini(&one);
}

static void a_wait_that_cannot_be_counted_is_refused_with_one_that_can(void **state)
{
    (void)state;
    char text[256];
    assert_null(one_leaky_bucket_fault(999983, 86400 * SECOND_US, 1, INT64_C(9007265978), text, sizeof text));
    assert_string_equal(one_leaky_bucket_fault(999983, 86400 * SECOND_US, 1, INT64_C(9007265979), text, sizeof text),
                        "max_wait cannot be counted exactly with this limit, window and burst; write at most "
                        "9007265978us");
    assert_non_null(one_leaky_bucket_fault(0, SECOND_US, 0, 1, text, sizeof text));
    assert_null(one_leaky_bucket_fault(0, SECOND_US, 0, 0, text, sizeof text));
    assert_non_null(one_leaky_bucket_fault(1, SECOND_US, 1, -1, text, sizeof text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_answer_keeps_the_contract),
        cmocka_unit_test(what_comes_at_once_goes_ahead_evenly),
        cmocka_unit_test(what_goes_ahead_never_exceeds_the_bound_of_the_bucket),
        cmocka_unit_test(a_check_may_wait_less_than_the_policy_and_never_more),
        cmocka_unit_test(one_check_costs_at_most_the_burst_whatever_the_wait_allows),
        cmocka_unit_test(a_cost_of_0_is_allowed_behind_any_queue),
        cmocka_unit_test(a_clock_stepped_back_leaves_a_full_queue_at_most),
        cmocka_unit_test(a_wait_that_cannot_be_counted_is_refused_with_one_that_can),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
