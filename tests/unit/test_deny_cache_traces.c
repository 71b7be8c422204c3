/*
 * test_deny_cache_traces.c: random traces of checks and refunds through the cache of denials: one where every answer
 * must be the one that the store gives without the cache, and one where everything takes its time.
 */
#include "fakes/deny_cache_fixture.h"

enum { N_KEYS = 3, N_UNDER_WAY = 8, N_HELD = 16 };

static uint64_t dice;
static const struct limit *limits[3]; /* of the counter of a trace: its policy's, and those of overrides */
static size_t n_limits;

static int64_t below(int64_t n)
{
    return (int64_t)random_below(&dice, (uint64_t)n);
}

/* A seed's algorithm: one after the other. */
static enum algo algo_of(uint64_t seed)
{
    enum algo algos[N_ALGOS];
    return algos[seed % natives(algos)];
}

/* Small, so that much is denied, and a window that ends now and then. */
static const struct limit *random_limit(enum algo algo)
{
    static int n;
    char name[24];
    struct diag diag = {0};
    snprintf(name, sizeof name, "t%d", n++);
    int64_t window_us = algo == ALGO_CALENDAR_WINDOW ? 3600 * S : (1 + below(40)) * 50 * MS;
    struct limit *limit = (struct limit *)limit_of(name, algo, 1 + below(8), window_us);
    limit->phase = algo == ALGO_FIXED_WINDOW && below(2) == 0;
    if (algo == ALGO_LEAKY_BUCKET) limit->max_wait_us = window_us / 3;
    assert_int_equal(policy_prepare_limit(limit, NULL, &diag), 0);
    policy_seal((struct policy *)limit->policy);

    limits[0] = limit;
    n_limits = limit_is_bucket(limit) || below(2) == 0 ? 1 : 3;
    if (n_limits == 1 && algo != ALGO_LEAKY_BUCKET && below(2) == 0) {
        limit->penalty = (struct penalty){.time_ms = 1 + below(window_us / MS), .factor = 1 + below(3)};
        limit->penalty.max_ms = limit->penalty.time_ms * (1 + below(4));
        limit->penalty.forget_ms = below(3 * window_us / MS);
    }
    for (size_t i = 1; i < n_limits; i++) limits[i] = overridden(limit, limit->limit + below(9));
    return limit;
}

struct held {
    struct op_reservation reservation;
    char key[256];
} held[N_HELD];
static size_t n_held;

static struct question random_question(void)
{
    const struct limit *limit = limits[below((int64_t)n_limits)];
    char key[8];
    snprintf(key, sizeof key, "k%d", (int)below(N_KEYS));
    int64_t kind = below(100);
    struct question q = question(limit, key, OP_CHECK, 1 + below(3) * below(3) * below(4));
    if (limit->max_wait_us > 0 && below(2) == 0) q.member.max_wait_us = below(3) * limit->max_wait_us / 2;
    if (q.member.cost > limit->max_cost && q.member.cost <= limit->full) q.member.cost = 1;
    if (kind < 4) {
        q.op.kind = OP_RESET;
    } else if (kind < 10) {
        q.op.kind = OP_REFUND;
        q.member.cost = 1 + below(3);
    } else if (kind < 16) {
        q.op.kind = OP_RESERVE;
        q.reservation =
            (struct op_reservation){.id = random_next(&dice), .units = q.member.cost, .ttl_ms = 1 + below(2000)};
    } else if (kind < 20 && n_held > 0) {
        struct held *one = &held[--n_held];
        q = question(limit, one->key, OP_SETTLE, 0);
        q.reservation = one->reservation;
        q.reservation.actual = below(4);
    } else if (kind < 24) {
        q.op.kind = OP_SWEEP;
        q.member.cost = 0;
    } else if (kind < 28) {
        q.op.kind = OP_PEEK;
    } else if (kind < 31) {
        q.op.is_all = true;
    } else if (kind < 36) {
        q.member.cost = 1;
        q.op.at_most = 1 + below(limit->max_cost < 4 ? limit->max_cost : 4);
    }
    return q;
}

static void remember_held(const struct question *q)
{
    if (q->op.kind != OP_RESERVE || !q->reservation.held || n_held == N_HELD) return;
    held[n_held].reservation = q->reservation;
    snprintf(held[n_held++].key, sizeof held[0].key, "%s", q->key);
}

static void pass_random(const struct limit *limit)
{
    int64_t much = limit->algo == ALGO_CALENDAR_WINDOW && below(20) == 0 ? limit->window_us : limit->window_us / 10;
    if (below(3) > 0) pass(below(4) == 0 ? below(much) : below(5 * MS));
}

static void same_answers(const struct decision *a, const struct decision *b, const char *what)
{
    if (a->allowed == b->allowed && a->limit == b->limit && a->remaining == b->remaining &&
        a->retry_after_ms == b->retry_after_ms && a->reset_after_ms == b->reset_after_ms &&
        a->delay_ms == b->delay_ms && a->granted == b->granted)
        return;
    fail_msg("%s: cached allowed %d remaining %" PRId64 " retry %" PRId64 " reset %" PRId64 " granted %" PRId64
             ", plain %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
             what, a->allowed, a->remaining, a->retry_after_ms, a->reset_after_ms, a->granted, b->allowed, b->remaining,
             b->retry_after_ms, b->reset_after_ms, b->granted);
}

