/*
 * unit_leases.h: units of a busy key, charged in the store ahead of the checks that use them (a policy's `lease`), so
 * that those are decided here.
 *
 * A check of a busy key that goes to the store anyway asks for more than its own unit, as an at_most does: no other op,
 * no other script. What is granted beyond one is the key's lease. A later plain check takes its cost from it, and its
 * answer is made from the state that the store had after the grant less the units that are not used yet: by the
 * arithmetic of every store. So is that of a check that was on its way behind the grant, and met a state in which the
 * units count as used: near the limit's end it would be denied for them.
 *
 * Never above the limit. A unit was charged before it is used, and it is used only while it still counts, by a clock
 * that is not behind the store's:
 *   windows   in the window that it was charged in
 *   buckets   while it has not drained: of a lease at most floor(level / b) units are left, `level` being that after
 *             the grant, drained since. So all unused units and the bucket's tokens together are never more than the
 *             burst, however many daemons hold some (the proof is in ALGORITHMS.md)
 * Keys that share a counter may have overrides: units go only to a key whose limit is not below that of the key they
 * were granted for.
 *
 * Unused units go back by a refund that names the moment of the grant: at the lease's age, and right before any other
 * op of the key from here, so that it finds them free. Those of a bucket go back only if no other daemon was charged
 * since, for later leases count on its level: the store compares it with the one that this daemon knows. Else they are
 * lost, and come back with time; so if others were seen to be charged, the lease is kept over ops that can do without
 * it. A daemon that is killed loses what it holds.
 *
 * Units are of the server that charged them. If a reload names another one they are lost, and one that goes back
 * meanwhile goes to the server that it came from, or nowhere (op->is_bound).
 *
 * A lease is at most an eighth of what is left, and no more than the last one's use suggests. A key that hardly uses
 * its lease, or is left alone for as long, has to become busy anew before it takes another. An entry with units keeps
 * its policies alive, so a reload leaves it alone: under another version of the policy its units go back.
 */
#ifndef RL_ENGINE_UNIT_LEASES_H
#define RL_ENGINE_UNIT_LEASES_H

#include "engine/deadlines.h"
#include "engine/errand.h"
#include "store/counter_table.h"

struct unit_leases {
    const struct clock *clock; /* not owned */
    struct errands *errands;   /* not owned; ERRAND_LEASE: units that go back */
    struct counter_table keys; /* struct unit_lease; reserved when a policy with `lease` is asked */
    struct deadlines ages;     /* of those with units */
    bool is_over;              /* unit_leases_stop(): what is still granted goes back at once */
    uint32_t server;           /* whose units are held */
};

void unit_leases_init(struct unit_leases *leases, const struct clock *clock, struct errands *errands);
void unit_leases_fini(struct unit_leases *leases); /* the store must be closed */

/* May units of a limit that the sealed check asks be held? Only such checks come to the next functions. */
bool unit_leases_concern(const struct unit_leases *leases, const struct check *check);
/* Decides a plain check by units that are held. False: ask the store, after unit_leases_submit(). */
bool unit_leases_decide(struct unit_leases *leases, struct check *check);
/* Gives back what the check must find free, and lets it ask for a lease if its key is busy. */
void unit_leases_submit(struct unit_leases *leases, struct check *check);
/* Once for each: what the store made of it. The check's own answer becomes that of its own units, and of one behind the
 * grant as if the units that are held were free. */
void unit_leases_answered(struct unit_leases *leases, struct check *check, enum op_outcome outcome);

int64_t unit_leases_next_us(const struct unit_leases *leases); /* CLOCK_MONOTONIC; INT64_MAX = nothing to do */
void unit_leases_run(struct unit_leases *leases);              /* gives back some of those that have their age */
/* The daemon stops: no more are taken, and unit_leases_run() gives back all, as fast as the store answers. */
void unit_leases_stop(struct unit_leases *leases);
bool unit_leases_are_held(const struct unit_leases *leases); /* or on their way back */
/* The store closes: gives back as many as it takes at once, and loses the rest. */
void unit_leases_end(struct unit_leases *leases);

#endif
