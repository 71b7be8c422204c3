/*
 * test_turn.c: packing a turn and replaying its reply, against bytes and replies written by hand. That the script
 * agrees is tests/lua's business.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/counters.h"
#include "limit/policy.h"
#include "store/turn.h"

enum { N_OPS = 8, NONCE = 0x01020304 };
#define HEAD "\x04\x03\x02\x01\0\0\0\0\0\0\0" /* the nonce, and no time to be too late for */

static const int64_t now_us = INT64_C(1700000000000000); /* begins a window of every length used here */

/* A turn, a policy per algorithm, and ops of one member. */
struct world {
    struct turn *turn;
    struct policy *bucket, *window, *counting, *log;
    struct op ops[N_OPS];
    struct op_member members[N_OPS];
    const struct slice *args;
    size_t n_args;
};

static struct policy *policy_of(const char *name, enum algo algo, int64_t limit, int64_t window_us, bool count_denied)
{
    char text[256];
    struct policy *policy = policy_new(name, 1);
    assert_non_null(policy);
    policy->limits[0].algo = algo;
    policy->limits[0].limit = limit;
    policy->limits[0].window_us = window_us;
    policy->limits[0].count_denied = count_denied;
    assert_null(limit_prepare(&policy->limits[0], NULL, text, sizeof text));
    return policy;
}

static int setup(void **state)
{
    static struct world world;
    world = (struct world){
        .turn = turn_new("rl", TURN_KEYS_MAX, true),
        .bucket = policy_of("b", ALGO_BUCKET, 5, 1000000, false),
        .window = policy_of("w", ALGO_FIXED_WINDOW, 5, 1000000, false),
        .counting = policy_of("c", ALGO_FIXED_WINDOW, 5, 1000000, true),
        .log = policy_of("l", ALGO_SLIDING_LOG, 5, 1000000, false),
    };
    assert_non_null(world.turn);
    *state = &world;
    return 0;
}

static void empty(struct world *world)
{
    struct list ops;
    list_init(&ops);
    turn_take_ops(world->turn, &ops);
    while (list_pop_front(&ops) != NULL) continue;
    turn_clear(world->turn);
}

static int teardown(void **state)
{
    struct world *world = *state;
    empty(world);
    turn_free(world->turn);
    policy_free(world->bucket);
    policy_free(world->window);
    policy_free(world->counting);
    policy_free(world->log);
    return 0;
}

static int add(struct world *world, size_t i, const struct policy *policy, const char *key, enum op_kind kind,
               int64_t cost)
{
    world->members[i] = (struct op_member){.limit = &policy->limits[0], .key = slice_of(key), .cost = cost};
    world->ops[i] = (struct op){.kind = kind, .n_members = 1, .members = &world->members[i]};
    list_init(&world->ops[i].link);
    return turn_add(world->turn, &world->ops[i]);
}

static void check(struct world *world, size_t i, const struct policy *policy, const char *key, int64_t cost)
{
    assert_int_equal(add(world, i, policy, key, OP_CHECK, cost), 0);
}

static void pack(struct world *world)
{
    world->n_args = turn_args(world->turn, NONCE, now_us, 0, &world->args);
    assert_true(world->n_args > 0);
}

static void assert_packet(const struct world *world, const char *bytes, size_t len)
{
    struct slice packet = world->args[world->n_args - 1];
    assert_int_equal(packet.len, len);
    assert_memory_equal(packet.data, bytes, len);
}

#define RUN_BUCKET(form, keys)                                                                                         \
    "\0" form keys "\0\x01\0\0\0\0\0\0\x40\x0d\x03\0\0\0\0\x40\x42\x0f\0\0\0\0\x40\x42\x0f\0\0\0\0"
#define RUN_WINDOW(form, keys) "\x01" form keys "\0\x05\0\0\0\0\0\0\xe8\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"

static void one_check_is_a_plain_run_of_one(void **state)
{
    struct world *world = *state;
    check(world, 0, world->bucket, "alice", 1);
    pack(world);
    assert_int_equal(world->n_args, 3);
    assert_true(slice_is(world->args[0], "1"));
    assert_int_equal(world->args[1].len, strlen("rl:{b000}:tb1:b:alice"));
    assert_memory_equal(world->args[1].data, "rl:{b", 5);
    assert_memory_equal(world->args[1].data + 8, "}:tb1:b:alice", 13);
    static const char expected[] = HEAD "\x01\0\x01\0\0" RUN_BUCKET("\0", "\x01");
    assert_packet(world, expected, sizeof expected - 1);
}

