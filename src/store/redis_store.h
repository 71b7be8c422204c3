/*
 * redis_store.h: counters in Redis or Valkey, one EVALSHA per loop turn.
 *
 * The store gathers a turn's ops (turn.h packs them), hands them to its one connection
 * (redis_link.h) and spreads the reply over the ops. Rules and reasons: the head of
 * redis_store.c.
 */
#ifndef RL_STORE_REDIS_STORE_H
#define RL_STORE_REDIS_STORE_H

#include <uv.h>

#include "base/clock.h"
#include "store/store.h"

struct redis_store;

struct redis_options {
    const char *address;    /* "unix:/path" or "host:port"; copied, as are the other strings */
    const char *username;   /* NULL = the default user */
    const char *password;   /* NULL = none */
    const char *key_prefix; /* "rl" */
    int database;
    uint32_t batch_max_keys; /* unique keys in one EVALSHA, 1 to 64 */
    bool merge;              /* equal checks of one key in one turn become one */
    uint32_t max_inflight;   /* EVALSHA calls without reply; beyond: SUBMIT_OVERLOAD */
    uint64_t max_output;     /* bytes waiting to be written; beyond: SUBMIT_OVERLOAD */
    uint32_t stall_ms;       /* the oldest command may wait this long for its reply, then the connection is closed */
    uint32_t backoff_min_ms, backoff_max_ms, refused_max_ms; /* reconnect, full jitter */
    uint64_t random_seed;                                    /* jitter */
};

/* NULL without memory. `clock` outlives the store. Starts to connect in the next turn. */
struct redis_store *redis_store_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options);
struct store redis_store_handle(struct redis_store *redis);

bool redis_store_ready(const struct redis_store *redis);
/* Called once when the first connection attempt has ended, well or not (the daemon waits for it, a little, before it
 * says READY). */
void redis_store_on_first_attempt(struct redis_store *redis, void (*callback)(void *arg), void *arg);
/* One line for people: "ready", or why not, e.g. "connection refused (unix:/run/redis.sock)". Valid until the next
 * call. */
const char *redis_store_status(const struct redis_store *redis);
/* Reload: what may change while running. */
void redis_store_set_options(struct redis_store *redis, const struct redis_options *options);

#endif
