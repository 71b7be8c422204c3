#include "daemon/status.h"

#include <stdio.h>

enum { STATUS_MAX = 480 };

void status_report(const struct daemon *daemon, void (*report)(const char *status))
{
    char text[STATUS_MAX]; /* "3 policies, Redis: ready" */
    const struct failure_watch *watch = &daemon->failure_watch;
    const char *reason = watch->is_connected ? watch->reason : ""; /* the connection has a status of its own */
    size_t n = engine_policies(daemon->engine)->n;
    if (daemon->redis != NULL)
        snprintf(text, sizeof text, "%zu %s, Redis: %s%s%s", n, n == 1 ? "policy" : "policies",
                 redis_store_status(daemon->redis), reason[0] != '\0' ? "; it does not decide: " : "", reason);
    else
        snprintf(text, sizeof text, "%zu %s, memory store", n, n == 1 ? "policy" : "policies");
    report(text);
}
