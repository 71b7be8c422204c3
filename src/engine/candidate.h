/*
 * candidate.h: a policy's candidate: limits that are decided next to the enforced ones, and only counted.
 *
 * Each check of a policy that has a `candidate` brings a second question to the store, about the candidate's
 * limits on keys of their own, all or nothing, charged by its own verdict. It is an errand (errand.h): its answer is
 * only counted, whenever it comes, and none is ever made up for one that does not come. The enforced check and its
 * candidate's know each other until the one is answered (or its owner gone) and the other has its verdict, so that what
 * only one of them denies is counted too.
 *
 *   candidates_prepare    before the check is submitted, while its key is still there
 *   candidates_submit     after it, which may be answered and gone by then
 *   candidates_enforced   when it is answered, or will not be
 */
#ifndef RL_ENGINE_CANDIDATE_H
#define RL_ENGINE_CANDIDATE_H

#include "engine/errand.h"

/* The candidates' checks of a sealed check and of those joined to it, ready to be submitted; NULL = none. */
struct check *candidates_prepare(struct errands *errands, struct check *check);
/* The prepared ones are theirs now. `is_closing`: the store is not to be asked any more. */
void candidates_submit(struct check *prepared, int64_t now_us, bool is_closing);
/* The check is over: answered, or left by its owner. */
void candidates_enforced(struct check *check);

#endif
