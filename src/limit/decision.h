/*
 * decision.h: the answer to "may this happen now, and if not, when?".
 *
 * All durations are whole, relative and rounded up; nothing here is an absolute time. The field
 * order is the order of the wire's array form (PROTOCOL.md, `hello`).
 */
#ifndef RL_LIMIT_DECISION_H
#define RL_LIMIT_DECISION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RETRY_NEVER = -1 };

/* SOURCE(id, word): the wire's word. From ALLOW on it is the policy's failure answer, and `reason` says why. */
#define DECISION_SOURCES(SOURCE)                                                                                       \
    SOURCE(SOURCE_REDIS, "redis")                                                                                      \
    SOURCE(SOURCE_MEMORY, "memory")                                                                                    \
    SOURCE(SOURCE_DENY_CACHE, "deny_cache")                                                                            \
    SOURCE(SOURCE_LEASE, "lease")                                                                                      \
    SOURCE(SOURCE_UNLIMITED, "unlimited")                                                                              \
    SOURCE(SOURCE_ALLOW, "allow")                                                                                      \
    SOURCE(SOURCE_DENY, "deny")                                                                                        \
    SOURCE(SOURCE_LOCAL, "local")

/* REASON(id, word): of failure answers; and the last one, of a denial by the pause of a penalty. */
#define DECISION_REASONS(REASON)                                                                                       \
    REASON(REASON_DOWN, "down")                                                                                        \
    REASON(REASON_BREAKER, "breaker")                                                                                  \
    REASON(REASON_DEADLINE, "deadline")                                                                                \
    REASON(REASON_OVERLOAD, "overload")                                                                                \
    REASON(REASON_STORE_ERROR, "store_error")                                                                          \
    REASON(REASON_PENALTY, "penalty")

#define SOURCE(id, word) id,
enum source { DECISION_SOURCES(SOURCE) N_SOURCES };
#undef SOURCE

#define REASON(id, word) id,
enum reason { REASON_NONE, DECISION_REASONS(REASON) };
#undef REASON

const char *source_name(enum source source); /* "redis", as on the wire */
const char *reason_name(enum reason reason); /* "down", as on the wire; NULL for REASON_NONE */

struct decision {
    int64_t limit;          /* the capacity: limit, or the burst of a bucket */
    int64_t remaining;      /* units that could still be charged now; never below 0 */
    int64_t retry_after_ms; /* 0 when allowed, RETRY_NEVER when no waiting helps */
    int64_t reset_after_ms; /* until the whole limit is available again, without further charges */
    int64_t delay_ms;       /* 0 unless shaping */
    int64_t granted;        /* units charged: the cost when allowed, else 0 */
    const struct limit
        *bound_by;          /* of several limits, the one that denied; else NULL. Lives as long as its policy set */
    const struct limit *of; /* the limit that `limit` and `remaining` are of; if denied, the one that denied. NULL if no
                               limit decided. Lives as long as its policy set */
    int64_t window_ms;      /* of that one: see limit_window_ms() */
    int64_t of_reset_ms;    /* until that one alone is unused again */
    enum source source;
    enum reason reason;
    uint32_t policy_version; /* fingerprint of the policy's settings */
    bool allowed;
    bool near;          /* more than warn_at of the limit is used, of several limits of any */
    bool shadow_denied; /* a shadow policy would have denied */
};

/* Makes the answer of a shadow policy: a denial becomes allowed with shadow_denied; remaining and reset stay.
 */
void decision_shadow(struct decision *decision);

/*
 * Several limits (or several decisions), one decision, all or nothing. retry_after_ms: the longest, never being longer
 * than any; bound_by: of the denying member with the longest; delay_ms the largest, remaining the smallest.
 * limit and reset_after_ms: denied, those of bound_by (but not before the retry); allowed, the limit with the smallest
 * remaining, and the longest reset, after which all are unused; `of` and what belongs to it come with limit. granted is
 * the first member's.
 */
void decision_combine(struct decision *ret, const struct decision *members, size_t n);
/* The same of a check that costs units of some of these limits, and one of others: its `remaining` is the largest cost
 * that would be admitted, so a limit of which a check takes one says nothing about it, unless it is used up or no limit
 * counts units. */
void decision_combine_units(struct decision *ret, const struct decision *members, size_t n);

#endif
