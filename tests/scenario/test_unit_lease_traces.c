/*
 * test_unit_lease_traces.c: leased units on random traces.
 *
 * One daemon: every field of every answer is that of a daemon without leases. Several daemons with delays, lost
 * connections and ends: what they admit, when it is used, is fed to one exact limiter, which must admit all of it, and
 * each leased unit is used, given back or lost in the end. The control shows that this finds what is wrong: with a
 * store whose clock runs away from the daemons', units are used in windows that did not charge them, and the limiter
 * objects. (What comes of a bucket's units that go back from below a later lease is a test of test_unit_leases.c.)
 * RL_LEASE_SEED=n runs one trace alone.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "engine/engine.h"
#include "engine/engine_counters.h"
#include "fakes/policies.h"
#include "fakes/shared_store.h"
#include "limit/calendar.h"

#define SECOND_US INT64_C(1000000)
#define WALL_US   INT64_C(1700000000123456)

enum {
    N_DAEMONS_MAX = 5,
    N_KEYS = 3,
    N_ALONE = 2000,  /* moments with a check each; */
    N_CROWDED = 250, /* with many */
    N_STEPS = 6000,
    N_SEEDS = 6,
    N_OPEN_MAX = 200,
    N_TOGETHER_MAX = 60
};

static const struct limit_spec limits[] = {
    {.algo = ALGO_FIXED_WINDOW, .limit = 900, .window_us = 2 * SECOND_US},
    {.algo = ALGO_FIRST_HIT, .limit = 900, .window_us = 2 * SECOND_US},
    {.algo = ALGO_SLIDING_COUNTER, .limit = 900, .window_us = 2 * SECOND_US},
    {.algo = ALGO_CALENDAR_WINDOW, .limit = 900, .window_us = 3600 * SECOND_US},
    {.algo = ALGO_BUCKET, .limit = 400, .window_us = SECOND_US, .burst = 700},
    {.algo = ALGO_BUCKET, .limit = 4000, .window_us = SECOND_US, .burst = 900},     /* its level often falls to 0 */
    {.algo = ALGO_BUCKET, .limit = 1, .window_us = 3600 * SECOND_US, .burst = 900}, /* and this one's never */
};
static const char *const keys[N_KEYS] = {"hot", "warm", "cold"};
static uint64_t seed;

static struct policy_set *set_of(const struct limit_spec *limit, int64_t lease_us)
{
    struct policy_spec spec = {.name = "p", .on_failure = ON_FAILURE_DENY, .deadline_ms = 1000, .limits = {*limit}};
    spec.limits[0].lease_us = lease_us;
    return policies_make(&spec, 1);
}

/* ---- a daemon ---- */

struct answer {
    int n_done;
    enum error_code error;
    struct decision decision;
    bool removed;
    int64_t refunded;
};

static void on_done(struct check *check)
{
    struct answer *answer = check->owner;
    *answer = (struct answer){answer->n_done + 1, check->error, check->decision, check->removed, check->refunded};
    check_release(check);
}

static struct check *new_check(struct engine *engine, enum op_kind kind, const char *key, int64_t cost, int64_t at_most)
{
    struct check *check = engine_check_new(engine, kind, 1);
    assert_non_null(check);
    check->key = slice_of(key);
    check->plan = &policies_get(engine_policies(engine), "p")->plan;
    check->cost = cost;
    check->at_most = at_most;
    check->done = on_done;
    assert_int_equal(check_seal(check), 0);
    return check;
}

static void ask(struct engine *engine, struct answer *answer, enum op_kind kind, const char *key, int64_t cost,
                int64_t at_most)
{
    struct check *check = new_check(engine, kind, key, cost, at_most);
    check->owner = answer;
    engine_submit(engine, check);
}

static void mark_closed(void *arg)
{
    *(bool *)arg = true;
}

static void close_engine(struct engine *engine)
{
    bool is_closed = false;
    engine_close(engine, mark_closed, &is_closed);
    assert_true(is_closed);
}

/* ---- one daemon with leases, and one without ---- */

static const struct engine_options options = {
    .max_inflight = 1000, .local_max_keys = 100, .slots = {.max = 100, .max_per_owner = 50}};

