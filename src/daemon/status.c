#include "daemon/status.h"

#include <stdio.h>

enum { STATUS_MAX = 800 };

void status_report(const struct daemon *daemon, void (*report)(const char *status))
{
    char text[STATUS_MAX]; /* "3 policies, Redis: ready" */
    const struct failure_watch *watch = &daemon->failure_watch;
    bool is_connected = watch->is_episode && watch->reason.cause != CAUSE_DOWN; /* else its status has the reason */
    const char *policy = is_connected ? watch->reason.policy : "";
    size_t n = engine_policies(daemon->engine)->n;
    char sentinels[REDIS_SENTINELS_TEXT_MAX] = "";
    if (daemon->redis != NULL) redis_store_sentinels(daemon->redis, sentinels, sizeof sentinels);
    if (daemon->redis != NULL)
        snprintf(text, sizeof text, "%zu %s, Redis: %s%s%s%s%s%s%s%s", n, n == 1 ? "policy" : "policies",
                 redis_store_status(daemon->redis), is_connected ? "; it does not decide" : "",
                 policy[0] != '\0' ? " policy " : "", policy, is_connected ? ": " : "",
                 is_connected ? watch->reason.text : "", sentinels[0] != '\0' ? "; " : "", sentinels);
    else
        snprintf(text, sizeof text, "%zu %s, memory store", n, n == 1 ? "policy" : "policies");
    report(text);
}
