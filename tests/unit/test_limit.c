/*
 * test_limit.c: what every algorithm promises alike, on random traces.
 *
 *   R1 allowed => retry = 0.
 *   R2 denied, cost <= full => the same cost is allowed at now + retry, and still denied before.
 *   R3 a check of cost `remaining` is allowed now, one more is denied.
 *   R4 at now + reset a check of cost `full` is allowed, and not before.
 *   R5 cost > full => denied, retry -1.
 * Answers are in whole milliseconds rounded up, so "before" is one millisecond earlier.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "fakes/natives.h"
#include "fakes/one_limit.h"
#include "limit/time_ring.h"

struct settings {
    enum algo algo;
    int64_t limit, window_us, burst;
    bool count_denied;
};

/* Besides one of each algorithm. */
static const struct settings special[] = {
    {ALGO_BUCKET, 10, 1000000, 0, false},
    {ALGO_BUCKET, 7, 1000000, 3, false},
    {ALGO_BUCKET, 1, 60000000, 0, false},
    {ALGO_BUCKET, 1000000, 1000, 5, false},
    {ALGO_FIXED_WINDOW, 1, 1000, 0, false},
    {ALGO_FIXED_WINDOW, 5, 1000000, 0, true},
    {ALGO_FIRST_HIT, 5, 1000000, 0, true},
    {ALGO_SLIDING_LOG, 1, 1500, 0, false},
    {ALGO_SLIDING_LOG, 5, 1000000, 0, true},
    {ALGO_SLIDING_LOG, 50, 100000, 0, false},
    {ALGO_SLIDING_COUNTER, 1, 1000, 0, false},
    {ALGO_SLIDING_COUNTER, 7, 13000, 0, false},
    {ALGO_SLIDING_COUNTER, 50, 100000, 0, false},
    {ALGO_LEAKY_BUCKET, 7, 1000000, 3, false},
    {ALGO_CALENDAR_WINDOW, 5, 3600000000, 0, false},
    {ALGO_CALENDAR_WINDOW, 3, 2592000000000, 0, false},
};
enum { N_SPECIAL = sizeof special / sizeof special[0] };

static struct settings cases[N_ALGOS + N_SPECIAL];
static size_t n_cases;

static void fill_cases(void)
{
    enum algo algos[N_ALGOS];
    size_t n = natives(algos);
    for (size_t i = 0; i < n; i++) cases[n_cases++] = (struct settings){algos[i], 5, 10000, 0, false};
    for (size_t i = 0; i < N_SPECIAL; i++) cases[n_cases++] = special[i];
}

static uint64_t seed;

static int64_t draw(int64_t n)
{
    return (int64_t)random_below(&seed, (uint64_t)n);
}

/* Answers of a key that nothing else touches; every question is a peek. */
static void contract_holds(struct one_limit *one, int64_t now_us, int64_t cost)
{
    int64_t full = one->limit->full;
    struct decision idle = one_peek(one, now_us, 0);
    assert_true(idle.allowed);
    assert_int_equal(idle.granted, 0);
    assert_true(one_peek(one, now_us, idle.remaining).allowed);
    assert_false(one_peek(one, now_us, idle.remaining + 1).allowed);
    assert_true(one_peek(one, now_us + idle.reset_after_ms * 1000, full).allowed);
    if (idle.reset_after_ms > 0) {
        assert_false(one_peek(one, now_us + (idle.reset_after_ms - 1) * 1000, full).allowed);
    }

    struct decision never = one_peek(one, now_us, full + 1);
    assert_false(never.allowed);
    assert_int_equal(never.retry_after_ms, RETRY_NEVER);

    struct decision one_more = one_peek(one, now_us, cost);
    if (one_more.allowed) {
        assert_int_equal(one_more.retry_after_ms, 0);
        assert_int_equal(one_more.granted, cost);
    } else if (!one->limit->count_denied) { /* counted denials have a test of their own */
        assert_true(one_more.retry_after_ms > 0);
        assert_true(one_peek(one, now_us + one_more.retry_after_ms * 1000, cost).allowed);
        assert_false(one_peek(one, now_us + (one_more.retry_after_ms - 1) * 1000, cost).allowed);
    }
}

