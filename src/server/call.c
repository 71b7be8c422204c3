#include "server/call.h"

#include <stdio.h>

#include "base/alloc.h"
#include "server/check_list.h"
#include "server/explain.h"
#include "server/reply.h"
#include "server/reserve.h"

enum {
    ERROR_TEXT_MAX = 4608, /* with a key's name in Redis */
    LATE_DEADLINE_MS = 1,  /* of the pieces that follow, once a store has let a deadline of the same list pass */
};

struct call *call_new(struct session *session, uint64_t msgid, enum call_form form)
{
    struct list *idle = list_pop_front(&session->home->idle_calls);
    struct call *call = idle != NULL ? LIST_ITEM(idle, struct call, link) : mem_alloc(sizeof *call);
    if (call == NULL) return NULL;
    *call = (struct call){.session = session, .msgid = msgid, .form = form, .as_arrays = session->wants_arrays};
    list_push_back(&session->calls, &call->link);
    return call;
}

struct check *call_add(struct call *call, enum op_kind kind, struct slice key)
{
    struct check *check = engine_check_new(call->session->home->engine, key);
    if (check == NULL) return NULL;
    check->kind = kind;
    check->party = call->session->party;
    check->asker = call;
    if (call->first == NULL) {
        call->first = check;
    } else {
        call->last->next = check;
    }
    call->last = check;
    call->n++;
    return check;
}

/* Back to the pool, first in, for its memory is warm. */
static void call_free(struct call *call)
{
    if (call->in_pieces) buffer_fini(&call->packed);
    list_remove(&call->link);
    list_push_back(call->session->home->idle_calls.next, &call->link);
}

/* Is it a question of its own to the engine, or one of those that the first enforced member of a check_all stands for?
 */
static bool is_asked(const struct call *call, const struct check *check)
{
    return call->enforced == NULL || check == call->enforced || check->policy->shadow;
}

void call_drop(struct call *call)
{
    for (struct check *check = call->first, *next; check != NULL; check = next) {
        next = check->next;
        if (is_asked(call, check) && check != call->enforced) check_release(check);
    }
    if (call->enforced != NULL) check_release(call->enforced); /* with its members */
    if (call->n_handed > 0) check_lists_answered(call->session->home, call->n_handed);
    call_free(call);
}

int call_go_or_drop(struct call *call, int status)
{
    if (status == 0)
        call_submit(call);
    else
        call_drop(call);
    return status;
}

/* It speaks of the enforced members, or where there are none of all; but that one of the others would have denied what
 * these allow is worth a word. */
static void pack_whole(struct packer *packer, const struct call *call)
{
    const struct check *members[POLICY_LIMITS_MAX];
    struct decision whole;
    int64_t cost = 0;
    size_t n = 0;
    bool shadow_denied = false;
    for (const struct check *check = call->first; check != NULL; check = check->next) {
        shadow_denied |= check->decision.shadow_denied;
        if (call->enforced != NULL && check->policy->shadow) continue;
        members[n++] = check;
        cost += check->cost;
    }
    check_whole(members, n, &whole);
    whole.shadow_denied = whole.allowed && shadow_denied;
    reply_decision(packer, &whole, cost, call->as_arrays, 1);
    pack_text(packer, "members");
    pack_array(packer, call->n);
}

static void pack_refund(struct packer *packer, const struct call *call, const struct check *check)
{
    reply_decision(packer, &check->decision, 0, call->as_arrays, 1);
    pack_text(packer, "refunded");
    pack_int(packer, check->refunded);
}

/* What need not be said of an allowed check: none asks for at_most without wanting to know. */
static int64_t default_granted(const struct check *check)
{
    return check->at_most > 0 ? -1 : check->cost;
}

static void pack_acquired(struct packer *packer, const struct call *call, const struct check *check)
{
    bool allowed = check->decision.allowed;
    reply_decision(packer, &check->decision, check->cost, call->as_arrays, allowed);
    if (!allowed) return;
    pack_text(packer, "slot");
    pack_str(packer, (struct slice){(const uint8_t *)check->slot->id, SLOT_ID_LEN});
}

/* Only where the log of denials is on. */
static void log_denial(const struct call *call, const struct check *check)
{
    struct sessions *home = call->session->home;
    uint64_t n_held;
    if (check->decision.allowed || !op_is_check(check->kind)) return;
    if (denial_log_takes(&home->denials, check->policy, check->key, home->clock->mono_us, &n_held))
        denial_log_write(check, session_peer(call->session), n_held);
}

static void pack_one(struct packer *packer, const struct call *call, const struct check *check)
{
    switch (check->kind) {
    case OP_RESET: reply_removed(packer, check->removed); break;
    case OP_REFUND: pack_refund(packer, call, check); break;
    case OP_RESERVE: reserve_pack(packer, check, call->as_arrays); break;
    case OP_SETTLE: settle_pack(packer, check, call->as_arrays); break;
    case OP_RELEASE: reply_released(packer, check->removed); break;
    case OP_ACQUIRE: pack_acquired(packer, call, check); break;
    default: reply_decision(packer, &check->decision, default_granted(check), call->as_arrays, 0); break;
    }
    if (denial_log_is_on(&call->session->home->denials)) log_denial(call, check);
}

/* Of a call in pieces: the answers that come next in its list are packed, and their checks let go. The first without a
 * decision stays, and all behind it: it is the answer to the whole. */
static void pack_what_is_answered(struct call *call)
{
    struct packer packer = packer_of(&call->packed);
    struct check *check;
    while ((check = call->first) != NULL && check->answered && check->error == ERROR_NONE) {
        pack_one(&packer, call, check);
        call->first = check->next;
        call->n_packed++;
        check_release(check);
    }
    call->pack_failed |= packer.failed;
}

