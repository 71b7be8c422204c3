/*
 * merge_back.h: charges in the store what the failure table has admitted, of policies with merge_back, while the store
 * was away.
 *
 *   merge_back_add             each counter (a policy's limit, and what the limit counts by) has its units. From the
 *                              merge on it goes on with what was admitted since, so no unit is charged twice
 *   a peek of one counter      is the store back, and what time has it?
 *   OP_SETTLE of a merge       for each counter, ERRAND_MERGES_MAX at once: what the table still counts of its units
 *
 * Units whose window has ended count nowhere and are dropped. The id of a merge is drawn once and kept until the store
 * has answered: the store remembers it, so a merge whose answer was lost is sent again and charges once. It is
 * remembered as long as the units may count, at most MERGE_TTL_MAX_MS; after that it charges nothing.
 *
 * A policy that has changed since, or is gone, is not charged; nor is another server that a reload names. What waits
 * when the daemon ends is lost. Bounded like the failure table: beyond that, or without memory, units are dropped
 * (counted).
 */
#ifndef RL_ENGINE_MERGE_BACK_H
#define RL_ENGINE_MERGE_BACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "base/slice.h"
#include "store/store.h"

enum {
    MERGE_RETRY_US = 200000,   /* between looks whether the store is back */
    MERGE_TTL_MIN_MS = 600000, /* a merge can be sent again for at least this time */
    MERGE_TTL_MAX_MS = 12 * 3600000,
};

struct check;
struct engine;

/* Units of one counter that the store has not been charged. */
struct unmerged {
    struct map_node node;
    struct list link;   /* in merge_back->waiting; alone while the store is asked */
    int64_t units;      /* admitted since the last merge began */
    int64_t sent;       /* of that merge: charged once, by its id, however often it is sent */
    uint64_t id;        /* 0 = none was drawn yet */
    bool is_doubtful;   /* it was sent, so the store may have charged it */
    bool is_peeked;     /* the store is asked for its time, by a peek of it */
    int64_t made_us;    /* the store's time when the id was drawn */
    uint32_t server;    /* store_server() when the first of them were admitted: no other one is charged */
    uint32_t version;   /* of the policy: by another one it is not known what was admitted */
    uint32_t n_daemons; /* the fewest of which this one had its share when it admitted them: the largest share */
    uint16_t limit_no;
    bool has_shard_id;
    size_t policy_len, key_len, id_len, shard_id_len;
    uint8_t bytes[]; /* the policy's name, the client's key, the limit's id, what decides the shard */
};

struct merge_back {
    const struct store *store; /* not owned */
    struct map map;            /* struct unmerged; without memory until the first */
    struct list waiting;       /* those of them that no merge is under way for */
    size_t n, max;             /* of all */
    int64_t next_us;           /* CLOCK_MONOTONIC: not to be asked before */
    int64_t ahead_us;          /* if knows_time: the store's clock minus the host's */
    bool knows_time;           /* the store has answered since it last failed */
    uint64_t n_started;        /* ids drawn, ever */
};

void merge_back_init(struct merge_back *merge_back, const struct store *store, size_t max);
void merge_back_fini(struct merge_back *merge_back); /* the store must be closed */

/* The failure table has admitted the check, or all of a check_all whose first it is. */
void merge_back_add(struct merge_back *merge_back, const struct check *check, uint32_t n_daemons);
/* It has settled a reservation, and charged so many units more; below 0: given back. */
void merge_back_settled(struct merge_back *merge_back, const struct check *check, int64_t units, uint32_t n_daemons);
/* A reset: what the check's counters have admitted is charged nowhere; what is on its way to the store is. */
void merge_back_forget(struct merge_back *merge_back, const struct check *check);
/* The same of all; none is on its way to the store. */
void merge_back_forget_all(struct merge_back *merge_back);

struct slice unmerged_key(const struct unmerged *counter); /* the client's */
struct slice unmerged_id(const struct unmerged *counter);  /* of the limit */

int64_t merge_back_next_us(const struct engine *engine); /* CLOCK_MONOTONIC us; INT64_MAX = nothing to do */
void merge_back_run(struct engine *engine);

#endif