static void every_algorithm_keeps_the_contract(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_cases; i++) {
        const struct settings *s = &cases[i];
        seed = i;
        struct one_limit one = one_limit(s->algo, s->limit, s->window_us, s->burst, s->count_denied);
        int64_t now_us = INT64_C(1700000000000000) + draw(1000000);
        for (int step = 0; step < 2000; step++) {
            now_us += draw(s->window_us / one.limit->full + 2);
            int64_t cost = 1 + draw(draw(3) == 0 ? one.limit->full : 1);
            contract_holds(&one, now_us, cost);
            struct decision promised = one_peek(&one, now_us, cost), given = one_check(&one, now_us, cost);
            assert_memory_equal(&promised, &given, sizeof given);
        }
        one_limit_fini(&one);
    }
}

static void a_counted_denial_reports_when_the_same_cost_passes(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_cases; i++) {
        const struct settings *s = &cases[i];
        if (!s->count_denied) continue;
        seed = i;
        struct one_limit one = one_limit(s->algo, s->limit, s->window_us, s->burst, true);
        int64_t now_us = INT64_C(1700000000000000);
        for (int step = 0; step < 2000; step++) {
            now_us += draw(s->window_us / s->limit);
            int64_t cost = 1 + draw(s->limit);
            struct decision denied = one_check(&one, now_us, cost);
            if (denied.allowed) continue;
            assert_int_equal(denied.remaining, 0);
            assert_true(one_peek(&one, now_us + denied.retry_after_ms * 1000, cost).allowed);
            assert_false(one_peek(&one, now_us + (denied.retry_after_ms - 1) * 1000, cost).allowed);
        }
        one_limit_fini(&one);
    }
}

static void a_denial_of_more_than_full_counts_too_where_denials_count(void **state)
{
    (void)state;
    enum algo counting[] = {ALGO_FIXED_WINDOW, ALGO_FIRST_HIT, ALGO_SLIDING_LOG};
    for (int i = 0; i < 3; i++) {
        struct one_limit one = one_limit(counting[i], 5, 1000000, 0, true);
        struct decision never = one_check(&one, 1000000, (INT64_C(1) << 53) - 1);
        assert_false(never.allowed);
        assert_int_equal(never.retry_after_ms, RETRY_NEVER);
        assert_int_equal(never.remaining, 0);
        assert_int_equal(never.reset_after_ms, 1000);
        assert_true(one_check(&one, 2000000, 5).allowed);
        assert_false(one_check(&one, 2000001, 1).allowed);
        one_limit_fini(&one);
    }
}

static void bucket_refills_evenly_and_exactly(void **state)
{
    (void)state;
    struct one_limit one = one_limit(ALGO_BUCKET, 7, 1000000, 0, false);
    int64_t start = INT64_C(1700000000000000), admitted = 0;
    for (int64_t t = 0; t < 10000000; t += 1000) admitted += one_check(&one, start + t, 1).allowed;
    assert_int_equal(admitted, 7 + 69); /* the burst, and 7 a second for 9.999 s */
    one_limit_fini(&one);

    one = one_limit(ALGO_BUCKET, 1, INT64_C(31536000000000), 0, false);
    assert_true(one_check(&one, start, 1).allowed);
    assert_int_equal(one_check(&one, start, 1).retry_after_ms, INT64_C(31536000000));
    one_limit_fini(&one);

    one = one_limit(ALGO_BUCKET, 1000000, 1000000, 0, false);
    assert_true(one_check(&one, start, 1000000).allowed);
    assert_false(one_check(&one, start, 1).allowed);
    assert_true(one_check(&one, start + 1, 1).allowed);
    one_limit_fini(&one);
}

static void bucket_admits_2l_minus_1_in_a_window_at_worst(void **state)
{
    (void)state;
    struct one_limit one = one_limit(ALGO_BUCKET, 4, 1000000, 0, false);
    int64_t admitted = 0;
    for (int64_t t = 0; t < 1000000; t++) admitted += one_check(&one, t + 1000000, 1).allowed;
    assert_int_equal(admitted, 7);
    one_limit_fini(&one);
}

