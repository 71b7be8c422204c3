/*
 * test_batch.c: packing a batch and answering its ops from the reply, against bytes and replies written by hand. That
 * the script agrees is tests/lua's business. test_batch_records.c has the ops with keys of their own.
 */
#include "fakes/batch_fixture.h"

static void one_check_is_a_span_of_one(void **state)
{
    struct fixture *fixture = *state;
    check(fixture, 0, fixture->bucket, "alice", 1);
    pack(fixture);
    assert_int_equal(fixture->n_args, 3);
    assert_true(slice_is(fixture->args[0], "1"));
    assert_int_equal(fixture->args[1].len, strlen("rl:{b000}:tb1:b:alice"));
    assert_memory_equal(fixture->args[1].data, "rl:{b", 5);
    assert_memory_equal(fixture->args[1].data + 8, "}:tb1:b:alice", 13);
    ASSERT_PACKET(fixture,
                  HEADER("\x01", "\x01", "\x01") LIMIT_BUCKET SPAN(CHECK_EACH, "\x01", "\x01", "\x01", "\x01", "\x01"));
}

static void checks_of_one_limit_are_one_span_and_those_of_another_cost_another(void **state)
{
    struct fixture *fixture = *state;
    check(fixture, 0, fixture->bucket, "a", 1);
    check(fixture, 1, fixture->bucket, "b", 2);
    check(fixture, 2, fixture->window, "w", 1);
    check(fixture, 3, fixture->bucket, "c", 1);
    pack(fixture);
    ASSERT_PACKET(fixture, HEADER("\x03", "\x02", "\x03")
                               LIMIT_BUCKET LIMIT_WINDOW SPAN(CHECK_EACH, "\x01", "\x01", "\x02", "\x01", "\x01")
                                   SPAN(CHECK_EACH, "\x01", "\x03", "\x01", "\x01", "\x02")
                                       SPAN(CHECK_EACH, "\x02", "\x04", "\x01", "\x01", "\x01"));
    const int64_t reply[] = {0, 200000, 400000, 2, now_us, 0, NONCE}; /* a, c, b, w */
    assert_int_equal(batch_replay(fixture->batch, reply, 7, NONCE), 0);
    assert_int_equal(fixture->members[0].decision.remaining, 4);
    assert_int_equal(fixture->members[1].decision.remaining, 1);
    assert_int_equal(fixture->members[2].decision.remaining, 2);
    assert_int_equal(fixture->members[3].decision.remaining, 3);
    assert_int_equal(batch_now_us(fixture->batch), now_us);
}

/* The shard is that of the key, or of what the limits of the policy have in common. */
static void the_bucket_follows_what_is_common(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *id, *shard_id, *start;
    } cases[] = {
        {"acme:1", NULL, "rl:{b218}:"}, {"acme:1", "acme:1", "rl:{b218}:"}, {"acme:2", "acme", "rl:{b143}:"},
        {"", "acme", "rl:{b143}:"},     {"acme:3", "", "rl:{b165}:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check(fixture, 0, fixture->bucket, cases[i].id, 1);
        empty(fixture);
        fixture->members[0].key = slice_of(cases[i].id);
        if (cases[i].shard_id != NULL) fixture->members[0].shard_id = slice_of(cases[i].shard_id);
        list_init(&fixture->ops[0].link);
        assert_int_equal(batch_add(fixture->batch, &fixture->ops[0]), 0);
        pack(fixture);
        assert_memory_equal(fixture->args[1].data, cases[i].start, strlen(cases[i].start));
        empty(fixture);
    }
}

