#include "daemon/status.h"

#include <stdio.h>

enum { STATUS_MAX = 1024, REDIS_MAX = 512 };

/* "ready", "ready; it does not decide policy login: NOPERM ...": Redis' own status, and the reason of an episode that
 * is not in it. */
static void print_redis(const struct daemon *daemon, char out[REDIS_MAX])
{
    const struct failure_watch *watch = &daemon->failure_watch;
    const char *status = redis_store_status(daemon->redis), *policy = watch->reason.policy;
    if (!watch->is_episode || watch->reason.cause == CAUSE_DOWN)
        snprintf(out, REDIS_MAX, "%s", status);
    else if (policy[0] == '\0')
        snprintf(out, REDIS_MAX, "%s; it does not decide: %s", status, watch->reason.text);
    else
        snprintf(out, REDIS_MAX, "%s; it does not decide policy %s: %s", status, policy, watch->reason.text);
}

void status_report(const struct daemon *daemon, void (*report)(const char *status))
{
    char text[STATUS_MAX], redis[REDIS_MAX], sentinels[REDIS_SENTINELS_TEXT_MAX] = "";
    size_t n = engine_policies(daemon->engine)->n;
    const char *policies = n == 1 ? "policy" : "policies";
    if (daemon->redis == NULL) {
        snprintf(text, sizeof text, "%zu %s, memory store", n, policies);
    } else {
        print_redis(daemon, redis);
        redis_store_sentinels(daemon->redis, sentinels, sizeof sentinels);
        const char *trial = redis_store_trial(daemon->redis);
        snprintf(text, sizeof text, "%zu %s, Redis: %s%s%s%s%s", n, policies, redis, sentinels[0] != '\0' ? "; " : "",
                 sentinels, trial[0] != '\0' ? "; " : "", trial);
    }
    report(text);
}
