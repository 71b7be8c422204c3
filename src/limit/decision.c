/*
 * decision.c: the names of an answer's parts, and one answer out of several limits' answers.
 */
#include "limit/decision.h"

#include "base/check.h"
#include "limit/limit.h"

const char *source_name(enum source source)
{
    static const char *const names[] = {
        [SOURCE_REDIS] = "redis",         [SOURCE_MEMORY] = "memory", [SOURCE_DENY_CACHE] = "deny_cache",
        [SOURCE_LEASE] = "lease",         [SOURCE_ALLOW] = "allow",   [SOURCE_DENY] = "deny",
        [SOURCE_UNLIMITED] = "unlimited", [SOURCE_LOCAL] = "local",
    };
    CHECK((size_t)source < sizeof names / sizeof names[0]);
    return names[source];
}

const char *reason_name(enum reason reason)
{
    static const char *const names[] = {
        [REASON_NONE] = NULL,           [REASON_DOWN] = "down",         [REASON_BREAKER] = "breaker",
        [REASON_DEADLINE] = "deadline", [REASON_OVERLOAD] = "overload", [REASON_STORE_ERROR] = "store_error",
    };
    CHECK((size_t)reason < sizeof names / sizeof names[0]);
    return names[reason];
}

/* Never counts as the longest wait. */
static bool waits_longer(int64_t a, int64_t b)
{
    if (b == RETRY_NEVER) return false;
    return a == RETRY_NEVER || a > b;
}

void decision_combine(struct decision *ret, const struct decision *members, const struct limit *const *limits, size_t n)
{
    CHECK(n >= 1);
    struct decision all = members[0];
    const struct limit *binding = members[0].allowed ? NULL : limits[0];
    size_t least = 0;
    for (size_t i = 1; i < n; i++) {
        const struct decision *one = &members[i];
        if (one->remaining < members[least].remaining) least = i;
        if (one->reset_after_ms > all.reset_after_ms) all.reset_after_ms = one->reset_after_ms;
        if (one->delay_ms > all.delay_ms) all.delay_ms = one->delay_ms;
        if (one->granted < all.granted) all.granted = one->granted;
        if (one->allowed) continue;
        if (all.allowed || waits_longer(one->retry_after_ms, all.retry_after_ms)) {
            all.retry_after_ms = one->retry_after_ms;
            binding = limits[i];
        }
        all.allowed = false;
    }
    all.remaining = members[least].remaining;
    all.limit = members[least].limit;
    all.bound_by = n > 1 ? binding : NULL;
    if (!all.allowed) {
        all.granted = 0;
        all.delay_ms = 0;
    }
    *ret = all;
}
