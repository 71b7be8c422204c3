/*
 * check.h: one check from admission to release.
 *
 * A check has two owners: the asker (a session's call, or the engine itself, for a sweep or a candidate) until it
 * releases it, before or after `done`, and the store from submit until reply or loss. It goes back to the pool when
 * both have let go. It carries everything its life needs; a pooled check keeps its key and member storage, so a
 * warmed-up daemon allocates nothing here.
 *
 * The members of a check_all are a check each, chained by `also`. The first stands for all: it alone
 * is submitted, answered and released, its op has the limits of them all, and the others' keys live
 * as long as it does. Each gets its own decision; check_whole() makes one of them. A shadow policy is not among them:
 * it is asked apart, so that it takes nothing from the others and denies them nothing.
 */
#ifndef RL_ENGINE_CHECK_H
#define RL_ENGINE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/slice.h"
#include "engine/deadlines.h"
#include "limit/policy.h"
#include "proto/error.h"
#include "store/store.h"

struct engine;
struct slot;

enum { CHECK_INLINE_KEY = 96, CHECK_INLINE_MEMBERS = 2, REQUEST_ID_MAX = 64 };

enum trial_verdict { VERDICT_NONE, VERDICT_ALLOWED, VERDICT_DENIED };

struct check {
    /* the asker's */
    enum op_kind kind;
    uint64_t party;              /* the connection's number, for a fair share of the store; 0 = the engine itself */
    uint32_t deadline_ms;        /* 0 = the policy's */
    const struct policy *policy; /* held through `set` */
    struct slice key;            /* into inline_key or big_key */
    const struct limit *only;    /* OP_RESET and OP_REFUND: the one limit of the policy that is meant, whoever shares
                                    its counter; NULL: those that a plain one is about */
    int64_t cost;                /* of a refund: the units; with at_most: 1 */
    int64_t at_most;             /* as many units as fit, up to this; 0 = the cost */
    uint8_t request_id_len;      /* 0 = none; of a check_all that of the first counts */
    bool has_max_wait;           /* else the policy's */
    int64_t max_wait_us;         /* a delay that will do, where the policy's may be longer */
    void (*done)(struct check *check); /* exactly once; may run within engine_submit(); never once released */
    void *asker;                       /* not owned; the engine never looks */
    struct check *next;                /* the asker's: the next one of the same request; not owned */
    enum reason local_reason;          /* OP_SETTLE: not NONE: a local failure answer, for this, made the hold */
    struct slot *slot;                 /* OP_ACQUIRE and OP_RELEASE: the one it is about, not owned */
    bool is_all;                       /* the first of a check_all: those behind it are its members too */
    struct check *also;                /* of a check_all: the member behind it; owned by the first */

    struct check *beside; /* the check that asks its policy's candidate, or of such a one the check it was made for;
                             NULL once that is over (candidate.h) */
    enum trial_verdict verdict;  /* of a candidate's check: its own */
    enum trial_verdict enforced; /* and that of the other one */

    /* the answer */
    enum error_code error;     /* ERROR_NONE: the decision counts */
    const char *error_message; /* static */
    struct decision decision;
    bool removed;     /* OP_RESET; OP_RELEASE: given back */
    int64_t refunded; /* OP_REFUND: of several limits the most that one gave back */

    /* the engine's */
    bool answered;    /* `done` ran */
    bool released;    /* the asker has let go; `asker` may be gone */
    bool store_holds; /* between SUBMIT_PENDING and op.done */
    struct engine *engine;
    struct policy_set *set; /* one reference */
    struct deadline deadline;
    struct op op;
    struct slice note; /* check_note.h; empty until named */

    /* kept while in the pool */
    struct list link;          /* in the pool */
    struct op_hold hold;       /* meaningless but for OP_RESERVE, where the asker sets ttl_ms, and OP_SETTLE, where he
                                  sets all but the results */
    struct op_member *members; /* inline_members or big_members */
    struct op_member *big_members; /* owned; NULL until a policy of more limits came; room for POLICY_LIMITS_MAX */
    uint8_t *big_key;              /* owned; NULL until a longer key came */
    size_t big_cap;
    uint8_t *ids; /* owned; NULL until a policy came that joins parts of the key */
    size_t ids_cap;
    uint8_t *note_bytes; /* owned; NULL until a request id came */
    size_t note_cap;
    uint8_t request_id[REQUEST_ID_MAX];
    struct op_member inline_members[CHECK_INLINE_MEMBERS];
    uint8_t inline_key[CHECK_INLINE_KEY];
};

static inline void check_set_request_id(struct check *check, struct slice id)
{
    check->request_id_len = (uint8_t)id.len; /* at most REQUEST_ID_MAX */
    if (id.len > 0) memcpy(check->request_id, id.data, id.len);
}

/* The check behind `check` in the chain that `first` stands for; NULL at its end. */
static inline struct check *check_after(const struct check *first, const struct check *check)
{
    return first->is_all ? check->also : NULL;
}

int64_t check_asked(const struct check *check);   /* the units it would be granted where nothing is used yet */
uint32_t check_count(const struct check *first);  /* the checks of its chain: 1, or a check_all's members */
size_t check_n_limits(const struct check *first); /* of all their policies; for a reset, their candidates' too */
/* Has a reset anything to forget? Where it names no limit, only counters that belong to the key as a whole are its own.
 */
bool check_owns_state(const struct check *check);
/* The policies' limits as questions at `members` (room for check_n_limits()), but for those of limit 0, which no store
 * is asked about, in a check_all for the policies that have one, and in a reset for the limits that the key shares with
 * others; a reset forgets the candidates' states as well. Where one limit is named, it is that one alone. Ids of parts
 * are joined in the checks' own room: check_reserve_ids() comes before. Returns how many. */
uint16_t check_fill_members(const struct check *first, struct op_member *members);
/* The check as a question to a store, with such members. */
void check_fill_op(struct check *first, struct op *op, struct op_member *members);
/* The members' answers as each check's one answer, said to come from `source`. */
void check_take_answer(struct check *first, const struct op *op, enum source source);
/* One decision of n answered members of a check_all; its `granted` is the sum of theirs. */
void check_whole(const struct check *const *members, size_t n, struct decision *ret);

#endif
