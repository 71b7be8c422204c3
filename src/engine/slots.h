/*
 * slots.h: the slots of concurrency limits that this daemon has given out, and who holds them.
 *
 * What its owner has of a slot is its state, which one function of slots.c changes:
 *
 *   slots_new ─▶ ASKED ── slot_held: the answer allows it ──▶ HELD
 *                  │                                           │ slot_leave (release), slots_end (the owner ends), or
 *                  │ slot_leave: denied, or its owner left     │ a renewal finds the lease gone: it is lost
 *                  └──────────────────▶ LEFT ◀─────────────────┘
 *                                        └ the store has nothing of it, and no op about it ─▶ gone
 *
 * What the store has of it is its lease, as far as is known:
 *
 *   NONE ─┬ the store has admitted it, however late ─▶ TAKEN
 *         └ the store's answer is lost ─▶ DOUBTFUL
 *   TAKEN, DOUBTFUL ── given back, ended by time, or found gone ─▶ NONE
 *
 * A TAKEN lease is renewed every third of slot_ttl while its slot is HELD, and given back once that is LEFT. A DOUBTFUL
 * one is given back then, too, and is not renewed.
 *
 * While the store is away renewals wait and follow as soon as it is back; what has been left is tried until its lease
 * must have ended. A failure answer may allow a slot that the store knows nothing of: it is HELD without a lease
 * (allow), or its lease is in the failure table (local).
 *
 * A reserve takes a slot with its units. Its connection holds it until the reservation is settled or ends, and does not
 * know its id: it goes by the reservation's, so whatever ends that in the store, from any daemon, gives it back there.
 *
 * An op of the store about a slot keeps it alive until it is done.
 */
#ifndef RL_ENGINE_SLOTS_H
#define RL_ENGINE_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/counters.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "engine/calls.h"
#include "engine/deadlines.h"
#include "engine/fair_cap.h"
#include "policy/policy.h"
#include "store/store.h"

#define SLOTS_COUNTERS(COUNTER, GAUGE)                                                                                 \
    COUNTER(slots_acquired, "slots of concurrency limits given out")                                                   \
    COUNTER(slots_released, "slots given back by release")                                                             \
    COUNTER(slots_ended_by_close, "slots that ended with the connection that held them")                               \
    COUNTER(slots_settled,                                                                                             \
            "slots that a reserve took, ended with the reservation: settled, cancelled, reset, or its time was up")    \
    COUNTER(slots_taken_back, "slots whose user lost the right to them by a reload")                                   \
    COUNTER(slots_lost, "slots whose lease was gone when it was to be renewed: reset, evicted, or lost by Redis")      \
    GAUGE(slots, "slots held by connections now")

COUNTERS_DECLARE(slots, SLOTS_COUNTERS);

struct check;
struct failure;

enum slot_state { SLOT_ASKED, SLOT_HELD, SLOT_LEFT };
enum slot_lease { LEASE_NONE, LEASE_TAKEN, LEASE_DOUBTFUL };

/* Who holds slots: a connection. */
struct slot_owner {
    struct list held;
    uint32_t n;         /* held, or asked for */
    uint32_t *n_shared; /* not owned; the same of all connections of its user; NULL: not counted */
};

struct slot {
    enum slot_state state;
    enum slot_lease lease;
    struct map_node node;         /* in by_id, while HELD */
    struct call call;             /* until it is LEFT */
    struct slot_request *request; /* owned; the request id it was asked for with; NULL = none */
    struct list link;             /* in its owner's, while HELD */
    struct list all_link;         /* in slots->held, then in slots->left, then in slots->idle */
    struct heap_node due;         /* always in slots->due: when the store is to be asked */
    struct deadline local;        /* set while the failure table holds it: when to renew that */
    struct slots *slots;          /* not owned */
    struct slot_owner *owner;     /* not owned; NULL once LEFT */
    struct policy_set *set;       /* one reference */
    const struct policy *policy;
    struct slice key; /* the client's; its bytes are behind the members */
    char id[SLOT_ID_LEN];
    bool is_reserved;  /* with units, by an OP_RESERVE */
    int64_t ends_us;   /* CLOCK_MONOTONIC: its reservation has ended by then; INT64_MAX: none, or no timer knows */
    int64_t leased_us; /* CLOCK_MONOTONIC: the store's lease began no earlier */
    int64_t asked_us;  /* CLOCK_MONOTONIC: its own op began */
    uint32_t n_out;    /* ops about it that the store holds, its own included */
    bool is_asking;    /* its own op is one of them */
    struct op op;      /* its own: renews the lease, or gives it back once LEFT */
    uint16_t n_members;
    size_t n_bytes;             /* space behind the members */
    struct op_member members[]; /* its concurrency limits */
};

