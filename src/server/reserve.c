/*
 * reserve.c: what reserve, settle and cancel read and answer.
 *
 * Every admitted reserve is answered with a reservation, a failure answer too: it says then that nothing is held, or
 * where, and settling it is answered accordingly.
 */
#include "server/reserve.h"

#include "server/reply.h"
#include "server/request.h"
#include "server/reservation_token.h"
#include "server/session_output.h"

enum { TTL_DEFAULT_MS = 60000 };

/* Why units of `plan` cannot be given back; NULL: they can. */
static const char *reserve_fault(const struct plan *plan)
{
    if (plan->reserves) return NULL;
    if (limit_ops(&plan->limits[0])->is_compat)
        return "policy: a compat policy cannot give units back; ask for it with check";
    for (uint16_t i = 0; i < plan->n_limits; i++)
        if (plan->limits[i].max_wait_us > 0)
            return "policy: what is allowed with a delay cannot be given back; reserve needs a policy without max_wait";
    return "policy: its units cannot be given back; reserve needs another algorithm";
}

static int read_reserve(struct params *params, struct check *check)
{
    check->reservation = (struct op_reservation){.ttl_ms = TTL_DEFAULT_MS};
    check->msgid = params->msgid;
    if (params_target(params, check) != 0) return -1;
    const char *fault = reserve_fault(check->plan);
    if (fault != NULL) return params_fail(params, ERROR_UNSUPPORTED, "%s", fault);

    if (params_units(params, "estimate", 0, &check->cost) != 0) return -1;
    fault = policy_cost_fault(check->plan->policy, check->cost);
    if (fault != NULL) return params_fail(params, ERROR_BAD_COST, "estimate%s", fault + strlen("cost"));
    if (params_options(params, check) != 0) return -1;
    if (check->request_id.len == 0 || !check->plan->has_slots) return 0;
    return params_fail(
        params, ERROR_UNSUPPORTED,
        "request_id: the policy has a concurrency limit, and asked again, the slot may be gone while the "
        "units are not; leave it out");
}

int reserve_run(struct params *params)
{
    struct request *request = request_begin(params, OP_RESERVE);
    if (request == NULL) return -1;

    const struct check *check = request->first;
    int status = read_reserve(params, request->first);
    bool takes_slot =
        status == 0 && check->plan->has_slots && check->plan->decider == DECIDED_BY_LIMITS && check->cost > 0;
    if (takes_slot) status = request_take_slot(request, params);
    return request_go(request, params, status);
}

/* May the client settle a reservation of this policy (NULL: an inline one, or one that is gone) and key? If not, the
 * fault is filled. */
static bool may_settle(const struct params *params, const struct policy *policy, struct slice key)
{
    bool has_inline = params->session->sessions->options.inline_access != INLINE_NOBODY;
    if (policy != NULL && params_is_for(params, policy) != 0) return false;
    if (policy == NULL && has_inline && params_inline_is_for(params) != 0) return false;
    return params_key_is_for(params, key) == 0;
}

/* The plan that it is settled by now, for a key that its policy takes; NULL: there is none, and that is answered. An
 * inline policy's set is *ret_set, else NULL. */
static const struct plan *find_plan(const struct params *params, const struct reservation_token *token,
                                    struct policy_set **ret_set)
{
    char text[FAULT_TEXT_MAX];
    uint32_t max_key = params->session->sessions->options.max_key;
    const struct policy *policy = policy_find(params_policies(params), token->policy);
    if (!may_settle(params, policy, token->key)) return NULL;
    *ret_set = policy == NULL ? params_inline(params, token->policy, text) : NULL;
    if (*ret_set != NULL) policy = (*ret_set)->in_order[0];

    if (policy == NULL)
        params_fail(params, ERROR_UNKNOWN_POLICY,
                    "reservation: its policy is not configured any more; an inline one is found again once a request, "
                    "such as a peek, has brought its settings");
    else if (token->key.len > max_key) /* made up, or from before a lower cap */
        params_fail(params, ERROR_BAD_KEY, "reservation: its key has %zu bytes; at most %u (caps.max_key) are allowed",
                    token->key.len, max_key);
    else if (!policy_takes_key(policy, token->key))
        params_fail(params, ERROR_BAD_KEY, "reservation: its key does not fit its policy's key_format any more");
    else
        return plan_for_key(policy, token->key);
    return NULL;
}

static int settle_token(const struct params *params, const struct reservation_token *token)
{
    const struct op_reservation nothing = {.actual = token->reservation.actual, .ended = true};
    struct policy_set *set;
    const struct plan *plan = find_plan(params, token, &set);
    if (plan == NULL) return -1;

    bool is_held = token->reservation.id != 0;
    bool is_of_store = token->source == SOURCE_REDIS || token->source == SOURCE_MEMORY;
    if (!is_held && (plan->decider == ALLOWED_ALWAYS || !is_of_store)) {
        /* What a failure answer, or an unlimited policy, let pass without reserving it is settled without the store. */
        const struct decision decision = {
            .allowed = true,
            .limit = plan_capacity(plan),
            .remaining = plan->decider == ALLOWED_ALWAYS ? plan_capacity(plan) : 0,
            .source = token->source,
            .reason = token->reason,
            .policy_version = plan->policy->version,
        };
        struct packer *packer = session_begin_answer(params->session, params->msgid);
        reply_settled(packer, &decision, &nothing, params->session->form);
        session_end_answer(params->session);
        return 0;
    }
    const char *fault = reserve_fault(plan);
    if (fault != NULL) return params_fail(params, ERROR_UNSUPPORTED, "%s", fault);

    /* Not held: the store would have denied it, or was not asked. The answer says how things are now. */
    struct request *request = request_begin(params, is_held ? OP_SETTLE : OP_PEEK);
    if (request == NULL) return -1;
    if (!is_held) request->kind = REQUEST_SETTLE;

    struct check *check = request->first;
    if (set != NULL) check_use_set(check, set);
    check->plan = plan;
    check->key = token->key;
    check->reservation = is_held ? token->reservation : nothing;
    if (is_held && token->source == SOURCE_LOCAL) check->local_reason = token->reason;
    return request_go(request, params, 0);
}

static int read_reservation(struct params *params, struct reservation_token *ret)
{
    struct slice text;
    if (pull_text(&params->pull, &text) != 0)
        return params_fail(params, ERROR_BAD_REQUEST, "reservation: must be a str, as reserve answered it");

    int status = reservation_token_read(text, ret);
    if (status == -2) return params_fail_overloaded(params);
    if (status < 0)
        return params_fail(params, ERROR_BAD_REQUEST,
                           "reservation: is not a valid reservation; send back what reserve answered, unchanged");
    params->n--;
    return 0;
}

int settle_run(struct params *params)
{
    struct reservation_token token = {0};
    if (read_reservation(params, &token) != 0) return -1;
    int status = params_units(params, "actual", 0, &token.reservation.actual);
    if (status == 0) status = settle_token(params, &token);
    reservation_token_fini(&token);
    return status;
}

int cancel_run(struct params *params)
{
    struct reservation_token token = {0};
    if (read_reservation(params, &token) != 0) return -1;
    int status = settle_token(params, &token);
    reservation_token_fini(&token);
    return status;
}