/* Replies come at once: every field is what the store would have answered. */
static void at_once_every_answer_is_the_plain_one(void **state)
{
    (void)state;
    uint64_t n_cached = 0, n_denied = 0;
    for (uint64_t seed = 1; seed <= 700; seed++) {
        struct memory_fixture plain;
        enum algo algo = algo_of(seed);
        char what[64];
        snprintf(what, sizeof what, "%s, seed %" PRIu64, algo_table[algo]->name, seed);
        dice = seed;
        n_held = 0;
        open_fixture(below(3) == 0 ? 2 : 64);
        deny_cache_set_options(&cache, cache.max_keys, below(2) == 0 ? S / 10 : LONG_WAIT_S * S);
        memory_fixture_open(&plain, WALL, &(struct memory_options){.max_keys = 1000});
        const struct limit *limit = random_limit(algo);
        for (int step = 0; step < 400; step++) {
            pass_random(limit);
            plain.now.wall_us = fixture.now.wall_us;
            struct question q = random_question(), same = q;
            ask(&q);
            wire(&same);
            assert_int_equal(store_submit(&plain.store, &same.op), SUBMIT_DECIDED);
            if (q.op.kind != OP_RESET) same_answers(&q.member.decision, &same.member.decision, what);
            remember_held(&q);
            n_cached += q.is_cached;
            n_denied += op_is_check(q.op.kind) && !q.member.decision.allowed;
        }
        deny_cache_fini(&cache);
        assert_int_equal(memory_fixture_close(&fixture), 0);
        assert_int_equal(memory_fixture_close(&plain), 0);
    }
    open_fixture(64);
    if (n_cached < n_denied / 4) fail_msg("only %" PRIu64 " of %" PRIu64 " denials were kept", n_cached, n_denied);
}

/* ---- with ops under way ---- */

enum stage { FREE, WAITING, SENT, EXECUTED };

static struct {
    struct question q;
    enum stage stage;
    uint64_t order; /* of sending */
} under_way[N_UNDER_WAY];

static size_t find_stage(enum stage stage)
{
    size_t found = N_UNDER_WAY;
    for (size_t i = 0; i < N_UNDER_WAY; i++)
        if (under_way[i].stage == stage && (found == N_UNDER_WAY || under_way[i].order < under_way[found].order))
            found = i;
    return found;
}

static bool has_giver(const char *key)
{
    for (size_t i = 0; i < N_UNDER_WAY; i++) {
        const struct op *op = &under_way[i].q.op;
        bool gives = op->kind != OP_CHECK && op->kind != OP_PEEK;
        if (under_way[i].stage != FREE && gives && strcmp(under_way[i].q.key, key) == 0) return true;
    }
    return false;
}

/* What the server would answer now; changes nothing. */
static struct decision truth(const struct question *q)
{
    struct question peek = *q;
    peek.op.kind = OP_PEEK;
    peek.op.at_most = 0;
    wire(&peek);
    assert_int_equal(store_submit(&fixture.store, &peek.op), SUBMIT_DECIDED);
    return peek.member.decision;
}

static bool start_one(const char *what)
{
    size_t at = find_stage(FREE);
    if (at == N_UNDER_WAY) return false;
    struct question *q = &under_way[at].q;
    *q = random_question();
    submit(q);
    if (!q->is_cached) {
        under_way[at].stage = WAITING;
        under_way[at].order = random_next(&dice); /* they overtake each other */
        return false;
    }

    struct decision now = truth(q), *said = &q->member.decision;
    if (now.allowed || has_giver(q->key)) fail_msg("%s: %s was wrongly denied", what, q->key);
    if (now.retry_after_ms != RETRY_NEVER && said->retry_after_ms > now.retry_after_ms)
        fail_msg("%s: retry %" PRId64 " is later than %" PRId64, what, said->retry_after_ms, now.retry_after_ms);
    return true;
}

static void move_one(uint64_t *n_sent)
{
    size_t at;
    switch (below(4)) {
    case 0:
        if ((at = find_stage(WAITING)) == N_UNDER_WAY) return;
        if (below(30) == 0) { /* withdrawn */
            deny_cache_ended(&cache, &under_way[at].q.op);
            under_way[at].stage = FREE;
            return;
        }
        under_way[at].stage = SENT;
        under_way[at].order = ++*n_sent;
        send(&under_way[at].q);
        return;
    case 1:
    case 2:
        if ((at = find_stage(SENT)) == N_UNDER_WAY) return;
        execute(&under_way[at].q);
        under_way[at].stage = EXECUTED;
        return;
    default:
        if ((at = find_stage(EXECUTED)) == N_UNDER_WAY) return;
        reply(&under_way[at].q);
        remember_held(&under_way[at].q);
        under_way[at].stage = FREE;
    }
}

static void nothing_is_denied_that_the_server_would_admit(void **state)
{
    (void)state;
    uint64_t n_cached = 0;
    for (uint64_t seed = 1; seed <= 700; seed++) {
        enum algo algo = algo_of(seed);
        char what[64];
        snprintf(what, sizeof what, "%s, seed %" PRIu64, algo_table[algo]->name, seed);
        dice = ~seed;
        n_held = 0;
        uint64_t n_sent = 0;
        open_fixture(below(3) == 0 ? 2 : 64);
        deny_cache_set_options(&cache, cache.max_keys, LONG_WAIT_S * S);
        const struct limit *limit = random_limit(algo);
        for (size_t i = 0; i < N_UNDER_WAY; i++) under_way[i].stage = FREE;
        for (int step = 0; step < 1200; step++) {
            pass_random(limit);
            if (below(400) == 0) deny_cache_clear(&cache);
            if (below(3) == 0) n_cached += start_one(what);
            move_one(&n_sent);
        }
        deny_cache_fini(&cache);
        assert_int_equal(memory_fixture_close(&fixture), 0);
    }
    open_fixture(64);
    if (n_cached < 2000) fail_msg("only %" PRIu64 " denials came from the cache", n_cached);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(at_once_every_answer_is_the_plain_one, NULL, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_denied_that_the_server_would_admit, NULL, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
