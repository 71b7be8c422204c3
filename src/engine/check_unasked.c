#include "engine/check_unasked.h"

#include "base/counters.h"

/* An unlimited policy admits everything, one with a limit of 0 nothing, and no store need be asked. What may have been
 * counted before the limit was 0, a reset forgets. */
static bool answer_by_policy(struct check *check, enum source source)
{
    const struct policy *policy = check->policy;
    const struct limit *zero = policy_zero_limit(policy);
    if (check->only != NULL) zero = check->only->limit == 0 ? check->only : NULL;
    if (check->kind == OP_RESET) return !check_owns_state(check);
    if (zero == NULL && !policy->unlimited) return false;
    counters.decided_unlimited++;
    if (policy->unlimited) return true;                          /* check_answer_unlimited() says what */
    bool allowed = check->cost == 0 || check->kind == OP_REFUND; /* there is nothing to give back */
    check->decision = (struct decision){
        .allowed = allowed,
        .retry_after_ms = allowed ? 0 : RETRY_NEVER,
        .bound_by = !allowed && policy->n_limits > 1 ? zero : NULL,
        .source = source,
        .policy_version = policy->version,
    };
    return true;
}

/* What is known of a member that would not deny by itself, of a check_all that is denied without asking. */
static void answer_unasked(struct check *check, enum source source)
{
    check->decision = (struct decision){
        .allowed = true,
        .limit = policy_capacity(check->policy),
        .source = source,
        .policy_version = check->policy->version,
    };
}

bool check_decide_unasked(struct check *first, enum source source)
{
    bool all = true, denied = false;
    for (struct check *one = first; one != NULL; one = check_after(first, one)) {
        if (!answer_by_policy(one, source))
            all = false;
        else if (!one->policy->unlimited && one->kind != OP_RESET && !one->decision.allowed)
            denied = true;
    }
    for (struct check *one = first; denied && one != NULL; one = check_after(first, one))
        if (policy_zero_limit(one->policy) == NULL && !one->policy->unlimited) answer_unasked(one, source);
    return all || denied;
}

void check_answer_unlimited(struct check *first)
{
    bool allowed = true;
    for (const struct check *one = first; one != NULL; one = check_after(first, one))
        allowed &= one->policy->unlimited || one->decision.allowed;
    for (struct check *one = first; one != NULL; one = check_after(first, one)) {
        if (!one->policy->unlimited) continue;
        one->decision = (struct decision){
            .allowed = true,
            .limit = UNLIMITED,
            .remaining = UNLIMITED,
            .granted = allowed ? check_asked(one) : 0,
            .source = SOURCE_UNLIMITED,
            .policy_version = one->policy->version,
        };
    }
}