static void assert_equal_decisions(const struct decision *with, const struct decision *without, const char *what)
{
    bool is_equal = with->allowed == without->allowed && with->limit == without->limit &&
                    with->remaining == without->remaining && with->granted == without->granted &&
                    with->retry_after_ms == without->retry_after_ms && with->reset_after_ms == without->reset_after_ms;
    if (is_equal) return;
    fail_msg("seed %" PRIu64 ", %s: allowed %d %d, remaining %" PRId64 " %" PRId64 ", retry %" PRId64 " %" PRId64
             ", reset %" PRId64 " %" PRId64,
             seed, what, with->allowed, without->allowed, with->remaining, without->remaining, with->retry_after_ms,
             without->retry_after_ms, with->reset_after_ms, without->reset_after_ms);
}

static size_t n_asked[2]; /* of the store */
static size_t n_denied;   /* behind others of the same moment */

/* Asks both daemons the same. */
static void ask_both(struct engine *const *engines, struct answer *answers, enum op_kind kind, const char *key,
                     int64_t cost, int64_t at_most)
{
    for (int i = 0; i < 2; i++) {
        answers[i] = (struct answer){0};
        ask(engines[i], &answers[i], kind, key, cost, at_most);
    }
}

/* The checks of one moment are asked together, and answered together. Behind the first of them, which may be of any
 * kind, are checks of one unit: what costs more is denied where only the store's units and the leased ones together
 * would do. */
static void run_alone(const struct limit_spec *limit, int n_moments, uint64_t together_max)
{
    struct clock clock = {.frozen = true, .mono_us = 5 * SECOND_US, .wall_us = WALL_US - 3600 * SECOND_US};
    struct shared_store stores[2];
    struct shared_link links[2];
    struct engine *engines[2];
    uint64_t state = seed;
    for (int i = 0; i < 2; i++) {
        shared_store_init(&stores[i], WALL_US);
        shared_link_init(&links[i], &stores[i], false);
        engines[i] = engine_new(&clock, shared_link_handle(&links[i]), set_of(limit, i == 0 ? SECOND_US : 0), &options);
        assert_non_null(engines[i]);
    }

    static const enum op_kind others[] = {OP_PEEK, OP_REFUND, OP_RESET};
    for (int n = 0; n < n_moments; n++) {
        int64_t step_us = (int64_t)random_below(&state, 100) < 3 ? (int64_t)random_below(&state, 900000)
                                                                 : (int64_t)random_below(&state, 1500);
        clock.mono_us += step_us;
        clock.wall_us += step_us;
        for (int i = 0; i < 2; i++) stores[i].clock.wall_us += step_us;
        engine_expire(engines[0]);

        uint64_t drawn = random_below(&state, 1000);
        enum op_kind kind = drawn < 8 ? others[drawn % 3] : OP_CHECK;
        int64_t cost = drawn < 960 ? 1 : 1 + (int64_t)random_below(&state, 20),
                at_most = drawn % 50 == 9 ? 1 + cost : 0;
        const char *key = keys[random_below(&state, 10) < 8 ? 0 : random_below(&state, N_KEYS)];
        if (at_most > 0 || kind != OP_CHECK) cost = 1;
        struct answer answers[N_TOGETHER_MAX][2];
        uint64_t n_together = 1 + random_below(&state, together_max);
        ask_both(engines, answers[0], kind, key, cost, kind == OP_CHECK ? at_most : 0);
        for (uint64_t k = 1; k < n_together; k++)
            ask_both(engines, answers[k], OP_CHECK, keys[random_below(&state, 10) < 8 ? 0 : 1], 1, 0);
        for (int i = 0; i < 2; i++) {
            shared_link_run(&links[i], links[i].n_sent);
            shared_link_reply(&links[i], links[i].n_replied);
        }

        for (uint64_t k = 0; k < n_together; k++) {
            const struct answer *with = &answers[k][0], *without = &answers[k][1];
            assert_true(with->n_done == 1 && without->n_done == 1);
            if (k == 0 && kind == OP_RESET) continue; /* one without leases may have been removed before */
            assert_int_equal(with->error, without->error);
            assert_int_equal(with->refunded, without->refunded);
            assert_equal_decisions(&with->decision, &without->decision,
                                   limit_ops(&(struct limit){.algo = limit->algo})->name);
            n_denied += k > 0 && !with->decision.allowed;
        }
    }

    n_asked[0] += links[0].n_asked;
    n_asked[1] += links[1].n_asked;
    for (int i = 0; i < 2; i++) {
        close_engine(engines[i]);
        shared_store_fini(&stores[i]);
    }
}

