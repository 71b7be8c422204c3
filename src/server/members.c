#include "server/members.h"

/* The number of limits of a member of a check_all; an unlimited policy counts as one. */
static size_t n_limits_of(const struct policy *policy)
{
    return policy->unlimited ? 1 : policy->n_limits;
}

/* 0 if the store can decide `member` together with the other parts of the check_all, else -1 with the fault filled. */
static int refuse_member(const struct request *request, const struct params *params, const struct part *member)
{
    const struct policy *policy = member->policy;
    size_t n_limits = n_limits_of(policy);
    if (!policy->unlimited && limit_ops(&policy->limits[0])->is_compat)
        return params_fail(params, ERROR_UNSUPPORTED,
                           "policy: a compat policy is decided apart; ask for it with check");

    for (const struct check *check = request->first; check != NULL; check = check->next) {
        for (uint16_t i = 0; i < check->n_parts; i++) {
            const struct part *other = &check->parts[i];
            n_limits += n_limits_of(other->policy);
            if (policy_is_same(other->policy, policy) && slice_eq(other->key, member->key))
                return params_fail(params, ERROR_BAD_REQUEST, "is the same policy and key as checks[%u]", other->place);

            /* A counter that parts share is charged once, with their sum, so its limit must be the same for both. */
            char path[LIMIT_PATH_MAX];
            const struct limit *conflict = policy_conflict(policy, member->key, other->policy, other->key);
            if (conflict != NULL)
                return params_fail(params, ERROR_BAD_REQUEST,
                                   "shares the counter of %s with checks[%u], where an override has other numbers; ask "
                                   "for one of them apart",
                                   limit_path(conflict, path), other->place);
        }
    }
    if (n_limits <= POLICY_LIMITS_MAX) return 0;
    return params_fail(params, ERROR_BAD_REQUEST, "is too much; the policies of one check_all have %d limits at most",
                       POLICY_LIMITS_MAX);
}

/* One more part of the check_all's one check; a part in shadow becomes a check of its own. */
static int add_to_all(struct request *request, struct params *member)
{
    struct part part = {.cost = 1};
    int status = params_charged(member, &part);
    if (status == 0) status = params_cost(member, &part);
    if (status == 0) status = refuse_member(request, member, &part);
    if (status != 0) goto err;

    struct check *check = part.policy->shadow ? NULL : request->first; /* that of the enforced parts, if there is one */
    while (check != NULL && check->parts->policy->shadow) check = check->next;

    struct part *added;
    if (check != NULL) {
        added = request_add_part(request, check);
    } else {
        check = request_add(request, OP_CHECK);
        added = check != NULL ? check->parts : NULL;
    }
    if (added == NULL) {
        params_fail_overloaded(member);
        goto err;
    }
    part.place = added->place;
    *added = part;
    return 0;

err:
    policy_set_unref(part.set);
    return -1;
}

int members_add(struct request *request, struct params *params, uint32_t index)
{
    struct params member = *params;
    int status;
    member.index = (int32_t)index;
    if (pull_array(&member.pull, &member.n) != 0 || member.n < 2 || member.n > 3)
        return params_fail(&member, ERROR_BAD_REQUEST, "must be a list of [policy, key [, cost]]");

    if (request->form == REQUEST_ALL) {
        status = add_to_all(request, &member);
    } else {
        struct check *check = request_add(request, OP_CHECK);
        if (check == NULL) return params_fail_overloaded(&member);
        check->parts->cost = 1;
        status = params_charged(&member, check->parts);
        if (status == 0) status = params_member_options(&member, check);
    }
    if (status == 0) params->pull = member.pull;
    return status;
}
