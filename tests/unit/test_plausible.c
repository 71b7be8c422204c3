/*
 * test_plausible.c: which states a server may report. Whatever an honest one can leave passes: clocks that step back,
 * limits that are lowered and raised, debt, slots, other systems' keys. What no script leaves does not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "fakes/policies.h"
#include "policy/policy.h"
#include "policy/policy_setting.h"

#define SECOND_US INT64_C(1000000)
#define HOUR_US   (3600 * SECOND_US)
#define START_US  INT64_C(1700000000123456)

/* ---- One key, under whatever settings ---- */

struct key {
    enum algo algo;
    struct policy *policy; /* owned */
    const struct limit *limit;
    struct state state; /* owned */
    int64_t now_us;
    uint64_t random;
    uint64_t n_slots; /* taken so far: their ids */
};

static int64_t draw(struct key *key, int64_t n)
{
    return (int64_t)random_below(&key->random, (uint64_t)n);
}

static int prepare(struct limit *limit, enum algo algo, struct key *key, struct diag *diag)
{
    static const int64_t windows_us[] = {SECOND_US, 7 * SECOND_US, 60 * SECOND_US, HOUR_US};
    limit->algo = algo;
    limit->limit = 1 + draw(key, 20);
    limit->window_us = windows_us[draw(key, 4)];
    if (algo == ALGO_CALENDAR_WINDOW) limit->calendar = policies_calendar((1 + 23 * draw(key, 2)) * HOUR_US);
    if (limit_is_bucket(limit)) limit->burst = 1 + draw(key, 30);
    if (algo == ALGO_LEAKY_BUCKET) limit->max_wait_us = draw(key, 3) * SECOND_US;
    limit->count_denied = policy_setting_takes(FIELD_COUNT_DENIED, limit) && draw(key, 3) == 0;
    bool owes = algo != ALGO_CONCURRENCY && algo != ALGO_SLIDING_LOG && limit->max_wait_us == 0;
    int64_t kind_of_debt = draw(key, 4);
    limit->debt = owes && kind_of_debt == 1;
    limit->merge_back = owes && kind_of_debt >= 2;
    return policy_prepare_limit(limit, NULL, diag);
}

/* New settings, as after a reload, or as another daemon has them. */
static void change(struct key *key)
{
    struct diag diag;
    struct policy *policy = policy_new("p", 1);
    assert_non_null(policy);
    if (prepare(&policy->limits[0], key->algo, key, &diag) != 0) fail_msg("%s", diag.text);
    policy_seal(policy);
    policy_free(key->policy);
    key->policy = policy;
    key->limit = &policy->limits[0];
}

static void assert_plausible(const struct key *key, const struct view *view, const char *what)
{
    if (!limit_ops(key->limit)->plausible(view))
        fail_msg("%s, %s: %lld, %lld at %lld", limit_ops(key->limit)->name, what, (long long)view->used,
                 (long long)view->extra, (long long)view->now_us);
}

/* The answers from this state make sense. A log's wait comes from elsewhere. */
static void assert_answers(const struct key *key, const struct view *view)
{
    struct decision decision;
    for (int64_t cost = 0; cost <= key->limit->full + 1; cost++) {
        if (cost > key->limit->max_cost && cost <= key->limit->full) continue; /* BAD_COST */
        struct view reported = *view;
        limit_report(&reported, view->used, view->extra, 1);
        bool admitted = limit_fits(&reported, cost, 1) > 0;
        limit_decide(&reported, cost, admitted, admitted, &decision);
        assert_true(decision.reset_after_ms >= 0 && decision.remaining >= 0 && decision.delay_ms >= 0);
        assert_true(decision.retry_after_ms >= RETRY_NEVER);
        assert_true(decision.allowed || decision.retry_after_ms != 0);
    }
}

static void save(struct key *key, struct view *view, int64_t units)
{
    const struct algo_ops *ops = limit_ops(key->limit);
    if (units == 0 && !view->stale) return;
    if (ops->reserve != NULL) assert_int_equal(ops->reserve(view, &key->state, units), 0);
    if (units > 0) limit_charge(view, units);
    ops->save(view, &key->state);
}

