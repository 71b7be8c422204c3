/*
 * reserve.c: what reserve, settle and cancel read and answer.
 *
 * Every admitted reserve is answered with a reservation, a failure answer too: it tells then that nothing is held, or
 * where, and settling it is answered accordingly.
 */
#include "server/reserve.h"

#include "server/reply.h"
#include "server/reservation.h"

/* Units of `policy` cannot be given back; NULL where they can. */
static const char *fault_of(const struct policy *policy)
{
    if (policy->reserves) return NULL;
    if (limit_ops(&policy->limits[0])->is_compat)
        return "policy: a compat policy cannot give units back; ask for it with check";
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (policy->limits[i].max_wait_us > 0)
            return "policy: what is allowed with a delay cannot be given back; reserve needs a policy without max_wait";
    return "policy: its units cannot be given back; reserve needs another algorithm";
}

static int submit(struct session *session, uint64_t msgid, const struct params *params, enum op_kind kind,
                  const struct policy *policy, struct slice key, const struct check *like)
{
    struct call *call = call_new(session, msgid, kind == OP_PEEK ? CALL_SETTLE : CALL_ONE);
    if (call == NULL) return params_fail_overloaded(params);
    struct check *check = call_add(call, kind, key);
    if (check == NULL) return call_go_or_drop(call, params_fail_overloaded(params));
    check->policy = policy;
    check->cost = like->cost;
    check->deadline_ms = like->deadline_ms;
    check->local_reason = like->local_reason;
    check->hold = like->hold;
    return call_go_or_drop(call, 0);
}

int reserve_run(struct session *session, uint64_t msgid, struct params *params)
{
    struct question question = {.ttl_ms = 60000};
    if (params_target(params, &question) != 0) return -1;
    if (question.set != NULL)
        return params_fail(params, ERROR_UNSUPPORTED,
                           "policy: who settles must find it by its name; write it into the configuration");
    const char *fault = fault_of(question.policy);
    if (fault != NULL) return params_fail(params, ERROR_UNSUPPORTED, "%s", fault);
    if (params_estimate(params, &question) != 0 || params_reserve_options(params, &question) != 0) return -1;
    const struct check like = {
        .cost = question.cost, .deadline_ms = question.deadline_ms, .hold = {.ttl_ms = question.ttl_ms}};
    return submit(session, msgid, params, OP_RESERVE, question.policy, question.key, &like);
}

/* What a failure answer, or an unlimited policy, let pass without holding it is settled without anybody being asked. */
static void answer_unheld(struct session *session, uint64_t msgid, const struct policy *policy,
                          const struct reservation_token *token)
{
    size_t start;
    const struct check settled = {
        .decision = {.allowed = true,
                     .limit = policy_capacity(policy),
                     .remaining = policy->unlimited ? policy_capacity(policy) : 0,
                     .source = token->source,
                     .reason = token->reason,
                     .policy_version = policy->version},
        .hold = {.actual = token->hold.actual, .ended = true},
    };
    struct packer packer = session_answer(session, msgid, &start);
    settle_pack(&packer, &settled, session->wants_arrays);
    session_answered(session, &packer, start);
}

static int settle(struct session *session, uint64_t msgid, const struct params *params,
                  const struct reservation_token *token)
{
    const struct policy *policy = policy_find(params->policies, token->policy);
    if (policy == NULL)
        return params_fail(params, ERROR_UNKNOWN_POLICY, "reservation: its policy is not configured any more");
    if (!policy_takes_key(policy, token->key))
        return params_fail(params, ERROR_BAD_KEY, "reservation: its key does not fit its policy's key_format any more");
    policy = policy_for_key(policy, token->key);
    bool is_held = token->hold.id != 0;
    if (!is_held && (policy->unlimited || (token->source != SOURCE_REDIS && token->source != SOURCE_MEMORY))) {
        answer_unheld(session, msgid, policy, token);
        return 0;
    }
    const char *fault = fault_of(policy);
    if (fault != NULL) return params_fail(params, ERROR_UNSUPPORTED, "%s", fault);
    if (!is_held) { /* the store would have denied it, or was not asked: as things stand now, nothing is to be done */
        const struct check peek = {.hold = {.actual = token->hold.actual, .ended = true}};
        return submit(session, msgid, params, OP_PEEK, policy, token->key, &peek);
    }
    const struct check like = {.hold = token->hold,
                               .local_reason = token->source == SOURCE_LOCAL ? token->reason : REASON_NONE};
    return submit(session, msgid, params, OP_SETTLE, policy, token->key, &like);
}

int settle_run(struct session *session, uint64_t msgid, struct params *params)
{
    struct reservation_token token;
    if (params_reservation(params, &token) != 0) return -1;
    int status = params_actual(params, &token.hold.actual);
    if (status == 0) status = settle(session, msgid, params, &token);
    reservation_token_fini(&token);
    return status;
}

int cancel_run(struct session *session, uint64_t msgid, struct params *params)
{
    struct reservation_token token;
    if (params_reservation(params, &token) != 0) return -1;
    int status = settle(session, msgid, params, &token);
    reservation_token_fini(&token);
    return status;
}

void reserve_pack(struct packer *packer, const struct check *check, bool as_array)
{
    const struct decision *decision = &check->decision;
    reply_decision(packer, decision, check->cost, as_array, decision->allowed);
    if (!decision->allowed) return;
    struct reservation_token token = {
        .source = decision->source,
        .reason = decision->reason,
        .hold = check->hold,
        .policy = slice_of(check->policy->name),
        .key = check->key,
    };
    if (!check->hold.held) token.hold = (struct op_hold){.units = check->hold.units, .ttl_ms = check->hold.ttl_ms};
    pack_text(packer, "reservation");
    reservation_pack(packer, &token);
}

void settle_pack(struct packer *packer, const struct check *check, bool as_array)
{
    const struct op_hold *hold = &check->hold;
    bool charged = hold->actual > (hold->ended ? 0 : hold->units);
    reply_decision(packer, &check->decision, 0, as_array, 1U + hold->ended);
    pack_text(packer, charged ? "charged" : "refunded");
    pack_int(packer, charged ? hold->charged : hold->refunded);
    if (!hold->ended) return;
    pack_text(packer, "ended");
    pack_bool(packer, true);
}
