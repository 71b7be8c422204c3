/* members.c: one member of a list becomes a check of its request, for methods.c and check_list.c. */
#include "server/members.h"

/* The number of limits of a member of a check_all; an unlimited policy counts as one. */
static size_t n_limits_of(const struct check *check)
{
    return check->plan->n_limits > 0 ? check->plan->n_limits : 1;
}

/* 0 if the store can decide `check`, the last one, together with the others of the check_all, else -1 with the fault
 * filled. */
static int refuse_member(const struct request *request, const struct params *params, const struct check *check)
{
    const struct policy *policy = check->plan->policy;
    size_t n_limits = n_limits_of(check);
    if (check->plan->n_limits > 0 && limit_ops(&check->plan->limits[0])->is_compat)
        return params_fail(params, ERROR_UNSUPPORTED,
                           "policy: a compat policy is decided apart; ask for it with check");

    for (const struct check *other = request->first; other != check; other = other->next) {
        const struct policy *others = other->plan->policy;
        n_limits += n_limits_of(other);
        if (policy_is_same(others, policy) && slice_eq(other->key, check->key))
            return params_fail(params, ERROR_BAD_REQUEST, "is the same policy and key as checks[%u]", other->index);

        /* A counter that several share is charged once, with their sum, so its limit must be the same for all. */
        char path[LIMIT_PATH_MAX];
        const struct limit *conflict = policy_conflict(policy, check->key, others, other->key);
        if (conflict != NULL)
            return params_fail(params, ERROR_BAD_REQUEST,
                               "shares the counter of %s with checks[%u], where an override has other numbers; ask "
                               "for one of them apart",
                               limit_path(conflict, path), other->index);
    }
    if (n_limits <= POLICY_LIMITS_MAX) return 0;
    return params_fail(params, ERROR_BAD_REQUEST, "is too much; the policies of one check_all have %d limits at most",
                       POLICY_LIMITS_MAX);
}

int members_add(struct request *request, struct params *params, uint32_t index)
{
    struct params member = *params;
    bool is_all = request->kind == REQUEST_ALL;
    member.index = (int32_t)index;
    if (pull_array(&member.pull, &member.n) != 0 || member.n < 2 || member.n > 3)
        return params_fail(&member, ERROR_BAD_REQUEST, "must be a list of [policy, key [, cost]]");

    struct check *check = request_add(request, OP_CHECK);
    if (check == NULL) return params_fail_overloaded(&member);
    check->cost = 1;
    int status = params_charged(&member, check);
    if (status == 0) status = is_all ? params_cost(&member, check) : params_member_options(&member, check);
    if (status == 0 && is_all) status = refuse_member(request, &member, check);
    if (status != 0) return status;

    if (is_all && !check->plan->shadow) request_join(request, check);
    params->pull = member.pull;
    return 0;
}