static void fixed_window_admits_twice_the_limit_around_an_edge_at_worst(void **state)
{
    (void)state;
    struct one_limit one = one_limit(ALGO_FIXED_WINDOW, 5, 10000, 0, false);
    for (int i = 0; i < 5; i++) assert_true(one_check(&one, 19999, 1).allowed);
    struct decision denied = one_check(&one, 19999, 1);
    assert_false(denied.allowed);
    assert_int_equal(denied.retry_after_ms, 1);
    for (int i = 0; i < 5; i++) assert_true(one_check(&one, 20000, 1).allowed);
    assert_false(one_check(&one, 20000, 1).allowed);
    one_limit_fini(&one);
}

static void first_hit_window_runs_from_the_first_unit(void **state)
{
    (void)state;
    struct one_limit one = one_limit(ALGO_FIRST_HIT, 2, 10000, 0, false);
    assert_int_equal(one_check(&one, 1007000, 1).reset_after_ms, 10);
    assert_int_equal(one_check(&one, 1012000, 1).reset_after_ms, 5); /* the second does not move the end */
    struct decision denied = one_check(&one, 1016000, 1);
    assert_false(denied.allowed);
    assert_int_equal(denied.retry_after_ms, 1);
    assert_int_equal(one_check(&one, 1017000, 2).reset_after_ms, 10);
    one_limit_fini(&one);
}

/* The only one of the algorithms for which this is true. */
static void sliding_log_never_admits_more_than_the_limit_in_any_window(void **state)
{
    (void)state;
    enum { LIMIT = 5, WINDOW = 1000, STEPS = 20000 };
    static int64_t admitted_at[STEPS];
    struct one_limit one = one_limit(ALGO_SLIDING_LOG, LIMIT, WINDOW, 0, false);
    size_t n = 0;
    int64_t now = 1000000;
    for (int i = 0; i < STEPS; i++) {
        now += draw(150);
        if (!one_check(&one, now, 1).allowed) continue;
        if (n >= LIMIT) assert_true(admitted_at[n - LIMIT] + WINDOW <= now);
        admitted_at[n++] = now;
    }
    assert_true(n > 1000);
    one_limit_fini(&one);
}

static void sliding_log_answers_when_enough_has_expired(void **state)
{
    (void)state;
    struct one_limit one = one_limit(ALGO_SLIDING_LOG, 3, 10000, 0, false);
    for (int64_t t = 0; t < 3; t++) assert_true(one_check(&one, 1000000 + t * 1000, 1).allowed);
    assert_int_equal(one_check(&one, 1003000, 1).retry_after_ms, 7);
    assert_int_equal(one_check(&one, 1003000, 3).retry_after_ms, 9);
    assert_int_equal(one_check(&one, 1003000, 3).reset_after_ms, 9);
    assert_true(one_check(&one, 1011000, 2).allowed);
    one_limit_fini(&one);
}

static void sliding_counter_counts_the_share_of_the_window_before(void **state)
{
    (void)state;
    const int64_t minute = 60000000, edge = 1000 * minute;
    struct one_limit one = one_limit(ALGO_SLIDING_COUNTER, 50, minute, 0, false);
    assert_true(one_check(&one, edge - 1, 42).allowed);
    assert_true(one_check(&one, edge + minute / 4, 18).allowed); /* 42 * 0.75 + 18 = 49.5 */
    struct decision denied = one_check(&one, edge + minute / 4, 1);
    assert_false(denied.allowed);
    assert_int_equal(denied.remaining, 0);
    assert_int_equal(denied.retry_after_ms, 715);    /* 42 * (1 - 15.715 / 60) is just below 31 */
    assert_int_equal(denied.reset_after_ms, 105000); /* the end of the next minute */
    denied = one_check(&one, edge + minute / 4, 33); /* 17 must be left of the 18 */
    assert_int_equal(denied.retry_after_ms, 45000 + 3334);
    assert_int_equal(one_peek(&one, edge + 2 * minute - 1, 0).remaining, 49);
    assert_int_equal(one_peek(&one, edge + 2 * minute, 0).remaining, 50);
    one_limit_fini(&one);
}

static void sliding_counter_admits_2l_minus_1_in_a_window_at_worst(void **state)
{
    (void)state;
    struct one_limit one = one_limit(ALGO_SLIDING_COUNTER, 4, 1000000, 0, false);
    int64_t admitted = 0, edge = 5000000;
    for (int64_t t = edge - 1000; t < edge + 999000; t += 1000) {
        admitted += one_check(&one, t, 4).allowed ? 4 : one_check(&one, t, 1).allowed;
        int64_t since_edge = t < edge ? 0 : t - edge;
        assert_true((admitted - 4) * 1000000 <= 4 * since_edge); /* limit * (1 + y): no double burst */
    }
    assert_int_equal(admitted, 7);
    one_limit_fini(&one);
}

