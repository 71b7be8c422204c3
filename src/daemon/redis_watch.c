#include "daemon/redis_watch.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/failure_watch.h"

static void note(struct redis_watch *watch, const struct redis_store *redis)
{
    watch->was_ready = redis_store_ready(redis);
    watch->n_reasons = watch->was_ready ? 0 : watch->n_reasons + 1;
    snprintf(watch->told, sizeof watch->told, "%s", redis_store_status(redis));
}

void redis_watch_start(struct redis_watch *watch, const struct redis_store *redis, const struct policy_set *policies)
{
    char answers[FAILURE_ANSWERS_MAX];
    *watch = (struct redis_watch){0};
    note(watch, redis);
    if (watch->was_ready) return;
    log_warning("Redis: %s; until it is ready, checks get their failure answer: %s", watch->told,
                failure_answers_text(policies, answers));
}

bool redis_watch_look(struct redis_watch *watch, const struct redis_store *redis)
{
    bool is_ready = redis_store_ready(redis);
    bool is_same = strncmp(watch->told, redis_store_status(redis), sizeof watch->told - 1) == 0;
    if (is_ready == watch->was_ready && (is_ready || is_same || watch->n_reasons >= REDIS_WATCH_REASONS_MAX))
        return false;
    note(watch, redis);
    log_line(is_ready ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING, "Redis: %s", watch->told);
    return true;
}