/* The bucket is that of the key, or of what the policy's limits have in common. */
static void the_bucket_follows_what_is_common(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *id, *common, *start;
    } cases[] = {
        {"acme:1", NULL, "rl:{b218}:"}, {"acme:1", "acme:1", "rl:{b218}:"}, {"acme:2", "acme", "rl:{b143}:"},
        {"", "acme", "rl:{b143}:"},     {"acme:3", "", "rl:{b165}:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check(world, 0, world->bucket, cases[i].id, 1);
        empty(world);
        world->members[0].key = slice_of(cases[i].id);
        if (cases[i].common != NULL) world->members[0].common = slice_of(cases[i].common);
        list_init(&world->ops[0].link);
        assert_int_equal(turn_add(world->turn, &world->ops[0]), 0);
        pack(world);
        assert_memory_equal(world->args[1].data, cases[i].start, strlen(cases[i].start));
        empty(world);
    }
}

static void equal_checks_of_a_key_become_one_item(void **state)
{
    struct world *world = *state;
    uint64_t merged = counters.redis_merged;
    for (size_t i = 0; i < 3; i++) check(world, i, world->window, "k", 2);
    assert_int_equal(counters.redis_merged, merged + 2);
    pack(world);
    static const char expected[] = HEAD "\0\0\x01\0\0" RUN_WINDOW("\x01", "\x01") "\x03\0\0\0\x02\0\0\0\0\0\0";
    assert_packet(world, expected, sizeof expected - 1);

    const int64_t reply[] = {0, now_us, 0, NONCE};
    assert_int_equal(turn_replay(world->turn, reply, 4, NONCE), 0);
    for (size_t i = 0; i < 3; i++) {
        const struct decision *decision = &world->members[i].decision;
        assert_int_equal(world->ops[i].outcome, OP_DECIDED);
        assert_int_equal(decision->allowed, i < 2);
        assert_int_equal(decision->remaining, i == 0 ? 3 : 1);
        assert_int_equal(decision->retry_after_ms, i < 2 ? 0 : 1000);
    }
}

static void counted_denials_and_merge_off_keep_checks_apart(void **state)
{
    struct world *world = *state;
    uint64_t merged = counters.redis_merged;
    check(world, 0, world->counting, "k", 1);
    check(world, 1, world->counting, "k", 1);
    turn_set_merge(world->turn, TURN_KEYS_MAX, false);
    check(world, 2, world->bucket, "k", 1);
    check(world, 3, world->bucket, "k", 1);
    assert_int_equal(counters.redis_merged, merged);
}

static void a_key_with_several_costs_goes_by_groups_in_order(void **state)
{
    struct world *world = *state;
    check(world, 0, world->bucket, "k", 1);
    check(world, 1, world->bucket, "k", 4);
    check(world, 2, world->bucket, "other", 1);
    check(world, 3, world->bucket, "k", 1);
    pack(world);
    static const char expected[] = HEAD "\x02\0\x02\x03\0" RUN_BUCKET("\x02", "\x01")
        RUN_BUCKET("\0", "\x01") "\x01\x01\0\0\0\x01\0\x01\0\0\0\0\0\0"
                                 "\x01\x01\0\0\0\x01\0\x04\0\0\0\0\0\0"
                                 "\x01\x01\0\0\0\x01\0\x01\0\0\0\0\0\0";
    assert_packet(world, expected, sizeof expected - 1);

    const int64_t reply[] = {0, 0, now_us, 0, NONCE};
    assert_int_equal(turn_replay(world->turn, reply, 5, NONCE), 0);
    assert_int_equal(world->members[0].decision.remaining, 4);
    assert_int_equal(world->members[1].decision.remaining, 0);
    assert_int_equal(world->members[2].decision.remaining, 4);
    assert_false(world->members[3].decision.allowed);
    assert_int_equal(world->members[3].decision.retry_after_ms, 200);
}

