#include "daemon/redis_watch.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

static void note(struct redis_watch *watch, const struct redis_store *redis)
{
    watch->was_ready = redis_store_ready(redis);
    watch->n_reasons = watch->was_ready ? 0 : watch->n_reasons + 1;
    snprintf(watch->told, sizeof watch->told, "%s", redis_store_status(redis));
}

/* "local (2 policies), deny (1)": what the policies answer without Redis, in the order of enum on_failure. */
static const char *answers_meanwhile(const struct policy_set *policies, char *out, size_t size)
{
    static const char *const names[] = {
        [ON_FAILURE_ALLOW] = "allow",
        [ON_FAILURE_DENY] = "deny",
        [ON_FAILURE_LOCAL] = "local",
        [ON_FAILURE_ERROR] = "error",
    };
    size_t n[sizeof names / sizeof names[0]] = {0}, at = 0;
    for (size_t i = 0; i < policies->n; i++) n[policies->in_order[i]->on_failure]++;

    out[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (n[i] == 0) continue;
        at += (size_t)snprintf(out + at, size - at, "%s%s (%zu %s)", at > 0 ? ", " : "", names[i], n[i],
                               n[i] == 1 ? "policy" : "policies");
    }
    return out;
}

void redis_watch_start(struct redis_watch *watch, const struct redis_store *redis, const struct policy_set *policies)
{
    char answers[160];
    *watch = (struct redis_watch){0};
    note(watch, redis);
    if (watch->was_ready) return;
    log_warning("Redis: %s; until it is ready, checks get the answer of their on_failure: %s", watch->told,
                answers_meanwhile(policies, answers, sizeof answers));
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