static int64_t units_of(struct key *key, const struct view *view)
{
    int64_t units = 1 + draw(key, 8), fits = (view->capacity - view->used) / view->step;
    if (key->algo == ALGO_CONCURRENCY) units = 1;
    if (draw(key, 4) == 0) fits = limit_fits_used(view, limit_most_debt(key->limit)); /* a settlement, or a merge */
    if (key->limit->count_denied && key->limit->max_cost >= units) return units;
    return units <= fits ? units : 0;
}

static void step(struct key *key)
{
    const struct algo_ops *ops = limit_ops(key->limit);
    char slot[40];
    struct view view;
    limit_here(&view, key->limit, slice_of("k"), key->limit->max_wait_us, key->now_us);
    snprintf(slot, sizeof slot, "%032llu", (unsigned long long)key->n_slots++);
    view.slot = slot;
    limit_view(&view, &key->state);
    assert_plausible(key, &view, "as viewed");
    assert_answers(key, &view);

    if (ops->refunds && draw(key, 4) == 0) {
        (void)limit_refund(&view, &key->state, 1 + draw(key, 8), key->now_us - draw(key, 2 * HOUR_US));
        assert_plausible(key, &view, "after a refund");
        ops->save(&view, &key->state);
    } else {
        save(key, &view, units_of(key, &view));
    }
}

/* Mostly a little later, sometimes much, sometimes back. */
static void move_clock(struct key *key)
{
    switch (draw(key, 8)) {
    case 0: key->now_us += draw(key, 2 * HOUR_US); break;
    case 1: key->now_us -= draw(key, 2 * HOUR_US); break;
    case 2: key->now_us -= draw(key, 3 * SECOND_US); break;
    case 3: break;
    default: key->now_us += draw(key, SECOND_US / 2); break;
    }
}

static void what_is_left_by_steps_of_the_clock_and_other_settings_is_plausible(void **state)
{
    (void)state;
    enum { TRACES = 300, STEPS = 100, CHANGE_EVERY = 12 };
    for (int algo = 0; algo < N_ALGOS; algo++) {
        if (algo_table[algo]->is_compat) continue;
        for (uint64_t seed = 1; seed <= TRACES; seed++) {
            struct key key = {.algo = (enum algo)algo, .now_us = START_US, .random = seed * 7919 + (uint64_t)algo};
            change(&key);
            for (int i = 0; i < STEPS; i++) {
                if (draw(&key, CHANGE_EVERY) == 0) change(&key);
                move_clock(&key);
                step(&key);
            }
            state_fini(&key.state);
            policy_free(key.policy);
        }
    }
}

/* ---- Cases by hand ---- */

enum { LIMIT = 5, WINDOW_MS = 10000 };

#define NOW_MS INT64_C(1700000000000) /* begins a window */

#define NOW_US (NOW_MS * 1000)

struct reported {
    enum algo algo;
    int64_t used, extra;
};

static bool is_plausible(const struct reported *reported)
{
    struct diag diag;
    struct view view;
    struct policy *policy = policy_new("p", 1);
    struct limit *limit = &policy->limits[0];
    limit->algo = reported->algo;
    limit->limit = LIMIT;
    limit->window_us = WINDOW_MS * INT64_C(1000);
    if (limit->algo == ALGO_CALENDAR_WINDOW) limit->calendar = policies_calendar(HOUR_US);
    if (policy_prepare_limit(limit, NULL, &diag) != 0) fail_msg("%s", diag.text);
    limit_here(&view, limit, slice_of("k"), 0, NOW_US);
    limit_report(&view, reported->used, reported->extra, 0);
    bool plausible = limit_ops(limit)->plausible(&view);
    policy_free(policy);
    return plausible;
}

#define SHIFT (INT64_C(1) << 26) /* of concurrency's `extra` */

