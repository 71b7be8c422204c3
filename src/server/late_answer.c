#include "server/late_answer.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/list.h"
#include "server/params.h"
#include "server/session.h"

/* Of one answer, to all who wait for it: they are copied in one tick, and stay until they are read. */
enum { LATE_BYTES_MAX = 16 << 20 };

struct late_answer {
    struct list link;        /* in sessions->late_answers */
    struct session *session; /* not owned */
    uint64_t msgid, ticket;
};

static void drop(struct late_answer *late)
{
    struct session *session = late->session;
    list_remove(&late->link);
    session->n_late--;
    mem_free(late);
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
    list_push_back(&session->sessions->late_answers, &late->link);
    session->n_late++;
    return 0;
}

/* `is_due`: not too many bytes of the same have gone out already. */
static void answer(struct late_answer *late, const struct buffer *result, bool is_due)
{
    struct session *session = late->session;
    uint64_t msgid = late->msgid;
    drop(late);
    if (buffer_len(result) == 0) {
        session_answer_error(session, msgid, ERROR_TOO_LARGE,
                             "the answer has no space, or memory is short; the log has what a reload does, and "
                             "ratelimitd --print-config prints the file");
    } else if (!is_due) {
        session_answer_error(session, msgid, ERROR_OVERLOADED,
                             "it is done, but too many wait for its long answer at once; ask again");
    } else {
        struct packer *packer = session_begin_answer(session, msgid);
        packer->failed |= buffer_append(packer->out, buffer_data(result), buffer_len(result)) != 0;
        session_end_answer(session);
    }
    session_wake(session);
}

void late_answers_end(struct sessions *sessions, uint64_t ticket, const struct buffer *result)
{
    size_t n_bytes = 0;
    LIST_FOREACH (link, &sessions->late_answers) {
        struct late_answer *late = LIST_ITEM(link, struct late_answer, link);
        if (late->ticket != ticket) continue;
        n_bytes += buffer_len(result);
        answer(late, result, n_bytes <= LATE_BYTES_MAX);
    }
}

void late_answers_refuse(struct sessions *sessions)
{
    LIST_FOREACH (link, &sessions->late_answers) {
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
    LIST_FOREACH (link, &session->sessions->late_answers) {
        if (session->n_late == 0) return;
        struct late_answer *late = LIST_ITEM(link, struct late_answer, link);
        if (late->session == session) drop(late);
    }
}
