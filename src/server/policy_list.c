/* policy_list.c: writes the pieces of policies.c as the peer reads them: begun by methods.c, run by session_input.c. */
#include "server/policy_list.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "server/params.h"
#include "server/policies.h"
#include "server/session.h"
#include "server/session_output.h"

enum {
    LOOK_UNITS = 128,     /* of work, to find the inline policies that are to be gathered */
    COPIED_BYTES = 16384, /* of gathered ones in a piece */
};

struct policy_list {
    struct long_work work;
    uint64_t msgid;
    struct policy_set *set; /* one reference */
    struct policies_pieces pieces;
    struct inline_policies *inlines; /* not owned; NULL: none are listed */
    uint32_t n_gathered;
    struct buffer gathered; /* owned; inline policies as in the answer */
    enum { BEGINNING, GATHERING, WRITING } state;
};

/* ---- its end ---- */

static void drop(struct long_work *work)
{
    struct policy_list *list = CONTAINER_OF(work, struct policy_list, work);
    struct session *session = work->session;
    struct sessions *sessions = session->sessions;
    CHECK(session->work == work);
    if (sessions->gathering == work) sessions->gathering = NULL;
    session->work = NULL;
    session->n_gathered = 0;
    session_update_unread(session);

    policy_set_unref(list->set);
    buffer_fini(&list->gathered);
    mem_free(list);
}

static void refuse(struct long_work *work, const struct request_fault *fault)
{
    session_answer_error(work->session, CONTAINER_OF(work, struct policy_list, work)->msgid, fault->code, fault->text);
    drop(work);
}

static void begin_writing(struct policy_list *list)
{
    struct session *session = list->work.session;
    list->state = WRITING;
    list->work.goes_on = true;
    pack_array(session_begin_answer(session, list->msgid), (uint32_t)list->pieces.n + list->n_gathered);
    session_end_answer(session);
}

/* ---- its work ---- */

static bool has_turn(const struct session *session)
{
    const struct sessions *sessions = session->sessions;
    return session->fault == NULL && sessions->schedule.spent < sessions->schedule.end;
}

/* One list at a time does this, because the others' would only be more of the same in memory. */
static void begin_gathering(struct policy_list *list)
{
    struct sessions *sessions = list->work.session->sessions;
    if (sessions->gathering != NULL) return;
    sessions->gathering = &list->work;
    sessions_spend(sessions, LOOK_UNITS);
    inline_policies_begin_list(list->inlines);
    list->state = GATHERING;
}

static void run(struct long_work *work)
{
    struct policy_list *list = CONTAINER_OF(work, struct policy_list, work);
    struct session *session = work->session;
    if (list->state == BEGINNING) {
        if (!list_empty(&session->requests) || session->n_late > 0) return; /* their end wakes the session */
        if (list->inlines != NULL)
            begin_gathering(list);
        else
            begin_writing(list);
    }

    if (list->state == GATHERING) {
        struct packer packer = packer_of(&list->gathered);
        const struct policy *policy = NULL;
        while (has_turn(session) && (policy = inline_policies_next_listed(list->inlines)) != NULL) {
            sessions_spend(session->sessions, policies_pack_inline(&list->pieces, &packer, policy));
            list->n_gathered++;
        }

        session->n_gathered = buffer_len(&list->gathered);
        session_update_unread(session);
        if (packer.failed) {
            struct request_fault fault;
            struct params params = params_of(session, list->msgid, &fault);
            params_fail_overloaded(&params);
            refuse(work, &fault);
        } else if (policy == NULL && has_turn(session)) {
            session->sessions->gathering = NULL;
            begin_writing(list);
        }
    }

    if (session->work == NULL) return;
    if (list->state != WRITING) {
        session_wake(session);
        return;
    }

    while (has_turn(session) && !session_is_full(session)) {
        size_t n = buffer_len(&list->gathered);
        struct packer *packer = session_packer(session);
        uint32_t units = policies_next(&list->pieces, packer);
        if (units == 0 && n > 0) {
            if (n > COPIED_BYTES) n = COPIED_BYTES;
            packer->failed |= buffer_append(packer->out, buffer_data(&list->gathered), n) != 0;
            buffer_consume(&list->gathered, n);
            session->n_gathered -= n;
            units = 1;
        }
        sessions_spend(session->sessions, units);
        session_end_answer(session);
        if (units > 0) continue;
        drop(work);
        return;
    }
}

/* ---- its beginning ---- */

int policy_list_begin(struct params *params, const struct policies_page *page)
{
    struct session *session = params->session;
    CHECK(session->work == NULL);
    struct policy_list *list = mem_zalloc(sizeof *list);
    if (list == NULL) return params_fail_overloaded(params);

    list->work = (struct long_work){.session = session, .writes = true, .run = run, .refuse = refuse, .drop = drop};
    list->msgid = params->msgid;
    list->set = policy_set_ref(params_policies(params));
    list->state = BEGINNING;
    buffer_init(&list->gathered, 0);
    if (policies_begin(&list->pieces, list->set, page)) list->inlines = session->sessions->options.inline_policies;

    session->work = &list->work;
    run(&list->work);
    return 0;
}