static void every_field_is_that_of_a_daemon_without_leases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct limit_spec limit = limits[i];
        if (limit.algo == ALGO_BUCKET && limit.limit > 1) continue; /* leased units drain while others are used */
        if (limit.algo == ALGO_SLIDING_COUNTER) { /* units that are lost at an edge count in the next window, in part */
            limit.window_us = 3600 * SECOND_US;
            limit.limit = 3000;
        }
        n_asked[0] = n_asked[1] = n_denied = 0;
        for (seed = 1; seed <= N_SEEDS; seed++) run_alone(&limit, N_ALONE, 1);
        for (seed = 1; seed <= N_SEEDS; seed++) run_alone(&limit, N_CROWDED, N_TOGETHER_MAX);
        assert_true(n_denied > 100);
        fprintf(stderr, "%zu of %zu, %zu denied\n", n_asked[0], n_asked[1], n_denied);
    }
}

/* ---- several daemons and an exact limiter ---- */

struct daemon {
    struct clock clock;
    struct shared_link link;
    struct engine *engine;
    struct answer answers[N_OPEN_MAX];
    uint32_t next;
};

static struct shared_store *real;
static struct shared_store judge;
static struct policy_set *judges_set;
static uint64_t n_admitted, n_violations;

/* `units` of the key are used now. */
static void use(struct slice key, int64_t units)
{
    struct op_member member = {.limit = policies_get(judges_set, "p")->plan.limits, .key = key, .cost = units};
    struct op op = {.kind = OP_CHECK, .n_members = 1, .members = &member};
    judge.clock.wall_us = real->clock.wall_us;
    assert_int_equal(judge.memory.ops->submit(judge.memory.impl, &op), SUBMIT_DECIDED);
    n_admitted += (uint64_t)units;
    n_violations += !member.decision.allowed;
}

static int64_t n_bucket_returned;
static uint64_t n_by_lease; /* units, of a trace */
static uint64_t n_decided_by_lease, n_returned;

static void note_returned(struct op *op)
{
    if (op->kind == OP_REFUND && limit_is_bucket(op->members[0].limit)) n_bucket_returned += op->members[0].refunded;
}

/* 0 when no daemon is left: each unit that was leased has been used, given back or lost. */
static uint64_t n_unaccounted(void)
{
    return engine_counters.leases_units - n_by_lease - engine_counters.leases_returned - engine_counters.leases_lost;
}

/* The store has decided an op: what it admits for the check itself is used now, the lease later. */
static void on_run(struct op *op)
{
    note_returned(op);
    if (op->kind != OP_CHECK || op->members[0].decision.granted == 0) return;
    const struct check *check = CONTAINER_OF(op, struct check, op);
    use(op->members[0].key, check->asks_lease ? 1 : op->members[0].decision.granted);
}

static void on_daemon_done(struct check *check)
{
    if (check->error == ERROR_NONE && check->decision.source == SOURCE_LEASE) {
        use(check->key, check->cost);
        n_by_lease += (uint64_t)check->cost;
    }
    check_release(check);
}

static void start(struct daemon *daemon, const struct limit_spec *limit, int64_t lease_us)
{
    shared_link_init(&daemon->link, real, false);
    daemon->engine = engine_new(&daemon->clock, shared_link_handle(&daemon->link), set_of(limit, lease_us), &options);
    assert_non_null(daemon->engine);
}