static void equal_checks_of_a_key_become_one_item(void **state)
{
    struct fixture *fixture = *state;
    uint64_t merged = redis_counters.redis_merged;
    for (size_t i = 0; i < 3; i++) check(fixture, i, fixture->window, "k", 2);
    assert_int_equal(redis_counters.redis_merged, merged + 2);
    pack(fixture);
    ASSERT_PACKET(fixture,
                  HEADER("\0", "\x01", "\x01") LIMIT_WINDOW SPAN(CHECK_EACH, "\x01", "\x01", "\x01", "\x03", "\x02"));

    const int64_t reply[] = {0, now_us, 0, NONCE};
    assert_int_equal(batch_replay(fixture->batch, reply, 4, NONCE), 0);
    for (size_t i = 0; i < 3; i++) {
        const struct decision *decision = &fixture->members[i].decision;
        assert_int_equal(fixture->ops[i].outcome, OP_DECIDED);
        assert_int_equal(decision->allowed, i < 2);
        assert_int_equal(decision->remaining, i == 0 ? 3 : 1);
        assert_int_equal(decision->retry_after_ms, i < 2 ? 0 : 1000);
    }
}

static void counted_denials_and_merge_off_keep_checks_apart(void **state)
{
    struct fixture *fixture = *state;
    uint64_t merged = redis_counters.redis_merged;
    check(fixture, 0, fixture->counting, "k", 1);
    check(fixture, 1, fixture->counting, "k", 1);
    batch_set_merge(fixture->batch, BATCH_KEYS_MAX, false);
    check(fixture, 2, fixture->bucket, "k", 1);
    check(fixture, 3, fixture->bucket, "k", 1);
    assert_int_equal(redis_counters.redis_merged, merged);
}

static void a_key_with_several_costs_is_loaded_and_saved(void **state)
{
    struct fixture *fixture = *state;
    check(fixture, 0, fixture->bucket, "k", 1);
    check(fixture, 1, fixture->bucket, "k", 4);
    check(fixture, 2, fixture->bucket, "other", 1);
    check(fixture, 3, fixture->bucket, "k", 1);
    pack(fixture);
    ASSERT_PACKET(
        fixture,
        HEADER_LOADED("\x02", "\x01", "\x06") LIMIT_BUCKET SPAN(CHECK_EACH, "\x01", "\x01", "\x01", "\x01", "\x01")
            SPAN(LOAD, "\x01", "\x02", "\x01", "\x01", "\0")
                CHECK_ALL("\x01", "\x01", "\x01" NOTHING_OF_ITS_OWN ON("\x02", "\0", STEP_OF_BUCKET, "\x01"))
                    CHECK_ALL("\x01", "\x01", "\x01" NOTHING_OF_ITS_OWN ON("\x02", "\0", STEP_OF_BUCKET, "\x04"))
                        CHECK_ALL("\x01", "\x01", "\x01" NOTHING_OF_ITS_OWN ON("\x02", "\0", STEP_OF_BUCKET, "\x01"))
                            SPAN(SAVE, "\x01", "\x02", "\x01", "\0", "\0"));

    const int64_t reply[] = {0, 0, 200000, 1000000, now_us, 0, NONCE}; /* each says what it saw */
    assert_int_equal(batch_replay(fixture->batch, reply, 7, NONCE), 0);
    assert_int_equal(fixture->members[0].decision.remaining, 4);
    assert_int_equal(fixture->members[1].decision.remaining, 0);
    assert_int_equal(fixture->members[2].decision.remaining, 4);
    assert_false(fixture->members[3].decision.allowed);
    assert_int_equal(fixture->members[3].decision.retry_after_ms, 200);
}

static void a_peek_sees_what_came_before_it_and_charges_nothing(void **state)
{
    struct fixture *fixture = *state;
    check(fixture, 0, fixture->window, "k", 2);
    assert_int_equal(add(fixture, 1, fixture->window, "k", OP_PEEK, 3), 0);
    assert_int_equal(add(fixture, 2, fixture->window, "k", OP_PEEK, 4), 0);
    check(fixture, 3, fixture->window, "k", 2);
    check(fixture, 4, fixture->window, "k", 0);
    pack(fixture);
    assert_int_equal(fixture->args[fixture->n_args - 1].len, 17 + 29 + 18); /* the peeks need nothing of the script */
    const int64_t reply[] = {0, now_us, 0, NONCE};
    assert_int_equal(batch_replay(fixture->batch, reply, 4, NONCE), 0);
    assert_true(fixture->members[1].decision.allowed);
    assert_int_equal(fixture->members[1].decision.remaining, 0);
    assert_int_equal(fixture->members[1].decision.granted, 3);
    assert_false(fixture->members[2].decision.allowed);
    assert_int_equal(fixture->members[3].decision.remaining, 1);
    assert_int_equal(fixture->members[4].decision.remaining, 1);
    assert_int_equal(fixture->members[4].decision.granted, 0);
}

