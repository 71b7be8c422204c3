/*
 * session_output.c: answers out.
 *
 *   session_begin_answer ─ pack ─ session_end_answer   into `out`, and onto the list of those who have something to
 *                                                      write
 *   session_flush                                      at the tick's end: one uv_try_write; what the socket does not
 *                                                      take is `writing` until one uv_write is through
 *
 * A peer that does not read is bounded twice: at half of max_output nothing more is read from it, and after
 * write_stall_ms in which it took nothing it is closed. Only the second closes: a peer that reads one large answer may
 * have others waiting behind it, which were charged.
 */
#include "server/session_output.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "proto/rpc.h"
#include "server/server_counters.h"
#include "server/session.h"

enum { ANSWER_BYTES = 256 }; /* of an answer cost a unit of work */

static bool is_writing(const struct session *session)
{
    return buffer_len(&session->writing) > 0;
}

/* Bytes that the peer has not taken from us. */
static size_t n_unread(const struct session *session)
{
    size_t n = buffer_len(&session->out);
    if (is_writing(session)) n += uv_stream_get_write_queue_size((const uv_stream_t *)&session->pipe);
    return n;
}

void session_wake(struct session *session)
{
    struct sessions *sessions = session->sessions;
    if (!list_empty(&session->run_link)) return;
    bool has_rested = sessions->clock->mono_us - session->asked_us >= RESTED_US;
    struct list *queue = &sessions->schedule.runnable;
    if (session->fault == NULL && !session_had_turn(session))
        queue = &sessions->schedule.fresh;
    else if (session->fault == NULL && session->state == SESSION_RUNNABLE && has_rested)
        queue = &sessions->schedule.rested;
    list_push_back(queue, &session->run_link);
}

void session_fail(struct session *session, const char *why)
{
    CHECK(why != NULL);
    session->fault = why;
    session_wake(session);
}

/* ---- how much waits ---- */

bool session_is_busy(const struct session *session)
{
    bool messages_wait = session->state > SESSION_READING && session->state < SESSION_ENDING;
    bool is_asked = !list_empty(&session->requests) || session->work != NULL || session->n_late > 0;
    return is_asked || messages_wait || buffer_len(&session->out) > 0 || is_writing(session);
}

/* Is too much unread over all sessions, and more than an equal share by this peer? The peer with the most unread bytes
 * always has more than its share, and each of its reads leads here again. */
static bool is_crowding(const struct session *session, size_t unread)
{
    const struct sessions *sessions = session->sessions;
    uint64_t max = sessions->options.max_output_total;
    return sessions->output.n_unread > max && unread > max / sessions->output.n_leaving;
}

bool session_is_full(const struct session *session)
{
    const struct server_options *options = &session->sessions->options;
    size_t unread = n_unread(session);
    return session->n_inflight >= options->max_inflight_per_connection || unread > options->max_output / 2 ||
           is_crowding(session, unread);
}

bool session_is_half_full(const struct session *session)
{
    const struct server_options *options = &session->sessions->options;
    size_t unread = n_unread(session);
    return session->n_inflight > options->max_inflight_per_connection / 2 || unread > options->max_output / 4 ||
           is_crowding(session, unread);
}

void session_note_less(struct session *session)
{
    bool waits_for_half = session->state == SESSION_PAUSED || (session->work != NULL && session->work->writes);
    if (waits_for_half && !session_is_half_full(session)) session_wake(session);
}

/* The same, and something has ended, which it may also wait for. */
static void note_end(struct session *session)
{
    if (session->state == SESSION_ENDING) session_wake(session);
    session_note_less(session);
}

void session_checks_began(struct session *session, uint32_t n)
{
    session->n_inflight += n;
    session->user->n_inflight += n;
}

void session_checks_ended(struct session *session, uint32_t n)
{
    session->n_inflight -= n;
    session->user->n_inflight -= n;
    if (session->work != NULL) session_wake(session); /* it may wait for less in flight */
    note_end(session);
}

/* ---- answers ---- */

struct packer *session_packer(struct session *session)
{
    if (session->out.bytes == NULL) buffer_pool_borrow(&session->sessions->buffer_pool, &session->out);
    session->answer = packer_of(&session->out);
    return &session->answer;
}

static void mark_dirty(struct session *session)
{
    if (list_empty(&session->dirty_link)) list_push_back(&session->sessions->output.dirty, &session->dirty_link);
}

struct packer *session_begin_answer(struct session *session, uint64_t msgid)
{
    struct packer *packer = session_packer(session);
    rpc_pack_result(packer, msgid);
    return packer;
}

void session_end_answer(struct session *session)
{
    if (!session->answer.failed) {
        size_t units = (buffer_len(&session->out) - session->answer.start) / ANSWER_BYTES;
        if (units > 0) {
            sessions_spend(session->sessions, (uint32_t)units);
            session_update_unread(session);
        }
        mark_dirty(session);
        return;
    }
    buffer_truncate(&session->out, session->answer.start);
    log_sampled(LOG_LEVEL_WARNING, "no memory for an answer: closing the connection");
    session_fail(session, "no memory for an answer");
}

static uint64_t n_errors[N_ERROR_CODES];

