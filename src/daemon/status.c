#include "daemon/status.h"

#include <stdio.h>

#include "server/service.h"

enum { STATUS_MAX = 480 };

/* "3 policies, Redis: ready" into `out`, which is returned. */
static const char *status_text(const struct daemon *daemon, char out[STATUS_MAX])
{
    const struct failure_watch *watch = &daemon->failure_watch;
    const char *reason = watch->is_connected ? watch->reason : ""; /* the connection has a status of its own */
    size_t n = engine_policies(daemon->engine)->n;
    if (daemon->redis != NULL)
        snprintf(out, STATUS_MAX, "%zu %s, Redis: %s%s%s", n, n == 1 ? "policy" : "policies",
                 redis_store_status(daemon->redis), reason[0] != '\0' ? "; it does not decide: " : "", reason);
    else
        snprintf(out, STATUS_MAX, "%zu %s, memory store", n, n == 1 ? "policy" : "policies");
    return out;
}

void status_ready(const struct daemon *daemon)
{
    char text[STATUS_MAX];
    service_ready(status_text(daemon, text));
}

void status_change(const struct daemon *daemon)
{
    char text[STATUS_MAX];
    service_status(status_text(daemon, text));
}
