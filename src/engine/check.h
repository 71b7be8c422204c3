/*
 * check.h: one check from admission to release: what its owner asks, the op that asks a store, and the answer.
 *
 *   engine_check_new   from the pool, of one kind; the owner sets plan, key, cost and options
 *   check_join         of a check_all: the checks that are decided together
 *   check_seal         copies the keys and fills the op in place: nothing points into the message any more
 *   engine_submit      done runs exactly once
 *   check_release      back to the pool when owner and store have both let go
 *
 * Two hold a check: its owner (a request, or the engine itself, see errand.h) until it releases it, before or after
 * `done`; and the store from submit until reply or loss. The checks in the pool keep their memory, so a
 * warmed-up daemon allocates nothing here; of a burst of large ones only some do, so that its memory comes back.
 *
 * The checks of a check_all are charged all or none: they are joined to the first of them, whose op has the limits of
 * all as its members. Only that one is sealed, submitted and done; each has its own plan, key, cost and decision. A
 * check of a shadow policy is not joined to them, so that it takes nothing from the others and denies them nothing.
 */
#ifndef RL_ENGINE_CHECK_H
#define RL_ENGINE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/slice.h"
#include "engine/deadlines.h"
#include "policy/policy.h"
#include "proto/error.h"
#include "store/store.h"

struct engine;
struct errands;
struct reservation;
struct slot;
struct split;

enum {
    CHECK_INLINE_BYTES = 96,
    CHECK_INLINE_MEMBERS = 2,
    CHECK_ALL_MAX = POLICY_LIMITS_MAX, /* checks of a check_all */
    REQUEST_ID_MAX = 64,
};

enum check_state {
    CHECK_NEW,
    CHECK_WAITING,  /* submitted: its owner waits for the answer */
    CHECK_ANSWERED, /* `done` ran, and the owner still has it */
    CHECK_OVER,     /* answered and released */
    CHECK_LEFT,     /* released without an answer; as after CHECK_OVER, the store may still hold its op */
};

enum candidate_verdict { VERDICT_NONE, VERDICT_ALLOWED, VERDICT_DENIED };

struct check {
    struct op op; /* check_seal() fills it */

    /* the question: the owner's */
    const struct plan *plan;  /* of the policy that counts for the key */
    struct slice key;         /* the client's; in the check's bytes once that is sealed */
    int64_t cost;             /* of a refund: the units; with at_most: 1 */
    int64_t at_most;          /* as many units as fit, up to this; 0 = the cost */
    const struct limit *only; /* OP_RESET and OP_REFUND: only this limit of the policy, even if other keys share its
                                 counter; NULL: all limits */
    int64_t max_wait_us;      /* a longer delay is a denial */
    bool has_max_wait;        /* else each limit's own */
    uint32_t deadline_ms;     /* 0 = the policies' */
    enum reason local_reason; /* OP_SETTLE: not NONE: a local failure answer, for this reason, made the reservation */
    uint32_t index;           /* for the owner: its index in the request's list */
    struct slice request_id;  /* empty = none; its bytes are the owner's until check_seal() */
    struct slot *slot;        /* OP_ACQUIRE and OP_RELEASE: the one it is about, not owned */
    uint64_t msgid;           /* OP_ACQUIRE and OP_RESERVE: by which its client can abandon it */
    void (*done)(struct check *check); /* exactly once; may run within engine_submit(); never once released */
    void *owner;                       /* the engine never looks */
    struct check *next;                /* the owner's next one, or the pool's; not owned */

    /* the answer, with the decision */
    enum error_code error;     /* ERROR_NONE: the decisions count */
    const char *error_message; /* static */
    bool removed;              /* OP_RESET; OP_RELEASE: given back */
    int64_t refunded;          /* OP_REFUND: of several limits the most that one gave back */

    /* the engine's */
    enum check_state state;
    bool in_store;        /* between SUBMIT_PENDING and op.done */
    bool may_merge_back;  /* a local answer has admitted it while it was in the store, which may charge it too */
    bool is_sealed;       /* its op is filled */
    bool is_special;      /* not the usual check: joined, its plan not plain, or an op that is no check or peek */
    bool is_leased;       /* a limit of it leases units (unit_leases.h) */
    bool is_busy;         /* a plain one, and its key may have a lease here */
    bool asks_lease;      /* and its op asks for more units than its own */
    int64_t n_leased;     /* units of its one counter that this daemon held when it was submitted */
    bool is_merged;       /* of a check_all: some share a counter, which is charged their sum */
    bool is_split;        /* its parts are asked in its place (split.h) */
    bool is_part;         /* of one that is split */
    uint8_t n_all;        /* of the first of a check_all: how many they are; else 1 */
    uint8_t n_unreleased; /* of these, those that their owner still has */
    uint8_t n_limits;     /* that the store is asked about */
    uint8_t errand_kind;  /* errand.h */
    struct engine *engine;
    struct errands *errands; /* the check is the engine's own: no request waits for it; else NULL */
    void (*errand_done)(struct check *errand, enum op_outcome outcome);
    struct reservation *making;    /* OP_RESERVE: its entry while the store is asked; NULL = none; not owned */
    struct policy_set *set;        /* that holds its plan: one reference */
    struct check *first;           /* of a check_all: the one that asks for all of them; else itself */
    struct check *joined;          /* of a check_all: the next one of them; NULL = none */
    struct check *candidate_check; /* asks the plan's candidate, until one of the two is over; or NULL */

