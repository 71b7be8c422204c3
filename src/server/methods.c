/*
 * methods.c: the table of methods, and what each does with its parameters.
 *
 * A method either answers before it returns, or hands a call to the engine that will (call.h).
 * Nothing is charged before everything about the request has been found in order.
 */
#include "server/methods.h"

#include "base/counters.h"
#include "base/log.h"
#include "server/call.h"
#include "server/check_list.h"
#include "server/params.h"
#include "server/policies.h"
#include "server/reply.h"
#include "server/reserve.h"

struct method {
    const char *name;
    const char *usage; /* its parameters, for the message about a wrong number of them */
    uint32_t min_params, max_params;
    /* 0: answered, or a call is under way. -1: refused, the fault is filled. */
    int (*run)(struct session *session, uint64_t msgid, struct params *params);
    bool only_test_clock;
};

static int add_check(struct call *call, const struct params *params, enum op_kind kind, const struct question *question)
{
    struct check *check = call_add(call, kind, question->key);
    if (check == NULL) return params_fail_overloaded(params);
    check->policy = question->policy;
    check->only = question->only;
    if (question->set != NULL) check_hold_set(check, question->set);
    check->cost = question->cost;
    check->deadline_ms = question->deadline_ms;
    check->has_max_wait = question->has_max_wait;
    check->max_wait_us = question->max_wait_us;
    check->at_most = question->at_most;
    check_set_request_id(check, question->request_id);
    return 0;
}

static int ask(struct session *session, uint64_t msgid, const struct params *params, enum op_kind kind,
               const struct question *question)
{
    struct call *call = call_new(session, msgid, CALL_ONE);
    if (call == NULL) return params_fail_overloaded(params);
    return call_go_or_drop(call, add_check(call, params, kind, question));
}

static bool has_slots(const struct policy *policy)
{
    if (policy->base != NULL) policy = policy->base; /* an override that is unlimited has no limits */
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (policy->limits[i].algo == ALGO_CONCURRENCY) return true;
    return false;
}

/* What would take a slot for good is no check. */
static int refuse_slots(const struct params *params, const struct question *question)
{
    if (!has_slots(question->policy)) return 0;
    return params_fail(params, ERROR_UNSUPPORTED, "policy: has a concurrency limit; use acquire and release");
}

static int run_check(struct session *session, uint64_t msgid, struct params *params)
{
    struct question question = {.cost = 1};
    if (params_target(params, &question) != 0 || refuse_slots(params, &question) != 0) return -1;
    if (params_cost_or_options(params, &question) != 0) return -1;
    return ask(session, msgid, params, OP_CHECK, &question);
}

static int run_peek(struct session *session, uint64_t msgid, struct params *params)
{
    struct question question = {.cost = 0};
    if (params_target(params, &question) != 0 || params_cost(params, &question) != 0) return -1;
    return ask(session, msgid, params, OP_PEEK, &question);
}

/* What would the candidate say, where it judges such a check? */
static int add_trial(struct call *call, const struct params *params, const struct question *question)
{
    struct question trial = *question;
    trial.policy = question->policy->candidate;
    if (trial.policy == NULL || engine_cost_fault(trial.policy, trial.cost) != NULL) return 0;
    return add_check(call, params, OP_PEEK, &trial);
}

static int run_explain(struct session *session, uint64_t msgid, struct params *params)
{
    struct question question = {.cost = 1};
    struct pull key = params->pull;
    bool is_bin = pull_skip(&key) == 0 && pull_is_bin(&key);
    if (params_target(params, &question) != 0 || params_cost(params, &question) != 0) return -1;
    struct call *call = call_new(session, msgid, CALL_EXPLAIN);
    if (call == NULL) return params_fail_overloaded(params);
    call->key_is_bin = is_bin;
    int status = add_check(call, params, OP_PEEK, &question);
    if (status == 0) status = add_trial(call, params, &question);
    return call_go_or_drop(call, status);
}

static int run_reset(struct session *session, uint64_t msgid, struct params *params)
{
    struct question question = {.cost = 0};
    if (params_counter(params, &question) != 0) return -1;
    return ask(session, msgid, params, OP_RESET, &question);
}

static int fail_met(const struct params *member, const struct limit *limit, int index)
{
    const char *slash = limit->name[0] != '\0' ? "/" : "";
    return params_fail(
        member, ERROR_BAD_REQUEST,
        "charges the same counter of %s%s%s as checks[%d], which its key shares; ask for both with one cost",
        limit->policy->name, slash, limit->name, index);
}

