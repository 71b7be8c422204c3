/*
 * batch_fixture.h: a batch, some policies, and ops of one limit; the parts of a call's packet as bytes.
 */
#ifndef RL_FAKES_BATCH_FIXTURE_H
#define RL_FAKES_BATCH_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "policy/policy.h"
#include "redis/batch.h"
#include "redis/counters.h"

enum { N_OPS = 8, NONCE = 0x01020304 };
static const int64_t now_us = INT64_C(1700000000000000); /* begins a window of every length used here */

/* A batch, some policies, and ops of one limit. */
struct fixture {
    struct batch *batch;
    struct policy *bucket, *window, *counting, *log, *slots, *slow, *hit;
    struct op ops[N_OPS];
    struct op_member members[N_OPS];
    const struct slice *args;
    size_t n_args;
};

static inline struct policy *policy_of(const char *name, enum algo algo, int64_t limit, int64_t window_us,
                                       bool count_denied)
{
    struct diag diag;
    struct policy *policy = policy_new(name, 1);
    assert_non_null(policy);
    policy->limits[0].algo = algo;
    policy->limits[0].limit = limit;
    policy->limits[0].window_us = window_us;
    policy->limits[0].count_denied = count_denied;
    assert_int_equal(policy_prepare_limit(&policy->limits[0], NULL, &diag), 0);
    policy->version = 9;
    return policy;
}

static inline int setup(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){
        .batch = batch_new(&(struct store_key_scheme){"rl", STORE_SHARDS}, BATCH_KEYS_MAX, true),
        .bucket = policy_of("b", ALGO_BUCKET, 5, 1000000, false),
        .window = policy_of("w", ALGO_FIXED_WINDOW, 5, 1000000, false),
        .counting = policy_of("c", ALGO_FIXED_WINDOW, 5, 1000000, true),
        .log = policy_of("l", ALGO_SLIDING_LOG, 5, 1000000, false),
        .slots = policy_of("s", ALGO_CONCURRENCY, 5, 1000000, false),
        .hit = policy_of("h", ALGO_FIRST_HIT, 5, 1000000, false),
        .slow = policy_of("z", ALGO_BUCKET, 1, INT64_C(1000000000000000), false), /* a unit takes 31 years */
    };
    assert_non_null(fixture.batch);
    *state = &fixture;
    return 0;
}

static inline void empty(struct fixture *fixture)
{
    struct list ops;
    list_init(&ops);
    batch_take_ops(fixture->batch, &ops);
    while (list_pop_front(&ops) != NULL) continue;
    batch_clear(fixture->batch);
}

static inline int teardown(void **state)
{
    struct fixture *fixture = *state;
    empty(fixture);
    batch_free(fixture->batch);
    struct policy *all[] = {fixture->bucket, fixture->window, fixture->counting, fixture->log,
                            fixture->slots,  fixture->slow,   fixture->hit};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) policy_free(all[i]);
    return 0;
}

static inline int add(struct fixture *fixture, size_t i, const struct policy *policy, const char *key,
                      enum op_kind kind, int64_t cost)
{
    fixture->members[i] = (struct op_member){.limit = &policy->limits[0], .key = slice_of(key), .cost = cost};
    fixture->ops[i] = (struct op){.kind = kind, .n_members = 1, .members = &fixture->members[i]};
    list_init(&fixture->ops[i].link);
    return batch_add(fixture->batch, &fixture->ops[i]);
}

static inline void check(struct fixture *fixture, size_t i, const struct policy *policy, const char *key, int64_t cost)
{
    assert_int_equal(add(fixture, i, policy, key, OP_CHECK, cost), 0);
}

static inline void pack(struct fixture *fixture)
{
    fixture->n_args = batch_args(fixture->batch, NONCE, now_us, 0, &fixture->args);
    assert_true(fixture->n_args > 0);
}

static inline void assert_packet(const struct fixture *fixture, const char *bytes, size_t len)
{
    struct slice packet = fixture->args[fixture->n_args - 1];
    assert_int_equal(packet.len, len);
    assert_memory_equal(packet.data, bytes, len);
}

/* ARGV[1] in its parts; all numbers little-endian. */
#define HEADER_WITH(flags, n_mget, n_limits, n_ops)                                                                    \
    "\x04\x03\x02\x01"                                                                                                 \
    "\0\0\0\0\0\0\0" flags n_mget "\0" n_limits n_ops "\0"
#define HEADER(n_mget, n_limits, n_ops)        HEADER_WITH("\0", n_mget, n_limits, n_ops)
#define HEADER_LOADED(n_mget, n_limits, n_ops) HEADER_WITH("\x01", n_mget, n_limits, n_ops) /* some keys are loaded */
#define LIMIT_BUCKET                                                                                                   \
    "\0"                                                                                                               \
    "\x01\0\0\0\0\0\0"                                                                                                 \
    "\x40\x0d\x03\0\0\0\0"                                                                                             \
    "\x40\x42\x0f\0\0\0\0"                                                                                             \
    "\x40\x42\x0f\0\0\0\0"
#define LIMIT_WINDOW                                                                                                   \
    "\x01"                                                                                                             \
    "\x05\0\0\0\0\0\0"                                                                                                 \
    "\xe8\x03\0\0\0\0\0"                                                                                               \
    "\0\0\0\0\0\0\0"                                                                                                   \
    "\0\0\0\0\0\0\0"
#define LIMIT_COUNTING                                                                                                 \
    "\x01"                                                                                                             \
    "\x05\0\0\0\0\0\0"                                                                                                 \
    "\xe8\x03\0\0\0\0\0"                                                                                               \
    "\0\0\0\0\0\0\0"                                                                                                   \
    "\x01\0\0\0\0\0\0"
#define SPAN(kind, limit, first, n, count, cost) kind limit first "\0" n "\0" count "\0\0\0\0" cost "\0\0\0\0\0\0"
#define CHECK_ALL(n, count, members)                                                                                   \
    "\x06"                                                                                                             \
    "\0"                                                                                                               \
    "\0\0" n "\0" count "\0\0\0\0"                                                                                     \
    "\0\0\0\0\0\0\0" members
#define NOTHING_OF_ITS_OWN                                                                                             \
    "\0\0"                                                                                                             \
    "\0\0"
#define ON(key, stride, step, cost)      key "\0" stride step "\0\0\0\0" cost "\0\0\0\0\0\0"
#define STEP_OF_BUCKET                   "\x40\x0d\x03"
#define STEP_1                           "\x01\0\0"
#define CHECK_EACH                       "\0"
#define LOAD                             "\x01"
#define SAVE                             "\x02"
#define ASSERT_PACKET(fixture, expected) assert_packet(fixture, expected, sizeof(expected) - 1)

static inline struct op *op_of(struct fixture *fixture, size_t i, const struct policy *policy, enum op_kind kind,
                               int64_t cost)
{
    fixture->members[i] = (struct op_member){.limit = &policy->limits[0], .key = slice_of("k"), .cost = cost};
    fixture->ops[i] = (struct op){.kind = kind, .n_members = 1, .members = &fixture->members[i]};
    list_init(&fixture->ops[i].link);
    return &fixture->ops[i];
}

static inline struct op *once(struct op *op, const char *record)
{
    op->record = slice_of(record);
    op->record_ms = 60000;
    return op;
}

static inline void add_op(struct fixture *fixture, struct op *op)
{
    assert_int_equal(batch_add(fixture->batch, op), 0);
}

static inline int replay(struct fixture *fixture, const int64_t *reply, size_t n)
{
    pack(fixture);
    return batch_replay(fixture->batch, reply, n, NONCE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
