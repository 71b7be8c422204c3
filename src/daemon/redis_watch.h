/*
 * redis_watch.h: logs the state of the connection to Redis; the store does not log.
 *
 * It looks once a second. An outage has one line when it begins, one for each new reason (up to a few), and one when it
 * ends, so that a long outage does not fill the log. If Redis is away at the start, a warning reports what checks get
 * for that time. With log.level debug, each second with events of the connection has a line, and so has the last error
 * reply of that second. A key of another type in Redis is a warning, with the client's key in the form of keys.in_log.
 * If the daemons cannot be counted (redis/daemons.h), one warning says so, and one line when they can again.
 */
#ifndef RL_DAEMON_REDIS_WATCH_H
#define RL_DAEMON_REDIS_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/policy.h"
#include "redis/options.h"
#include "redis/store.h"

enum { REDIS_WATCH_STATUS_MAX = 256, REDIS_WATCH_REASONS_MAX = 5 };

enum { REDIS_EVENTS = 6 }; /* that debug lines count */

/* A Sentinel. */
struct redis_watch_passed {
    char why[384];    /* it was passed over, as was reported; "" = it was not */
    unsigned n_lines; /* about it, since Redis was ready and this stayed the same */
};

struct redis_watch {
    bool was_ready;
    unsigned n_reasons; /* logged in this outage */
    char reported[REDIS_WATCH_STATUS_MAX];
    uint64_t n_seen[REDIS_EVENTS];
    int64_t error_us; /* the last error reply seen; CLOCK_MONOTONIC */
    struct redis_watch_passed passed[REDIS_ADDRESSES_MAX];
    char sentinels[REDIS_SENTINELS_TEXT_MAX]; /* as was reported */
    uint64_t n_foreign;                       /* ops that met a key of another type, and have been reported */
    char trial[REDIS_TRIAL_TEXT_MAX];         /* redis_store_trial(), as was reported */
    unsigned n_trials;                        /* reported of it */
    uint64_t n_taken;                         /* redis_store_taken(), likewise */
    bool has_fault;                           /* the daemons cannot be counted, which has been reported */
};

/* Call it after the line "ready" is logged. `policies`: their failure answers are reported. */
void redis_watch_start(struct redis_watch *watch, const struct redis_store *redis, const struct policy_set *policies);
/* True: something was logged, or other Sentinels answer. */
bool redis_watch_look(struct redis_watch *watch, struct redis_store *redis);
/* After a reload: what is on trial is reported once more. */
void redis_watch_trial_again(struct redis_watch *watch);

#endif
