/*
 * methods.c: what each method of the table (proto/methods.def) does with its parameters.
 *
 * A method either answers before it returns, or hands a request to the engine that will (request.h).
 * Nothing is charged before the whole request has been checked.
 */
#include "server/methods.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/counters.h"
#include "base/latency.h"
#include "base/log.h"
#include "proto/method.h"
#include "server/access.h"
#include "server/check_list.h"
#include "server/explain.h"
#include "server/find.h"
#include "server/late_answer.h"
#include "server/members.h"
#include "server/operator_log.h"
#include "server/params.h"
#include "server/policies.h"
#include "server/policy_list.h"
#include "server/reply.h"
#include "server/request.h"
#include "server/reserve.h"
#include "server/session_output.h"
#include "server/views.h"

enum { NEXT_MAX = 48 }; /* of `next` of a page of metrics */

static int run_check(struct params *params)
{
    struct request *request = request_begin(params, OP_CHECK);
    if (request == NULL) return -1;

    struct check *check = request->first;
    check->cost = 1;
    int status = params_charged(params, check);
    if (status == 0) status = params_cost_or_options(params, check);
    return request_go(request, params, status);
}

static int run_peek(struct params *params)
{
    struct request *request = request_begin(params, OP_PEEK);
    if (request == NULL) return -1;

    struct check *check = request->first;
    int status = params_target(params, check);
    if (status == 0) status = params_cost(params, check);
    return request_go(request, params, status);
}

/* Asks the policy's candidate the same, in an op of its own because its keys may be in another shard; not if it has
 * none, or none that decides checks of this cost. 0, or -1 with the fault filled. */
static int add_candidate(struct request *request, const struct params *params)
{
    const struct check *check = request->first;
    const struct plan *plan = check->plan->candidate;
    if (plan == NULL || policy_cost_fault(plan->policy, check->cost) != NULL) return 0;

    struct check *candidate = request_add(request, check->op.kind);
    if (candidate == NULL) return params_fail_overloaded(params);
    check_use_set(candidate, check->set);
    candidate->plan = plan;
    candidate->key = check->key;
    candidate->cost = check->cost;
    return 0;
}

static int run_explain(struct params *params)
{
    struct pull key = params->pull;
    struct request *request = request_begin(params, OP_PEEK);
    if (request == NULL) return -1;

    struct check *check = request->first;
    request->kind = REQUEST_EXPLAIN;
    request->key_is_bin = pull_skip(&key) == 0 && pull_is_bin(&key);
    check->cost = 1;
    check->op.answer_units = EXPLAIN_ANSWER_UNITS;
    params->takes_label = true;
    int status = params_target(params, check);
    if (status == 0) status = params_cost(params, check);
    if (status == 0) status = add_candidate(request, params);
    return request_go(request, params, status);
}

static int run_reset(struct params *params)
{
    struct request *request = request_begin(params, OP_RESET);
    if (request == NULL) return -1;

    struct check *check = request->first;
    int status = params_counter(params, check, true);
    if (status == 0) operator_log_note(params->session, "reset", check);
    if (status == 0 && check->only == NULL) status = add_candidate(request, params);
    return request_go(request, params, status);
}

static int read_refund(struct params *params, struct check *check)
{
    if (params_counter(params, check, false) != 0) return -1;
    if (params_units(params, "units", 1, &check->cost) != 0) return -1;

    const struct plan *plan = check->plan;
    const struct limit *only = check->only;
    for (uint16_t i = 0; i < plan->n_limits; i++) {
        const struct limit *limit = &plan->limits[i];
        bool is_other = only != NULL ? limit != only : plan->takes_units && limit->algo == ALGO_CONCURRENCY;
        if (is_other || limit_ops(limit)->refunds) continue;
        return params_fail(params, ERROR_UNSUPPORTED,
                           "policy: '%s%s%s' has no units to give back one by one; reset forgets a whole key",
                           plan->policy->label, only != NULL ? "/" : "", only != NULL ? only->name : "");
    }
    return params_options(params, check);
}

static int run_refund(struct params *params)
{
    struct request *request = request_begin(params, OP_REFUND);
    if (request == NULL) return -1;

    int status = read_refund(params, request->first);
    if (status == 0) operator_log_note(params->session, "refund", request->first);
    return request_go(request, params, status);
}

/* ---- lists ---- */

static int add_members(struct request *request, struct params *params, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (members_add(request, params, i) != 0) return -1;
    return 0;
}