static void a_peek_sees_what_came_before_it_and_charges_nothing(void **state)
{
    struct world *world = *state;
    check(world, 0, world->window, "k", 2);
    assert_int_equal(add(world, 1, world->window, "k", OP_PEEK, 3), 0);
    assert_int_equal(add(world, 2, world->window, "k", OP_PEEK, 4), 0);
    check(world, 3, world->window, "k", 2);
    check(world, 4, world->window, "k", 0);
    pack(world);
    assert_int_equal(world->args[world->n_args - 1].len, 16 + 32 + 11); /* the peeks need nothing of the script */
    const int64_t reply[] = {0, now_us, 0, NONCE};
    assert_int_equal(turn_replay(world->turn, reply, 4, NONCE), 0);
    assert_true(world->members[1].decision.allowed);
    assert_int_equal(world->members[1].decision.remaining, 0);
    assert_int_equal(world->members[1].decision.granted, 3);
    assert_false(world->members[2].decision.allowed);
    assert_int_equal(world->members[3].decision.remaining, 1);
    assert_int_equal(world->members[4].decision.remaining, 1);
    assert_int_equal(world->members[4].decision.granted, 0);
}

static void a_cost_above_the_limit_is_only_looked_at(void **state)
{
    struct world *world = *state;
    check(world, 0, world->window, "k", 6);
    check(world, 1, world->counting, "k", (INT64_C(1) << 53) - 1);
    pack(world);
    static const char expected[] = HEAD "\0\0\x02\0\0" RUN_WINDOW(
        "\x01", "\x01") "\0\0\0\0\0\0\0\0\0\0\0"
                        "\x01\x01\x01\0\x05\0\0\0\0\0\0\xe8\x03\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0"
                        "\x01\0\0\0\x01\0\0\0\x04\0\0";
    assert_int_equal(world->args[world->n_args - 1].len, sizeof expected - 1);
    assert_packet(world, expected, sizeof expected - 1);
    const int64_t reply[] = {1, 2, now_us, 0, NONCE};
    assert_int_equal(turn_replay(world->turn, reply, 5, NONCE), 0);
    assert_int_equal(world->members[0].decision.retry_after_ms, RETRY_NEVER);
    assert_int_equal(world->members[0].decision.remaining, 4);
    assert_int_equal(world->members[1].decision.retry_after_ms, RETRY_NEVER);
    assert_int_equal(world->members[1].decision.remaining, 0);
}

static void each_denied_check_of_a_log_takes_its_wait(void **state)
{
    struct world *world = *state;
    check(world, 0, world->log, "a", 3);
    check(world, 1, world->log, "b", 1);
    check(world, 2, world->log, "a", 5);
    assert_int_equal(add(world, 3, world->log, "a", OP_PEEK, 2), 0);
    pack(world);
    /* a, first in KEYS, goes by groups: b's wait, plain, comes first */
    const int64_t reply[] = {2, 5, now_us - 10, now_us - 20, now_us, 5000, 700000, 300000, 0, NONCE};
    size_t least, most;
    turn_reply_bounds(world->turn, &least, &most);
    assert_int_equal(least, 7);
    assert_int_equal(turn_replay(world->turn, reply, 10, NONCE), 0);
    assert_true(world->members[0].decision.allowed);
    assert_int_equal(world->members[1].decision.retry_after_ms, 5);
    assert_int_equal(world->members[2].decision.retry_after_ms, 700);
    assert_int_equal(world->members[3].decision.retry_after_ms, 300);
    assert_int_equal(world->members[0].decision.reset_after_ms, 1000);
}

static void a_foreign_type_fails_the_ops_of_its_key_only(void **state)
{
    struct world *world = *state;
    uint64_t bad = counters.redis_bad_values;
    check(world, 0, world->bucket, "good", 1);
    check(world, 1, world->bucket, "bad", 1);
    check(world, 2, world->bucket, "bad", 1);
    pack(world);
    const int64_t reply[] = {0, -1, now_us, 1, NONCE};
    assert_int_equal(turn_replay(world->turn, reply, 5, NONCE), 0);
    assert_int_equal(world->ops[0].outcome, OP_DECIDED);
    assert_int_equal(world->ops[1].outcome, OP_STORE_ERROR);
    assert_int_equal(world->ops[2].outcome, OP_STORE_ERROR);
    assert_int_equal(counters.redis_bad_values, bad + 2);
}

