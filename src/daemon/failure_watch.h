/*
 * failure_watch.h: reports when checks get failure answers, and why.
 *
 *   quiet ── a second failure answer within a second, or ──▶ episode ── 10 s without one, and Redis ──▶ quiet
 *            a third of one policy without a decision in       │  ▲     decides, or has shown that it
 *            between, however slow they come                   └──┘     can (a handshake, a probe)
 *                                                                         info: how long, how many
 *              warning: why, and what checks get       warning: another reason, at most one each 10 s
 *
 * Redis may refuse one policy alone (a right to its keys is missing) and decide the others: then the episode is of this
 * policy, until Redis decides it again.
 *
 * The connection is redis_watch.h's. This is about what becomes of the checks: a Redis that is connected may refuse
 * every command (no memory, no replicas, a replica, a cluster) or answer too late. Looked at once a second; what
 * happened in between is in the counters. A key is never in a line: the reason is Redis' own words, or ours.
 */
#ifndef RL_DAEMON_FAILURE_WATCH_H
#define RL_DAEMON_FAILURE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/policy.h"
#include "redis/handshake.h"
#include "redis/store.h"

enum failure_cause { CAUSE_STORE_ERROR, CAUSE_BREAKER, CAUSE_DEADLINE, CAUSE_OVERLOAD, CAUSE_DOWN, N_CAUSES };
enum { FAILURE_TEXT_MAX = 320, FAILURE_ANSWERS_MAX = 160 };

/* What there is to see now. Times are of CLOCK_MONOTONIC. */
struct failure_view {
    int64_t now_us;
    int64_t last_us;                  /* of the last failure answer */
    int64_t decided_us;               /* Redis decided a check last */
    int64_t proven_us;                /* it showed without a check that it works: redis/store.h */
    const char *breaker;              /* why the breaker is open; NULL: it is closed */
    uint64_t n_repeated;              /* failure answers ever that begin an episode: failure.h */
    uint64_t n[N_CAUSES];             /* failure answers, ever */
    uint64_t n_answers[N_ON_FAILURE]; /* the same by what they were */
    const char *status;               /* of the connection: "ready", or what is wrong; printable */
    bool is_ready;                    /* it is */
    struct redis_refusal refusal;
    const struct policy_set *policies;
};

struct failure_reason {
    enum failure_cause cause;      /* N_CAUSES: there was no failure answer */
    enum redis_error error;        /* of CAUSE_STORE_ERROR */
    bool only_some_keys;           /* Redis decides others */
    char policy[NAME_MAX_LEN + 1]; /* Redis refuses this one alone; "" = not one alone */
    char text[FAILURE_TEXT_MAX];   /* printable */
};

struct failure_watch {
    bool is_episode;
    int64_t began_us, seen_us, warned_us;   /* this episode, or the next; the last look; the last warning */
    uint64_t before[N_ON_FAILURE];          /* failure answers when that began */
    uint64_t seen_repeated, seen[N_CAUSES]; /* at the last look */
    int64_t failing_us;                     /* the last look that found failure answers only; 0 = none did */
    struct failure_reason reason;           /* as the last warning gave it; text "" while quiet */
};

/* Before the first check. */
void failure_watch_start(struct failure_watch *watch, int64_t now_us);
/* True: `reason.text` has changed. What there is to report has been logged. */
bool failure_watch_look(struct failure_watch *watch, const struct failure_view *view);

static inline bool failure_watch_lacks_right(const struct failure_watch *watch)
{
    enum redis_error error = watch->reason.error;
    return watch->is_episode && (error == REDIS_ERROR_NOPERM || error == REDIS_ERROR_NOPERM_INSIDE);
}

/* Have all checks got failure answers, until less than 10 s ago? lacks_rights: Redis refuses more than the policies
 * that it has refused so far. */
bool failure_watch_is_down(const struct failure_watch *watch, int64_t now_us, bool lacks_rights,
                           const struct policy_set *policies);

/* What checks get while Redis does not decide: "3 policies allow, 1 denies". Returns `out`. */
const char *failure_answers_text(const struct policy_set *policies, char out[FAILURE_ANSWERS_MAX]);

#endif
