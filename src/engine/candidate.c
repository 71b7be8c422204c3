#include "engine/candidate.h"

#include "base/check.h"
#include "base/counters.h"
#include "engine/check_note.h"
#include "engine/engine.h"

void candidates_init(struct candidates *candidates, struct check_pool *pool, struct store *store,
                     void (*on_returned)(struct candidates *candidates))
{
    *candidates = (struct candidates){.pool = pool, .store = store, .on_returned = on_returned};
}

void candidates_set_max(struct candidates *candidates, size_t max)
{
    candidates->max = max;
}

/* A check that asks the candidate of one's policy; NULL where there is no room for it, or its arithmetic cannot charge
 * that cost. */
static struct check *new_trial(struct candidates *candidates, struct check *one)
{
    const struct policy *policy = one->policy->candidate;
    bool fits = candidates->n < candidates->max && engine_cost_fault(policy, one->cost) == NULL;
    struct check *trial = fits ? check_pool_take(candidates->pool, one->key) : NULL;
    if (trial == NULL) return NULL;
    candidates->n++;
    trial->kind = OP_CHECK;
    trial->policy = policy;
    trial->set = policy_set_ref(one->set);
    trial->party = one->party;
    trial->deadline_ms = one->deadline_ms > 0 ? one->deadline_ms : one->policy->deadline_ms;
    trial->cost = one->cost;
    trial->has_max_wait = one->has_max_wait;
    trial->max_wait_us = one->max_wait_us;
    trial->at_most = one->at_most;
    check_set_request_id(trial, (struct slice){one->request_id, one->request_id_len});
    trial->asker = candidates;
    trial->released = true; /* nobody waits for it */
    trial->beside = one;
    one->beside = trial;
    return trial;
}

struct check *candidates_prepare(struct candidates *candidates, struct check *first)
{
    struct check *prepared = NULL;
    for (struct check *one = first; one != NULL; one = check_after(first, one)) {
        bool charges = (one->kind == OP_CHECK || one->kind == OP_ACQUIRE) && one->cost > 0;
        if (one->policy->candidate == NULL || !charges) continue;
        struct check *trial = new_trial(candidates, one);
        if (trial == NULL) {
            counters.candidate_skipped++;
            continue;
        }
        trial->next = prepared;
        prepared = trial;
    }
    return prepared;
}

/* What the enforced limits said, where they did: a failure answer is not theirs, and of a check_all denied without
 * asking only the member with a limit of 0 is known. */
static enum trial_verdict enforced_verdict(const struct check *first, const struct check *one)
{
    const struct decision *decision = &one->decision;
    if (!first->answered || first->error != ERROR_NONE || decision->source >= SOURCE_ALLOW) return VERDICT_NONE;
    if (!decision->allowed || decision->shadow_denied) return VERDICT_DENIED;
    return first->op.n_members > 0 ? VERDICT_ALLOWED : VERDICT_NONE;
}

/* Back to the pool, once both sides are over. */
static void end_if_over(struct check *trial)
{
    struct candidates *candidates = trial->asker;
    struct policy_counts *counts = trial->policy->counts;
    if (!trial->answered || trial->beside != NULL) return;
    if (trial->verdict == VERDICT_ALLOWED && trial->enforced == VERDICT_DENIED) {
        counts->candidate_only_allowed++;
        counters.candidate_only_allowed++;
    } else if (trial->verdict == VERDICT_DENIED && trial->enforced == VERDICT_ALLOWED) {
        counts->candidate_only_denied++;
        counters.candidate_only_denied++;
    }
    policy_set_unref(trial->set);
    check_pool_return(candidates->pool, trial);
    candidates->n--;
    candidates->on_returned(candidates);
}

/* The candidate's own verdict is known, or will never be. */
static void judge(struct check *trial, enum trial_verdict verdict)
{
    struct policy_counts *counts = trial->policy->counts;
    trial->answered = true;
    trial->verdict = verdict;
    switch (verdict) {
    case VERDICT_ALLOWED:
        counts->candidate_allowed++;
        counters.candidate_allowed++;
        break;
    case VERDICT_DENIED:
        counts->candidate_denied++;
        counters.candidate_denied++;
        break;
    case VERDICT_NONE: counters.candidate_skipped++; break;
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
    CHECK(trial->store_holds);
    trial->store_holds = false;
    judge(trial, outcome == OP_DECIDED ? verdict_of(op) : VERDICT_NONE);
}

static void ask(struct check *trial, int64_t now_us)
{
    struct candidates *candidates = trial->asker;
    check_fill_op(trial, &trial->op, trial->members);
    trial->op.done = on_op_done;
    trial->op.deadline_us = now_us + (int64_t)trial->deadline_ms * 1000; /* an older one would judge by other counts */
    switch (store_submit(candidates->store, &trial->op)) {
    case SUBMIT_DECIDED: judge(trial, verdict_of(&trial->op)); break;
    case SUBMIT_PENDING: trial->store_holds = true; break;
    case SUBMIT_DOWN:
    case SUBMIT_OVERLOAD: judge(trial, VERDICT_NONE); break;
    }
}

void candidates_submit(struct check *prepared, int64_t now_us, bool is_closing)
{
    for (struct check *trial = prepared, *next; trial != NULL; trial = next) {
        next = trial->next;
        if (policy_zero_limit(trial->policy) != NULL)
            judge(trial, VERDICT_DENIED);
        else if (is_closing || check_reserve_members(trial, trial->policy->n_limits) < 0 ||
                 check_reserve_ids(trial) < 0 || check_name_note(trial) < 0)
            judge(trial, VERDICT_NONE);
        else
            ask(trial, now_us);
    }
}

void candidates_enforced(struct check *first)
{
    for (struct check *one = first; one != NULL; one = check_after(first, one)) {
        struct check *trial = one->beside;
        if (trial == NULL) continue;
        trial->enforced = enforced_verdict(first, one);
        trial->beside = NULL;
        one->beside = NULL;
        end_if_over(trial);
    }
}
