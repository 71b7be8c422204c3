/*
 * watch.h: what operators may ask about the checks that were answered: which keys are denied most, which were denied
 * last, which checks took long.
 *
 *   request.c, an answer is written ─▶ watch_takes ─▶ watch_note ─▶ top_keys.h, check_ring.h
 *   views.c                         ─▶ their rows, for `top`, `denials` and `slowlog`
 *
 * Denied is what log.denials means by it (denial_log.h). Its memory has a fixed size, which the settings give.
 */
#ifndef RL_SERVER_WATCH_H
#define RL_SERVER_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/check.h"
#include "server/check_ring.h"
#include "server/top_keys.h"

struct peer;

struct watch_options {
    uint32_t top_keys;
    int64_t top_window_us;
    bool top_granted;
    uint32_t n_denials, n_slow; /* entries */
    int64_t slow_us;            /* from this time on a check is slow; 0: none is */
};

/* Zeroed, nothing is watched but denials, of which none is kept. */
struct watch {
    struct top_keys denied, granted;
    struct check_ring denials, slow;
    int64_t slow_us; /* INT64_MAX: none is */
    bool takes_all;  /* it has to see every check */
};

/* At start, and with a reload. 0, or -1 without memory for some of it, which stays as it was. */
int watch_set(struct watch *watch, const struct watch_options *options);
void watch_fini(struct watch *watch);
void watch_look(struct watch *watch, int64_t now_us); /* each second, and before its tables are read */

/* Is this check, which is decided now, to be noted? */
static inline bool watch_takes(const struct watch *watch, const struct check *check, int64_t now_us)
{
    bool is_usual = check->decision.allowed && !check->decision.near && now_us - check->op.read_us < watch->slow_us &&
                    !watch->takes_all;
    return __builtin_expect(!is_usual, 0);
}

/* Times of CLOCK_MONOTONIC, and since the epoch. */
void watch_note(struct watch *watch, const struct check *check, const struct peer *peer, int64_t now_us,
                int64_t wall_us);

/* Has the check been denied? Else it was allowed, or nothing would have been charged. */
static inline bool watch_is_denied(const struct check *check)
{
    return !check->decision.allowed && op_is_check(check->op.kind);
}

#endif
