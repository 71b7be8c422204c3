/*
 * session_output.c: answers out.
 *
 *   session_answer ─ pack ─ session_answered     into `out`, and onto the list of those who have something to write
 *   session_flush                                at the turn's end: one uv_try_write; what the socket does not take is
 *                                                `writing` until one uv_write is through
 *
 * A peer that does not read is bounded twice: at half of max_output nothing more is read from it, and after
 * write_stall_ms in which it took nothing it is closed. Only the second closes: a peer that reads one large answer may
 * have others waiting behind it, which were charged.
 */
#include "server/session_private.h"

#include "base/counters.h"
#include "base/log.h"
#include "proto/rpc.h"

static void mark_dirty(struct session *session)
{
    if (list_empty(&session->dirty_link)) list_push_back(&session->home->dirty, &session->dirty_link);
}

/* Room for one more message in `out`; where it starts. */
static struct packer begin_message(struct session *session, size_t *ret_start)
{
    if (session->out.bytes == NULL) spares_borrow(&session->home->spares, &session->out);
    *ret_start = buffer_len(&session->out);
    return packer_of(&session->out);
}

void session_answered(struct session *session, const struct packer *packer, size_t start)
{
    if (session->closed) return;
    if (!packer->failed) {
        mark_dirty(session);
        return;
    }
    buffer_truncate(&session->out, start);
    log_sampled(LOG_LEVEL_WARNING, "no memory for an answer: closing the connection");
    session_close(session, "no memory for an answer");
}

struct packer session_answer(struct session *session, uint64_t msgid, size_t *ret_start)
{
    struct packer packer = begin_message(session, ret_start);
    rpc_pack_result(&packer, msgid);
    return packer;
}

void session_error(struct session *session, uint64_t msgid, enum error_code code, const char *message)
{
    size_t start;
    struct packer packer = begin_message(session, &start);
    counters.request_errors++;
    rpc_pack_error(&packer, msgid, code, message);
    session_answered(session, &packer, start);
}

void session_say_last_words(struct session *session)
{
    size_t start;
    struct packer packer = begin_message(session, &start);
    counters.request_errors++;
    rpc_pack_broken(&packer, session->last_code, session->last_words);
    session->last_words = NULL;
    session_answered(session, &packer, start);
}

/* ---- writing ---- */

/* The sum over all sessions is kept, never added up: there may be ten thousand. */
void session_count_unread(struct session *session)
{
    struct sessions *home = session->home;
    size_t n = session->closed ? 0 : session_unread(session);
    home->n_leaving += (n > 0) - (session->n_counted > 0);
    home->n_unread += n - session->n_counted;
    session->n_counted = n;
    counters.unread_bytes = home->n_unread;
}

static void on_written(uv_write_t *write, int status)
{
    struct session *session = write->data;
    if (session->closed) return;
    clock_update(session->home->clock);
    if (status != 0) {
        session_close(session, uv_strerror(status));
        return;
    }
    list_remove(&session->stall_link);
    session_give_back(session, &session->writing);
    session_count_unread(session);
    if (buffer_len(&session->out) > 0) mark_dirty(session);
    session_maybe_resume(session);
}

/* The socket is full: libuv keeps at it, and the peer is watched. */
static void write_rest(struct session *session)
{
    session->writing = session->out;
    buffer_init(&session->out, 0);
    session->n_untaken = buffer_len(&session->writing);
    session->taken_us = session->home->clock->mono_us;
    uv_buf_t buf = uv_buf_init((char *)buffer_data(&session->writing), (unsigned)session->n_untaken);
    session->write.data = session;
    int status = uv_write(&session->write, session_stream(session), &buf, 1, on_written);
    if (status != 0) {
        session_close(session, uv_strerror(status));
        return;
    }
    list_push_back(&session->home->stalled, &session->stall_link);
    sessions_arm_sweep(session->home);
}

void session_flush(struct session *session)
{
    if (session->closed || buffer_len(&session->out) == 0) return;
    if (session_is_writing(session)) {
        session_count_unread(session);
        session_maybe_pause(session);
        return;
    }

    uv_buf_t buf = uv_buf_init((char *)buffer_data(&session->out), (unsigned)buffer_len(&session->out));
    int n = uv_try_write(session_stream(session), &buf, 1);
    if (n < 0 && n != UV_EAGAIN) {
        session_close(session, uv_strerror(n));
        return;
    }
    if (n > 0) buffer_consume(&session->out, (size_t)n);
    if (buffer_len(&session->out) > 0)
        write_rest(session);
    else
        spares_return(&session->home->spares, &session->out);
    if (session->closed) return;
    session_count_unread(session);
    session_maybe_resume(session);
}

/* Whoever took some since the last look goes behind the others: they stay in the order of how long they took nothing.
 */
int64_t session_stalled_us(struct session *session)
{
    struct sessions *home = session->home;
    size_t n = uv_stream_get_write_queue_size(session_stream(session));
    if (!session->lingers && n < session->n_untaken) {
        session->n_untaken = n;
        session->taken_us = home->clock->mono_us;
        list_remove(&session->stall_link);
        list_push_back(&home->stalled, &session->stall_link);
        session_count_unread(session);
    }
    return home->clock->mono_us - session->taken_us;
}

/* The kernel's buffer counts as taken, and it takes again only once the peer has read most of it: a peer is closed that
 * reads less than about 150 KiB in write_stall_ms while that much waits for it. */
bool session_has_stalled(struct session *session)
{
    int64_t stalled_us = session_stalled_us(session);
    if (session->lingers) return stalled_us >= LINGER_MS * 1000;
    uint32_t stall_ms = session->home->options.write_stall_ms;
    return stall_ms > 0 && stalled_us >= (int64_t)stall_ms * 1000;
}