static void run_many(const struct limit_spec *limit, int64_t drift)
{
    static struct shared_store store;
    static struct daemon daemons[N_DAEMONS_MAX];
    uint64_t state = seed;
    size_t n_daemons = 1 + random_below(&state, N_DAEMONS_MAX), busy = 0;
    int64_t lease_us = SECOND_US / (1 + (int64_t)random_below(&state, 4));
    shared_store_init(&store, WALL_US);
    shared_store_init(&judge, WALL_US);
    store.on_run = on_run;
    real = &store;
    judges_set = set_of(limit, 0);
    engine_counters = (struct engine_counters){0};
    n_by_lease = 0;
    for (size_t i = 0; i < n_daemons; i++) {
        daemons[i].clock =
            (struct clock){.frozen = true, .mono_us = 5 * SECOND_US + (int64_t)i, .wall_us = WALL_US / 2};
        start(&daemons[i], limit, lease_us);
    }

    for (int n = 0; n < N_STEPS; n++) {
        int64_t step_us = (int64_t)random_below(&state, 100) < 1 ? (int64_t)random_below(&state, 300000)
                                                                 : (int64_t)random_below(&state, 800);
        store.clock.wall_us += step_us * drift;
        for (size_t i = 0; i < n_daemons; i++) {
            daemons[i].clock.mono_us += step_us;
            daemons[i].clock.wall_us += step_us;
            engine_expire(daemons[i].engine);
        }

        if (random_below(&state, 100) == 0) busy = random_below(&state, n_daemons); /* the others' leases grow old */
        struct daemon *daemon = &daemons[random_below(&state, 4) > 0 ? busy : random_below(&state, n_daemons)];
        uint64_t drawn = random_below(&state, 1000);
        if (drawn < 700) {
            for (uint64_t k = 1 + random_below(&state, 6); k > 0 && !engine_is_full(daemon->engine); k--) {
                int64_t cost = random_below(&state, 30) > 0 ? 1 : 1 + (int64_t)random_below(&state, 40);
                struct check *check = new_check(daemon->engine, random_below(&state, 200) > 0 ? OP_CHECK : OP_PEEK,
                                                keys[random_below(&state, 10) < 8 ? 0 : 1], cost, 0);
                check->done = on_daemon_done;
                engine_submit(daemon->engine, check);
            }
        } else if (drawn < 990) {
            shared_link_run(&daemon->link, random_below(&state, 20));
            if (random_below(&state, 3) > 0) shared_link_reply(&daemon->link, random_below(&state, 20));
        } else if (drawn < 998) {
            shared_link_lose(&daemon->link);
            daemon->link.is_down = random_below(&state, 2) > 0;
        } else {
            close_engine(daemon->engine); /* it gives back what it can */
            start(daemon, limit, lease_us);
        }
        if (random_below(&state, 50) == 0) daemon->link.is_down = false;
    }

    for (size_t i = 0; i < n_daemons; i++) close_engine(daemons[i].engine);
    if (n_unaccounted() != 0) fail_msg("seed %" PRIu64 ": of algorithm %d units are missing", seed, limit->algo);
    n_decided_by_lease += engine_counters.decided_by_lease;
    n_returned += engine_counters.leases_returned;
    policy_set_unref(judges_set);
    shared_store_fini(&judge);
    shared_store_fini(&store);
}

static void run_seeds(uint64_t n, int64_t drift)
{
    const char *only = getenv("RL_LEASE_SEED");
    n_admitted = n_violations = 0;
    n_bucket_returned = 0;
    for (uint64_t i = 0; i < n; i++) {
        seed = only != NULL ? strtoull(only, NULL, 10) : i + 1;
        for (size_t k = 0; k < sizeof limits / sizeof limits[0]; k++) {
            uint64_t before = n_violations;
            run_many(&limits[k], drift);
            if (drift == 1 && n_violations > before)
                fail_msg("seed %" PRIu64 ": algorithm %d has admitted above its limit", seed, limits[k].algo);
        }
        if (only != NULL) return;
    }
}

static void what_several_daemons_admit_is_never_above_the_limit(void **state)
{
    (void)state;
    run_seeds(N_SEEDS, 1);
    assert_true(n_decided_by_lease > n_admitted / 10);
    fprintf(stderr, "%" PRId64 " units of buckets were given back\n", n_bucket_returned);
    assert_true(n_bucket_returned > 1000 && n_returned > (uint64_t)n_bucket_returned);
}

static void the_exact_limiter_objects_if_the_stores_clock_runs_away(void **state)
{
    (void)state;
    run_seeds(N_SEEDS / 3, 6);
    fprintf(stderr, "%lu violations of %lu\n", n_violations, n_admitted);
    assert_true(n_violations > 50);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_that_of_a_daemon_without_leases),
        cmocka_unit_test(what_several_daemons_admit_is_never_above_the_limit),
        cmocka_unit_test(the_exact_limiter_objects_if_the_stores_clock_runs_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
