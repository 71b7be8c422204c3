#include "engine/check.h"

#include "base/check.h"
#include "engine/slots.h"

uint32_t check_count(const struct check *first)
{
    uint32_t n = 0;
    for (const struct check *one = first; one != NULL; one = check_after(first, one)) n++;
    return n;
}

/* So many limits of the policy is the check about. */
static uint16_t n_asked(const struct check *check)
{
    return check->only != NULL ? 1 : check->policy->n_limits;
}

/* The candidate whose counters a reset forgets as well; NULL: none. */
static const struct policy *forgotten_candidate(const struct check *check)
{
    return check->kind == OP_RESET && check->only == NULL ? check->policy->candidate : NULL;
}

size_t check_n_limits(const struct check *first)
{
    size_t n = 0;
    for (const struct check *one = first; one != NULL; one = check_after(first, one)) {
        const struct policy *candidate = forgotten_candidate(one);
        n += n_asked(one) + (candidate != NULL ? candidate->n_limits : 0U);
    }
    return n;
}

/* A member of a check_all whose policy has no limits, or one of 0, is decided by that. */
static bool is_asked_about(const struct check *first, const struct check *one)
{
    return !one->policy->unlimited && (!first->is_all || policy_zero_limit(one->policy) == NULL);
}

/* A limit of 0 asks nothing of its counter, which may be from before it was 0 all the same: a reset forgets that. */
static bool is_member(const struct check *check, const struct limit *limit)
{
    if (check->only != NULL) return limit == check->only;
    return check->kind == OP_RESET ? !limit->shared : limit->limit > 0;
}

static bool owns_state(const struct policy *policy)
{
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (!policy->limits[i].shared) return true;
    return policy->candidate != NULL && owns_state(policy->candidate);
}

bool check_owns_state(const struct check *check)
{
    return check->only != NULL || owns_state(check->policy);
}

static struct slice next_id(const struct check *check, const struct key_split *split, key_parts parts, uint8_t **room)
{
    const struct key_format *format = check->policy->format;
    struct slice id = key_format_id(format, split, parts, *room);
    if (key_format_is_joined(format, parts)) *room += check->key.len;
    return id;
}

/* Of a policy with shared limits: what each one's counter goes by, and what they have in common. */
static void set_ids(const struct check *check, struct op_member *members, uint16_t n)
{
    struct key_split split;
    uint8_t *room = check->ids;
    CHECK(key_format_split(check->policy->format, check->key, &split)); /* who asked has seen to it */
    struct slice common = next_id(check, &split, check->policy->common, &room);
    for (uint16_t i = 0; i < n; i++) {
        const struct limit *limit = members[i].limit;
        if (limit->shared) members[i].key = next_id(check, &split, limit->parts, &room);
        members[i].common = common;
    }
}

/* What `one` asks of the limits of `policy`, from members[n] on; returns how many there are then. */
static uint16_t fill_from(const struct check *first, const struct check *one, const struct policy *policy,
                          struct op_member *members, uint16_t n)
{
    /* reservations that have ended are given back to all limits or none */
    bool sees_holds = policy->reserves && one->only == NULL;
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        const struct limit *limit = &policy->limits[i];
        if (!is_member(first, limit)) continue;
        members[n++] = (struct op_member){
            .limit = limit,
            .key = one->key,
            .hold_key = sees_holds ? one->key : (struct slice){NULL, 0},
            .cost = one->cost,
            .max_wait_us = one->has_max_wait ? limit_max_wait(limit, one->max_wait_us) : limit->max_wait_us,
        };
    }
    return n;
}

uint16_t check_fill_members(const struct check *first, struct op_member *members)
{
    uint16_t n = 0;
    for (const struct check *one = first; one != NULL; one = check_after(first, one)) {
        if (!is_asked_about(first, one)) continue;
        uint16_t n_before = n;
        n = fill_from(first, one, one->policy, members, n);
        const struct policy *candidate = forgotten_candidate(one);
        if (candidate != NULL) n = fill_from(first, one, candidate, members, n);
        if (one->policy->shares) set_ids(one, members + n_before, n - n_before);
    }
    return n;
}