static bool can_refund(const struct policy *policy, const struct limit *only)
{
    if (only != NULL) return limit_ops(only)->refund != NULL;
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (limit_ops(&policy->limits[i])->refund == NULL) return false;
    return true;
}

static int run_refund(struct session *session, uint64_t msgid, struct params *params)
{
    struct question question = {.cost = 0};
    if (params_counter(params, &question) != 0 || params_units(params, &question) != 0) return -1;
    if (!can_refund(question.policy, question.only))
        return params_fail(params, ERROR_UNSUPPORTED,
                           "policy: '%s%s%s' has no units to give back one by one; reset forgets a whole key",
                           question.policy->name, question.only != NULL ? "/" : "",
                           question.only != NULL ? question.only->name : "");
    return ask(session, msgid, params, OP_REFUND, &question);
}

/* What a member takes of the room in a check_all: an unlimited one has no limit, and stands among the others all the
 * same. */
static size_t share_of(const struct policy *policy)
{
    return policy->unlimited ? 1 : policy->n_limits;
}

/* May `question` stand beside the call's other checks? Of a check_all only: those are one question to the store. */
static int fits_in(const struct call *call, const struct params *member, const struct question *question)
{
    size_t n_limits = share_of(question->policy);
    int index = 0;
    if (call->form != CALL_ALL) return 0;
    if (!question->policy->unlimited && limit_ops(&question->policy->limits[0])->is_compat)
        return params_fail(member, ERROR_UNSUPPORTED,
                           "policy: a compat policy is decided apart; ask for it with check");
    for (const struct check *other = call->first; other != NULL; other = other->next, index++) {
        n_limits += share_of(other->policy);
        if (other->policy == question->policy && slice_eq(other->key, question->key))
            return params_fail(member, ERROR_BAD_REQUEST, "is the same policy and key as checks[%d]", index);
        const struct limit *met = policy_meeting(question->policy, question->key, other->policy, other->key);
        if (met != NULL) return fail_met(member, met, index);
    }
    if (n_limits <= POLICY_LIMITS_MAX) return 0;
    return params_fail(member, ERROR_BAD_REQUEST, "is too much; the policies of one check_all have %d limits at most",
                       POLICY_LIMITS_MAX);
}

int methods_add_member(struct call *call, struct params *params, uint32_t index)
{
    struct params member;
    struct question question = {.cost = 1};
    if (params_member(params, index, &member) != 0) return -1;
    if (params_target(&member, &question) != 0 || refuse_slots(&member, &question) != 0) return -1;
    if (params_cost(&member, &question) != 0) return -1;
    if (fits_in(call, &member, &question) != 0) return -1;
    params->pull = member.pull;
    return add_check(call, &member, OP_CHECK, &question);
}

static int add_members(struct call *call, struct params *params, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (methods_add_member(call, params, i) != 0) return -1;
    return 0;
}

/* How many members the list has. What can never be in flight at once is refused before anything of it is counted. */
static int enter_list(struct session *session, struct params *params, uint32_t *ret_n)
{
    uint32_t max = engine_max_inflight(session->home->engine);
    if (params_list(params, ret_n) != 0) return -1;
    if (*ret_n > max)
        return params_fail(params, ERROR_BAD_REQUEST,
                           "%u checks in one request; caps.max_inflight is %u, split the list", *ret_n, max);
    return 0;
}

static int run_check_many(struct session *session, uint64_t msgid, struct params *params)
{
    uint32_t n;
    if (enter_list(session, params, &n) != 0) return -1;
    if (check_list_is_long(session, n)) return check_list_begin(session, msgid, params, n);

    if (n > 0) session->n_taken += n - 1;
    struct call *call = call_new(session, msgid, CALL_MANY);
    if (call == NULL) return params_fail_overloaded(params);
    return call_go_or_drop(call, add_members(call, params, n));
}

static int take_all_options(struct call *call, struct params *params)
{
    struct question options = {0};
    if (params_all_options(params, &options) != 0) return -1;
    call->deadline_ms = options.deadline_ms;
    for (struct check *check = call->first; check != NULL; check = check->next)
        check_set_request_id(check, options.request_id);
    return 0;
}

