/*
 * session.c: bytes in, from the connection's beginning to its end.
 *
 *   on_read ─ take_messages ─ on_message ─ methods_run ─▶ session_answer | the engine's call ─▶ session_answer
 *                 │ budget used, too much in flight or unread, a long message, a long list under way (check_list.h):
 *                 │ stop reading, keep the rest in `in`
 *                 └ session_run, session_run_long: next turn, or one of the next
 *   turn's end ─ session_flush (session_output.c)
 *
 * Reading stops where a peer asks for more than it reads or than may be in flight, so everything a
 * session holds is bounded: `in` by a message and a read, `out` by half of max_output and the answers of
 * what is in flight.
 *
 * Who ends it: the peer (half-close: all is answered first; gone: at once), a drain, lost framing
 * (after a last error), a peer that does not read, an idle timeout, a lack of memory for an answer.
 */
#include "server/session_private.h"

#include <inttypes.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/counters.h"
#include "base/log.h"
#include "proto/rpc.h"
#include "server/check_list.h"
#include "server/methods.h"
#include "server/request.h"

#define CLIENT_CLOSED "the client closed it"

enum {
    CHECKS_PER_TURN = 256, /* of one session; a message that is none counts as one */
    DISCARDS_MAX = 64,     /* reads; a socket holds less unless the system's buffers were made very large */
    LONG_MESSAGE = 4096,   /* bytes; beyond it a message may cost as much as all that a session may ask in a turn */
};

const struct peer *session_peer(struct session *session)
{
    struct ucred credentials;
    socklen_t len = sizeof credentials;
    uv_os_fd_t fd;
    if (session->peer.is_asked) return &session->peer;

    session->peer = (struct peer){.is_asked = true, .uid = (uid_t)-1};
    if (uv_fileno((const uv_handle_t *)&session->pipe, &fd) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &len) == 0) {
        session->peer.uid = credentials.uid;
        session->peer.pid = credentials.pid;
    }
    return &session->peer;
}

bool session_is_owed(const struct session *session)
{
    return !list_empty(&session->calls) || session->leftover || buffer_len(&session->out) > 0 ||
           session_is_writing(session);
}

/* A line for each connection, not for what it asks: whoever follows one has its number. */
static void log_connection(struct session *session, const char *what, const char *why)
{
    if (!log_is_written(LOG_LEVEL_DEBUG)) return;
    const struct peer *peer = session_peer(session);
    log_debug("connection %" PRIu64 " %s: uid %u pid %d%s%s", session->party, what, (unsigned)peer->uid, (int)peer->pid,
              why != NULL ? ": " : "", why != NULL ? why : "");
}

/* ---- closing ---- */

static void on_closed(uv_handle_t *handle)
{
    struct session *session = handle->data;
    struct sessions *home = session->home;
    session_give_back(session, &session->in);
    session_give_back(session, &session->out);
    session_give_back(session, &session->writing);
    mem_free(session);
    home->n--;
    clock_update(home->clock); /* the end of the tick may accept another one */
    counters.connections--;
    home->on_gone(home);
}

void session_close(struct session *session, const char *why)
{
    if (session->closed) return;
    log_connection(session, "closed", why);
    session->closed = true;
    for (struct list *link; (link = list_pop_front(&session->calls)) != NULL;)
        request_drop(LIST_ITEM(link, struct request, link));
    slots_end(&session->slots);
    list_remove(&session->link);
    list_remove(&session->dirty_link);
    list_remove(&session->run_link);
    list_remove(&session->long_link);
    list_remove(&session->stall_link);
    if (session->list != NULL) check_list_drop(session->list);
    session_count_unread(session);
    uv_close((uv_handle_t *)&session->pipe, on_closed);
}

static void start_reading(struct session *session);

/* Closing a socket whose bytes were not all read resets it, and a peer that still sends might never see why. So: say
 * that nothing more comes, and read past what does until the peer closes too, for LINGER_MS at most. */
static void linger(struct session *session)
{
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&session->pipe, &fd) != 0 || shutdown(fd, SHUT_WR) != 0) {
        session_close(session, session->why_ended);
        return;
    }
    session->lingers = true;
    session->taken_us = session->home->clock->mono_us;
    list_push_back(&session->home->stalled, &session->stall_link);
    sessions_arm_sweep(session->home);
    start_reading(session);
}