static void sliding_counter_never_admits_2l_in_any_window(void **state)
{
    (void)state;
    enum { LIMIT = 5, WINDOW = 20000, STEPS = 20000 };
    static int64_t admitted_at[STEPS];
    struct one_limit one = one_limit(ALGO_SLIDING_COUNTER, LIMIT, WINDOW, 0, false);
    const size_t most = 2 * LIMIT - 1;
    size_t n = 0;
    int64_t now = 1000000;
    for (int i = 0; i < STEPS; i++) {
        now += 1000 * draw(draw(10) == 0 ? 20 : 2);
        if (!one_check(&one, now, 1).allowed) continue;
        if (n >= most) assert_true(admitted_at[n - most] + WINDOW <= now);
        admitted_at[n++] = now;
    }
    assert_true(n > 1000);
    one_limit_fini(&one);
}

static void an_expired_log_counts_again_where_the_clock_steps_back(void **state)
{
    (void)state;
    struct one_limit one = one_limit(ALGO_SLIDING_LOG, 2, 10000, 0, false);
    assert_true(one_check(&one, 1000000, 2).allowed);
    assert_int_equal(one_peek(&one, 1010000, 0).remaining, 2);
    assert_int_equal(one_peek(&one, 1009999, 0).remaining, 0);
    one_limit_fini(&one);
}

static void a_clock_stepped_back_is_clamped_and_the_clamp_is_kept(void **state)
{
    (void)state;
    struct one_limit one = one_limit(ALGO_BUCKET, 2, 1000000, 0, false);
    assert_true(one_check(&one, 100000000, 2).allowed);
    struct decision denied = one_check(&one, 50000000, 1);
    assert_false(denied.allowed);
    assert_int_equal(denied.retry_after_ms, 500);
    assert_true(one_check(&one, 50500000, 1).allowed); /* not "retry in half a second" for ever */
    one_limit_fini(&one);

    one = one_limit(ALGO_FIXED_WINDOW, 2, 1000000, 0, false);
    assert_true(one_check(&one, 100000000, 2).allowed);
    assert_true(one_check(&one, 50000000, 2).allowed);
    assert_false(one_check(&one, 50000001, 1).allowed);
    one_limit_fini(&one);

    one = one_limit(ALGO_SLIDING_COUNTER, 2, 1000000, 0, false);
    assert_true(one_check(&one, 100000000, 2).allowed);
    denied = one_check(&one, 50000000, 1); /* the two count as this window's */
    assert_false(denied.allowed);
    assert_int_equal(denied.retry_after_ms, 1500);
    assert_false(one_peek(&one, 51499000, 1).allowed);
    assert_true(one_check(&one, 51500000, 1).allowed);
    one_limit_fini(&one);

    enum algo others[] = {ALGO_FIRST_HIT, ALGO_SLIDING_LOG};
    for (int i = 0; i < 2; i++) {
        one = one_limit(others[i], 2, 1000000, 0, false);
        assert_true(one_check(&one, 100000000, 2).allowed);
        denied = one_check(&one, 50000000, 1);
        assert_false(denied.allowed);
        assert_int_equal(denied.retry_after_ms, 1000);
        assert_false(one_peek(&one, 50999000, 1).allowed);
        assert_true(one_check(&one, 51000000, 2).allowed);
        one_limit_fini(&one);
    }
}

