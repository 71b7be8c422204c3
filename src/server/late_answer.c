/* late_answer.c: requests that wait for a thread of the wiring: begun by methods.c, answered by sessions_tick.c. */
#include "server/late_answer.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buffer.h"
#include "base/list.h"
#include "server/params.h"
#include "server/session.h"
#include "server/session_output.h"

/* One answer to all that wait for it: the copies stay until they are read. */
enum { LATE_BYTES_MAX = 16 << 20 };

/* What some of them wait to be answered by. */
struct late_result {
    struct buffer bytes;
    size_t n_waiting; /* the last one frees it */
    size_t n_given;   /* bytes, to those before */
};

struct late_answer {
    struct list link;           /* in sessions->late.asked, once the result is there in sessions->late.due */
    struct session *session;    /* not owned */
    struct late_result *result; /* owned by all that have it; NULL: it is still to come */
    uint64_t msgid, ticket;
};

static void drop(struct late_answer *late)
{
    struct session *session = late->session;
    struct late_result *result = late->result;
    CHECK(session->n_late > 0);
    list_remove(&late->link);
    session->n_late--;
    mem_free(late);
    if (result == NULL || --result->n_waiting > 0) return;
    buffer_fini(&result->bytes);
    mem_free(result);
}

int late_answer_begin(struct params *params, enum late_kind kind)
{
    struct session *session = params->session;
    const struct late_source *source = &session->sessions->options.late;
    if (session->sessions->draining)
        return params_fail(params, ERROR_SHUTTING_DOWN, SESSION_STOPPING "; the file is not read any more");
    if (session->n_late == LATE_ANSWERS_MAX)
        return params_fail(params, ERROR_OVERLOADED, "this connection waits for %d such answers already; read them",
                           LATE_ANSWERS_MAX);
    struct late_answer *late = mem_zalloc(sizeof *late);
    if (late == NULL) return params_fail_overloaded(params);

    uint64_t ticket = source->ask != NULL ? source->ask(source->arg, kind) : 0;
    if (ticket == 0) {
        mem_free(late);
        return params_fail(params, ERROR_UNSUPPORTED,
                           "the daemon was started without -c, so there is no file to read again");
    }
    *late = (struct late_answer){.session = session, .msgid = params->msgid, .ticket = ticket};
    list_push_back(&session->sessions->late.asked, &late->link);
    session->n_late++;
    return 0;
}

/* By these bytes; `fits`: not too many of the same have gone out already. */
static void answer(struct late_answer *late, const struct buffer *bytes, bool fits)
{
    struct session *session = late->session;
    uint64_t msgid = late->msgid;
    if (buffer_len(bytes) == 0) {
        session_answer_error(session, msgid, ERROR_TOO_LARGE,
                             "the answer has no space, or memory is short; the log has what a reload does, and "
                             "ratelimitd --print-config prints the file");
    } else if (!fits) {
        session_answer_error(session, msgid, ERROR_OVERLOADED,
                             "it is done, but too many wait for its long answer at once; ask again");
    } else {
        struct packer *packer = session_begin_answer(session, msgid);
        packer->failed |= buffer_append(packer->out, buffer_data(bytes), buffer_len(bytes)) != 0;
        session_end_answer(session);
    }
    drop(late);
    session_wake(session);
}

void late_answers_end(struct sessions *sessions, uint64_t ticket, struct buffer *result)
{
    struct late_result *shared = buffer_len(result) > 0 ? mem_zalloc(sizeof *shared) : NULL;
    const struct buffer none = {0};
    CHECK(ticket > 0);
    LIST_FOREACH (link, &sessions->late.asked) {
        struct late_answer *late = LIST_ITEM(link, struct late_answer, link);
        if (late->ticket != ticket) continue;
        if (shared == NULL) {
            answer(late, &none, true); /* there is none, or no memory to keep it */
            continue;
        }
        late->result = shared;
        shared->n_waiting++;
        list_remove(link);
        list_push_back(&sessions->late.due, link);
    }

    if (shared == NULL) return;
    if (shared->n_waiting == 0) {
        mem_free(shared);
        return;
    }
    shared->bytes = *result;
    *result = (struct buffer){.max = result->max};
}

void late_answers_run(struct sessions *sessions)
{
    if (list_empty(&sessions->late.due)) return;
    struct late_answer *late = LIST_ITEM(sessions->late.due.next, struct late_answer, link);
    struct late_result *result = late->result;
    result->n_given += buffer_len(&result->bytes);
    answer(late, &result->bytes, result->n_given <= LATE_BYTES_MAX);
}

void late_answers_refuse(struct sessions *sessions)
{
    list_append(&sessions->late.asked, &sessions->late.due);
    LIST_FOREACH (link, &sessions->late.asked) {
        struct late_answer *late = LIST_ITEM(link, struct late_answer, link);
        struct session *session = late->session;
        uint64_t msgid = late->msgid;
        drop(late);
        session_answer_error(session, msgid, ERROR_SHUTTING_DOWN, SESSION_STOPPING "; the file is not read any more");
        session_wake(session);
    }
}

void late_answers_drop(struct session *session)
{
    struct list *const both[] = {&session->sessions->late.due, &session->sessions->late.asked};
    for (size_t i = 0; i < N_OF(both); i++) {
        LIST_FOREACH (link, both[i]) {
            if (session->n_late == 0) return;
            struct late_answer *late = LIST_ITEM(link, struct late_answer, link);
            if (late->session == session) drop(late);
        }
    }
}
