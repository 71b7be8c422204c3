/*
 * wait.h: when to ask again after a denial, for ratelimit_check_wait(), ratelimit_acquire_wait() and ratelimitctl's
 * --wait.
 *
 * A denial says when its units are free again: ask then, or up to 10 % later, so that those who wait for the same limit
 * do not all ask at the same moment. When the holder of a slot will be done is not known: ask after 50 ms, then after
 * pauses that double up to a second.
 *
 * This is not fair: the first client to ask gets what is available, however long others have waited.
 */
#ifndef RL_CLIENT_WAIT_H
#define RL_CLIENT_WAIT_H

#include <stdint.h>

#include "client/ratelimit.h"

enum wait_kind { WAIT_FOR_UNITS, WAIT_FOR_SLOT };

enum { WAIT_OVER = -1 };

struct wait {
    enum wait_kind kind;
    int64_t until_ms;      /* INT64_MAX: no end */
    int64_t slot_pause_ms; /* the next pause before an acquire, without its jitter */
    uint64_t random;       /* the state of base/random.h */
};

/* For at most `most_ms` from now on; negative: without end. */
void wait_start(struct wait *wait, enum wait_kind kind, int64_t most_ms, int64_t now_ms, uint64_t seed);

/* The pause after a denial, or WAIT_OVER: the time is over, or waiting for the rest of it would not help. */
int64_t wait_next_ms(struct wait *wait, int64_t retry_after_ms, int64_t now_ms);

int64_t wait_left_ms(const struct wait *wait, int64_t now_ms); /* INT64_MAX: no end */

int64_t wait_now_ms(void); /* CLOCK_MONOTONIC */
uint64_t wait_seed(void);

/* Sleep until the decision's delay is over, or until it is time to ask again; signals do not shorten that. True: ask
 * again. */
bool wait_after(struct wait *wait, const struct ratelimit_decision *decision);

#endif