static int run_check_all(struct session *session, uint64_t msgid, struct params *params)
{
    uint32_t n;
    if (enter_list(session, params, &n) != 0) return -1;
    if (n == 0) return params_fail(params, ERROR_BAD_REQUEST, "checks: is empty; write [policy, key [, cost]] into it");
    struct call *call = call_new(session, msgid, CALL_ALL);
    if (call == NULL) return params_fail_overloaded(params);
    int status = add_members(call, params, n);
    if (status == 0) status = take_all_options(call, params);
    return call_go_or_drop(call, status);
}

static int fail_no_slot(const struct session *session, const struct params *params)
{
    switch (slots_cap_reached(engine_slots(session->home->engine), &session->slots)) {
    case SLOTS_CAP_OF_OWNER:
        return params_fail(params, ERROR_OVERLOADED,
                           "this connection holds as many slots as one may (caps.max_slots_per_connection); release "
                           "some");
    case SLOTS_CAP_OF_ALL:
        return params_fail(params, ERROR_OVERLOADED,
                           "the daemon's connections hold as many slots as they may together (caps.max_slots); release "
                           "some");
    default: return params_fail(params, ERROR_OVERLOADED, "memory is short; try again later");
    }
}

static int run_acquire(struct session *session, uint64_t msgid, struct params *params)
{
    struct question question = {.cost = 1};
    if (params_target(params, &question) != 0) return -1;
    if (!has_slots(question.policy))
        return params_fail(params, ERROR_UNSUPPORTED, "policy: has no concurrency limit; use check");
    if (params_acquire_options(params, &question) != 0) return -1;
    struct call *call = call_new(session, msgid, CALL_ONE);
    if (call == NULL) return params_fail_overloaded(params);
    int status = add_check(call, params, OP_ACQUIRE, &question);
    if (status == 0 && engine_acquires(session->home->engine, call->first, &session->slots) != 0)
        status = fail_no_slot(session, params);
    return call_go_or_drop(call, status);
}

static int answer_released(struct session *session, uint64_t msgid, bool released)
{
    size_t start;
    struct packer packer = session_answer(session, msgid, &start);
    reply_released(&packer, released);
    session_answered(session, &packer, start);
    return 0;
}

static int run_release(struct session *session, uint64_t msgid, struct params *params)
{
    struct slice id, no_key = {0};
    if (params_slot(params, &id) != 0) return -1;
    struct slot *slot = slots_find(engine_slots(session->home->engine), &session->slots, id);
    if (slot == NULL) return answer_released(session, msgid, false);
    struct call *call = call_new(session, msgid, CALL_ONE);
    if (call == NULL) return params_fail_overloaded(params);
    struct check *check = call_add(call, OP_RELEASE, no_key);
    if (check == NULL) return call_go_or_drop(call, params_fail_overloaded(params));
    engine_releases(check, slot);
    return call_go_or_drop(call, 0);
}

static int run_hello(struct session *session, uint64_t msgid, struct params *params)
{
    const struct server_options *options = &session->home->options;
    size_t start;
    if (params_hello(params, &session->wants_arrays) != 0) return -1;
    struct packer packer = session_answer(session, msgid, &start);
    pack_map(&packer, 6);
    pack_text(&packer, "version");
    pack_text(&packer, RL_VERSION);
    pack_text(&packer, "protocol");
    pack_int(&packer, PROTOCOL_VERSION);
    pack_text(&packer, "max_key");
    pack_int(&packer, options->max_key);
    pack_text(&packer, "max_frame");
    pack_int(&packer, options->max_frame);
    pack_text(&packer, "max_inflight_per_connection");
    pack_int(&packer, options->max_inflight_per_connection);
    pack_text(&packer, "fields");
    reply_fields(&packer);
    session_answered(session, &packer, start);
    return 0;
}

static int run_policies(struct session *session, uint64_t msgid, struct params *params)
{
    size_t start;
    struct packer packer = session_answer(session, msgid, &start);
    policies_reply(&packer, params->policies);
    session_answered(session, &packer, start);
    return 0;
}

static int run_stats(struct session *session, uint64_t msgid, struct params *params)
{
    size_t start;
    (void)params;
    struct packer packer = session_answer(session, msgid, &start);
    pack_map(&packer, (uint32_t)n_counters);
    for (size_t i = 0; i < n_counters; i++) {
        pack_text(&packer, counter_table[i].name);
        pack_uint(&packer, counter_value(&counter_table[i]));
    }
    session_answered(session, &packer, start);
    return 0;
}

static int run_ping(struct session *session, uint64_t msgid, struct params *params)
{
    size_t start;
    (void)params;
    struct packer packer = session_answer(session, msgid, &start);
    pack_text(&packer, "pong");
    session_answered(session, &packer, start);
    return 0;
}

