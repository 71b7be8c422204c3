/* candidate.c: the second question of a check with a candidate, for engine.c; and the verdicts of both, counted. */
#include "engine/candidate.h"

#include "base/assert.h"
#include "engine/engine.h"
#include "engine/engine_counters.h"

void candidates_init(struct candidates *candidates, struct check_pool *pool, struct store *store, size_t max,
                     void (*on_returned)(struct candidates *candidates))
{
    *candidates = (struct candidates){.pool = pool, .store = store, .max = max, .on_returned = on_returned};
}

/* A check that asks the candidate of `one`, of a check or check_all; NULL if there is no space for it, or its
 * arithmetic cannot charge that cost. */
static struct check *new_candidate_check(struct candidates *candidates, const struct check *check, struct check *one)
{
    const struct plan *plan = one->plan->candidate;
    bool fits = fair_cap_allows(&candidates->out, candidates->max, check->op.client) &&
                policy_cost_fault(plan->policy, one->cost) == NULL && (check->at_most == 0 || !plan->takes_one);
    struct check *candidate = fits ? check_pool_take(candidates->pool) : NULL;
    if (candidate == NULL) return NULL;

    fair_cap_add(&candidates->out, check->op.client, 1);
    candidate->state = CHECK_WAITING; /* for its verdict, which no owner gets */
    candidate->set = policy_set_ref(one->set);
    candidate->owner = candidates;
    candidate->enforced_check = one;
    one->candidate_check = candidate;

    candidate->op.kind = OP_CHECK;
    candidate->op.client = check->op.client;
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

struct check *candidates_prepare(struct candidates *candidates, struct check *check)
{
    struct check *prepared = NULL;
    if (check->op.kind != OP_CHECK && check->op.kind != OP_ACQUIRE) return NULL;

    CHECK_FOREACH (one, check) {
        if (one->plan->candidate == NULL || one->cost == 0) continue;

        struct check *candidate = new_candidate_check(candidates, check, one);
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
    struct candidates *candidates = candidate->owner;
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

    fair_cap_remove(&candidates->out, candidate->op.client, 1);
    check_pool_return(candidates->pool, candidate);
    candidates->on_returned(candidates);
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

static enum candidate_verdict verdict_of(const struct op *op)
{
    for (uint16_t i = 0; i < op->n_members; i++)
        if (!op->members[i].decision.allowed) return VERDICT_DENIED;
    return VERDICT_ALLOWED;
}

static void on_op_done(struct op *op, enum op_outcome outcome)
{
    struct check *candidate = CONTAINER_OF(op, struct check, op);
    CHECK(candidate->in_store);
    candidate->in_store = false;
    take_verdict(candidate, outcome == OP_DECIDED ? verdict_of(op) : VERDICT_NONE);
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

        struct candidates *candidates = candidate->owner;
        candidate->op.done = on_op_done;
        /* later than that, it would be decided from other counts */
        candidate->op.deadline_us = now_us + candidate->deadline_ms * INT64_C(1000);
        switch (store_submit(candidates->store, &candidate->op)) {
        case SUBMIT_DECIDED: take_verdict(candidate, verdict_of(&candidate->op)); break;
        case SUBMIT_PENDING: candidate->in_store = true; break;
        case SUBMIT_DOWN:
        case SUBMIT_BREAKER:
        case SUBMIT_OVERLOAD: take_verdict(candidate, VERDICT_NONE); break;
        }
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
