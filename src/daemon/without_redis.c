/*
 * without_redis.c: compiled only while the tree has no src/store/turn.c, so that the daemon
 * runs on its memory store; `store.type: redis` is then refused at start.
 */
#include <stdlib.h>

#include "base/log.h"
#include "store/redis_store.h"

struct redis_store *redis_store_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options)
{
    (void)loop, (void)clock, (void)options;
    log_error("this build has no Redis store");
    return NULL;
}

struct store redis_store_handle(struct redis_store *redis)
{
    (void)redis;
    abort();
}

bool redis_store_ready(const struct redis_store *redis)
{
    return redis != NULL;
}

void redis_store_on_first_attempt(struct redis_store *redis, void (*callback)(void *arg), void *arg)
{
    (void)redis, (void)callback, (void)arg;
}

const char *redis_store_status(const struct redis_store *redis)
{
    (void)redis;
    return "";
}

void redis_store_set_options(struct redis_store *redis, const struct redis_options *options)
{
    (void)redis, (void)options;
}
