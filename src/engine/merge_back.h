/*
 * merge_back.h: charges in the store what the failure table has admitted while the store was away (unmerged.h).
 *
 *   a peek of one counter      is the store back, and what time has it?
 *   OP_SETTLE of a merge       for each counter, MERGES_MAX at once: what the table still counts of its units
 *
 * Units whose window has ended count nowhere and are dropped. The id of a merge is drawn once and kept until the store
 * has answered: the store remembers it, so a merge whose answer was lost is sent again and charges once. It is
 * remembered as long as the units may count, at most MERGE_TTL_MAX_MS; after that it charges nothing.
 *
 * A policy that has changed since, or is gone, is not charged; nor is another server that a reload names. What waits
 * when the daemon ends is lost.
 */
#ifndef RL_ENGINE_MERGE_BACK_H
#define RL_ENGINE_MERGE_BACK_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/unmerged.h"
#include "store/store.h"

enum {
    MERGES_MAX = 64,           /* under way, so in one tick too */
    MERGE_RETRY_US = 200000,   /* between looks whether the store is back */
    MERGE_TTL_MIN_MS = 600000, /* a merge can be sent again for at least this time */
    MERGE_TTL_MAX_MS = 12 * 3600000,
};

struct engine;

/* One op of the store. */
struct merge {
    struct op op;
    struct op_member member;
    struct op_reservation reservation;
    struct unmerged_counter *counter; /* stays until the op is done */
    struct policy_set *set;           /* that holds the limit: one reference */
    struct engine *engine;
    struct merge *next; /* idle */
};

struct merge_back {
    struct merge *merges; /* owned, MERGES_MAX; NULL until first needed */
    struct merge *idle;
    size_t n_out;       /* the store has them */
    int64_t next_us;    /* CLOCK_MONOTONIC: not to be asked before */
    int64_t ahead_us;   /* if knows_time: the store's clock minus the host's */
    bool knows_time;    /* the store has answered since it last failed */
    uint64_t n_started; /* ids drawn, ever */
};

int64_t merge_back_next_us(const struct engine *engine); /* CLOCK_MONOTONIC us; INT64_MAX = nothing to do */
void merge_back_run(struct engine *engine);
void merge_back_fini(struct merge_back *merge_back); /* the store must be closed */

#endif