/* Reads the number of members. A list with more members than may ever be in flight is refused before any of them is
 * counted. 0, or -1 with the fault filled. */
static int enter_list(struct params *params, uint32_t *ret_n)
{
    uint32_t max = engine_max_inflight(params->session->sessions->engine);
    if (pull_array(&params->pull, ret_n) != 0)
        return params_fail(params, ERROR_BAD_REQUEST, "checks: must be a list of [policy, key [, cost]]");
    params->n--;
    if (*ret_n > max)
        return params_fail(params, ERROR_BAD_REQUEST,
                           "%u checks in one request; caps.max_inflight is %u, split the list", *ret_n, max);
    return 0;
}

static int run_check_many(struct params *params)
{
    struct session *session = params->session;
    uint32_t n = 0;
    if (enter_list(params, &n) != 0) return -1;
    if (check_list_is_long(session, n)) return check_list_begin(params, n);

    if (n > 0) sessions_spend(session->sessions, n - 1);
    struct request *request = request_new(params, REQUEST_MANY);
    if (request == NULL) return -1;
    return request_go(request, params, add_members(request, params, n));
}

/* Refuses a sealed check_all in which keys that share a counter together ask for more than one check may charge. */
static int refuse_sums(const struct params *params, const struct request *request)
{
    const struct check *check = request->first;
    while (check->next != NULL && !check->is_merged) check = check->next;
    for (uint16_t i = 0; check->is_merged && i < check->op.n_members; i++) {
        const struct op_member *member = &check->op.members[i];
        const struct limit *limit = member->limit;
        char path[LIMIT_PATH_MAX];

        if (member->cost > limit->max_cost && member->cost <= limit->full)
            return params_fail(params, ERROR_BAD_COST,
                               "cost: the checks whose keys share %s ask for %" PRId64
                               " together, and one request may charge it at most %" PRId64,
                               limit_path(limit, path), member->cost, limit->max_cost);
    }
    return 0;
}

/* One record cannot lie in several hash slots. */
static int refuse_id_of_split(const struct params *params, const struct request *request)
{
    const struct check *check = request->first;
    while (check->plan->shadow && check->next != NULL) check = check->next;
    if (check->request_id.len == 0 || !engine_splits(params->session->sessions->engine, check)) return 0;
    return params_fail(
        params, ERROR_UNSUPPORTED,
        "request_id: these checks lie in several hash slots of the Redis Cluster, where none is remembered; "
        "put their limits into one policy, or leave request_id out");
}

static int run_check_all(struct params *params)
{
    uint32_t n = 0;
    if (enter_list(params, &n) != 0) return -1;
    if (n == 0) return params_fail(params, ERROR_BAD_REQUEST, "checks: is empty; write [policy, key [, cost]] into it");
    sessions_spend(params->session->sessions, n - 1);

    struct request *request = request_new(params, REQUEST_ALL);
    if (request == NULL) return -1;

    int status = add_members(request, params, n);
    if (status == 0) status = params_all_options(params, request->first);
    if (status == 0) status = request_seal(request, params);
    if (status == 0) status = refuse_sums(params, request);
    if (status == 0) status = refuse_id_of_split(params, request);
    return request_go(request, params, status);
}

static int run_acquire(struct params *params)
{
    struct session *session = params->session;
    struct slots *slots = engine_slots(session->sessions->engine);
    struct request *request = request_begin(params, OP_ACQUIRE);
    if (request == NULL) return -1;

    struct check *check = request->first;
    check->cost = 1;
    int status = params_target(params, check);
    if (status == 0 && !check->plan->has_slots)
        status = params_fail(params, ERROR_UNSUPPORTED, "policy: has no concurrency limit; use check");
    if (status == 0) status = params_options(params, check);

    struct slot *slot = NULL;
    if (status == 0 && check->request_id.len > 0)
        slot = slots_find_request(slots, &session->slots, check->plan->policy->name, check->key, check->request_id);
    check->msgid = params->msgid;

    /* This connection holds a slot with this request id: it gets the first answer again. */
    if (slot != NULL && slot->state == SLOT_HELD) {
        struct packer *packer = session_begin_answer(session, params->msgid);
        slot_answers(slot, params->msgid);
        reply_slot(packer, &slot->request->decision, slot->id, session->form);
        request_drop(request);
        session_end_answer(session);
        return 0;
    }
    if (slot != NULL)
        status = params_fail(params, ERROR_BAD_REQUEST,
                             "request_id: an acquire with it is under way on this connection; wait for its answer");

    if (status == 0) status = request_take_slot(request, params);
    return request_go(request, params, status);
}