static void note_piece_answered(struct call *call, const struct check *check)
{
    call->is_late |= check->error != ERROR_NONE || check->decision.reason == REASON_DEADLINE;
    call->n_handed--;
    check_lists_answered(call->session->home, 1);
    pack_what_is_answered(call);
}

static void take_packed(struct packer *packer, const struct call *call)
{
    const struct buffer *packed = &call->packed;
    if (call->pack_failed || buffer_append(packer->out, buffer_data(packed), buffer_len(packed)) != 0)
        packer->failed = true;
}

static void pack_answer(struct packer *packer, const struct call *call)
{
    if (call->form == CALL_EXPLAIN) {
        const struct explain_form form = {call->as_arrays, call->session->home->options.key_prefix, call->key_is_bin};
        explain_reply(packer, call->first, call->n > 1 ? call->last : NULL, &form);
        return;
    }
    if (call->form == CALL_SETTLE) {
        settle_pack(packer, call->first, call->as_arrays);
        return;
    }
    if (call->form == CALL_MANY) pack_array(packer, call->n);
    if (call->in_pieces) take_packed(packer, call);
    if (call->form == CALL_ALL) pack_whole(packer, call);
    for (const struct check *check = call->first; check != NULL; check = check->next) pack_one(packer, call, check);
}

/* The first check without a decision, and its place; NULL where all have one, or where only a candidate has none. */
static const struct check *find_failed(const struct call *call, uint32_t *ret_index)
{
    uint32_t i = call->n_packed;
    for (const struct check *check = call->first; check != NULL; check = check->next, i++) {
        if (call->form == CALL_EXPLAIN && i > 0) break;
        if (check->error == ERROR_NONE) continue;
        *ret_index = i;
        return check;
    }
    return NULL;
}

static void answer_failed(const struct call *call, const struct check *failed, uint32_t index)
{
    char text[ERROR_TEXT_MAX], foreign[ERROR_TEXT_MAX - 128];
    const char *message = failed->error_message;
    if (call->form == CALL_MANY) {
        snprintf(text, sizeof text, "checks[%u]: %s", index, message);
        message = text;
    } else if (call->form == CALL_EXPLAIN) {
        if (explain_foreign(failed, call->session->home->options.key_prefix, foreign, sizeof foreign))
            message = foreign;
        snprintf(text, sizeof text, "%s; a check would be answered by on_failure: %s", message,
                 on_failure_name(failed->policy->on_failure));
        message = text;
    }
    session_error(call->session, call->msgid, failed->error, message);
}

static void finish(struct call *call)
{
    struct session *session = call->session;
    uint32_t index, n = call->n;
    const struct check *failed = find_failed(call, &index);
    list_remove(&call->link); /* writing may close the session, which drops the calls it finds */
    if (failed != NULL) {
        answer_failed(call, failed, index);
    } else {
        size_t start;
        struct packer packer = session_answer(session, call->msgid, &start);
        pack_answer(&packer, call);
        session_answered(session, &packer, start);
    }
    call_drop(call);
    session_finished(session, n);
}

static void close_one(struct call *call)
{
    if (--call->n_open == 0) finish(call);
}

static void on_done(struct check *check)
{
    struct call *call = check->asker;
    if (call->in_pieces) note_piece_answered(call, check);
    close_one(call);
}

static void set_deadlines(struct call *call, uint32_t deadline_ms)
{
    for (struct check *check = call->first; check != NULL; check = check->next) check->deadline_ms = deadline_ms;
}

/* Nobody waits longer for a shadow policy than for the others. */
static uint32_t shortest_deadline(const struct call *call)
{
    uint32_t least = UINT32_MAX;
    for (const struct check *check = call->first; check != NULL; check = check->next)
        if (check->policy->deadline_ms < least) least = check->policy->deadline_ms;
    return least;
}

/* Of a check_all: one question of the members that are enforced. */
static void join_enforced(struct call *call)
{
    struct check *last = NULL;
    for (struct check *check = call->first; check != NULL; check = check->next) {
        if (check->policy->shadow) continue;
        if (last != NULL)
            last->also = check;
        else
            call->enforced = check;
        last = check;
    }
    if (call->enforced != NULL) call->enforced->is_all = true;
    set_deadlines(call, call->deadline_ms > 0 ? call->deadline_ms : shortest_deadline(call));
}

void call_submit(struct call *call)
{
    struct engine *engine = call->session->home->engine;
    session_began(call->session, call->n);
    if (call->form == CALL_ALL) join_enforced(call);
    call->n_open = 1;
    for (struct check *check = call->first, *next; check != NULL; check = next) {
        next = check->next;
        if (!is_asked(call, check)) continue;
        call->n_open++;
        check->done = on_done;
        engine_submit(engine, check);
    }
    close_one(call);
}

void call_begin_pieces(struct call *call)
{
    call->in_pieces = true;
    call->unasked = call->first;
    call->n_open = 1;
}

bool call_hand_over(struct call *call, uint32_t max)
{
    for (; max > 0 && call->unasked != NULL; max--) {
        struct check *check = call->unasked;
        call->unasked = check->next;
        call->n_open++;
        call->n_handed++;
        call->session->home->n_handed++;
        check->done = on_done;
        if (call->is_late) check->deadline_ms = LATE_DEADLINE_MS;
        engine_submit(call->session->home->engine, check);
    }
    return call->unasked == NULL;
}

void call_handed_over(struct call *call)
{
    close_one(call);
}

void call_pool_fini(struct list *idle_calls)
{
    for (struct list *link; (link = list_pop_front(idle_calls)) != NULL;) mem_free(LIST_ITEM(link, struct call, link));
}