/* The number in the reply is the server's word. */
static void a_batch_has_no_more_bad_values_than_keys(void **state)
{
    struct world *world = *state;
    uint64_t bad = counters.redis_bad_values;
    check(world, 0, world->bucket, "good", 1);
    check(world, 1, world->bucket, "bad", 1);
    pack(world);
    const int64_t reply[] = {0, -1, now_us, INT64_C(1) << 53, NONCE};
    assert_int_equal(turn_replay(world->turn, reply, 5, NONCE), 0);
    assert_int_equal(counters.redis_bad_values, bad + 2);
}

/* Clients were told to come back 5 ms ago, or after 0 ms. */
static void a_state_that_no_script_leaves_fails_the_ops_of_its_key_only(void **state)
{
    struct world *world = *state;
    struct policy *hit = policy_of("h", ALGO_FIRST_HIT, 5, 1000000, false);
    struct op_member pair[] = {
        {.limit = &world->bucket->limits[0], .key = slice_of("k"), .cost = 1},
        {.limit = &hit->limits[0], .key = slice_of("ended"), .cost = 1},
    };
    struct op op = {.kind = OP_CHECK, .n_members = 2, .members = pair};
    uint64_t bad = counters.redis_bad_replies;
    list_init(&op.link);
    check(world, 0, hit, "good", 1);
    check(world, 1, hit, "ended", 1);
    check(world, 2, hit, "none", 1);
    assert_int_equal(turn_add(world->turn, &op), 0);
    check(world, 3, world->bucket, "k", 1);
    pack(world);
    int64_t now_ms = now_us / 1000;
    const int64_t reply[] = {5, 5, 5, 0, now_ms + 5, now_ms - 5, 0, now_us, 0, NONCE};
    assert_int_equal(turn_replay(world->turn, reply, sizeof reply / sizeof reply[0], NONCE), 0);
    assert_int_equal(world->ops[0].outcome, OP_DECIDED);
    assert_int_equal(world->members[0].decision.retry_after_ms, 5);
    assert_int_equal(world->ops[1].outcome, OP_STORE_ERROR);
    assert_int_equal(world->ops[2].outcome, OP_STORE_ERROR);
    assert_int_equal(op.outcome, OP_STORE_ERROR);
    assert_int_equal(world->ops[3].outcome, OP_DECIDED);
    assert_int_equal(counters.redis_bad_replies, bad + 1);
    empty(world); /* before op goes */
    policy_free(hit);
}

static void a_reply_that_makes_no_sense_touches_nothing(void **state)
{
    struct world *world = *state;
    check(world, 0, world->bucket, "k", 1);
    check(world, 1, world->log, "k", 1);
    pack(world);
    world->ops[0].outcome = world->ops[1].outcome = OP_DOWN;
    static const struct {
        int64_t reply[8];
        size_t n;
    } cases[] = {
        {{0, 0, 0, 0}, 4},                    /* too short */
        {{0, 0, 0, 1, 0, NONCE + 1}, 6},      /* another turn's */
        {{-2, 0, 0, 1, 0, NONCE}, 6},         /* no state is negative */
        {{0, 0, -1, 1, 0, NONCE}, 6},         /* nor is a time */
        {{0, 0, 0, INT64_MAX, 0, NONCE}, 6},  /* now */
        {{0, 0, 0, 1, -1, NONCE}, 6},         /* malformed values */
        {{INT64_MAX, 0, 0, 1, 0, NONCE}, 6},  /* beyond what a double counts */
        {{0, 5, 1, 1, 0, NONCE}, 6},          /* the log is full: a wait is missing */
        {{0, 0, 0, 1, 5, 0, NONCE}, 7},       /* it is not: a wait too many */
        {{0, 5, 1, 1, 1000001, 0, NONCE}, 7}, /* no wait is longer than the window */
        {{0, 5, 1, 1, 0, 0, NONCE}, 7},       /* nor shorter than a tick */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(turn_replay(world->turn, cases[i].reply, cases[i].n, NONCE), -1);
        assert_int_equal(world->ops[0].outcome, OP_DOWN);
        assert_int_equal(world->ops[1].outcome, OP_DOWN);
    }
    const int64_t fine[] = {0, 5, 1, 1, 1000000, 0, NONCE};
    assert_int_equal(turn_replay(world->turn, fine, 7, NONCE), 0);
}