static int run_release(struct params *params)
{
    struct session *session = params->session;
    struct slice id;
    if (pull_text(&params->pull, &id) != 0)
        return params_fail(params, ERROR_BAD_REQUEST,
                           "slot: must be a str, the slot that an acquire was answered with");

    struct slot *slot = slots_find(engine_slots(session->sessions->engine), &session->slots, id);
    if (slot == NULL) {
        struct packer *packer = session_begin_answer(session, params->msgid);
        reply_flag(packer, "released", false);
        session_end_answer(session);
        return 0;
    }
    struct request *request = request_begin(params, OP_RELEASE);
    if (request == NULL) return -1;
    engine_releases(request->first, slot);
    return request_go(request, params, 0);
}

/* Defined in PROTOCOL.md. */
static const char *const features[] = {"name", "reserve_inline", "abandon", "id"};

static int run_hello(struct params *params)
{
    struct session *session = params->session;
    const struct server_options *options = &session->sessions->options;
    if (params_hello(params, &session->form) != 0) return -1;

    struct packer *packer = session_begin_answer(session, params->msgid);
    pack_map(packer, 7);
    pack_text_field(packer, "version", RL_VERSION);
    pack_int_field(packer, "protocol", PROTOCOL_VERSION);
    pack_int_field(packer, "max_key", options->max_key);
    pack_int_field(packer, "max_frame", options->max_frame);
    pack_int_field(packer, "max_inflight_per_connection", options->max_inflight_per_connection);
    pack_text(packer, "fields");
    reply_fields(packer, session->form.describes);
    pack_text(packer, "features");
    pack_array(packer, N_OF(features));
    for (size_t i = 0; i < N_OF(features); i++) pack_text(packer, features[i]);
    session_end_answer(session);
    return 0;
}

static int run_policies(struct params *params)
{
    struct policies_page page = {0};
    if (params_page(params, &page) != 0) return -1;
    return policy_list_begin(params, &page);
}

static int run_stats(struct params *params)
{
    struct session *session = params->session;
    engine_update_counters(session->sessions->engine);

    char space[STORE_TROUBLE_MAX];
    const char *trouble = sessions_store_trouble(session->sessions, space);
    const char *trial = engine_store_trial(session->sessions->engine);
    bool has_trouble = trouble[0] != '\0', has_trial = trial[0] != '\0';
    struct packer *packer = session_begin_answer(session, params->msgid);
    pack_map(packer, (uint32_t)counters_n() + N_LATENCY_STATS + has_trouble + has_trial);
    if (has_trouble) pack_text_field(packer, "redis_trouble", trouble);
    if (has_trial) pack_text_field(packer, "redis_trial", trial);
    for (struct counter_group *const *group = counters_groups; *group != NULL; group++)
        for (size_t i = 0; i < (*group)->n; i++)
            pack_uint_field(packer, (*group)->rows[i].name, counters_value(*group, i));
    for (unsigned i = 0; i < N_LATENCY_STATS; i++) {
        char name[LATENCY_NAME_MAX];
        int64_t us = latency_stat(i, name);
        pack_uint_field(packer, name, (uint64_t)us);
    }
    session_end_answer(session);
    return 0;
}

static int run_ping(struct params *params)
{
    struct session *session = params->session;
    struct packer *packer = session_begin_answer(session, params->msgid);
    pack_text(packer, "pong");
    session_end_answer(session);
    return 0;
}

static int run_version(struct params *params)
{
    struct session *session = params->session;
    const struct sessions *sessions = session->sessions;
    int64_t now_us = sessions->clock->mono_us;

    bool shows_file = session->group->role == ROLE_ADMIN; /* of the control socket: no other peer may see paths */
    struct packer *packer = session_begin_answer(session, params->msgid);
    pack_map(packer, shows_file ? 9 : 7);
    pack_text_field(packer, "version", RL_VERSION);
    pack_int_field(packer, "protocol", PROTOCOL_VERSION);
    pack_text_field(packer, "libuv", uv_version_string());
    pack_text_field(packer, "hiredis", sessions->options.hiredis_version);
    pack_text_field(packer, "store", sessions->options.store_name);
    pack_int_field(packer, "uptime_ms", (now_us - sessions->started_us) / 1000);
    pack_int_field(packer, "configuration_age_ms", (now_us - sessions->options.configured_us) / 1000);
    if (shows_file) {
        char hash[17];
        const char *path = sessions->options.config_path;
        snprintf(hash, sizeof hash, "%016" PRIx64, sessions->options.config_hash);
        pack_text_field(packer, "configuration", path != NULL ? path : "");
        pack_text_field(packer, "configuration_hash", hash);
    }
    session_end_answer(session);
    return 0;
}