static const char *code_name(size_t i)
{
    return error_name((enum error_code)(i + 1)); /* without ERROR_NONE */
}

const struct counter_family session_errors = {
    .name = "request_errors",
    .help = "requests answered with an error, by its code",
    .label = "code",
    .n = N_ERROR_CODES - 1,
    .value = code_name,
    .counts = n_errors + 1,
};

static void note_error(struct session *session, enum error_code code, const char *message)
{
    struct sessions *sessions = session->sessions;
    server_counters.request_errors++;
    n_errors[code]++;
    error_log_note(&sessions->errors, code, message, &session->peer, sessions->clock->mono_us);
}

void session_answer_error(struct session *session, uint64_t msgid, enum error_code code, const char *message)
{
    struct packer *packer = session_packer(session);
    CHECK(code != ERROR_NONE);
    note_error(session, code, message);
    rpc_pack_error(packer, msgid, code, message);
    session_end_answer(session);
}

void session_emit_final_error(struct session *session)
{
    struct packer *packer = session_packer(session);
    note_error(session, session->last_code, session->final_error);
    rpc_pack_broken(packer, session->last_code, session->final_error);
    session->final_error = NULL;
    session_end_answer(session);
}

/* ---- writing ---- */

/* Keeps sessions->output.n_unread up to date, because adding up ten thousand sessions takes too long. */
void session_update_unread(struct session *session)
{
    struct sessions *sessions = session->sessions;
    size_t n = session->state == SESSION_CLOSED ? 0 : n_unread(session) + session->n_gathered;
    if (n == session->n_counted) return;
    sessions->output.n_leaving += (n > 0) - (session->n_counted > 0);
    sessions->output.n_unread += n - session->n_counted;
    session->n_counted = n;
    server_counters.unread_bytes = sessions->output.n_unread;
}

static void on_written(uv_write_t *write, int status)
{
    struct session *session = write->data;
    mem_free(write);
    if (session->state == SESSION_CLOSED) return;
    CHECK(is_writing(session));
    clock_update(session->sessions->clock);
    if (status != 0) {
        session_fail(session, uv_strerror(status));
        return;
    }

    list_remove(&session->stall_link);
    session->bytes_out += buffer_len(&session->writing);
    buffer_pool_take_back(&session->sessions->buffer_pool, &session->writing);
    session_update_unread(session);
    if (buffer_len(&session->out) > 0) mark_dirty(session);
    note_end(session);
}

void session_flush(struct session *session)
{
    if (buffer_len(&session->out) == 0 || is_writing(session)) {
        session_update_unread(session);
        return;
    }
    uv_buf_t buf = uv_buf_init((char *)buffer_data(&session->out), (unsigned)buffer_len(&session->out));
    int n = uv_try_write(session_stream(session), &buf, 1);
    if (n < 0 && n != UV_EAGAIN) {
        session_fail(session, uv_strerror(n));
        return;
    }

    if (n > 0) {
        session->bytes_out += (uint64_t)n;
        buffer_consume(&session->out, (size_t)n);
    }
    if (buffer_len(&session->out) == 0) {
        buffer_pool_return(&session->sessions->buffer_pool, &session->out);
    } else { /* the socket is full: libuv keeps at it, and the peer is watched */
        session->writing = session->out;
        buffer_init(&session->out, 0);
        session->n_untaken = buffer_len(&session->writing);
        session->taken_us = session->sessions->clock->mono_us;
        buf = uv_buf_init((char *)buffer_data(&session->writing), (unsigned)session->n_untaken);
        uv_write_t *write = mem_alloc(sizeof *write); /* few connections ever need one */
        int status = UV_ENOMEM;
        if (write != NULL) {
            write->data = session;
            status = uv_write(write, session_stream(session), &buf, 1, on_written);
        }
        if (status == 0) {
            list_push_back(&session->sessions->output.stalled, &session->stall_link);
        } else {
            mem_free(write);
            session_fail(session, uv_strerror(status));
        }
    }
    session_update_unread(session);
}

/* A peer that read something since the last look moves to the end, so that the list stays in the order of how long each
 * has read nothing.
 */
int64_t session_stalled_us(struct session *session)
{
    struct sessions *sessions = session->sessions;
    size_t n = uv_stream_get_write_queue_size(session_stream(session));

    if (session->state != SESSION_LINGERING && n < session->n_untaken) {
        session->n_untaken = n;
        session->taken_us = sessions->clock->mono_us;
        list_remove(&session->stall_link);
        list_push_back(&sessions->output.stalled, &session->stall_link);
        session_update_unread(session);
    }
    return sessions->clock->mono_us - session->taken_us;
}

/* Bytes in the kernel's buffer count as read, and the kernel takes more only once the peer has read most of them. So a
 * peer is closed if it reads less than about 150 KiB in write_stall_ms while that much waits. */
bool session_has_stalled(struct session *session)
{
    int64_t stalled_us = session_stalled_us(session);
    if (session->state == SESSION_LINGERING || session->is_refused) return stalled_us >= SESSION_LINGER_MS * 1000;
    uint32_t stall_ms = session->sessions->options.write_stall_ms;
    return stall_ms > 0 && stalled_us >= (int64_t)stall_ms * 1000;
}
