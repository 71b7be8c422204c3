/* request.c: from the parameters to the checks of a request, and from their decisions to its answer, for methods.c,
 * reserve.c and check_list.c. */
#include "server/request.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "engine/engine_counters.h"
#include "engine/failure.h"
#include "server/access.h"
#include "server/explain.h"
#include "server/find.h"
#include "server/params.h"
#include "server/reply.h"
#include "server/session_output.h"

enum {
    DROPPED_PER_UNIT = 4, /* checks that are let go for a unit of work (sessions.h) */
    LATE_DEADLINE_MS = 1, /* for the rest of a list, once a deadline of it has passed */
};

struct request *request_new(const struct params *params, enum request_kind kind)
{
    struct session *session = params->session;
    if (session->sessions->draining) { /* of a connection that outlives the drain: the store closes meanwhile */
        params_fail(params, ERROR_SHUTTING_DOWN, SESSION_STOPPING "; nothing more is decided");
        return NULL;
    }

    struct list *idle = list_pop_front(&session->sessions->idle_requests);
    struct request *request = idle != NULL ? LIST_ITEM(idle, struct request, link) : mem_alloc(sizeof *request);
    if (request == NULL) {
        params_fail_overloaded(params);
        return NULL;
    }

    memset(request, 0, sizeof *request);
    request->session = session;
    request->msgid = params->msgid;
    request->kind = kind;
    request->decisions = session->form;
    list_push_back(&session->requests, &request->link);
    return request;
}

static void on_done(struct check *check);

struct check *request_add(struct request *request, enum op_kind kind)
{
    struct session *session = request->session;
    struct check *check = engine_check_new(session->sessions->engine, kind, session->client);
    if (check == NULL) return NULL;
    check->op.read_us = session->read_us;
    check->op.is_all = request->kind == REQUEST_ALL;
    check->owner = request;
    check->done = on_done;
    check->index = request->n++;
    request->n_open++;

    if (request->first == NULL)
        request->first = request->unasked = check;
    else
        request->last->next = check;
    request->last = check;
    return check;
}

void request_join(struct request *request, struct check *check)
{
    struct check *first = request->first;
    while (first->plan->shadow) first = first->next;
    if (first == check) return;
    check_join(first, check);
    request->n_open--;
}

struct request *request_begin(const struct params *params, enum op_kind kind)
{
    struct request *request = request_new(params, REQUEST_ONE);
    if (request == NULL || request_add(request, kind) != NULL) return request;

    params_fail_overloaded(params);
    request_drop(request);
    return NULL;
}

void request_drop(struct request *request)
{
    uint32_t n = 0;
    for (struct check *check = request->first, *next; check != NULL; check = next) {
        next = check->next;
        check_release(check);
        n++;
    }
    sessions_spend(request->session->sessions, n / DROPPED_PER_UNIT);
    if (request->kind == REQUEST_LONG) {
        request->session->sessions->lists.n_handed -= request->n_handed;
        buffer_fini(&request->packed);
    }

    list_remove(&request->link);
    list_push_front(&request->session->sessions->idle_requests, &request->link); /* first out: its memory is warm */
}

/* ---- the answer ---- */

/* A check that was denied, slow, or near its limit. */
__attribute__((noinline)) static void note_unusual(const struct request *request, const struct check *check)
{
    const struct session *session = request->session;
    struct sessions *sessions = session->sessions;
    const struct clock *clock = sessions->clock;
    uint64_t n_held;
    watch_note(&sessions->watch, check, &session->peer, clock->mono_us, clock->wall_us);

    bool is_near = check->decision.near && check->decision.allowed && op_is_check(check->op.kind);
    const struct limit *near = is_near ? denial_log_near(check)->of : NULL;
    if (near != NULL &&
        denial_log_takes(&sessions->near, check->plan->policy, near, check->key, clock->mono_us, &n_held))
        denial_log_write_near(check, &session->peer, n_held);

    if (!denial_log_is_on(&sessions->denials) || !watch_is_denied(check)) return;
    if (denial_log_takes(&sessions->denials, check->plan->policy, NULL, check->key, clock->mono_us, &n_held))
        denial_log_write(check, &session->peer, n_held);
}

/* For the views of operators, and for the log. */
static inline void note_check(const struct request *request, const struct check *check)
{
    const struct sessions *sessions = request->session->sessions;
    if (watch_takes(&sessions->watch, check, sessions->clock->mono_us)) note_unusual(request, check);
}