/* ---- for those who run the daemon ---- */

/* *ret_from, 0 for the page's beginning. 0, or -1 with the fault filled. */
static int read_next_part(struct params *params, int64_t configured_us, uint64_t *ret_from)
{
    char text[NEXT_MAX], again[NEXT_MAX];
    struct slice next;
    char *end = NULL;
    int64_t of_us = 0;
    uint64_t from = 0;
    *ret_from = 0;
    if (params->n == 0 || pull_nil(&params->pull) == 0) return 0;

    bool is_text = pull_text(&params->pull, &next) == 0 && next.len > 0 && next.len < sizeof text;
    if (is_text) snprintf(text, sizeof text, "%.*s", (int)next.len, (const char *)next.data);
    if (is_text) of_us = strtoll(text, &end, 10);
    if (is_text && *end == '.') from = strtoull(end + 1, &end, 10);
    snprintf(again, sizeof again, "%" PRId64 ".%" PRIu64, of_us, from);
    if (!is_text || !slice_is(next, again)) /* in this form alone */
        return params_fail(params, ERROR_BAD_REQUEST, "next: must be the str `next` of the answer before");
    if (of_us == configured_us) *ret_from = from;
    return 0;
}

/* A page may be longer than an answer. `next` of an answer is the place at which the part after it begins, and the
 * configuration that it is a place of: the same one would be in the middle of another configuration's page. So nothing
 * is kept between two calls, and after a reload the page begins anew. */
static int run_metrics(struct params *params)
{
    struct session *session = params->session;
    const struct sessions *sessions = session->sessions;
    int64_t configured_us = sessions->options.configured_us;
    struct buffer text = {0};
    uint64_t from;
    char next[NEXT_MAX];
    if (sessions->metrics_part == NULL)
        return params_fail(params, ERROR_UNKNOWN_METHOD, "there is no method 'metrics'");
    if (read_next_part(params, configured_us, &from) != 0) return -1;

    bool is_first = from == 0;
    int more = sessions->metrics_part(sessions->metrics_arg, &from, &text);
    if (more < 0) {
        buffer_fini(&text);
        return params_fail_overloaded(params);
    }

    struct packer *packer = session_begin_answer(session, params->msgid);
    snprintf(next, sizeof next, "%" PRId64 ".%" PRIu64, configured_us, from);
    pack_map(packer, 1U + is_first + (uint32_t)more);
    if (is_first) pack_bool_field(packer, "first", true);
    pack_text(packer, "text");
    pack_str(packer, buffer_len(&text) > 0 ? (struct slice){buffer_data(&text), buffer_len(&text)} : slice_of(""));
    if (more) pack_text_field(packer, "next", next);
    buffer_fini(&text);
    session_end_answer(session);
    return 0;
}

static int run_reload(struct params *params)
{
    bool is_dry_run = false;
    if (params_reload(params, &is_dry_run) != 0) return -1;
    if (!is_dry_run) operator_log_note(params->session, "reload", NULL);
    return late_answer_begin(params, is_dry_run ? LATE_DRY_RUN : LATE_RELOAD);
}

static int run_config(struct params *params)
{
    return late_answer_begin(params, LATE_CONFIG);
}

/* Sets only the time of the limits: deadlines and timers stay real. */
static int run_test_clock(struct params *params)
{
    struct session *session = params->session;
    int64_t us;
    if (pull_int(&params->pull, &us) != 0 || us < 0)
        return params_fail(params, ERROR_BAD_REQUEST,
                           "microseconds: must be a whole number from 0 to 2^53 - 1, the time since the epoch");

    if (session->sessions->options.test_limits && us < session->sessions->clock->wall_us)
        return params_fail(params, ERROR_BAD_REQUEST,
                           "microseconds: is earlier than now (%" PRId64
                           "), and with --test-limits time goes forward only; test_store clear begins at 0 again",
                           session->sessions->clock->wall_us);

    engine_set_time(session->sessions->engine, us);
    struct packer *packer = session_begin_answer(session, params->msgid);
    pack_int(packer, us);
    session_end_answer(session);
    return 0;
}

