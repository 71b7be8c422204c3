/* text.c: what people read: statuses and the version. */
#include "client/ratelimit.h"

const char *ratelimit_status_text(enum ratelimit_status status)
{
    switch (status) {
    case RATELIMIT_OK: return "answered";
    case RATELIMIT_TIMEOUT: return "no answer by the deadline";
    case RATELIMIT_LOST: return "the connection ended before the answer";
    case RATELIMIT_PROTOCOL: return "the answer is not valid";
    case RATELIMIT_UNREACHABLE: return "the daemon cannot be reached";
    case RATELIMIT_REFUSED: return "the daemon answered with an error";
    case RATELIMIT_BAD_ARGUMENT: return "bad argument";
    case RATELIMIT_NO_MEMORY: return "no memory";
    case RATELIMIT_BUSY: return "too many calls in flight";
    case RATELIMIT_CANCELLED: return "the client was freed";
    case RATELIMIT_BREAKER: return "not tried: the last three calls got no answer in time";
    }
    return "unknown status";
}

const char *ratelimit_version(void)
{
    return RL_VERSION;
}
