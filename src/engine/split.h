/*
 * split.h: a check_all whose counters lie in several places of the store (a cluster's hash slots).
 *
 * Each place gets a part: a check_all of its own, of those checks whose counters lie there. All parts are submitted in
 * the same tick, each all or nothing, and the whole is answered with the last of them:
 *
 *   every part allows    the whole is allowed. A part without an answer of the store is answered by its own policies'
 *                        on_failure: so a server that is down does not switch off the limits on the others
 *   else                 it is denied, or an error, and what is known to be charged is taken back (limit_undo):
 *                        at once, without the answer waiting for it; of a part whose reply comes after the
 *                        deadline, then. Limits that count denials keep the charge. A part that a local failure
 *                        answer has charged gives back in the failure table
 *
 * So nothing is admitted beyond any limit. Another check may be denied in the moment between. What may have been
 * charged, but without a reply, stays charged; an OP_REFUND is sent once, because given twice it would admit too much.
 *
 * A part is an errand (errand.h), known to the store and to this file alone: the deadline, the candidates and the counts
 * are the whole's. If the owner leaves, the parts go on: all are charged in the end, or none.
 */
#ifndef RL_ENGINE_SPLIT_H
#define RL_ENGINE_SPLIT_H

#include "engine/errand.h"
#include "engine/failure.h"

struct splits {
    struct errands *errands;             /* not owned */
    struct failure *failure;             /* not owned */
    uint32_t *work;                      /* the owner's, of engine_take_work() */
    void (*answer)(struct check *whole); /* its decisions are filled, or its error; it may be gone after this */
    size_t n_refunds;                    /* that the store has */
};

/* Must the sealed check be split? */
bool splits_needed(const struct store *store, const struct check *check);
/* Makes the parts of such a check. 0, or -1: too many, or without memory. */
int split_make(struct splits *splits, struct check *whole);
/* Submits them: the whole may be answered in here. They are not sent after deadline_us. */
void split_submit(struct check *whole, int64_t deadline_us);

/* The parts without an answer get their failure answers, and so the whole has its own. */
void split_fail(struct check *whole, enum reason reason);
/* The owner of the whole, which is not answered, has left. */
void split_leave(struct check *whole);

#endif
