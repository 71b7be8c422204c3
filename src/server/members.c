#include "server/members.h"

/* Parts that share a counter charge it once, with their sum: by one number, not by two. */
static int refuse_conflict(const struct params *params, const struct part *member, const struct part *other)
{
    const struct limit *limit = policy_conflict(member->policy, member->key, other->policy, other->key);
    char path[LIMIT_PATH_MAX];
    if (limit == NULL) return 0;
    return params_fail(params, ERROR_BAD_REQUEST,
                       "shares the counter of %s with checks[%u], where an override has other numbers; ask for "
                       "one of them apart",
                       limit_path(limit, path), other->place);
}

/* Of how many limits is a member of a check_all? An unlimited one counts as one. */
static size_t n_limits_of(const struct policy *policy)
{
    return policy->unlimited ? 1 : policy->n_limits;
}

/* May `member` be one of the check_all's parts? They are one question to the store. */
static int refuse_member(const struct request *request, const struct params *params, const struct part *member)
{
    size_t n_limits = n_limits_of(member->policy);
    if (!member->policy->unlimited && limit_ops(&member->policy->limits[0])->is_compat)
        return params_fail(params, ERROR_UNSUPPORTED,
                           "policy: a compat policy is decided apart; ask for it with check");
    for (const struct check *check = request->first; check != NULL; check = check->next) {
        for (uint16_t i = 0; i < check->n_parts; i++) {
            const struct part *other = &check->parts[i];
            n_limits += n_limits_of(other->policy);
            if (other->policy == member->policy && slice_eq(other->key, member->key))
                return params_fail(params, ERROR_BAD_REQUEST, "is the same policy and key as checks[%u]", other->place);
            if (refuse_conflict(params, member, other) != 0) return -1;
        }
    }
    if (n_limits <= POLICY_LIMITS_MAX) return 0;
    return params_fail(params, ERROR_BAD_REQUEST, "is too much; the policies of one check_all have %d limits at most",
                       POLICY_LIMITS_MAX);
}

/* The check of the enforced parts; NULL: there is none yet. */
static struct check *find_enforced(const struct request *request)
{
    for (struct check *check = request->first; check != NULL; check = check->next)
        if (!check->parts->policy->shadow) return check;
    return NULL;
}

/* A member of a check_many is a check of its own. */
static int add_to_many(struct request *request, struct params *member)
{
    struct check *check = request_add(request, OP_CHECK);
    if (check == NULL) return params_fail_overloaded(member);

    check->parts->cost = 1;
    int status = params_charged(member, check->parts);
    return status == 0 ? params_member_options(member, check) : status;
}

/* A member of a check_all is a part of one check; one in shadow is a check of its own. */
static int add_to_all(struct request *request, struct params *member)
{
    struct part part = {.cost = 1};
    int status = params_charged(member, &part);
    if (status == 0) status = params_cost(member, &part);
    if (status == 0) status = refuse_member(request, member, &part);
    if (status != 0) goto err;

    struct check *check = part.policy->shadow ? NULL : find_enforced(request);
    struct part *added = check != NULL ? request_add_part(request, check) : NULL;
    if (check == NULL) {
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
    struct params member;
    if (params_member(params, index, &member) != 0) return -1;
    int status = request->form == REQUEST_ALL ? add_to_all(request, &member) : add_to_many(request, &member);
    if (status == 0) params->pull = member.pull;
    return status;
}