static int run_version(struct session *session, uint64_t msgid, struct params *params)
{
    size_t start;
    (void)params;
    struct packer packer = session_answer(session, msgid, &start);
    pack_map(&packer, 5);
    pack_text(&packer, "version");
    pack_text(&packer, RL_VERSION);
    pack_text(&packer, "protocol");
    pack_int(&packer, PROTOCOL_VERSION);
    pack_text(&packer, "libuv");
    pack_text(&packer, uv_version_string());
    pack_text(&packer, "hiredis");
    pack_text(&packer, session->home->options.hiredis_version);
    pack_text(&packer, "store");
    pack_text(&packer, session->home->options.store_name);
    session_answered(session, &packer, start);
    return 0;
}

/* Only the limits' now: deadlines and timers stay real. */
static int run_test_clock(struct session *session, uint64_t msgid, struct params *params)
{
    struct clock *clock = session->home->clock;
    int64_t us;
    size_t start;
    if (params_time(params, &us) != 0) return -1;
    clock->wall_us = us;
    clock->manual = true;
    slots_renew_all(engine_slots(session->home->engine));
    struct packer packer = session_answer(session, msgid, &start);
    pack_int(&packer, us);
    session_answered(session, &packer, start);
    return 0;
}

/* The most asked first. */
static const struct method methods[] = {
    {"check", "policy, key [, cost or options]", 2, 3, run_check, false},
    {"check_many", "[[policy, key [, cost]], ...]", 1, 1, run_check_many, false},
    {"check_all", "[[policy, key [, cost]], ...] [, options]", 1, 2, run_check_all, false},
    {"peek", "policy, key [, cost]", 2, 3, run_peek, false},
    {"explain", "policy, key [, cost]", 2, 3, run_explain, false},
    {"reset", "policy, key", 2, 2, run_reset, false},
    {"refund", "policy, key, units", 3, 3, run_refund, false},
    {"reserve", "policy, key, estimate [, options]", 3, 4, reserve_run, false},
    {"settle", "reservation, actual", 2, 2, settle_run, false},
    {"cancel", "reservation", 1, 1, cancel_run, false},
    {"acquire", "policy, key [, options]", 2, 3, run_acquire, false},
    {"release", "slot", 1, 1, run_release, false},
    {"hello", "[options]", 0, 1, run_hello, false},
    {"ping", "none", 0, 0, run_ping, false},
    {"stats", "none", 0, 0, run_stats, false},
    {"policies", "none", 0, 0, run_policies, false},
    {"version", "none", 0, 0, run_version, false},
    {"test_clock", "microseconds", 1, 1, run_test_clock, true},
};

static const struct method *find_method(const struct session *session, struct slice name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (!slice_is(name, methods[i].name)) continue;
        return methods[i].only_test_clock && !session->home->options.test_clock ? NULL : &methods[i];
    }
    return NULL;
}

static int fail_unknown(const struct params *params, struct slice name)
{
    char space[72];
    return params_fail(params, ERROR_UNKNOWN_METHOD, "there is no method '%s'",
                       log_escape(space, sizeof space, name.data, name.len));
}

/* A method without parameters also takes one nil. */
static bool takes(const struct method *method, const struct params *params)
{
    if (method->max_params == 0 && params->n == 1) return pull_type(&params->pull) == PULL_NIL;
    return params->n >= method->min_params && params->n <= method->max_params;
}

static int dispatch(struct session *session, const struct rpc_request *request, struct params *params)
{
    const struct method *method = find_method(session, request->method);
    if (method == NULL) return fail_unknown(params, request->method);
    if (!takes(method, params))
        return params_fail(params, ERROR_BAD_REQUEST, "wrong number of parameters: %u given; %s takes: %s", params->n,
                           method->name, method->usage);
    return method->run(session, request->msgid, params);
}

struct params methods_params(struct session *session, struct request_fault *fault)
{
    fault->code = ERROR_INTERNAL; /* whatever is refused says better */
    return (struct params){
        .policies = engine_policies(session->home->engine),
        .session = session,
        .max_key = session->home->options.max_key,
        .index = -1,
        .fault = fault,
    };
}

void methods_run(struct session *session, const struct rpc_request *request)
{
    struct request_fault fault;
    struct params params = methods_params(session, &fault);
    params.pull = request->params;
    params.n = request->n_params;
    if (dispatch(session, request, &params) != 0) session_error(session, request->msgid, fault.code, fault.text);
}