    /* of a candidate's check (candidate.h) */
    struct check *enforced_check;                     /* the one it was made for; NULL once that is over */
    enum candidate_verdict verdict, enforced_verdict; /* its own, and that of the enforced limits */

    struct decision decision;                /* the answer */
    uint8_t member_index[POLICY_LIMITS_MAX]; /* of a check_all: of each limit, its index among the op's members */

    /* kept while in the pool */
    struct check_pool *pool;
    struct deadline deadline;
    struct op_reservation reservation; /* OP_RESERVE: the owner sets ttl_ms; OP_SETTLE: all but the results */
    struct split *split;               /* if is_split; owned there */
    struct op_member *all_members;     /* owned; NULL until more limits came than inline_members has space for */
    uint8_t *bytes;                    /* owned; NULL until longer ones came than inline_bytes has space for */
    size_t bytes_cap;
    uint8_t members_cap;
    struct op_member inline_members[CHECK_INLINE_MEMBERS];
    uint8_t inline_bytes[CHECK_INLINE_BYTES]; /* key, ids of shared limits, the idempotency record's name */
};

/* An answered check's decision of its i-th limit, of several. */
static inline const struct decision *check_decision_of(const struct check *check, uint8_t i)
{
    const struct check *first = check->first;
    return &first->op.members[first->n_all > 1 ? check->member_index[i] : i].decision;
}

/* All checks of a check_all, or the one; const if that is. */
#define CHECK_FOREACH(it, check_) for (__typeof__(check_) it = (check_); it != NULL; it = it->joined)

/* ---- the pool: slabs that grow with need and are kept; the last one returned is the next one taken ---- */

struct check_slab;

struct check_pool {           /* {0}: empty */
    struct check *idle;       /* chained by check->next */
    struct check *large;      /* the same: those with storage beyond their own, which others take over */
    size_t n_large;           /* of these */
    struct check_slab *slabs; /* owned */
    size_t n_out;             /* checks taken and not yet returned */
};

void check_pool_fini(struct check_pool *pool);          /* every check must be back */
struct check *check_pool_take(struct check_pool *pool); /* zero but for what it keeps; NULL without memory */
void check_pool_return(struct check_pool *pool, struct check *check); /* with those joined; lets go of the policies */

/* ---- the question ---- */

/* Makes `check`, which nothing is joined to, one of the check_all that `first` begins. */
void check_join(struct check *first, struct check *check);

/* Copy the keys and fill the op, once the owner has set everything; of a check_all for all of them. Each key fits its
 * policy's format; all plans together have POLICY_LIMITS_MAX limits at most. 0, or -1 without memory. */
int check_seal(struct check *check);

/* Space for n members: op.members, filled by the caller. 0, or -1 without memory. */
int check_make_members(struct check *check, size_t n);
/* Space for `len` bytes: of keys, ids of shared limits and the record's name. NULL without memory. */
uint8_t *check_make_bytes(struct check *check, size_t len);

/* The units that a check is granted if nothing is used yet. */
int64_t check_asked(const struct check *check);

/* ---- the answer: each function takes the first of a check_all ---- */

/* Decides the check by its plans alone, if they can: a limit of 0 denies all. True: the decisions are filled, with this
 * source and time, except those that check_answer_unlimited() fills. False: a store must be asked. */
bool check_decide_by_plans(struct check *check, enum source source, int64_t now_us);
/* After the others have their decisions: grants an unlimited one what it asks for, if they are allowed. */
void check_answer_unlimited(struct check *check);
/* Makes each decision from the answers of its members, with this source. */
void check_take_answer(struct check *check, const struct op *op, enum source source);
/* In the counts of its policies and of the engine: each of a check_all, all as the whole was decided. */
void check_count_decided(const struct check *check);
/* Combines the decisions of n checks of a check_all; `granted` is their sum. Source and reason are those of a failure
 * answer, if it decides: one that denies, or if all are allowed. */
void check_combine(const struct check *const *checks, size_t n, struct decision *ret);

#endif
