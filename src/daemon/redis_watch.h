/*
 * redis_watch.h: tells people about the connection to Redis, which cannot log itself.
 *
 * Looked at once a second. An outage is a line when it begins, one for each new reason up to a
 * few, and one when it ends: a Redis that is away for a night does not fill the log. One that is away at the
 * start is a warning of its own, which says what checks get meanwhile. With log.level debug each second in which
 * something happened to the connection has a line of its own, and so has the last error reply in it.
 * A key of another type in Redis is a warning, which names the client's key as keys.in_log says.
 */
#ifndef RL_DAEMON_REDIS_WATCH_H
#define RL_DAEMON_REDIS_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/policy.h"
#include "store/redis_store.h"

enum { REDIS_WATCH_STATUS_MAX = 256, REDIS_WATCH_REASONS_MAX = 5 };

enum { REDIS_EVENTS = 6 }; /* that debug lines count */

struct redis_watch {
    bool was_ready;
    unsigned n_reasons; /* logged in this outage */
    char reported[REDIS_WATCH_STATUS_MAX];
    uint64_t n_seen[REDIS_EVENTS];
    int64_t error_us;   /* the last error reply seen; CLOCK_MONOTONIC */
    uint64_t n_foreign; /* ops that met a key of another type, and have been reported */
};

/* Right behind the line that says ready. `policies` say what checks get while Redis is away. */
void redis_watch_start(struct redis_watch *watch, const struct redis_store *redis, const struct policy_set *policies);
/* True: there was news, and it has been logged. */
bool redis_watch_look(struct redis_watch *watch, const struct redis_store *redis);

#endif