static void a_changed_limit_keeps_what_was_used(void **state)
{
    (void)state;
    struct one_limit one = one_limit(ALGO_FIXED_WINDOW, 5, 1000000, 0, false);
    assert_true(one_check(&one, 1000000, 4).allowed);
    one_limit_change(&one, 3, 1000000, 0);
    assert_int_equal(one_peek(&one, 1000000, 0).remaining, 0);
    one_limit_change(&one, 10, 1000000, 0);
    assert_int_equal(one_peek(&one, 1000000, 0).remaining, 6);
    one_limit_fini(&one);

    one = one_limit(ALGO_SLIDING_COUNTER, 5, 1000000, 0, false);
    assert_true(one_check(&one, 1000000, 4).allowed);
    one_limit_change(&one, 3, 1000000, 0);
    assert_int_equal(one_peek(&one, 2000000, 0).remaining, 0);
    assert_int_equal(one_peek(&one, 2250000, 1).retry_after_ms, 250);
    one_limit_change(&one, 10, 1000000, 0);
    assert_int_equal(one_peek(&one, 2250000, 0).remaining, 7);
    one_limit_change(&one, 9007, INT64_C(1000000000000000), 0); /* a window that can count no more than that */
    assert_int_equal(one_peek(&one, 1000000, 0).remaining, 9003);
    one_limit_fini(&one);

    one = one_limit(ALGO_BUCKET, 10, 60000000, 0, false); /* full again in a minute ... */
    assert_true(one_check(&one, 1000000, 10).allowed);
    one_limit_change(&one, 7, 60000000, 0); /* ... whatever the rate */
    assert_int_equal(one_peek(&one, 1000000, 0).reset_after_ms, 60000);
    assert_false(one_check(&one, 1000000, 1).allowed);
    one_limit_change(&one, 20, 60000000, 0);
    assert_false(one_check(&one, 1000000, 1).allowed);
    assert_true(one_check(&one, 4000000, 1).allowed);
    one_limit_fini(&one);
}

static void limit_zero_denies_for_ever(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_cases; i++) {
        struct one_limit one = one_limit(cases[i].algo, 0, 1000000, 0, cases[i].count_denied);
        struct decision denied = one_peek(&one, 1000000, 1);
        assert_false(denied.allowed);
        assert_int_equal(denied.retry_after_ms, RETRY_NEVER);
        assert_true(one_check(&one, 1000000, 0).allowed);
        one_limit_fini(&one);
    }
}

static void what_cannot_be_counted_exactly_is_refused_with_what_can(void **state)
{
    (void)state;
    char text[256];
    assert_null(one_limit_fault(ALGO_BUCKET, 1000000, 86400000000, 0, false, text, sizeof text));
    assert_non_null(one_limit_fault(ALGO_BUCKET, 999999999989, 86400000000, 0, false, text, sizeof text));
    assert_string_equal(one_limit_fault(ALGO_BUCKET, 999983, 86400000000, 0, false, text, sizeof text),
                        "burst 999983 (default: limit) cannot be counted exactly with this limit and window; "
                        "write burst: 1 to 104249, or a rounder limit");
    assert_null(one_limit_fault(ALGO_BUCKET, 999983, 86400000000, 104249, false, text, sizeof text));
    assert_null(one_limit_fault(ALGO_BUCKET, INT64_C(1) << 34, 1000000, 5, false, text, sizeof text));
    assert_non_null(one_limit_fault(ALGO_BUCKET, 1, 1000000, 0, true, text, sizeof text));
    assert_non_null(one_limit_fault(ALGO_BUCKET, 0, 1000000, 5, false, text, sizeof text));
    assert_non_null(one_limit_fault(ALGO_FIXED_WINDOW, 1, 1500, 0, false, text, sizeof text));
    assert_null(one_limit_fault(ALGO_FIXED_WINDOW, 1, 1000, 0, false, text, sizeof text));
    assert_non_null(one_limit_fault(ALGO_FIXED_WINDOW, -1, 1000, 0, false, text, sizeof text));
    assert_non_null(one_limit_fault(ALGO_FIXED_WINDOW, (INT64_C(1) << 34) + 1, 1000, 0, false, text, sizeof text));
    assert_non_null(one_limit_fault(ALGO_FIXED_WINDOW, 1, 0, 0, false, text, sizeof text));
    assert_null(one_limit_fault(ALGO_SLIDING_LOG, 10000, 1500, 0, true, text, sizeof text));
    assert_string_equal(one_limit_fault(ALGO_SLIDING_LOG, 10001, 1500, 0, false, text, sizeof text),
                        "limit must be 0 to 10000 for sliding_log, which stores each unit's time");
    assert_null(one_limit_fault(ALGO_SLIDING_COUNTER, 104249991, 86400000000, 0, false, text, sizeof text));
    assert_string_equal(one_limit_fault(ALGO_SLIDING_COUNTER, 104249992, 86400000000, 0, false, text, sizeof text),
                        "limit 104249992 cannot be counted exactly with this window; write limit: 0 to 104249991, "
                        "or a shorter window");
    assert_non_null(one_limit_fault(ALGO_SLIDING_COUNTER, INT64_C(1) << 32, 1000, 0, false, text, sizeof text));
    assert_non_null(one_limit_fault(ALGO_SLIDING_COUNTER, 1, 1500, 0, false, text, sizeof text));
    assert_non_null(one_limit_fault(ALGO_SLIDING_COUNTER, 1, 1000, 5, false, text, sizeof text));
    assert_non_null(one_limit_fault(ALGO_SLIDING_COUNTER, 1, 1000, 0, true, text, sizeof text));
    assert_non_null(one_limit_fault(ALGO_FIRST_HIT, INT64_C(1) << 32, 1000, 0, false, text, sizeof text));
}