static void a_cost_above_the_limit_is_only_looked_at(void **state)
{
    struct fixture *fixture = *state;
    check(fixture, 0, fixture->window, "k", 6);
    check(fixture, 1, fixture->counting, "k", (INT64_C(1) << 53) - 1);
    pack(fixture);
    ASSERT_PACKET(fixture, HEADER("\x01", "\x02", "\x02")
                               LIMIT_WINDOW LIMIT_COUNTING SPAN(CHECK_EACH, "\x01", "\x01", "\x01", "\0", "\x06")
                                   CHECK_EACH "\x02"
                                              "\x02\0"
                                              "\x01\0"
                                              "\x01\0\0\0\0"
                                              "\x01\0\0\0\x04\0\0");
    const int64_t reply[] = {1, 2, now_us, 0, NONCE};
    assert_int_equal(batch_replay(fixture->batch, reply, 5, NONCE), 0);
    assert_int_equal(fixture->members[0].decision.retry_after_ms, RETRY_NEVER);
    assert_int_equal(fixture->members[0].decision.remaining, 4);
    assert_int_equal(fixture->members[1].decision.retry_after_ms, RETRY_NEVER);
    assert_int_equal(fixture->members[1].decision.remaining, 0);
}

static void each_denied_check_of_a_log_takes_its_wait(void **state)
{
    struct fixture *fixture = *state;
    check(fixture, 0, fixture->log, "a", 3);
    check(fixture, 1, fixture->log, "b", 1);
    check(fixture, 2, fixture->log, "a", 5);
    assert_int_equal(add(fixture, 3, fixture->log, "a", OP_PEEK, 2), 0);
    pack(fixture);
    /* b, which is checked directly, comes first; of each what was seen, the newest time and the wait */
    const int64_t reply[] = {5,      now_us - 20, 5000,   2,      now_us - 10, 0, 5,    now_us,
                             700000, 5,           now_us, 300000, now_us,      0, NONCE};
    assert_int_equal(batch_replay(fixture->batch, reply, 14, NONCE), -1);
    assert_int_equal(batch_replay(fixture->batch, reply, 15, NONCE), 0);
    assert_true(fixture->members[0].decision.allowed);
    assert_int_equal(fixture->members[1].decision.retry_after_ms, 5);
    assert_int_equal(fixture->members[2].decision.retry_after_ms, 700);
    assert_int_equal(fixture->members[3].decision.retry_after_ms, 300);
    assert_int_equal(fixture->members[0].decision.reset_after_ms, 1000);
}

static void a_foreign_type_fails_the_ops_of_its_key_only(void **state)
{
    struct fixture *fixture = *state;
    uint64_t bad = redis_counters.redis_bad_values;
    check(fixture, 0, fixture->bucket, "good", 1);
    check(fixture, 1, fixture->bucket, "bad", 1);
    check(fixture, 2, fixture->bucket, "bad", 1);
    pack(fixture);
    const int64_t reply[] = {0, -1, now_us, 1, NONCE};
    assert_int_equal(batch_replay(fixture->batch, reply, 5, NONCE), 0);
    assert_int_equal(fixture->ops[0].outcome, OP_DECIDED);
    assert_int_equal(fixture->ops[1].outcome, OP_STORE_ERROR);
    assert_int_equal(fixture->ops[2].outcome, OP_STORE_ERROR);
    assert_int_equal(redis_counters.redis_bad_values, bad + 2);
}

/* The number in the reply is the server's word. */
static void a_batch_has_no_more_bad_values_than_keys(void **state)
{
    struct fixture *fixture = *state;
    uint64_t bad = redis_counters.redis_bad_values;
    check(fixture, 0, fixture->bucket, "good", 1);
    check(fixture, 1, fixture->bucket, "bad", 1);
    pack(fixture);
    const int64_t reply[] = {0, -1, now_us, INT64_C(1) << 53, NONCE};
    assert_int_equal(batch_replay(fixture->batch, reply, 5, NONCE), 0);
    assert_int_equal(redis_counters.redis_bad_values, bad + 2);
}