static void other_systems_keys_may_hold_nearly_anything(void **state)
{
    (void)state;
    static const struct reported cases[] = {
        {ALGO_COMPAT_WINDOW_START, INT64_C(999999999999999), 0},
        {ALGO_COMPAT_RLAAS_FIXED, LIMIT + 100, 0},
        {ALGO_COMPAT_FIRST_HIT, 0, 0},
        {ALGO_COMPAT_FIRST_HIT, 3, NOW_MS + 86400 * INT64_C(1000000)}, /* somebody's expiry is years away */
        {ALGO_COMPAT_FIRST_HIT, 0, NOW_MS + 1},                        /* a count below zero */
        {ALGO_COMPAT_ENDPOINT_WINDOW, INT64_C(999999999999999), NOW_MS + WINDOW_MS},
        {ALGO_COMPAT_RLAAS_SLIDING, 7, NOW_US + WINDOW_MS * 1000}, /* an entry ahead of now */
        {ALGO_COMPAT_RLAAS_SLIDING, 7, NOW_US - WINDOW_MS * 1000}, /* one between two milliseconds, rounded down */
        {ALGO_COMPAT_ENDPOINT_LOG, 1000000, NOW_US},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (!is_plausible(&cases[i])) fail_msg("case %d", (int)i);
}

static void a_lie_is_distinguished_from_a_state(void **state)
{
    (void)state;
    static const struct reported cases[] = {
        {ALGO_BUCKET, LIMIT * WINDOW_MS * INT64_C(1000) + 1, 0}, /* emptier than empty */
        {ALGO_LEAKY_BUCKET, INT64_C(1) << 53, 0},
        {ALGO_FIXED_WINDOW, INT64_C(1) << 36, 0}, /* no value has so many bits for it */
        {ALGO_FIRST_HIT, LIMIT, 0},               /* a count without a window */
        {ALGO_FIRST_HIT, LIMIT, NOW_MS},          /* whose window is over */
        {ALGO_FIRST_HIT, LIMIT, NOW_MS + WINDOW_MS + 1},
        {ALGO_FIRST_HIT, INT64_C(1) << 32, NOW_MS + 1},
        {ALGO_CALENDAR_WINDOW, LIMIT, 0},
        {ALGO_CALENDAR_WINDOW, LIMIT, NOW_MS},
        {ALGO_CALENDAR_WINDOW, LIMIT, NOW_MS + 2 * INT64_C(3600000)},
        {ALGO_SLIDING_COUNTER, INT64_C(1) << 32, 0},
        {ALGO_SLIDING_COUNTER, 0, INT64_C(1) << 32},
        {ALGO_SLIDING_LOG, LIMIT, NOW_US + 1}, /* the newest is yet to come */
        {ALGO_SLIDING_LOG, LIMIT, NOW_US - WINDOW_MS * 1000},
        {ALGO_SLIDING_LOG, LIMIT, 0},
        {ALGO_CONCURRENCY, 0, SHIFT + 1},
        {ALGO_CONCURRENCY, 1, 0},                 /* a lease that has ended counts */
        {ALGO_CONCURRENCY, LIMIT, 5000},          /* all are taken, and one is free at once */
        {ALGO_CONCURRENCY, 1, SHIFT + 5000},      /* one is free, and must be waited for */
        {ALGO_CONCURRENCY, 1, WINDOW_MS + 1},     /* a lease longer than slot_ttl */
        {ALGO_CONCURRENCY, LIMIT, 6 * SHIFT + 5}, /* the last ends before the next */
        {ALGO_COMPAT_WINDOW_START, INT64_C(1) << 53, 0},
        {ALGO_COMPAT_FIRST_HIT, 3, 0},
        {ALGO_COMPAT_FIRST_HIT, 3, NOW_MS},
        {ALGO_COMPAT_ENDPOINT_LOG, 3, NOW_US - WINDOW_MS * 1000 - 1},
        {ALGO_COMPAT_ENDPOINT_LOG, 3, NOW_US + WINDOW_MS * 1000 + 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (is_plausible(&cases[i])) fail_msg("case %d", (int)i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_by_steps_of_the_clock_and_other_settings_is_plausible),
        cmocka_unit_test(other_systems_keys_may_hold_nearly_anything),
        cmocka_unit_test(a_lie_is_distinguished_from_a_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