/* A socket that is closed with bytes in it that nobody read is reset, and the peer would see that in place of the end.
 * So: nothing more may come, and what has is thrown away. */
static void close_without_reset(struct session *session)
{
    uv_os_fd_t fd;
    uint8_t *bytes = session->home->read_buffer;
    if (uv_fileno((const uv_handle_t *)&session->pipe, &fd) == 0 && shutdown(fd, SHUT_RDWR) == 0) {
        for (int i = 0; i < DISCARDS_MAX; i++)
            if (recv(fd, bytes, READ_BUFFER_SIZE, MSG_DONTWAIT) <= 0) break;
    }
    session_close(session, session->why_ended);
}

static void close_if_ended(struct session *session)
{
    if (session->closed || !session->ended || session->lingers) return;
    if (session->last_words != NULL && list_empty(&session->calls)) session_say_last_words(session);
    if (session->closed || session_is_owed(session)) return;
    if (session->last_code != ERROR_NONE && !session->home->draining)
        linger(session);
    else
        close_without_reset(session);
}

/* ---- input ---- */

static void mark_runnable(struct session *session)
{
    if (list_empty(&session->run_link))
        sessions_work_later(session->home, &session->home->runnable, &session->run_link);
}

/* No more input: where the next message begins cannot be known. What was asked before is answered first. */
static void lose_framing(struct session *session, enum error_code code, const char *message)
{
    counters.connections_closed_broken++;
    session->ended = true;
    session->last_code = code;
    session->last_words = session->why_ended = message;
}

static void on_scan_error(struct session *session, enum scan_error error)
{
    switch (error) {
    case SCAN_TOO_LARGE:
        lose_framing(session, ERROR_TOO_LARGE, "the message is longer than caps.max_frame allows");
        break;
    case SCAN_TOO_DEEP:
        lose_framing(session, ERROR_BAD_REQUEST, "the message is nested deeper than caps.max_depth allows");
        break;
    case SCAN_BROKEN: lose_framing(session, ERROR_BAD_REQUEST, "this is no MessagePack-RPC message"); break;
    }
}

static void on_request(struct session *session, enum rpc_fault fault, const struct rpc_request *request)
{
    counters.requests++;
    if (session->home->draining)
        session_error(session, request->msgid, ERROR_SHUTTING_DOWN, "the daemon is stopping; connect again");
    else if (fault == RPC_BAD_METHOD)
        session_error(session, request->msgid, ERROR_BAD_REQUEST, "method: must be a str");
    else if (fault == RPC_BAD_PARAMS)
        session_error(session, request->msgid, ERROR_BAD_REQUEST, "params: must be a list");
    else
        methods_run(session, request);
}

static void on_message(struct session *session, const uint8_t *bytes, size_t len)
{
    struct rpc_request request;
    enum rpc_fault fault = rpc_parse_request(bytes, len, &request);
    if (fault == RPC_FRAMING)
        lose_framing(session, ERROR_BAD_REQUEST,
                     "a message must be [0, msgid, method, params] with an unsigned msgid, or [2, method, params]");
    else if (request.kind == RPC_NOTIFICATION)
        counters.notifications++;
    else
        on_request(session, fault, &request);
}

/* Is too much unread in all, and more than an equal part of what may be by this peer? The largest always leaves more
 * than that; what it reads brings it here again. */
static bool is_crowding(const struct session *session)
{
    const struct sessions *home = session->home;
    uint64_t max = home->options.max_output_total;
    return home->n_unread > max && session_unread(session) > max / home->n_leaving;
}

/* Does the session hold too much to take another message? Once it does, until it holds half of that. */
static bool is_paused(struct session *session)
{
    const struct server_options *options = &session->home->options;
    uint32_t max_inflight = options->max_inflight_per_connection;
    uint64_t high = options->max_output / 2;
    bool crowding = is_crowding(session);
    if (session->paused)
        session->paused = crowding || session->n_inflight > max_inflight / 2 || session_unread(session) > high / 2;
    else if (crowding || session->n_inflight >= max_inflight || session_unread(session) > high) {
        session->paused = true;
        counters.read_pauses++;
    }
    return session->paused;
}