int64_t check_asked(const struct check *check)
{
    const struct policy *policy = check->policy;
    int64_t most = check->at_most;
    if (check->kind == OP_REFUND) return 0;
    if (most == 0) return check->cost;
    for (uint16_t i = 0; i < policy->n_limits; i++) /* no limit can be asked for more at once */
        if (policy->limits[i].max_cost < most) most = policy->limits[i].max_cost;
    return most;
}

/* For none of its policies may the request be charged twice in that policy's time. */
static uint32_t note_ms_of(const struct check *first)
{
    uint32_t longest = 0;
    for (const struct check *one = first; one != NULL; one = check_after(first, one))
        if (one->policy->idempotency_ms > longest) longest = one->policy->idempotency_ms;
    return longest;
}

void check_fill_op(struct check *first, struct op *op, struct op_member *members)
{
    *op = (struct op){.kind = first->kind, .members = members, .party = first->party};
    list_init(&op->link);
    op->n_members =
        first->kind == OP_RELEASE ? slot_fill_members(first->slot, members) : check_fill_members(first, members);
    if (first->slot != NULL) op->slot = first->slot->id;
    if (first->at_most > 0) op->at_most = check_asked(first);
    if (first->kind == OP_RESERVE || first->kind == OP_SETTLE) op->hold = &first->hold;
    op->note = first->note;
    if (first->note.len > 0) op->note_ms = note_ms_of(first);
}

static void combine(struct check *check, const struct op_member *members)
{
    struct decision decisions[POLICY_LIMITS_MAX];
    const struct limit *limits[POLICY_LIMITS_MAX];
    for (uint16_t i = 0; i < check->policy->n_limits; i++) {
        decisions[i] = members[i].decision;
        limits[i] = members[i].limit;
    }
    decision_combine(&check->decision, decisions, limits, check->policy->n_limits);
}

/* From the answers to its limits, of which none is 0. */
static void take_decision(struct check *check, const struct op_member *members)
{
    if (n_asked(check) > 1) {
        combine(check, members);
    } else {
        check->decision = members[0].decision;
        check->decision.bound_by = NULL;
    }
    check->decision.policy_version = check->policy->version;
}

void check_take_answer(struct check *first, const struct op *op, enum source source)
{
    if (op->kind == OP_RESET) {
        for (uint16_t i = 0; i < op->n_members; i++) first->removed |= op->members[i].removed;
        return;
    }
    for (uint16_t i = 0; i < op->n_members && op->kind == OP_REFUND; i++)
        if (op->members[i].refunded > first->refunded) first->refunded = op->members[i].refunded;
    if (op->kind == OP_RELEASE) {
        first->removed = true;
        for (uint16_t i = 0; i < op->n_members; i++) first->removed &= op->members[i].found;
        return;
    }
    const struct op_member *members = op->members;
    for (struct check *one = first; one != NULL; one = check_after(first, one)) {
        if (one->policy->unlimited) continue;
        if (is_asked_about(first, one)) {
            take_decision(one, members);
            members += n_asked(one);
        }
        one->decision.source = source;
        one->decision.reason = REASON_NONE;
    }
    CHECK(members == op->members + op->n_members);
}

/* The first member that anything was asked of; who is unlimited, decides nothing. */
static const struct check *find_decider(const struct check *const *members, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!members[i]->policy->unlimited) return members[i];
    return members[0];
}

void check_whole(const struct check *const *members, size_t n, struct decision *ret)
{
    enum { FOLD = 31 };
    struct decision decisions[POLICY_LIMITS_MAX];
    const struct limit *limits[POLICY_LIMITS_MAX];
    int64_t granted = 0;
    uint32_t version = 0;
    CHECK(n >= 1 && n <= POLICY_LIMITS_MAX);
    for (size_t i = 0; i < n; i++) {
        const struct check *one = members[i];
        decisions[i] = one->decision;
        limits[i] = one->decision.bound_by != NULL ? one->decision.bound_by : &one->policy->limits[0];
        granted += one->decision.granted;
        version = version * FOLD + one->policy->version;
    }
    decision_combine(ret, decisions, limits, n);
    ret->granted = ret->allowed ? granted : 0;
    ret->policy_version = version;
    ret->source = find_decider(members, n)->decision.source;
    ret->reason = find_decider(members, n)->decision.reason;
    if (ret->source != SOURCE_DENY) return;
    ret->bound_by = NULL; /* none of them denied */
    ret->reset_after_ms = 0;
}
