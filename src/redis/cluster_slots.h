/*
 * cluster_slots.h: a cluster's hash slots as one daemon sees them: who has each, and which are held; pure.
 *
 * A hash slot that moves is HELD: its ops wait here, those that were refused and those that come, until no call of it
 * is on its way anywhere (and a time has come). Then all of them go on in the order in which they were submitted, so no
 * op overtakes an earlier one of its client and key.
 */
#ifndef RL_REDIS_CLUSTER_SLOTS_H
#define RL_REDIS_CLUSTER_SLOTS_H

#include "redis/cluster_map.h"
#include "store/store.h"

struct batch_call;
struct redis_node;

struct cluster_slot {
    struct redis_node *owner;     /* NULL = none; not owned, as the next two */
    struct redis_node *new_owner; /* is_held: it has it from then on; NULL: it stays where it is */
    struct batch_call *open;      /* while a call is filled: that one, if it has an op of this hash slot; else NULL */
    uint32_t n_calls;             /* on their way, to any node */
    bool is_held;
    bool is_nobodys;        /* by the last map */
    struct list link;       /* is_held: in `held` */
    struct list ops;        /* is_held: they wait */
    size_t n_sent;          /* is_held: of these, those that a node has refused */
    int64_t held_until_us;  /* is_held: no sooner; CLOCK_MONOTONIC, as the next one */
    int64_t alone_until_us; /* until then each op goes in a call of its own */
    int64_t moved_us;       /* when a node named another owner, and no map has confirmed it yet; 0 = that is over */
};

struct cluster_slots {
    struct cluster_slot of[HASH_SLOTS]; /* pages are touched only when used */
    struct list held;                   /* oldest first */
    size_t n_held;
    bool must_sweep; /* ops of held slots may wait at the nodes: cluster.c takes them before it releases any */
};

struct cluster_slots *cluster_slots_new(void); /* NULL without memory */
void cluster_slots_free(struct cluster_slots *slots);

static inline uint16_t cluster_slots_number(const struct cluster_slots *slots, const struct cluster_slot *slot)
{
    return (uint16_t)(slot - slots->of);
}

/* A node has refused it. */
static inline bool cluster_slots_was_sent(const struct op *op)
{
    return op->n_hops > 0 || op->n_tries > 0;
}

/* Its ops wait from now on, at least until then. */
void cluster_slots_hold(struct cluster_slots *slots, struct cluster_slot *slot, int64_t until_us);
/* The op waits, and op->is_held is true. */
void cluster_slots_add(struct cluster_slot *slot, struct op *op);
/* Take out an op that waits here. */
void cluster_slots_withdraw(struct cluster_slot *slot, struct op *op);
/* It is held no longer: its ops to `to`, with what is there already, by op->number. */
void cluster_slots_release(struct cluster_slots *slots, struct cluster_slot *slot, struct list *to);

#endif