/* Does its next message wait for something that will make it runnable? */
static bool is_held(const struct session *session)
{
    return session->list != NULL || !list_empty(&session->long_link);
}

/* What has come before a drain is all refused at once: nothing of it waits for a turn. */
static bool may_take(struct session *session)
{
    if (session->home->draining) return true;
    if (is_held(session)) return false;
    if (session->turn != session->home->turn) {
        session->turn = session->home->turn;
        session->n_taken = 0;
    }
    return session->n_taken < CHECKS_PER_TURN && !is_paused(session);
}

/* The length of the first message in `bytes`, or as scanner_next(). One that waited was looked through before. */
static int64_t next_message(struct session *session, const uint8_t *bytes, size_t len)
{
    return session->long_len > 0 ? session->long_len : scanner_next(&session->scanner, bytes, len);
}

/* A long message has its turn among those of all sessions. */
static bool waits_for_turn(struct session *session, int64_t len)
{
    if (len <= LONG_MESSAGE || session->takes_long || session->home->draining) return false;
    session->long_len = (uint32_t)len;
    sessions_work_later(session->home, &session->home->longs, &session->long_link);
    return true;
}

/* Handle the whole messages at the front of `bytes`, as many as may be now. Returns how many bytes are done with. */
static size_t take_messages(struct session *session, const uint8_t *bytes, size_t len)
{
    size_t used = 0;
    session->leftover = false;
    while (used < len && !session->ended && !session->closed) {
        if (!may_take(session)) {
            session->leftover = true;
            break;
        }
        int64_t n = next_message(session, bytes + used, len - used);
        if (n == 0) break;
        if (n < 0) {
            on_scan_error(session, (enum scan_error) - n);
            break;
        }
        if (waits_for_turn(session, n)) {
            session->leftover = true;
            break;
        }
        session->long_len = 0;
        session->takes_long = false;
        session->n_taken++;
        on_message(session, bytes + used, (size_t)n);
        used += (size_t)n;
    }
    return session->ended ? len : used;
}

/* The session asked for something: it goes to the end of those who may fall idle. */
static void note_asking(struct session *session)
{
    session->asked_us = session->home->clock->mono_us;
    list_remove(&session->link);
    list_push_back(&session->home->all, &session->link);
}

/* Take from what an earlier read has left. */
static void take_from_in(struct session *session)
{
    size_t used = take_messages(session, buffer_data(&session->in), buffer_len(&session->in));
    if (session->closed) return;
    if (used > 0) note_asking(session);
    buffer_consume(&session->in, used);
    if (buffer_len(&session->in) == 0) spares_return(&session->home->spares, &session->in);
}

/* Keep what is not done with; without memory for it the message is lost, and the framing with it. */
static int keep(struct session *session, const uint8_t *bytes, size_t len)
{
    if (len == 0) return 0;
    if (session->in.bytes == NULL) spares_borrow(&session->home->spares, &session->in);
    if (buffer_append(&session->in, bytes, len) == 0) return 0;
    log_sampled(LOG_LEVEL_WARNING, "no memory for a request: closing the connection");
    session_close(session, "no memory for a request");
    return -1;
}

/* Straight from the read buffer where nothing waits before it. */
static void take_input(struct session *session, const uint8_t *bytes, size_t len)
{
    if (buffer_len(&session->in) > 0) {
        if (keep(session, bytes, len) == 0) take_from_in(session);
        return;
    }
    size_t used = take_messages(session, bytes, len);
    if (session->closed) return;
    if (used > 0) note_asking(session);
    keep(session, bytes + used, len - used);
}

/* After input was taken: read on, go on in a later turn, wait for a pause to end, or end. */
static void after_input(struct session *session)
{
    if (session->closed) return;
    bool paused = !session->ended && is_paused(session);
    if (session->ended || session->leftover || paused)
        uv_read_stop(session_stream(session));
    else
        start_reading(session);
    if (session->leftover && !paused && !is_held(session)) mark_runnable(session);
    close_if_ended(session);
}

