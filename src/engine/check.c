#include "engine/check.h"

uint16_t check_fill_members(const struct check *check, struct op_member *members)
{
    uint16_t n = 0;
    for (uint16_t i = 0; i < check->policy->n_limits; i++) {
        const struct limit *limit = &check->policy->limits[i];
        if (limit->limit == 0) continue;
        members[n++] = (struct op_member){
            .limit = limit,
            .key = check->key,
            .cost = check->cost,
            .max_wait_us = check->has_max_wait ? limit_max_wait(limit, check->max_wait_us) : limit->max_wait_us,
        };
    }
    return n;
}

static void combine(struct check *check, const struct op *op)
{
    struct decision decisions[POLICY_LIMITS_MAX];
    const struct limit *limits[POLICY_LIMITS_MAX];
    for (uint16_t i = 0; i < op->n_members; i++) {
        decisions[i] = op->members[i].decision;
        limits[i] = op->members[i].limit;
    }
    decision_combine(&check->decision, decisions, limits, op->n_members);
}

void check_take_answer(struct check *check, const struct op *op, enum source source)
{
    if (op->kind == OP_RESET) {
        for (uint16_t i = 0; i < op->n_members; i++) check->removed |= op->members[i].removed;
        return;
    }
    if (op->n_members == 1) {
        check->decision = op->members[0].decision;
        check->decision.bound_by = NULL;
    } else {
        combine(check, op);
    }
    check->decision.source = source;
    check->decision.reason = REASON_NONE;
    check->decision.policy_version = check->policy->version;
}