static void the_first_checks_that_fit_are_admitted(void **state)
{
    (void)state;
    struct view view;
    struct one_limit one = one_limit(ALGO_FIXED_WINDOW, 10, 10000, 0, false);
    limit_here(&view, one.limit, slice_of("k"), 0, 1000000);
    limit_report(&view, 0, 0, 0);
    assert_int_equal(limit_fits(&view, 3, 5), 3);
    assert_int_equal(limit_fits(&view, 3, 2), 2);
    limit_report(&view, 11, 0, 0); /* the limit was lowered */
    assert_int_equal(limit_fits(&view, 1, 2), 0);
    assert_int_equal(limit_fits(&view, 0, 2), 2);
    one_limit_fini(&one);
}

/* What n daemons have together is the limit, and less than n more where it is rounded up. */
static void a_share_is_the_nth_part_rounded_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_cases; i++) {
        const struct settings *s = &cases[i];
        struct one_limit one = one_limit(s->algo, s->limit, s->window_us, s->burst, s->count_denied);
        for (int64_t n = 1; n < 200; n++) {
            struct limit share;
            limit_share(&share, one.limit, n);
            assert_int_equal(share.full, div_up(one.limit->full, n));
            assert_true(share.limit * n >= one.limit->limit && (share.limit - 1) * n < one.limit->limit);
            assert_string_equal(share.key_head, one.limit->key_head);
            assert_int_equal(share.head_hash, one.limit->head_hash);
            assert_int_equal(limit_window_ms(&share, 1000000), limit_window_ms(one.limit, 1000000));
        }
        one_limit_fini(&one);
    }
}

/* A million a month: a third of it, rounded up, has no divisor in common with the window. */
static void a_rate_that_cannot_be_counted_exactly_rounded_up_is_shared_without_rounding(void **state)
{
    (void)state;
    struct limit share;
    struct one_limit one = one_limit(ALGO_BUCKET, 1000000, INT64_C(2592000000000), 0, false);
    for (int64_t n = 2; n < 1000; n++) {
        limit_share(&share, one.limit, n);
        assert_int_equal(share.full, div_up(1000000, n));
        __int128 of_all = (__int128)share.limit * n * one.limit->window_us;
        __int128 whole = (__int128)one.limit->limit * share.window_us;
        assert_true(of_all >= whole && of_all - whole < (__int128)n * share.window_us);
    }
    one_limit_fini(&one);
}

/* A million a year among 33 daemons: no way to count that was tried, so each had the whole million. */
static void a_bucket_that_is_hard_to_count_is_shared_too(void **state)
{
    (void)state;
    struct diag diag;
    size_t n_shared = 0;
    for (int i = 0; i < 200000; i++) {
        struct limit share, whole = {.algo = ALGO_BUCKET};
        int64_t n = 2 + draw(INT64_C(1) << draw(20));
        whole.window_us = 1 + draw(INT64_C(1) << draw(50));
        whole.limit = 1 + draw(INT64_C(1) << draw(40));
        whole.burst = draw(2) > 0 ? 0 : 1 + draw(INT64_C(1) << draw(35));
        whole.debt = draw(4) == 0;
        if (!whole.debt && draw(4) == 0) whole.algo = ALGO_LEAKY_BUCKET;
        if (whole.algo == ALGO_LEAKY_BUCKET) whole.max_wait_us = draw(INT64_C(1) << draw(50));
        if (limit_prepare(&whole, &diag) != 0) continue;

        limit_share(&share, &whole, n);
        n_shared++;
        assert_true(share.full >= 1 && share.full <= div_up(whole.full, n));
        assert_int_equal(share.constants.bucket.admitted, share.full * share.constants.bucket.per_us +
                                                              share.max_wait_us * share.constants.bucket.tokens);
        bool is_rare = (__int128)whole.window_us * n / whole.limit >= INT64_C(100000000000000); /* 3 years a unit */
        __int128 rate = (__int128)share.limit * whole.window_us;
        assert_true(is_rare || rate <= (__int128)div_up(whole.limit, n) * share.window_us);
    }
    assert_true(n_shared > 10000);

    struct limit share;
    struct one_limit one = one_limit(ALGO_BUCKET, 1000000, INT64_C(31536000000000), 0, false);
    for (int64_t n = 2; n < 1000; n++) {
        limit_share(&share, one.limit, n);
        assert_int_equal(share.full, div_up(1000000, n));
    }
    one_limit_fini(&one);
}

