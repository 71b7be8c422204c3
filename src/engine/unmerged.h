/*
 * unmerged.h: what the failure table has admitted of policies with merge_back, and Redis has not been charged yet.
 *
 * An entry is one counter (a policy's limit, and what the limit counts by) with its units. merge_back.c charges them
 * once the store is back. From then on an entry goes on with what was admitted since, so no unit is charged twice.
 * Bounded like the failure table: beyond that, or without memory, units are dropped (counted).
 */
#ifndef RL_ENGINE_UNMERGED_H
#define RL_ENGINE_UNMERGED_H

#include "base/list.h"
#include "base/map.h"
#include "engine/check.h"

struct unmerged_counter {
    struct map_node node;
    struct list link;   /* in unmerged->waiting; alone while the store is asked */
    int64_t units;      /* admitted since the last merge began */
    int64_t sent;       /* of that merge: charged once, by its id, however often it is sent */
    uint64_t id;        /* 0 = none was drawn yet */
    bool is_doubtful;   /* it was sent, so the store may have charged it */
    int64_t made_us;    /* the store's time when the id was drawn */
    uint32_t server;    /* store_server() when the first of them were admitted: no other one is charged */
    uint32_t version;   /* of the policy: by another one it is not known what was admitted */
    uint32_t n_daemons; /* the fewest of which this one had its share when it admitted them: the largest share */
    uint16_t limit_no;
    bool has_shard_id;
    size_t policy_len, key_len, id_len, shard_id_len;
    uint8_t bytes[]; /* the policy's name, the client's key, the limit's id, what decides the shard */
};

struct unmerged {
    struct map map; /* without memory until the first */
    struct list waiting;
    const struct store *store; /* not owned; NULL: there is one server only */
    size_t n, max;
};

void unmerged_init(struct unmerged *unmerged, size_t max);
void unmerged_fini(struct unmerged *unmerged);

/* The failure table has admitted the check, or all of a check_all whose first it is. */
void unmerged_add(struct unmerged *unmerged, const struct check *check, uint32_t n_daemons);
/* It has settled a reservation, and charged so many units more; below 0: given back. */
void unmerged_settled(struct unmerged *unmerged, const struct check *check, int64_t units, uint32_t n_daemons);
/* A reset: what the check's counters have admitted is charged nowhere; what is on its way to the store is. */
void unmerged_forget(struct unmerged *unmerged, const struct check *check);
/* Is it about what was admitted in another server's place? */
bool unmerged_is_others(const struct unmerged *unmerged, const struct unmerged_counter *counter);
void unmerged_remove(struct unmerged *unmerged, struct unmerged_counter *counter);

struct slice unmerged_policy(const struct unmerged_counter *counter);
struct slice unmerged_key(const struct unmerged_counter *counter);
struct slice unmerged_id(const struct unmerged_counter *counter);
struct slice unmerged_shard_id(const struct unmerged_counter *counter); /* data NULL: the id itself */

#endif
