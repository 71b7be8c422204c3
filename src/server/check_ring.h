/*
 * check_ring.h: the last checks of a kind: those that were denied, those that were slow. A new one takes the place of
 * the oldest. Each has a number, which rises, also over a reset and a change of the size.
 */
#ifndef RL_SERVER_CHECK_RING_H
#define RL_SERVER_CHECK_RING_H

#include <stdint.h>
#include <sys/types.h>

#include "limit/decision.h"
#include "server/kept.h"

struct kept_check {
    uint64_t id;     /* from 1 */
    int64_t time_ms; /* since the epoch */
    struct kept_names names;
    struct kept_key key;
    int64_t cost;
    uid_t uid;
    pid_t pid;
    enum source source;
    enum reason reason;
    int64_t total_us; /* from the read that brought it to its decision; */
    int64_t queue_us; /* of that, until it was sent to a store, or all if it never was */
    int64_t store_us; /* and from then on */
};

/* Zeroed, it keeps none. */
struct check_ring {
    struct kept_check *entries; /* owned; the one with an id is at id % max */
    uint32_t max;
    uint64_t first_id; /* the oldest that is kept, */
    uint64_t next_id;  /* and behind the newest; both 0 before the first */
};

/* With the newest that it has place for. 0, or -1 without memory: it stays as it was. */
int check_ring_set(struct check_ring *ring, uint32_t max);
void check_ring_fini(struct check_ring *ring);

struct kept_check *check_ring_add(struct check_ring *ring); /* its id is set, the rest is the caller's; max > 0 */
void check_ring_clear(struct check_ring *ring);
const struct kept_check *check_ring_at(const struct check_ring *ring, uint64_t id); /* first_id to next_id - 1 */

#endif