/* The retry times are 5 ms ago, and after 0 ms. */
static void a_state_that_no_script_leaves_fails_the_ops_of_its_key_only(void **state)
{
    struct fixture *fixture = *state;
    struct op_member pair[] = {
        {.limit = &fixture->bucket->limits[0], .key = slice_of("k"), .cost = 1},
        {.limit = &fixture->hit->limits[0], .key = slice_of("ended"), .cost = 1},
    };
    struct op op = {.kind = OP_CHECK, .n_members = 2, .members = pair};
    uint64_t bad = redis_counters.redis_bad_replies;
    list_init(&op.link);
    check(fixture, 0, fixture->hit, "good", 1);
    check(fixture, 1, fixture->hit, "ended", 1);
    check(fixture, 2, fixture->hit, "none", 1);
    assert_int_equal(batch_add(fixture->batch, &op), 0);
    check(fixture, 3, fixture->bucket, "k", 1);
    pack(fixture);
    int64_t now_ms = now_us / 1000;
    /* good, none; of the loaded keys: ended, k and ended, k */
    const int64_t reply[] = {5, now_ms + 5, 5, 0, 5, now_ms - 5, 0, 5, now_ms - 5, 0, now_us, 0, NONCE};
    assert_int_equal(batch_replay(fixture->batch, reply, sizeof reply / sizeof reply[0], NONCE), 0);
    assert_int_equal(fixture->ops[0].outcome, OP_DECIDED);
    assert_int_equal(fixture->members[0].decision.retry_after_ms, 5);
    assert_int_equal(fixture->ops[1].outcome, OP_STORE_ERROR);
    assert_int_equal(fixture->ops[2].outcome, OP_STORE_ERROR);
    assert_int_equal(op.outcome, OP_STORE_ERROR);
    assert_int_equal(fixture->ops[3].outcome, OP_DECIDED);
    assert_int_equal(redis_counters.redis_bad_replies, bad + 1);
    empty(fixture); /* before op goes */
}

static void a_reply_that_makes_no_sense_touches_nothing(void **state)
{
    struct fixture *fixture = *state;
    check(fixture, 0, fixture->bucket, "k", 1);
    check(fixture, 1, fixture->log, "k", 1);
    pack(fixture);
    fixture->ops[0].outcome = fixture->ops[1].outcome = OP_DOWN;
    static const struct {
        int64_t reply[8];
        size_t n;
    } cases[] = {
        {{0, 0, 0, 0, 0, NONCE}, 6},            /* too short */
        {{0, 0, 0, 0, 1, 0, 0, NONCE}, 8},      /* too long */
        {{0, 0, 0, 0, 1, 0, NONCE + 1}, 7},     /* another batch's */
        {{-2, 0, 0, 0, 1, 0, NONCE}, 7},        /* no state is negative */
        {{0, 0, -1, 0, 1, 0, NONCE}, 7},        /* nor is a time */
        {{0, 0, 0, 0, INT64_MAX, 0, NONCE}, 7}, /* now */
        {{0, 0, 0, 0, -1, 0, NONCE}, 7},
        {{0, 0, 0, 0, 1, -1, NONCE}, 7},        /* malformed values */
        {{INT64_MAX, 0, 0, 0, 1, 0, NONCE}, 7}, /* beyond what a double counts */
        {{0, 5, 1, 0, 1, 0, NONCE}, 7},         /* the log is full: a wait is missing */
        {{0, 0, 0, 5, 1, 0, NONCE}, 7},         /* it is not: a wait too many */
        {{0, 5, 1, 1000001, 1, 0, NONCE}, 7},   /* no wait is longer than the window */
        {{-2, 1, NONCE}, 3},                    /* the batch had no latest time */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(batch_replay(fixture->batch, cases[i].reply, cases[i].n, NONCE), -1);
        assert_int_equal(fixture->ops[0].outcome, OP_DOWN);
        assert_int_equal(fixture->ops[1].outcome, OP_DOWN);
    }
    const int64_t fine[] = {0, 5, 1, 1000000, 1, 0, NONCE};
    assert_int_equal(batch_replay(fixture->batch, fine, 7, NONCE), 0);
}

