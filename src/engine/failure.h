/*
 * failure.h: the answer if the store gave none in time.
 *
 * A check gets what its policy's on_failure says. All members of a check_all get what the strictest of their limited
 * policies says: error before deny before local before allow. `local` decides on a memory table of its own, by this
 * daemon's share of the same policy (local_share), on the monotonic clock. A cost that is above the share but not above
 * the limit is denied as by `deny`: it may pass once the store is back. The table is made at first need. A policy's
 * part of it begins anew when the store has decided the policy again and it had no failure answer for 10 s, so that no
 * client is punished twice; but at most once a minute. Else a connection that is lost and made again and again would
 * hand out the whole limit each time. Entries of an earlier part have another epoch. The table as a whole is emptied
 * when this holds for all of them. Refunds and settlements are errors, since only the store could answer them; so are
 * peeks and resets, unless `local` decides. What was reserved locally is settled locally; a release needs no answer of
 * the store's. What is admitted for a policy
 * with merge_back is noted (merge_back.h), unless the store may have charged it too: of a check that was sent this is
 * known when the store is done with it. A shadow policy's check is never an error: what its policy says with `error` is
 * `allow`.
 */
#ifndef RL_ENGINE_FAILURE_H
#define RL_ENGINE_FAILURE_H

#include "base/clock.h"
#include "engine/check.h"
#include "engine/merge_back.h"
#include "store/memory_store.h"

struct failure {
    const struct clock *clock;
    struct clock local_clock;   /* the table's: moves with the monotonic clock */
    struct memory_store *local; /* owned; NULL until first needed */
    uint64_t local_max_keys;
    bool is_exact;                 /* a test's: what memory cannot keep is an error, and the table forgets nothing */
    struct merge_back *merge_back; /* not owned; of what the table admitted */
    uint32_t n_daemons;            /* that share the store, as it last counted them; 0 = it has not */
    uint64_t n_repeated; /* failure answers within a second after another, or the third in a row of a policy */
    /* CLOCK_MONOTONIC, and these of policies too; while a test sets the clock: its time. */
    int64_t decided_us;    /* the store decided a check last */
    int64_t last_us;       /* of the last failure answer */
    int64_t clear_from_us; /* the table is not emptied before */
    int64_t anew_from_us;  /* no policy's part begins anew before */
};

void failure_init(struct failure *failure, const struct clock *clock, struct merge_back *merge_back,
                  uint64_t local_max_keys);
void failure_fini(struct failure *failure);
void failure_set_local_max_keys(struct failure *failure, uint64_t max_keys);

/* What the limits of a policy are divided by where `local` decides. */
int64_t failure_share(const struct failure *failure, const struct policy *policy);

/* Why the store did not decide; NONE: it did. */
static inline enum reason failure_reason(enum op_outcome outcome)
{
    static const enum reason reasons[] = {
        [OP_DECIDED] = REASON_NONE,     [OP_DOWN] = REASON_DOWN,         [OP_BREAKER] = REASON_BREAKER,
        [OP_EXPIRED] = REASON_DEADLINE, [OP_OVERLOAD] = REASON_OVERLOAD, [OP_STORE_ERROR] = REASON_STORE_ERROR};
    return reasons[outcome];
}

void failure_answer(struct failure *failure, struct check *check, enum reason reason); /* fills the check's answer */
/* The same by the table, which also settles what it has reserved. */
void failure_answer_locally(struct failure *failure, struct check *check, enum reason reason);
void failure_store_answered(struct failure *failure); /* the store decided a check that still waited */
/* A part of a split check (split.h), which the table has admitted, counts: the whole is allowed. */
void failure_keep(struct failure *failure, struct check *part, enum reason reason);
/* The whole is denied: the table takes the part's charge back (an OP_REFUND with a reservation). */
void failure_give_back(struct failure *failure, const struct op *op);
/* The store is done with a check that was answered locally before. */
void failure_store_done(struct failure *failure, struct check *check, enum op_outcome outcome);
/* What the table still counts of a counter of the plan. */
int64_t failure_spent(struct failure *failure, const struct plan *plan, const struct unmerged *counter);
/* OP_RELEASE or OP_RENEW of a slot that `local` has given out. False: it is not there any more. */
bool failure_touch_slot(struct failure *failure, struct op *op);
void failure_flush(struct failure *failure); /* end of the tick */
/* As at the start, for the policies of `set` too. */
void failure_forget(struct failure *failure, const struct policy_set *set);

#endif
