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
static struct check *new_trial(struct candidates *candidates, const struct check *check, struct check *one)
{
    const struct plan *plan = one->plan->candidate;
    bool fits = candidates->n < candidates->max && policy_cost_fault(plan->policy, one->cost) == NULL;
    struct check *trial = fits ? check_pool_take(candidates->pool) : NULL;
    if (trial == NULL) return NULL;

    candidates->n++;
    trial->state = CHECK_WAITING; /* nobody waits for it */
    trial->set = policy_set_ref(one->set);
    trial->owner = candidates;
    trial->tries = one;
    one->trial = trial;

    trial->op.kind = OP_CHECK;
    trial->op.client = check->op.client;
    trial->at_most = check->at_most;
    trial->deadline_ms = check->deadline_ms > 0 ? check->deadline_ms : plan->deadline_ms;
    trial->has_max_wait = check->has_max_wait;
    trial->max_wait_us = check->max_wait_us;
    trial->request_id = check->request_id;
    trial->plan = plan;
    trial->key = one->key;
    trial->cost = one->cost;
    (void)check_seal(trial); /* without memory it is never asked */
    return trial;
}

struct check *candidates_prepare(struct candidates *candidates, struct check *check)
{
    struct check *prepared = NULL;
    if (check->op.kind != OP_CHECK && check->op.kind != OP_ACQUIRE) return NULL;

    CHECK_FOREACH(one, check)
    {
        if (one->plan->candidate == NULL || one->cost == 0) continue;

        struct check *trial = new_trial(candidates, check, one);
        if (trial == NULL) {
            engine_counters.candidate_skipped++;
            continue;
        }
        trial->next = prepared;
        prepared = trial;
    }
    return prepared;
}

/* Back to the pool, once both sides are over. */
static void end_if_over(struct check *trial)
{
    struct candidates *candidates = trial->owner;
    struct policy_counts *counts = trial->plan->policy->counts;
    if (trial->state != CHECK_ANSWERED || trial->tries != NULL) return;

    if (trial->verdict == VERDICT_ALLOWED && trial->enforced == VERDICT_DENIED) {
        counts->candidate_only_allowed++;
        engine_counters.candidate_only_allowed++;
    } else if (trial->verdict == VERDICT_DENIED && trial->enforced == VERDICT_ALLOWED) {
        counts->candidate_only_denied++;
        engine_counters.candidate_only_denied++;
    }

    check_pool_return(candidates->pool, trial);
    candidates->n--;
    candidates->on_returned(candidates);
}

/* The candidate's own verdict is known, or will never be. */
static void take_verdict(struct check *trial, enum trial_verdict verdict)
{
    struct policy_counts *counts = trial->plan->policy->counts;
    trial->state = CHECK_ANSWERED;
    trial->verdict = verdict;

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

    end_if_over(trial);
}

static enum trial_verdict verdict_of(const struct op *op)
{
    for (uint16_t i = 0; i < op->n_members; i++)
        if (!op->members[i].decision.allowed) return VERDICT_DENIED;
    return VERDICT_ALLOWED;
}

static void on_op_done(struct op *op, enum op_outcome outcome)
{
    struct check *trial = CONTAINER_OF(op, struct check, op);
    CHECK(trial->in_store);
    trial->in_store = false;
    take_verdict(trial, outcome == OP_DECIDED ? verdict_of(op) : VERDICT_NONE);
}

void candidates_submit(struct check *prepared, int64_t now_us, bool is_closing)
{
    for (struct check *trial = prepared, *next; trial != NULL; trial = next) {
        next = trial->next;
        bool is_denied = trial->plan->decider == DENIED_ALWAYS;
        if (is_denied || is_closing || !trial->is_sealed) {
            take_verdict(trial, is_denied ? VERDICT_DENIED : VERDICT_NONE);
            continue;
        }

        struct candidates *candidates = trial->owner;
        trial->op.done = on_op_done;
        /* later than that, it would be decided from other counts */
        trial->op.deadline_us = now_us + trial->deadline_ms * INT64_C(1000);
        switch (store_submit(candidates->store, &trial->op)) {
        case SUBMIT_DECIDED: take_verdict(trial, verdict_of(&trial->op)); break;
        case SUBMIT_PENDING: trial->in_store = true; break;
        case SUBMIT_DOWN:
        case SUBMIT_BREAKER:
        case SUBMIT_OVERLOAD: take_verdict(trial, VERDICT_NONE); break;
        }
    }
}

void candidates_enforced(struct check *check)
{
    CHECK_FOREACH(one, check)
    {
        struct check *trial = one->trial;
        if (trial == NULL) continue;
        trial->tries = NULL;
        one->trial = NULL;

        /* a failure answer is not the enforced limits'; of a check_all denied without asking only the one with a limit
         * of 0 is known */
        const struct decision *decision = &one->decision;
        bool is_theirs =
            check->state == CHECK_ANSWERED && check->error == ERROR_NONE && decision->source < SOURCE_ALLOW;
        if (!is_theirs)
            trial->enforced = VERDICT_NONE;
        else if (!decision->allowed || decision->shadow_denied)
            trial->enforced = VERDICT_DENIED;
        else
            trial->enforced = check->op.n_members > 0 ? VERDICT_ALLOWED : VERDICT_NONE;
        end_if_over(trial);
    }
}