static int run_test_store(struct params *params)
{
    static const char *const words[] = {
        [STORE_TEST_DOWN] = "down", [STORE_TEST_UP] = "up", [STORE_TEST_CLEAR] = "clear"};
    struct session *session = params->session;
    struct slice text = {0};
    size_t what = 0;
    if (pull_text(&params->pull, &text) != 0) text.len = 0;
    while (what < N_OF(words) && !slice_is(text, words[what])) what++;
    if (what == N_OF(words)) return params_fail(params, ERROR_BAD_REQUEST, "state: must be down, up or clear");

    engine_test_store(session->sessions->engine, (enum store_test)what);
    struct packer *packer = session_begin_answer(session, params->msgid);
    pack_str(packer, text);
    session_end_answer(session);
    return 0;
}

/* Other files' methods. */
#define run_reserve reserve_run
#define run_settle  settle_run
#define run_cancel  cancel_run
#define run_top     views_top
#define run_denials views_denials
#define run_slowlog views_slowlog
#define run_clients views_clients
#define run_hash    views_hash
#define run_find    find_run

static const struct method_row {
    const char *name;
    const char *usage;
    uint32_t min_params, max_params;
    /* 0: answered, or a request is under way. -1: refused, the fault is filled. */
    int (*run)(struct params *params);
    uint32_t units;
} methods[N_METHODS] = {
#define METHOD(name, role, min, max, units, usage) [METHOD_##name] = {#name, usage, min, max, run_##name, units},
#include "proto/methods.def"
#undef METHOD
};

/* ---- how often each was asked for ---- */

static uint64_t n_asked[N_METHODS + 1]; /* the last: no method, or no request that could be read */

static const char *name_of(size_t i)
{
    return i < N_METHODS ? methods[i].name : "(other)";
}

const struct counter_family methods_asked = {
    .name = "requests",
    .help = "requests received, by method; (other): of no method there is, or broken",
    .label = "method",
    .n = N_OF(n_asked),
    .value = name_of,
    .counts = n_asked,
};

void methods_count_other(void)
{
    n_asked[N_METHODS]++;
}

void methods_run(struct session *session, const struct rpc_request *request)
{
    struct request_fault fault;
    struct params params = params_of(session, request->msgid, &fault);
    params.pull = request->params;
    params.n = request->n_params;

    size_t at = 0; /* N_METHODS: there is none */
    while (at < N_METHODS && !slice_is(request->method, methods[at].name)) at++;
    bool is_for_tests = at == METHOD_test_clock || at == METHOD_test_store;
    if (is_for_tests && !session->sessions->options.test_clock) at = N_METHODS;
    const struct method_row *method = at < N_METHODS ? &methods[at] : NULL;
    n_asked[at]++;

    int status = -1;
    if (method == NULL) {
        char space[72];
        params_fail(&params, ERROR_UNKNOWN_METHOD, "there is no method '%s'%s",
                    log_escape(space, sizeof space, request->method.data, request->method.len),
                    is_for_tests ? " in a daemon that was started without --test-clock" : "");
    } else if (!(session->rule->may >> at & 1) && access_refuses_method(session, (enum method)at, &fault)) {
        /* the fault is filled */
    } else if ((params.n >= method->min_params && params.n <= method->max_params) ||
               (method->max_params == 0 && params.n == 1 && pull_type(&params.pull) == PULL_NIL)) {
        /* if it answers at once, that comes behind those of earlier checks */
        if (method->run != run_check) engine_decide_ahead(session->sessions->engine);
        sessions_spend(session->sessions, method->units);
        status = method->run(&params);
    } else {
        params_fail(&params, ERROR_BAD_REQUEST, "wrong number of parameters: %u given; %s takes: %s", params.n,
                    method->name, method->usage);
    }
    if (status != 0) session_answer_error(session, request->msgid, fault.code, fault.text);
}

void methods_notify(struct session *session, const struct rpc_request *notification)
{
    struct pull params = notification->params;
    struct engine *engine = session->sessions->engine;
    uint64_t msgid;
    if (!slice_is(notification->method, "abandon")) return;

    engine_decide_ahead(engine); /* what it changes is later */
    sessions_spend(session->sessions, 1);
    if (notification->n_params == 1 && pull_msgid(&params, &msgid) == 0) engine_abandon(engine, session->client, msgid);
}
