/* candidate.c: the second question of a check with a candidate, for engine.c; and the verdicts of both, counted. */
#include "engine/candidate.h"

#include "engine/engine.h"
#include "engine/engine_counters.h"

/* A check that asks the candidate of `one`, of a check or check_all; NULL if there is no space for it, or its
 * arithmetic cannot charge that cost. */
static struct check *new_candidate_check(struct errands *errands, const struct check *check, struct check *one)
{
    const struct plan *plan = one->plan->candidate;
    bool fits = policy_cost_fault(plan->policy, one->cost) == NULL && (check->at_most == 0 || !plan->takes_one);
    struct check *candidate = fits ? errand_new(errands, ERRAND_CANDIDATE, OP_CHECK, one->set, check->op.client) : NULL;
    if (candidate == NULL) return NULL;

    candidate->state = CHECK_WAITING; /* for its verdict, which no owner gets */
    candidate->enforced_check = one;
    one->candidate_check = candidate;

    candidate->at_most = check->at_most;
    candidate->deadline_ms = check->deadline_ms > 0 ? check->deadline_ms : plan->deadline_ms;
    candidate->has_max_wait = check->has_max_wait;
    candidate->max_wait_us = check->max_wait_us;
    candidate->request_id = check->request_id;
    candidate->plan = plan;
    candidate->key = one->key;
    candidate->cost = one->cost;
    (void)check_seal(candidate); /* without memory it is never asked */
    return candidate;
}

struct check *candidates_prepare(struct errands *errands, struct check *check)
{
    struct check *prepared = NULL;
    if (check->op.kind != OP_CHECK && check->op.kind != OP_ACQUIRE) return NULL;

    CHECK_FOREACH (one, check) {
        if (one->plan->candidate == NULL || one->cost == 0) continue;

        struct check *candidate = new_candidate_check(errands, check, one);
        if (candidate == NULL) {
            engine_counters.candidate_skipped++;
            continue;
        }
        candidate->next = prepared;
        prepared = candidate;
    }
    return prepared;
}

/* Back to the pool, once both sides are over. */
static void end_if_over(struct check *candidate)
{
    struct policy_counts *counts = candidate->plan->policy->counts;
    if (candidate->state != CHECK_ANSWERED || candidate->enforced_check != NULL) return;

    if (candidate->verdict == VERDICT_ALLOWED && candidate->enforced_verdict == VERDICT_DENIED) {
        counts->candidate_only_allowed++;
        engine_counters.candidate_only_allowed++;
    } else if (candidate->verdict == VERDICT_DENIED && candidate->enforced_verdict == VERDICT_ALLOWED) {
        counts->candidate_only_denied++;
        engine_counters.candidate_only_denied++;
    } else if (candidate->verdict == VERDICT_ALLOWED && candidate->enforced_verdict == VERDICT_ALLOWED) {
        counts->candidate_both_allowed++;
    } else if (candidate->verdict == VERDICT_DENIED && candidate->enforced_verdict == VERDICT_DENIED) {
        counts->candidate_both_denied++;
    }

    errand_end(candidate);
}

/* The candidate's own verdict is known, or will never be. */
static void take_verdict(struct check *candidate, enum candidate_verdict verdict)
{
    struct policy_counts *counts = candidate->plan->policy->counts;
    candidate->state = CHECK_ANSWERED;
    candidate->verdict = verdict;

    switch (verdict) {
    case VERDICT_ALLOWED:
        counts->candidate_allowed++;
        engine_counters.candidate_allowed++;
        break;
    case VERDICT_DENIED:
        counts->candidate_denied++;
        engine_counters.candidate_denied++;
        break;
    case VERDICT_NONE: engine_counters.candidate_skipped++; break;
    }

    end_if_over(candidate);
}

static void on_done(struct check *candidate, enum op_outcome outcome)
{
    enum candidate_verdict verdict = outcome == OP_DECIDED ? VERDICT_ALLOWED : VERDICT_NONE;
    for (uint16_t i = 0; i < candidate->op.n_members && outcome == OP_DECIDED; i++)
        if (!candidate->op.members[i].decision.allowed) verdict = VERDICT_DENIED;
    take_verdict(candidate, verdict);
}

void candidates_submit(struct check *prepared, int64_t now_us, bool is_closing)
{
    for (struct check *candidate = prepared, *next; candidate != NULL; candidate = next) {
        next = candidate->next;
        bool is_denied = candidate->plan->decider == DENIED_ALWAYS;
        if (is_denied || is_closing || !candidate->is_sealed) {
            take_verdict(candidate, is_denied ? VERDICT_DENIED : VERDICT_NONE);
            continue;
        }

        /* later than that, it would be decided from other counts */
        candidate->op.deadline_us = now_us + candidate->deadline_ms * INT64_C(1000);
        errand_submit(candidate, on_done);
    }
}

void candidates_enforced(struct check *check)
{
    CHECK_FOREACH (one, check) {
        struct check *candidate = one->candidate_check;
        if (candidate == NULL) continue;
        candidate->enforced_check = NULL;
        one->candidate_check = NULL;

        /* a failure answer is not the enforced limits'; of a check_all denied without asking only the one with a limit
         * of 0 is known */
        const struct decision *decision = &one->decision;
        bool is_theirs =
            check->state == CHECK_ANSWERED && check->error == ERROR_NONE && decision->source < SOURCE_ALLOW;
        if (!is_theirs)
            candidate->enforced_verdict = VERDICT_NONE;
        else if (!decision->allowed || decision->shadow_denied)
            candidate->enforced_verdict = VERDICT_DENIED;
        else
            candidate->enforced_verdict = check->op.n_members > 0 ? VERDICT_ALLOWED : VERDICT_NONE;
        end_if_over(candidate);
    }
}