void session_run(struct session *session)
{
    if (session->closed) return;
    if (session->leftover) take_from_in(session);
    after_input(session);
}

void session_run_long(struct session *session)
{
    session->takes_long = true;
    session_run(session);
    session->takes_long = false; /* where it was paused meanwhile */
}

void session_list_ended(struct session *session)
{
    if (!session->closed) mark_runnable(session);
}

void session_maybe_pause(struct session *session)
{
    if (!session->ended && is_paused(session)) uv_read_stop(session_stream(session));
}

void session_maybe_resume(struct session *session)
{
    if (session->paused && !session->ended && !is_paused(session)) mark_runnable(session);
    close_if_ended(session);
}

void session_began(struct session *session, uint32_t n_checks)
{
    session->n_inflight += n_checks;
}

void session_finished(struct session *session, uint32_t n_checks)
{
    session->n_inflight -= n_checks;
    if (session->closed) return;
    if (session->list != NULL) check_list_maybe_start(session->list);
    session_maybe_resume(session);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    const struct session *session = handle->data;
    (void)suggested;
    *ret = uv_buf_init((char *)session->home->read_buffer, READ_BUFFER_SIZE);
}

/* After a half-close the peer still reads; after a close the socket is hung up. */
static bool is_hung_up(const struct session *session)
{
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&session->pipe, &fd) != 0) return true;
    struct pollfd poll_fd = {.fd = fd};
    return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (POLLHUP | POLLERR)) != 0;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct session *session = stream->data;
    if (n == 0 || session->closed) return;
    clock_update(session->home->clock);
    if (session->lingers) {
        if (n < 0) session_close(session, session->why_ended);
        return;
    }
    if (n > 0) {
        take_input(session, (const uint8_t *)buf->base, (size_t)n);
    } else if (n == UV_EOF && !is_hung_up(session)) {
        session->ended = true;
        session->why_ended = CLIENT_CLOSED;
    } else {
        session_close(session, n == UV_EOF ? CLIENT_CLOSED : uv_strerror((int)n));
    }
    after_input(session);
}

static void start_reading(struct session *session)
{
    int rc = uv_read_start(session_stream(session), on_alloc, on_read);
    if (rc != 0 && rc != UV_EALREADY) session_close(session, uv_strerror(rc));
}

void session_drain(struct session *session)
{
    if (session->lingers) session_close(session, session->why_ended);
    if (session->closed || session->ended) return;
    if (session->list != NULL) check_list_drain(session->list);
    if (session->leftover) take_from_in(session);
    session->leftover = false;
    session->ended = true;
    session->why_ended = SESSION_STOPPING;
    after_input(session);
}

/* ---- beginning ---- */

static struct session *session_new(struct sessions *home)
{
    struct session *session = mem_zalloc(sizeof *session);
    if (session == NULL) return NULL;
    session->home = home;
    session->party = ++home->n_made;
    session->asked_us = home->clock->mono_us;
    session->turn = home->turn;
    list_init(&session->calls);
    slot_owner_init(&session->slots);
    list_init(&session->dirty_link);
    list_init(&session->run_link);
    list_init(&session->long_link);
    list_init(&session->stall_link);
    buffer_init(&session->in, 0);
    buffer_init(&session->out, 0);
    buffer_init(&session->writing, 0);
    scanner_init(&session->scanner, home->options.max_frame, (uint8_t)home->options.max_depth);
    list_push_back(&home->all, &session->link);
    home->n++;
    counters.connections++;
    return session;
}

int session_accept(struct sessions *home, uv_stream_t *listener)
{
    struct session *session = session_new(home);
    if (session == NULL) return UV_ENOMEM;
    uv_pipe_init(home->loop, &session->pipe, 0); /* not ipc: descriptors that a client attaches stay with the kernel */
    session->pipe.data = session;
    int rc = uv_accept(listener, session_stream(session));
    if (rc != 0) {
        session_close(session, uv_strerror(rc));
        return rc;
    }
    counters.connections_accepted++;
    log_connection(session, "opened", NULL);
    start_reading(session);
    if (home->options.idle_timeout_ms > 0) sessions_arm_sweep(home);
    return 0;
}