static void a_time_ring_keeps_the_newest(void **state)
{
    (void)state;
    struct time_ring *ring = NULL;
    for (int64_t t = 0; t < 1000; t++) assert_int_equal(time_ring_push(&ring, t, 1, 100), 0);
    assert_int_equal(time_ring_len(ring), 100);
    for (size_t i = 0; i < 100; i++) assert_int_equal(time_ring_at(ring, i), 900 + (int64_t)i);
    assert_int_equal(time_ring_count_until(ring, 899), 0);
    assert_int_equal(time_ring_count_until(ring, 949), 50);
    assert_int_equal(time_ring_count_until(ring, 5000), 100);
    time_ring_lower(ring, 950);
    assert_int_equal(time_ring_at(ring, 99), 950);
    assert_int_equal(time_ring_at(ring, 49), 949);
    assert_int_equal(time_ring_push(&ring, 2000, 7, 10), 0); /* the limit was lowered */
    assert_int_equal(time_ring_len(ring), 10);
    assert_int_equal(time_ring_at(ring, 2), 950);
    assert_int_equal(time_ring_at(ring, 3), 2000);
    assert_int_equal(time_ring_push(&ring, 3000, 50, 20), 0);
    assert_int_equal(time_ring_len(ring), 20);
    assert_int_equal(time_ring_at(ring, 0), 3000);
    time_ring_free(ring);
}

int main(void)
{
    fill_cases();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_keeps_the_contract),
        cmocka_unit_test(a_counted_denial_reports_when_the_same_cost_passes),
        cmocka_unit_test(a_denial_of_more_than_full_counts_too_where_denials_count),
        cmocka_unit_test(bucket_refills_evenly_and_exactly),
        cmocka_unit_test(bucket_admits_2l_minus_1_in_a_window_at_worst),
        cmocka_unit_test(fixed_window_admits_twice_the_limit_around_an_edge_at_worst),
        cmocka_unit_test(first_hit_window_runs_from_the_first_unit),
        cmocka_unit_test(sliding_log_never_admits_more_than_the_limit_in_any_window),
        cmocka_unit_test(sliding_log_answers_when_enough_has_expired),
        cmocka_unit_test(sliding_counter_counts_the_share_of_the_window_before),
        cmocka_unit_test(sliding_counter_admits_2l_minus_1_in_a_window_at_worst),
        cmocka_unit_test(sliding_counter_never_admits_2l_in_any_window),
        cmocka_unit_test(an_expired_log_counts_again_where_the_clock_steps_back),
        cmocka_unit_test(a_clock_stepped_back_is_clamped_and_the_clamp_is_kept),
        cmocka_unit_test(a_changed_limit_keeps_what_was_used),
        cmocka_unit_test(limit_zero_denies_for_ever),
        cmocka_unit_test(what_cannot_be_counted_exactly_is_refused_with_what_can),
        cmocka_unit_test(the_first_checks_that_fit_are_admitted),
        cmocka_unit_test(a_share_is_the_nth_part_rounded_up),
        cmocka_unit_test(a_rate_that_cannot_be_counted_exactly_rounded_up_is_shared_without_rounding),
        cmocka_unit_test(a_bucket_that_is_hard_to_count_is_shared_too),
        cmocka_unit_test(a_time_ring_keeps_the_newest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