/* A slot that was asked for with a request id: who asks with it again on its connection gets the same answer. */
struct slot_request {
    struct map_node node; /* in by_request, until the slot is left */
    struct slot *slot;
    struct decision decision; /* the answer, once the slot is held */
    uint8_t len;
    uint8_t id[];
};

struct slots_options {
    uint32_t max;           /* held at once */
    uint32_t max_per_owner; /* held at once, or asked for */
};

struct slots {
    const struct clock *clock; /* not owned */
    struct store *store;       /* not owned */
    struct failure *failure;   /* not owned */
    struct calls *calls;       /* not owned */
    struct policy_set *set;    /* the present policies; not owned */
    struct slots_options options;
    struct map by_id;
    struct map by_request; /* struct slot_request */
    struct list held;
    struct list left;
    struct list idle; /* kept for later; all of the common size */
    uint32_t n_idle;
    struct heap due;
    struct deadlines locals;
    int64_t resume_us; /* the store was away: not to be asked before */
    uint64_t n_made;
    uint32_t n;              /* that are not gone */
    struct fair_cap left_by; /* of these, LEFT ones: max bounds them apart, so that no client waits for another's */
    uint32_t n_given_up;     /* of those that are gone: the daemon stopped, and they were not given back */
    bool closed;             /* the store is closed: nothing is asked of it any more */
    bool leaving;            /* the daemon stops: what cannot be given back at once ends by itself */
};

int slots_init(struct slots *slots, const struct clock *clock, struct store *store, struct failure *failure,
               struct calls *calls, struct policy_set *set,
               const struct slots_options *options); /* 0, or -1 without memory */
void slots_fini(struct slots *slots);                /* all must be gone */

void slot_owner_init(struct slot_owner *owner);
void slots_end(struct slot_owner *owner); /* the owner leaves all that it holds */

/* Which bound keeps the owner from one more slot. */
enum slots_cap { SLOTS_CAP_NONE, SLOTS_CAP_OF_OWNER, SLOTS_CAP_OF_ALL };
enum slots_cap slots_cap_reached(const struct slots *slots, const struct slot_owner *owner);

/* For `check`, a sealed OP_ACQUIRE or OP_RESERVE. NULL: a bound is reached, or memory is short. */
struct slot *slots_new(struct slots *slots, struct check *check, struct slot_owner *owner);
void slot_reserve(struct slot *slot, const struct op_reservation *reservation); /* of its OP_RESERVE, before that */
void slot_held(struct slot *slot, const struct decision *decision); /* its owner learns that it is allowed */
void slot_leave(struct slot *slot);     /* its owner does not have it any more, or never will */
void slot_take_back(struct slot *slot); /* it is HELD, and its owner may not have it any more */
/* `check` has settled its reservation, or the same in the failure table: a slot that came with it is left. */
void slots_settled(struct slots *slots, const struct check *check);
/* The store is done with a check's op about it, an OP_ACQUIRE, OP_RESERVE or OP_RELEASE that n_out counts. The slot may be
 * gone. */
void slot_op_done(struct slot *slot, const struct op *op, enum op_outcome outcome);

/* check_seal() of an OP_RELEASE, whose members are its slot's. 0, or -1 without memory. */
int slot_seal_release(struct check *check);

/* It is the answer to another call of its owner: that one is abandoned with it. */
void slot_answers(struct slot *slot, uint64_t msgid);

/* The slot that `owner` has acquired and holds under this id; NULL: there is none. */
struct slot *slots_find(const struct slots *slots, const struct slot_owner *owner, struct slice id);

/* The slot that `owner` holds, or has asked for, with this policy, key and request id; NULL: there is none. */
struct slot *slots_find_request(const struct slots *slots, const struct slot_owner *owner, const char *policy,
                                struct slice key, struct slice request_id);

int64_t slots_next_due(const struct slots *slots); /* CLOCK_MONOTONIC us; INT64_MAX = nothing to do */
void slots_run(struct slots *slots);               /* renew what is due, and give back what could not be before */
void slots_renew_all(struct slots *slots);         /* at once: the limits' now has jumped */
void slots_resume(struct slots *slots);            /* a test's store is back: what is left is given back at once */
void slots_forget(struct slots *slots);            /* a test's store forgets all: none is held any more */
void slots_policies_changed(struct slots *slots, struct policy_set *set); /* renew by the new ones, soon */
/* The daemon stops, and every owner has left: what cannot be given back at once ends by itself. */
void slots_stop(struct slots *slots);
/* The store closes: nothing is asked of it any more. */
void slots_close(struct slots *slots);

#endif