static inline void pack_check(struct packer *packer, const struct request *request, const struct check *check)
{
    const struct decision *decision = &check->decision;
    const struct decision_form form = request->decisions;
    note_check(request, check);

    switch (check->op.kind) {
    case OP_CHECK:
    case OP_PEEK: /* with at_most the answer always says what was granted */
        reply_decision(packer, decision, check->at_most > 0 ? -1 : check->cost, form, 0);
        break;
    case OP_RESET: /* of the policy, and then of its candidate */
        reply_reset(packer, check->removed || (check->next != NULL && check->next->removed), &check->decision);
        break;
    case OP_RELEASE: reply_flag(packer, "released", check->removed); break;
    case OP_RESERVE: reply_reservation(packer, check, form); break;
    case OP_SETTLE: reply_settled(packer, decision, &check->reservation, form); break;
    case OP_REFUND:
        reply_decision(packer, decision, 0, form, 1);
        pack_int_field(packer, "refunded", check->refunded);
        break;
    case OP_ACQUIRE:
        if (decision->allowed)
            reply_slot(packer, decision, check->slot->id, form);
        else
            reply_decision(packer, decision, check->cost, form, 0);
        break;
    default: CHECK(!"no request asks for this");
    }
}

/* The combined decision is that of the enforced checks, or of all if none is enforced. If they allow, it also reports
 * whether one in shadow would have denied. */
static __attribute__((noinline)) void pack_all(struct packer *packer, const struct request *request)
{
    const struct check *combined[CHECK_ALL_MAX];
    size_t n_enforced = 0, n = 0;
    bool shadow_denied = false;
    for (const struct check *check = request->first; check != NULL; check = check->next) {
        n_enforced += !check->plan->shadow;
        shadow_denied |= check->decision.shadow_denied;
    }

    struct decision all;
    int64_t cost = 0;
    for (const struct check *check = request->first; check != NULL; check = check->next) {
        if (check->plan->shadow && n_enforced > 0) continue;
        combined[n++] = check;
        cost += check->cost;
    }
    check_combine(combined, n, &all);
    all.shadow_denied = all.allowed && shadow_denied;

    reply_decision(packer, &all, cost, request->decisions, 1);
    pack_text(packer, "members");
    pack_array(packer, request->n);
    for (const struct check *check = request->first; check != NULL; check = check->next) {
        reply_decision(packer, &check->decision, check->cost, request->decisions, 0);
        note_check(request, check);
    }
}

static struct explain_options explain_options_of(const struct request *request, char space[STORE_TROUBLE_MAX])
{
    const struct sessions *sessions = request->session->sessions;
    return (struct explain_options){
        .trouble = sessions_store_trouble(sessions, space),
        .denied_like = "",
        .decision = request->decisions,
        .keys = {sessions->options.key_prefix, sessions->options.n_shards},
        .keys_are_bin = request->key_is_bin,
        .share = failure_share(engine_failure(sessions->engine), request->first->plan->policy),
    };
}

static __attribute__((noinline)) void pack_explained(struct packer *packer, const struct request *request)
{
    char trouble[STORE_TROUBLE_MAX];
    struct explain_options options = explain_options_of(request, trouble);
    char like[FIND_DENIED_MAX];
    const struct check *check = request->first;
    const struct op *op = &check->op;
    bool is_uncounted = op->n_members > 0 && check->decision.allowed; /* its limits have nothing of its key */
    for (uint16_t i = 0; i < op->n_members; i++) is_uncounted &= op->members[i].used == 0;
    if (is_uncounted) options.denied_like = find_denied_like(request->session, check->plan->policy, check->key, like);
    explain_reply(packer, check, check->next, &options);
}

/* What needs space for texts and lists is apart, so that the answer to one check does not have it on its stack. */
static void pack_answer(struct packer *packer, const struct request *request)
{
    const struct check *first = request->first; /* NULL: of an empty list, or all are packed */
    CHECK(first != NULL || request->kind == REQUEST_MANY || request->kind == REQUEST_LONG);

    switch (request->kind) {
    case REQUEST_ONE: pack_check(packer, request, first); break;
    case REQUEST_ALL: pack_all(packer, request); break;
    case REQUEST_SETTLE: reply_settled(packer, &first->decision, &first->reservation, request->decisions); break;
    case REQUEST_MANY:
        pack_array(packer, request->n);
        for (const struct check *check = first; check != NULL; check = check->next) pack_check(packer, request, check);
        break;
    case REQUEST_LONG: {
        const struct buffer *packed = &request->packed;
        pack_array(packer, request->n);
        packer->failed |= request->pack_failed;
        packer->failed |= buffer_append(packer->out, buffer_data(packed), buffer_len(packed)) != 0;
        break;
    }
    case REQUEST_EXPLAIN: pack_explained(packer, request); break;
    }
}

static void answer_failed(const struct request *request, const struct check *failed)
{
    char text[EXPLAIN_FAILURE_MAX], trouble[STORE_TROUBLE_MAX];
    const char *message = failed->error_message;

    if (request->kind == REQUEST_MANY || request->kind == REQUEST_LONG) {
        snprintf(text, sizeof text, "checks[%u]: %s", failed->index, message);
        message = text;
    } else if (request->kind == REQUEST_EXPLAIN) {
        const struct explain_options options = explain_options_of(request, trouble);
        message = explain_failure(failed, &options, engine_store_error(request->session->sessions->engine), text);
    }
    session_answer_error(request->session, request->msgid, failed->error, message);
}