static void a_reset_is_a_turn_of_its_own(void **state)
{
    struct world *world = *state;
    check(world, 0, world->bucket, "k", 1);
    assert_int_equal(add(world, 1, world->bucket, "k", OP_RESET, 0), 1);
    empty(world);
    assert_int_equal(add(world, 0, world->bucket, "k", OP_RESET, 0), 0);
    assert_int_equal(add(world, 1, world->log, "k", OP_RESET, 0), 0);
    assert_int_equal(add(world, 2, world->bucket, "k", OP_RESET, 0), 0);
    assert_int_equal(add(world, 3, world->bucket, "k", OP_CHECK, 1), 1);
    pack(world);
    const int64_t reply[] = {1, 0, now_us, 0, NONCE};
    assert_int_equal(turn_replay(world->turn, reply, 5, NONCE), 0);
    assert_true(world->members[0].removed);
    assert_false(world->members[1].removed);
    assert_false(world->members[2].removed); /* the first one did */
}

static void a_full_turn_takes_known_keys_only(void **state)
{
    struct world *world = *state;
    turn_set_merge(world->turn, 2, true);
    check(world, 0, world->bucket, "a", 1);
    check(world, 1, world->bucket, "b", 1);
    assert_int_equal(add(world, 2, world->bucket, "c", OP_CHECK, 1), 1);
    check(world, 3, world->bucket, "b", 3);
    assert_int_equal(turn_n_keys(world->turn), 2);
    assert_int_equal(turn_n_ops(world->turn), 3);
}

static void a_key_under_a_changed_limit_waits_for_the_next_turn(void **state)
{
    struct world *world = *state;
    struct policy *reloaded = policy_of("b", ALGO_BUCKET, 9, 1000000, false);
    check(world, 0, world->bucket, "k", 1);
    assert_int_equal(add(world, 1, reloaded, "k", OP_CHECK, 1), 1);
    check(world, 2, reloaded, "other", 1);
    empty(world);
    policy_free(reloaded);
}

static void checks_that_wait_differently_for_one_key_go_in_turns_of_their_own(void **state)
{
    struct world *world = *state;
    struct policy *leaky = policy_of("q", ALGO_LEAKY_BUCKET, 5, 1000000, false);
    char text[256];
    leaky->limits[0].max_wait_us = 400000;
    assert_null(limit_prepare(&leaky->limits[0], NULL, text, sizeof text));
    check(world, 0, leaky, "k", 1); /* with a wait of 0 */
    world->members[1] =
        (struct op_member){.limit = &leaky->limits[0], .key = slice_of("k"), .cost = 1, .max_wait_us = 400000};
    world->ops[1] = (struct op){.kind = OP_CHECK, .n_members = 1, .members = &world->members[1]};
    list_init(&world->ops[1].link);
    assert_int_equal(turn_add(world->turn, &world->ops[1]), 1);
    world->members[1].key = slice_of("other");
    assert_int_equal(turn_add(world->turn, &world->ops[1]), 0);
    check(world, 2, leaky, "k", 1);
    pack(world);
    const int64_t reply[] = {800000, 800000, now_us, 0, NONCE}; /* room for one without a wait */
    assert_int_equal(turn_replay(world->turn, reply, 5, NONCE), 0);
    assert_true(world->members[0].decision.allowed);
    assert_true(world->members[1].decision.allowed);
    assert_false(world->members[2].decision.allowed);
    assert_int_equal(world->members[2].decision.retry_after_ms, 200);
    empty(world);
    policy_free(leaky);
}

static void the_members_of_an_op_are_charged_together_or_not_at_all(void **state)
{
    struct world *world = *state;
    struct op_member pair[] = {
        {.limit = &world->bucket->limits[0], .key = slice_of("k"), .cost = 2},
        {.limit = &world->window->limits[0], .key = slice_of("k"), .cost = 2},
    };
    struct op op = {.kind = OP_CHECK, .n_members = 2, .members = pair};
    list_init(&op.link);
    check(world, 0, world->bucket, "k", 1);
    assert_int_equal(turn_add(world->turn, &op), 0);
    check(world, 1, world->bucket, "k", 2);
    pack(world);
    assert_true(slice_is(world->args[0], "2"));
    const int64_t reply[] = {0, 4, now_us, 0, NONCE}; /* the window has room for one */
    assert_int_equal(turn_replay(world->turn, reply, 5, NONCE), 0);
    assert_true(pair[0].decision.allowed);
    assert_int_equal(pair[0].decision.granted, 0);
    assert_false(pair[1].decision.allowed);
    assert_true(world->members[1].decision.allowed);
    assert_int_equal(world->members[1].decision.remaining, 2);
    empty(world); /* before op goes */
}

