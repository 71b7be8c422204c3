/* redis/counters.h: what the Redis store counts. */
#ifndef RL_REDIS_COUNTERS_H
#define RL_REDIS_COUNTERS_H

#include "base/counters.h"

#define REDIS_COUNTERS(COUNTER, GAUGE)                                                                                 \
    COUNTER(redis_connects, "connections to Redis started")                                                            \
    COUNTER(redis_connect_failures, "connections to Redis that failed before they were ready")                         \
    COUNTER(redis_disconnects, "ready connections to Redis that ended")                                                \
    COUNTER(redis_stalls, "connections to Redis closed because the oldest command got no reply")                       \
    COUNTER(redis_batches, "EVALSHA calls sent")                                                                       \
    COUNTER(redis_batches_too_late, "EVALSHA calls that Redis began too late, and so did not run")                     \
    COUNTER(redis_batch_keys, "keys sent in EVALSHA calls")                                                            \
    COUNTER(redis_merged, "checks merged into another check of the same key and cost")                                 \
    COUNTER(redis_script_loads, "times the script was loaded again after NOSCRIPT")                                    \
    COUNTER(redis_errors, "error replies to EVALSHA")                                                                  \
    COUNTER(redis_bad_replies, "replies of the wrong shape, with states that cannot be, or that nobody waited for")    \
    COUNTER(                                                                                                           \
        redis_bad_values,                                                                                              \
        "stored values that were malformed and treated as fresh, or of the wrong type; of one batch at most its keys") \
    COUNTER(breaker_opens, "times the breaker opened: Redis refused or was late too often in a row")                   \
    GAUGE(breaker_open, "1 while it is open and checks get their failure answer at once")                              \
    COUNTER(redis_redirects, "calls that a node of a cluster sent on to another one (MOVED, ASK)")                     \
    COUNTER(redis_try_again, "calls that a node of a cluster could not run while their keys were moving (TRYAGAIN)")   \
    COUNTER(redis_away, "checks that waited because their keys had left the node that their call was sent to")         \
    GAUGE(redis_by_slot, "masters of a cluster to which each call holds the keys of one hash slot only")               \
    GAUGE(redis_up, "ready connections to Redis: 1 or 0; in a cluster as many as nodes that are ready")                \
    GAUGE(redis_nodes, "servers that are known: 1; in a cluster its masters")                                          \
    GAUGE(redis_sentinels, "Sentinels in store.redis.addresses")                                                       \
    GAUGE(redis_sentinels_silent, "those of them that gave no answer when they were asked last")                       \
    GAUGE(redis_inflight, "EVALSHA calls waiting for their reply")                                                     \
    COUNTER(denied_from_cache, "denials answered from store.redis.deny_cache, without asking Redis")

COUNTERS_DECLARE(redis, REDIS_COUNTERS);

#endif