static void ops_whose_keys_are_away_or_barred_end_alone(void **state)
{
    struct fixture *fixture = *state;
    check(fixture, 0, fixture->bucket, "k", 1);
    check(fixture, 1, fixture->window, "k", 1);
    check(fixture, 2, fixture->log, "k", 1);
    const int64_t reply[] = {-2, -3, 0, 0, 0, now_us, 0, NONCE};
    pack(fixture);
    assert_true(slice_is(fixture->args[0], "3"));
    assert_int_equal(batch_replay(fixture->batch, reply, N_OF(reply), NONCE), -1); /* declared keys are never so */

    batch_set_undeclared(fixture->batch);
    pack(fixture);
    assert_true(slice_is(fixture->args[0], "0"));
    assert_int_equal(batch_replay(fixture->batch, reply, N_OF(reply), NONCE), 0);
    assert_int_equal(fixture->ops[0].outcome, OP_AWAY);
    assert_int_equal(fixture->ops[1].outcome, OP_BARRED);
    assert_int_equal(fixture->ops[2].outcome, OP_DECIDED);

    struct list away;
    list_init(&away);
    batch_take_ended(fixture->batch, OP_AWAY, &away);
    assert_ptr_equal(list_pop_front(&away), &fixture->ops[0].link);
    assert_true(list_empty(&away));
    assert_int_equal(batch_n_ops(fixture->batch), 2);

    const int64_t below[] = {-4, 0, 0, 0, 0, now_us, 0, NONCE};
    assert_int_equal(batch_replay(fixture->batch, below, N_OF(below), NONCE), -1);
    empty(fixture);
    check(fixture, 0, fixture->bucket, "k", 1);
    check(fixture, 1, fixture->window, "k", 1);
    pack(fixture);
    assert_true(slice_is(fixture->args[0], "2")); /* the next batch begins declared */
}

static void resets_that_are_not_declared_say_of_each_key_where_it_is(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(add(fixture, 0, fixture->bucket, "k", OP_RESET, 0), 0);
    assert_int_equal(add(fixture, 1, fixture->window, "k", OP_RESET, 0), 0);
    assert_int_equal(add(fixture, 2, fixture->log, "k", OP_RESET, 0), 0);
    batch_set_undeclared(fixture->batch);
    pack(fixture);
    const int64_t reply[] = {-2, 1, -3, now_us, 0, NONCE};
    assert_int_equal(batch_replay(fixture->batch, reply, N_OF(reply), NONCE), 0);
    assert_int_equal(fixture->ops[0].outcome, OP_AWAY);
    assert_int_equal(fixture->ops[1].outcome, OP_DECIDED);
    assert_int_equal(fixture->ops[2].outcome, OP_BARRED);
}

static void a_reset_is_a_batch_of_its_own(void **state)
{
    struct fixture *fixture = *state;
    check(fixture, 0, fixture->bucket, "k", 1);
    assert_int_equal(add(fixture, 1, fixture->bucket, "k", OP_RESET, 0), BATCH_CLASHES);
    empty(fixture);
    assert_int_equal(add(fixture, 0, fixture->bucket, "k", OP_RESET, 0), 0);
    assert_int_equal(add(fixture, 1, fixture->log, "k", OP_RESET, 0), 0);
    assert_int_equal(add(fixture, 2, fixture->bucket, "k", OP_RESET, 0), 0);
    assert_int_equal(add(fixture, 3, fixture->bucket, "k", OP_CHECK, 1), BATCH_CLASHES);
    pack(fixture);
    const int64_t reply[] = {1, 0, now_us, 0, NONCE};
    assert_int_equal(batch_replay(fixture->batch, reply, 5, NONCE), 0);
    assert_true(fixture->members[0].removed);
    assert_false(fixture->members[1].removed);
    assert_false(fixture->members[2].removed); /* the first one did */
}