/* Every check is answered: writes the request's answer and drops the request. */
static void finish(struct request *request)
{
    struct session *session = request->session;
    uint32_t n = request->n;

    /* If one check has no decision, the request's answer is its error; only explain's candidate may go without a
     * decision. */
    const struct check *failed = request->first;
    while (failed != NULL && failed->error == ERROR_NONE)
        failed = request->kind != REQUEST_EXPLAIN ? failed->next : NULL;

    if (failed != NULL) {
        answer_failed(request, failed);
    } else {
        pack_answer(session_begin_answer(session, request->msgid), request);
        session_end_answer(session);
    }
    request_drop(request);
    session_checks_ended(session, n);
}

/* One more check of a REQUEST_LONG is answered: packs the answers that are next in the list, and releases their checks.
 * It stops at the first check without a decision, which becomes the answer to the whole request. (Not inline: on_done()
 * of every other check would save the registers that this needs.) */
__attribute__((noinline)) static void pack_next(struct request *request, const struct check *answered)
{
    request->is_late |= answered->error != ERROR_NONE || answered->decision.reason == REASON_DEADLINE;
    request->n_handed--;
    request->session->sessions->lists.n_handed--;

    struct packer packer = packer_of(&request->packed);
    struct check *check;
    while ((check = request->first) != NULL && check->state == CHECK_ANSWERED && check->error == ERROR_NONE) {
        pack_check(&packer, request, check);
        request->first = check->next;
        check_release(check);
    }
    request->pack_failed |= packer.failed;
}

static void on_done(struct check *check)
{
    struct request *request = check->owner;
    if (request->kind == REQUEST_LONG) pack_next(request, check);
    if (--request->n_open == 0) finish(request);
}

/* ---- to the engine ---- */

int request_seal(const struct request *request, const struct params *params)
{
    for (struct check *check = request->first; check != NULL; check = check->next)
        if (!check->is_sealed && check_seal(check) < 0) return params_fail_overloaded(params);
    return 0;
}

static int fail_no_slot(const struct params *params)
{
    struct session *session = params->session;
    switch (slots_cap_reached(engine_slots(session->sessions->engine), &session->slots)) {
    case SLOTS_CAP_OF_OWNER:
        return params_fail(params, ERROR_OVERLOADED,
                           "this connection holds as many slots as one may (caps.max_slots_per_connection); release "
                           "some");
    case SLOTS_CAP_OF_ALL:
        return params_fail(params, ERROR_OVERLOADED,
                           "the daemon's connections hold as many slots as they may together (caps.max_slots); release "
                           "some");
    default:
        return params_fail(
            params, ERROR_OVERLOADED,
            "memory is short, or too many slots of this connection are on their way back; try again later");
    }
}

int request_take_slot(struct request *request, const struct params *params)
{
    struct session *session = request->session;
    int status = access_slot(session, params->fault);
    if (status == 0) status = request_seal(request, params);
    if (status == 0 && engine_acquires(session->sessions->engine, request->first, &session->slots) != 0)
        status = fail_no_slot(params);
    return status;
}

int request_go(struct request *request, const struct params *params, int status)
{
    struct engine *engine = request->session->sessions->engine;

    if (status == 0 && request->kind == REQUEST_ALL) {
        /* All checks of a check_all, also those of shadow policies, get the shortest deadline. */
        uint32_t least = UINT32_MAX;
        for (const struct check *check = request->first; check != NULL; check = check->next)
            if (check->plan->policy->deadline_ms < least) least = check->plan->policy->deadline_ms;
        for (struct check *check = request->first; check != NULL; check = check->next)
            if (check->deadline_ms == 0) check->deadline_ms = least;
    }

    if (status == 0) status = request_seal(request, params);
    if (status == 0) status = access_inflight(request->session, request->n, params->fault);
    if (status != 0) {
        request_drop(request);
        return status;
    }

    session_checks_began(request->session, request->n);
    struct check *first = request->first;
    if (first == NULL) finish(request); /* an empty list */
    for (struct check *check = first, *next; check != NULL; check = next) {
        for (next = check->next; next != NULL && next->first != next;) next = next->next; /* it is joined */
        engine_submit(engine, check); /* the request is over with its last one's answer */
    }
    return 0;
}

void request_hand_over(struct request *request, uint32_t max)
{
    struct sessions *sessions = request->session->sessions;
    CHECK(request->kind == REQUEST_LONG);
    for (struct check *check = request->unasked, *next; max > 0 && check != NULL; check = next, max--) {
        next = request->unasked = check->next;
        request->n_handed++;
        sessions->lists.n_handed++;

        if (request->is_late) check->deadline_ms = LATE_DEADLINE_MS;
        engine_submit(sessions->engine, check); /* the request is over with its last one's answer */
    }
}

void request_pool_fini(struct list *idle)
{
    for (struct list *link; (link = list_pop_front(idle)) != NULL;) mem_free(LIST_ITEM(link, struct request, link));
}