static void keys_of_any_bytes_stay_apart(void **state)
{
    struct world *world = *state;
    static const uint8_t odd[] = {'}', '\r', '\n', 0, 0xff, '{'};
    check(world, 0, world->bucket, "k", 1);
    world->members[1] =
        (struct op_member){.limit = &world->bucket->limits[0], .key = {.data = odd, .len = sizeof odd}, .cost = 1};
    world->ops[1] = (struct op){.kind = OP_CHECK, .n_members = 1, .members = &world->members[1]};
    list_init(&world->ops[1].link);
    assert_int_equal(turn_add(world->turn, &world->ops[1]), 0);
    check(world, 2, world->window, "k", 1);
    pack(world);
    assert_true(slice_is(world->args[0], "3"));
    assert_memory_equal(world->args[2].data + world->args[2].len - sizeof odd, odd, sizeof odd);
}

static void a_turn_survives_short_memory(void **state)
{
    struct world *world = *state;
    char key[16];
    size_t n_failed = 0;
    for (uint64_t nth = 1; nth < 8; nth++) {
        struct turn *turn = turn_new("rl", TURN_KEYS_MAX, true);
        assert_non_null(turn);
        mem_fail_nth(nth);
        snprintf(key, sizeof key, "k%d", (int)nth);
        world->members[0] = (struct op_member){.limit = &world->log->limits[0], .key = slice_of(key), .cost = 1};
        world->ops[0] = (struct op){.kind = OP_CHECK, .n_members = 1, .members = &world->members[0]};
        list_init(&world->ops[0].link);
        int status = turn_add(turn, &world->ops[0]);
        if (status == 0 && turn_args(turn, NONCE, now_us, 0, &world->args) == 0) n_failed++;
        if (status < 0) {
            n_failed++;
            assert_int_equal(turn_n_ops(turn), 0);
            assert_int_equal(turn_n_keys(turn), 0);
        }
        mem_fail_nth(0);
        struct list ops;
        list_init(&ops);
        turn_take_ops(turn, &ops);
        turn_free(turn);
    }
    assert_int_equal(n_failed, 6);
    mem_fail_nth(1);
    assert_null(turn_new("rl", 1, true));
    mem_fail_nth(2);
    assert_null(turn_new("rl", 1, true));
    mem_fail_nth(0);
}

static void a_used_turn_allocates_no_more(void **state)
{
    struct world *world = *state;
    uint64_t allocs = 0;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < N_OPS; i++) check(world, i, world->log, i % 2 ? "odd" : "even", (int64_t)i % 3 + 1);
        pack(world);
        empty(world);
        if (round == 0) allocs = mem_n_allocs();
    }
    assert_int_equal(mem_n_allocs(), allocs);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_check_is_a_plain_run_of_one),
        TEST(the_bucket_follows_what_is_common),
        TEST(equal_checks_of_a_key_become_one_item),
        TEST(counted_denials_and_merge_off_keep_checks_apart),
        TEST(a_key_with_several_costs_goes_by_groups_in_order),
        TEST(a_peek_sees_what_came_before_it_and_charges_nothing),
        TEST(a_cost_above_the_limit_is_only_looked_at),
        TEST(each_denied_check_of_a_log_takes_its_wait),
        TEST(a_foreign_type_fails_the_ops_of_its_key_only),
        TEST(a_batch_has_no_more_bad_values_than_keys),
        TEST(a_state_that_no_script_leaves_fails_the_ops_of_its_key_only),
        TEST(a_reply_that_makes_no_sense_touches_nothing),
        TEST(a_reset_is_a_turn_of_its_own),
        TEST(a_full_turn_takes_known_keys_only),
        TEST(a_key_under_a_changed_limit_waits_for_the_next_turn),
        TEST(checks_that_wait_differently_for_one_key_go_in_turns_of_their_own),
        TEST(the_members_of_an_op_are_charged_together_or_not_at_all),
        TEST(keys_of_any_bytes_stay_apart),
        TEST(a_turn_survives_short_memory),
        TEST(a_used_turn_allocates_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
