/*
 * deny_cache.h: Redis's denials, kept while they are certain, so that a flood on a used-up key is answered here.
 *
 * What a limit has denied it goes on denying until enough units have come back with time: what else is admitted only
 * puts that off. So an entry keeps the state that Redis saw, and a check that asks for as much or more is decided by
 * it, for its own moment, by its own limit, with the arithmetic of every store. Redis is asked when that would admit,
 * or when the entry is older than max_age.
 *
 * An entry counts from the moment before its call was written. Redis ran the call later, so the server's clock is not
 * ahead of what is taken for it here, and nothing is denied that Redis would admit, unless units came back:
 *   - by an op of this daemon (reset, refund, reserve, settle, sweep): never. Such an op removes the entries of its
 *     keys, and until it has ended no check makes a new one: ops can overtake each other while they wait to be sent.
 *     Redis answers in order, so what it decided before such an op is read before that op's end.
 *   - by another daemon, or by Redis itself (a key evicted or deleted, a clock that jumped): until max_age has passed.
 *
 * Kept are denials of plain checks by policies of one limit, if a denial changes nothing in Redis; of a limit with a
 * penalty those of a pause, for any other may hide a breach. An entry is found by the bytes of its key and belongs to
 * one version of the policy.
 *
 * The oldest entry of a full set goes (counter_table.h). The memory is taken at the first denial. Nothing here reads a
 * clock.
 */
#ifndef RL_REDIS_DENY_CACHE_H
#define RL_REDIS_DENY_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "store/counter_table.h"
#include "store/store.h"

enum {
    DENY_CACHE_GROUPS = 1024,
    DENY_CACHE_NAME_MAX = COUNTER_KEY_MAX + 64, /* bytes of the limit's id with the head of its key; longer ones are not
                                                   kept */
};

struct deny_cache {
    uint64_t max_keys; /* 0 = off */
    int64_t max_age_us;
    uint64_t epoch;                     /* a new one begins when every entry goes: checks submitted before make none */
    struct counter_table table;         /* reserved at the first denial */
    uint32_t givers[DENY_CACHE_GROUPS]; /* by hash: ops under way that may give units back */
};

void deny_cache_init(struct deny_cache *cache); /* off */
void deny_cache_fini(struct deny_cache *cache);
/* At start; and at a reload, which drops every entry. */
void deny_cache_set_options(struct deny_cache *cache, uint64_t max_keys, int64_t max_age_us);
/* Every entry goes, and no check that is under way makes one: the next connection may lead to other states. */
void deny_cache_clear(struct deny_cache *cache);

/* Decides `op` if it is certainly denied, and sets op->source. False: ask Redis. */
bool deny_cache_decide(struct deny_cache *cache, struct op *op, const struct clock *clock);
/* `op` waits for Redis. */
void deny_cache_submitted(struct deny_cache *cache, struct op *op);
/* It does no more, whatever came of it: once for each that was submitted, before its `done`. */
void deny_cache_ended(struct deny_cache *cache, const struct op *op);
/* Redis has decided `op`, whose call was written after sent_us (CLOCK_MONOTONIC). wall_us: the host's clock, as in
 * limit_constants(). */
void deny_cache_learn(struct deny_cache *cache, const struct op *op, int64_t sent_us, int64_t wall_us);

#endif
