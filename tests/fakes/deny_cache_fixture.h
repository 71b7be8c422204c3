/*
 * deny_cache_fixture.h: a cache of denials in front of the memory store, which decides as Redis does. The test submits,
 * sends, lets the server run and replies, each when it likes.
 */
#ifndef RL_FAKES_DENY_CACHE_FIXTURE_H
#define RL_FAKES_DENY_CACHE_FIXTURE_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/random.h"
#include "fakes/memory_fixture.h"
#include "fakes/natives.h"
#include "fakes/policies.h"
#include "redis/counters.h"
#include "redis/deny_cache.h"

#define MS   INT64_C(1000)
#define S    (1000 * MS)
#define WALL (INT64_C(1700000000) * S) /* a multiple of every window here */

enum { MAX_AGE_S = 1, LONG_WAIT_S = 60 };

static struct memory_fixture fixture;
static struct clock clock_now;
static struct deny_cache cache;

struct question {
    struct op op;
    struct op_member member;
    struct op_reservation reservation;
    char key[256];
    int64_t sent_us;
    bool is_cached;
};

static inline void open_fixture(uint64_t max_keys)
{
    memory_fixture_open(&fixture, WALL, &(struct memory_options){.max_keys = 1000});
    clock_now = (struct clock){.mono_us = 5 * S, .wall_us = WALL, .manual = true, .frozen = true};
    deny_cache_init(&cache);
    deny_cache_set_options(&cache, max_keys, MAX_AGE_S * S);
}

static inline int setup(void **state)
{
    (void)state;
    open_fixture(64);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    deny_cache_fini(&cache);
    return memory_fixture_close(&fixture);
}

/* The server's clock and ours go alike. */
static inline void pass(int64_t us)
{
    clock_now.mono_us += us;
    clock_now.wall_us += us;
    fixture.now.wall_us += us;
}

static inline const struct limit *limit_of(const char *name, enum algo algo, int64_t limit, int64_t window_us)
{
    const struct policy_spec spec = {.name = name, .limits = {{.algo = algo, .limit = limit, .window_us = window_us}}};
    return &policies_add(fixture.set, &spec)->limits[0];
}

/* The limit of an override of the policy, for keys that share its counter. */
static inline const struct limit *overridden(const struct limit *limit, int64_t instead)
{
    struct policy *policy = (struct policy *)limit->policy, *variant = policy_variant(policy, false);
    struct diag diag = {0};
    assert_non_null(variant);
    variant->limits[0].limit = instead;
    assert_int_equal(policy_prepare_limit(&variant->limits[0], NULL, &diag), 0);
    if (policy->overrides == NULL) policy->overrides = overrides_new(2);
    char text[8];
    snprintf(text, sizeof text, "o%zu", policy->overrides->n);
    assert_int_equal(overrides_add(policy->overrides, text, OVERRIDE_OF_KEY, 0, variant), 0);
    policy_seal(policy);
    return &variant->limits[0];
}

static inline struct question question(const struct limit *limit, const char *key, enum op_kind kind, int64_t cost)
{
    struct question q = {.op = {.kind = kind, .n_members = 1},
                         .member = {.limit = limit, .cost = cost, .max_wait_us = limit->max_wait_us}};
    snprintf(q.key, sizeof q.key, "%s", key);
    return q;
}

/* It may lie anywhere only from here on. */
static inline void wire(struct question *q)
{
    q->op.members = &q->member;
    q->member.key = slice_of(q->key);
    bool has_list = q->op.kind == OP_RESERVE || q->op.kind == OP_SETTLE || q->op.kind == OP_SWEEP;
    if (has_list) q->member.reservations_key = q->member.key;
    if (has_list) q->op.reservation = &q->reservation;
    list_init(&q->op.link);
}

static inline void submit(struct question *q)
{
    wire(q);
    q->is_cached = deny_cache_decide(&cache, &q->op, &clock_now);
    if (!q->is_cached) deny_cache_submitted(&cache, &q->op);
}

static inline void send(struct question *q)
{
    q->sent_us = clock_now.mono_us;
}

static inline void execute(struct question *q)
{
    assert_int_equal(store_submit(&fixture.store, &q->op), SUBMIT_DECIDED);
    q->op.source = SOURCE_REDIS;
}

static inline void reply(struct question *q)
{
    deny_cache_learn(&cache, &q->op, q->sent_us, clock_now.wall_us);
    deny_cache_ended(&cache, &q->op);
}

static inline void ask(struct question *q)
{
    submit(q);
    if (q->is_cached) return;
    send(q);
    execute(q);
    reply(q);
}

static inline struct decision check(const struct limit *limit, const char *key, int64_t cost, enum source source)
{
    struct question q = question(limit, key, OP_CHECK, cost);
    ask(&q);
    if (q.op.source != source)
        fail_msg("%s %s cost %" PRId64 " came from %s", limit->policy->name, key, cost, source_name(q.op.source));
    if (q.is_cached) assert_false(q.member.decision.allowed);
    return q.member.decision;
}

static inline void give(const struct limit *limit, const char *key, enum op_kind kind, int64_t cost)
{
    struct question q = question(limit, key, kind, cost);
    ask(&q);
}

#endif