static void a_full_batch_takes_known_keys_only(void **state)
{
    struct fixture *fixture = *state;
    const struct limit *limit = &fixture->bucket->limits[0];
    struct op_member pair[] = {{.limit = limit, .key = slice_of("x")}, {.limit = limit, .key = slice_of("y")}};
    struct op op = {.kind = OP_CHECK, .n_members = 2, .members = pair};
    batch_set_merge(fixture->batch, 2, true);
    check(fixture, 0, fixture->bucket, "a", 1);
    assert_int_equal(batch_add(fixture->batch, &op), 1); /* and leaves no key behind */
    check(fixture, 1, fixture->bucket, "b", 1);
    assert_int_equal(add(fixture, 2, fixture->bucket, "c", OP_CHECK, 1), 1);
    check(fixture, 3, fixture->bucket, "b", 3);
    assert_int_equal(batch_n_keys(fixture->batch), 2);
    assert_int_equal(batch_n_ops(fixture->batch), 3);
}

/* The reply may have 8192 integers. A check that merges adds none; an op that waited for such a batch was ended as
 * overload. */
static void a_batch_that_is_full_by_its_reply_takes_every_check_that_would_merge(void **state)
{
    struct fixture *fixture = *state;
    enum { LOGS = 16, BIG = 170 };
    struct op_member logs[LOGS];
    static char names[LOGS][8];
    for (int i = 0; i < LOGS; i++) {
        snprintf(names[i], sizeof names[i], "k%d", i);
        logs[i] = (struct op_member){.limit = &fixture->log->limits[0], .key = slice_of(names[i]), .cost = 1};
    }
    static struct op big[BIG];
    for (int i = 0; i < BIG; i++) {
        big[i] = (struct op){.kind = OP_CHECK, .n_members = LOGS, .members = logs};
        list_init(&big[i].link);
        assert_int_equal(batch_add(fixture->batch, &big[i]), BATCH_ADDED);
    }

    static const char *const keys[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    static struct op small[N_OF(keys) + 2];
    static struct op_member members[N_OF(small)];
    for (size_t i = 0; i < N_OF(small); i++) {
        const char *key = i < N_OF(keys) ? keys[i] : i == N_OF(keys) ? "another" : "c";
        members[i] = (struct op_member){.limit = &fixture->log->limits[0], .key = slice_of(key), .cost = 1};
        small[i] = (struct op){.kind = OP_CHECK, .n_members = 1, .members = &members[i]};
        list_init(&small[i].link);
    }
    for (size_t i = 0; i < N_OF(keys); i++) assert_int_equal(batch_add(fixture->batch, &small[i]), BATCH_ADDED);
    assert_int_equal(batch_add(fixture->batch, &small[N_OF(keys)]), BATCH_FULL);
    struct op *equal = &small[N_OF(keys) + 1];
    assert_true(batch_would_merge(fixture->batch, equal));
    assert_int_equal(batch_add(fixture->batch, equal), BATCH_ADDED);
    assert_int_equal(batch_n_ops(fixture->batch), BIG + N_OF(keys) + 1);
    empty(fixture); /* before the ops go */
}

static uint32_t weight_of(struct op op)
{
    return batch_weight(&op);
}

/* A check of cost 1000 weighed 1, and a batch of them held Redis for 75 ms. */
static void an_op_weighs_the_units_that_it_adds_to_a_log(void **state)
{
    struct fixture *fixture = *state;
    struct policy *log = policy_of("large", ALGO_SLIDING_LOG, 10000, 1000000, false);
    struct op_member member = {.limit = &log->limits[0], .key = slice_of("k"), .cost = 1000};
    struct op_member many[] = {member, member};
    struct op op = {.kind = OP_CHECK, .n_members = 1, .members = &member};

    struct op_reservation reservation = {.units = 300, .actual = 700};
    struct op reserve = op, settle = op, refund = op, peek = op, all = op, at_most = op;
    reserve.kind = OP_RESERVE;
    settle.kind = OP_SETTLE;
    settle.reservation = &reservation;
    refund.kind = OP_REFUND;
    peek.kind = OP_PEEK;
    all.n_members = 2;
    all.members = many;
    assert_int_equal(weight_of(op), 1000);
    assert_int_equal(weight_of(all), 2000);
    assert_int_equal(weight_of(reserve), weight_of(refund));
    assert_in_range(weight_of(reserve), 1100, 1200);
    assert_in_range(weight_of(settle), 800, 900);
    assert_int_equal(weight_of(peek), 1);
    member.cost = 1;
    at_most.at_most = 2000;
    assert_int_equal(weight_of(op), 1);
    assert_int_equal(weight_of(at_most), 2000);
    member.cost = 10000;
    assert_int_equal(weight_of(op), BATCH_WEIGHT_MAX);
    member.cost = 1000;
    member.limit = &fixture->bucket->limits[0]; /* one number, whatever it is raised by */
    assert_int_equal(weight_of(op), 1);

    for (size_t i = 0; i < 4; i++) check(fixture, i, log, "k", 1000); /* merged, too */
    assert_int_equal(add(fixture, 4, log, "k", OP_CHECK, 1000), BATCH_FULL);
    assert_false(batch_would_merge(fixture->batch, &fixture->ops[4]));
    empty(fixture);
    policy_free(log);
}

static void a_key_under_a_changed_limit_waits_for_the_next_batch(void **state)
{
    struct fixture *fixture = *state;
    struct policy *reloaded = policy_of("b", ALGO_BUCKET, 9, 1000000, false);
    check(fixture, 0, fixture->bucket, "k", 1);
    assert_int_equal(add(fixture, 1, reloaded, "k", OP_CHECK, 1), BATCH_CLASHES);
    check(fixture, 2, reloaded, "other", 1);
    empty(fixture);
    policy_free(reloaded);
}

static void checks_that_wait_differently_for_one_key_go_in_batches_of_their_own(void **state)
{
    struct fixture *fixture = *state;
    struct policy *leaky = policy_of("q", ALGO_LEAKY_BUCKET, 5, 1000000, false);
    struct diag diag;
    leaky->limits[0].max_wait_us = 400000;
    assert_int_equal(policy_prepare_limit(&leaky->limits[0], NULL, &diag), 0);
    check(fixture, 0, leaky, "k", 1); /* with a wait of 0 */
    fixture->members[1] =
        (struct op_member){.limit = &leaky->limits[0], .key = slice_of("k"), .cost = 1, .max_wait_us = 400000};
    fixture->ops[1] = (struct op){.kind = OP_CHECK, .n_members = 1, .members = &fixture->members[1]};
    list_init(&fixture->ops[1].link);
    assert_int_equal(batch_add(fixture->batch, &fixture->ops[1]), BATCH_CLASHES);
    fixture->members[1].key = slice_of("other");
    assert_int_equal(batch_add(fixture->batch, &fixture->ops[1]), 0);
    check(fixture, 2, leaky, "k", 1);
    pack(fixture);
    const int64_t reply[] = {800000, 800000, now_us, 0, NONCE}; /* space for one without a wait */
    assert_int_equal(batch_replay(fixture->batch, reply, 5, NONCE), 0);
    assert_true(fixture->members[0].decision.allowed);
    assert_true(fixture->members[1].decision.allowed);
    assert_false(fixture->members[2].decision.allowed);
    assert_int_equal(fixture->members[2].decision.retry_after_ms, 200);
    empty(fixture);
    policy_free(leaky);
}

static void the_members_of_an_op_are_charged_together_or_not_at_all(void **state)
{
    struct fixture *fixture = *state;
    struct op_member pair[] = {
        {.limit = &fixture->bucket->limits[0], .key = slice_of("k"), .cost = 2},
        {.limit = &fixture->window->limits[0], .key = slice_of("k"), .cost = 2},
    };
    struct op op = {.kind = OP_CHECK, .n_members = 2, .members = pair};
    list_init(&op.link);
    check(fixture, 0, fixture->bucket, "k", 1);
    assert_int_equal(batch_add(fixture->batch, &op), 0);
    check(fixture, 1, fixture->bucket, "k", 2);
    pack(fixture);
    assert_true(slice_is(fixture->args[0], "2"));
    const int64_t reply[] = {0, 200000, 4, 200000, now_us, 0, NONCE}; /* the window has one left */
    assert_int_equal(batch_replay(fixture->batch, reply, 7, NONCE), 0);
    assert_true(pair[0].decision.allowed);
    assert_int_equal(pair[0].decision.granted, 0);
    assert_false(pair[1].decision.allowed);
    assert_true(fixture->members[1].decision.allowed);
    assert_int_equal(fixture->members[1].decision.remaining, 2);
    empty(fixture); /* before op goes */
}

/* Ops with one more key after the other, on keys that lie alike, are one for the script. */
static void the_same_op_on_the_next_keys_is_one(void **state)
{
    struct fixture *fixture = *state;
    static const char *const keys[] = {"a", "b", "c"};
    struct op_member pairs[3][2];
    struct op ops[3];
    for (int i = 0; i < 3; i++) {
        pairs[i][0] = (struct op_member){.limit = &fixture->bucket->limits[0], .key = slice_of(keys[i]), .cost = 1};
        pairs[i][1] = (struct op_member){.limit = &fixture->window->limits[0], .key = slice_of("all"), .cost = 1};
        ops[i] = (struct op){.kind = OP_CHECK, .n_members = 2, .members = pairs[i]};
        list_init(&ops[i].link);
        assert_int_equal(batch_add(fixture->batch, &ops[i]), 0);
    }
    pack(fixture);
    ASSERT_PACKET(fixture, HEADER_LOADED("\x04", "\x02", "\x05")
                               LIMIT_BUCKET LIMIT_WINDOW SPAN(LOAD, "\x01", "\x01", "\x03", "\x01", "\0")
                                   SPAN(LOAD, "\x02", "\x04", "\x01", "\x01", "\0")
                                       CHECK_ALL("\x03", "\x01",
                                                 "\x02" NOTHING_OF_ITS_OWN ON("\x01", "\x01", STEP_OF_BUCKET, "\x01")
                                                     ON("\x04", "\0", STEP_1, "\x01"))
                                           SPAN(SAVE, "\x01", "\x01", "\x03", "\0", "\0")
                                               SPAN(SAVE, "\x02", "\x04", "\x01", "\0", "\0"));
    const int64_t reply[] = {0, 3, 0, 4, 0, 5, now_us, 0, NONCE};
    assert_int_equal(batch_replay(fixture->batch, reply, 9, NONCE), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(pairs[i][1].decision.allowed, i < 2);
    empty(fixture); /* before the ops go */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_check_is_a_span_of_one),
        TEST(checks_of_one_limit_are_one_span_and_those_of_another_cost_another),
        TEST(the_bucket_follows_what_is_common),
        TEST(equal_checks_of_a_key_become_one_item),
        TEST(counted_denials_and_merge_off_keep_checks_apart),
        TEST(a_key_with_several_costs_is_loaded_and_saved),
        TEST(a_peek_sees_what_came_before_it_and_charges_nothing),
        TEST(a_cost_above_the_limit_is_only_looked_at),
        TEST(each_denied_check_of_a_log_takes_its_wait),
        TEST(a_foreign_type_fails_the_ops_of_its_key_only),
        TEST(a_batch_has_no_more_bad_values_than_keys),
        TEST(a_state_that_no_script_leaves_fails_the_ops_of_its_key_only),
        TEST(a_reply_that_makes_no_sense_touches_nothing),
        TEST(ops_whose_keys_are_away_or_barred_end_alone),
        TEST(resets_that_are_not_declared_say_of_each_key_where_it_is),
        TEST(a_reset_is_a_batch_of_its_own),
        TEST(a_full_batch_takes_known_keys_only),
        TEST(a_batch_that_is_full_by_its_reply_takes_every_check_that_would_merge),
        TEST(an_op_weighs_the_units_that_it_adds_to_a_log),
        TEST(a_key_under_a_changed_limit_waits_for_the_next_batch),
        TEST(checks_that_wait_differently_for_one_key_go_in_batches_of_their_own),
        TEST(the_members_of_an_op_are_charged_together_or_not_at_all),
        TEST(the_same_op_on_the_next_keys_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
