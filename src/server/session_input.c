/*
 * session_input.c: bytes in, from the connection's beginning to its end.
 *
 *   on_read ─ take_messages ─ on_message ─ methods_run ─▶ an answer into `out` (session_output.h), now or by the engine
 *                 │ something keeps the next message from being taken (enum session_state):
 *                 │ stop reading, keep the rest in `in`
 *                 └ session_run: in a later tick
 *   tick's end ─ session_end_tick ─ session_flush (session_output.c)
 *
 * Reading stops when a peer asks for more than it reads or than may be in flight, so everything a
 * session holds is bounded: `in` by a message and a read, `out` by half of max_output and the answers of
 * what is in flight.
 *
 * Who ends it: the peer (half-close: all is answered first; gone: at once), a drain, lost framing
 * (after a final error), a peer that does not read, an idle timeout, a lack of memory for an answer.
 */
#include "server/session_input.h"

#include <inttypes.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "proto/rpc.h"
#include "server/access.h"
#include "server/late_answer.h"
#include "server/methods.h"
#include "server/request.h"
#include "server/server_counters.h"
#include "server/session_output.h"

#define CLIENT_CLOSED "the client closed it"

enum {
    DISCARDS_MAX = 64,     /* reads; a socket holds less unless the system's buffers were made very large */
    SMALL_READ = 4096,     /* bytes of one in a tick whose work is done: they wait */
    MESSAGE_BYTES = 256,   /* of a message cost a unit of work (sessions.h) */
    READ_BYTES = 1024,     /* the same of what is read, whole messages or not */
    CONNECTION_UNITS = 64, /* to accept one, and again to close it: some system calls each */
    GIVE_WAY_US = 1000000, /* idle for this time, it may be closed for a new one */
};

static struct peer peer_of(const uv_pipe_t *pipe)
{
    const struct peer unknown = {.uid = (uid_t)-1, .gid = (gid_t)-1};
    struct ucred credentials;
    socklen_t len = sizeof credentials;
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)pipe, &fd) != 0) return unknown;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &len) != 0) return unknown;
    return (struct peer){.uid = credentials.uid, .gid = credentials.gid, .pid = credentials.pid};
}

/* One line for each connection, none for its requests; a reader follows a connection by its number. */
static void log_connection(const struct session *session, const char *what, const char *why)
{
    if (!log_is_written(LOG_LEVEL_DEBUG)) return;
    const struct peer *peer = &session->peer;
    log_debug("connection %" PRIu64 " %s: uid %u pid %d%s%s", session->client, what, (unsigned)peer->uid,
              (int)peer->pid, why != NULL ? ": " : "", why != NULL ? why : "");
}

/* ---- the state ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret);
static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);

static void start_reading(struct session *session)
{
    int rc = uv_read_start(session_stream(session), on_alloc, on_read);
    if (rc != 0) session_fail(session, uv_strerror(rc));
}

static bool is_read_in(enum session_state state)
{
    return state == SESSION_READING || state == SESSION_LINGERING;
}

/* The only place that changes the state, and with it whether the socket is read and who brings the session back. */
static void become(struct session *session, enum session_state state)
{
    enum session_state before = session->state;
    session->state = state;
    if (state == SESSION_RUNNABLE) session_wake(session);
    if (state == SESSION_PAUSED && before != SESSION_PAUSED) server_counters.read_pauses++;

    if (is_read_in(before) && !is_read_in(state)) list_remove(&session->unread_link);
    if (is_read_in(before) && !is_read_in(state) && state != SESSION_CLOSED) uv_read_stop(session_stream(session));
    if (is_read_in(state) && !is_read_in(before)) start_reading(session);
}

/* ---- closing ---- */

static void on_closed(uv_handle_t *handle)
{
    struct session *session = handle->data;
    struct sessions *sessions = session->sessions;
    CHECK(session->state == SESSION_CLOSED && session->work == NULL);
    CHECK(list_empty(&session->requests));
    buffer_pool_take_back(&sessions->buffer_pool, &session->in);
    buffer_pool_take_back(&sessions->buffer_pool, &session->out);
    buffer_pool_take_back(&sessions->buffer_pool, &session->writing);
    session->group->n--;
    --*session->group->counts->open;
    sessions->n--;
    sessions->n_draining -= session->is_draining;
    mem_free(session);

    clock_update(sessions->clock); /* the end of the tick may accept another one */
    sessions->on_gone(sessions);
}

void session_close(struct session *session, const char *why)
{
    if (session->state == SESSION_CLOSED) return;
    log_connection(session, "closed", why);
    sessions_spend(session->sessions, CONNECTION_UNITS);
    become(session, SESSION_CLOSED);

    for (struct list *link; (link = list_pop_front(&session->requests)) != NULL;)
        request_drop(LIST_ITEM(link, struct request, link));
    slots_end(&session->slots);
    if (session->work != NULL) session->work->drop(session->work);
    late_answers_drop(session);

    list_remove(&session->link);
    list_remove(&session->group_link);
    list_remove(&session->dirty_link);
    list_remove(&session->run_link);
    list_remove(&session->stall_link);
    list_remove(&session->review_link);
    session_update_unread(session);
    access_end(session);
    places_leave(&session->sessions->places, session->place);
    uv_close((uv_handle_t *)&session->pipe, on_closed);
}

/* It is answered, holds nothing and has been quiet for some time; and there are no bytes that the next tick would read.
 * Half a message does not count as one. */
static bool may_give_way(const struct session *session)
{
    uv_os_fd_t fd;
    char byte;
    int64_t idle_us = session->sessions->clock->mono_us - session->asked_us;
    if (idle_us < GIVE_WAY_US || session_is_busy(session) || session->slots.n > 0) return false;
    return uv_fileno((const uv_handle_t *)&session->pipe, &fd) != 0 || recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

bool session_give_way(struct sessions *sessions, struct session_group *group)
{
    struct session *idlest = NULL;
    size_t n_open = 0;
    LIST_FOREACH (link, &group->open) {
        struct session *session = LIST_ITEM(link, struct session, group_link);
        n_open++;
        if (may_give_way(session) && (idlest == NULL || session->asked_us < idlest->asked_us)) idlest = session;
    }
    if (n_open < group->n) return true; /* its close callback is still to come */
    if (idlest == NULL) return false;

    log_sampled(
        LOG_LEVEL_WARNING,
        "all %zu connections to the control socket are in use: closing that of uid %u pid %d, which asked nothing "
        "for %" PRId64 " s, for a new one",
        group->n, (unsigned)idlest->peer.uid, (int)idlest->peer.pid,
        (sessions->clock->mono_us - idlest->asked_us) / 1000000);
    ++*group->counts->closed_idle;
    session_close(idlest, "it asked nothing for longest, and another one waited");
    return true;
}

/* No more input is taken. */
static void end(struct session *session, const char *why)
{
    session->why_ended = why;
    become(session, SESSION_ENDING);
}

/* Closing a socket with unread bytes resets it, and the peer might never see the last answers. So after lost framing
 * this shuts down the sending half, and drops further input until the peer closes too, for at most SESSION_LINGER_MS.
 * In other cases no more input is expected; what is there is dropped. */
static void close_if_ended(struct session *session)
{
    if (session->state != SESSION_ENDING) return;
    bool is_answered = list_empty(&session->requests) && session->n_late == 0;
    if (session->final_error != NULL && is_answered) session_emit_final_error(session);
    if (session_is_busy(session)) return;

    bool lingers = session->last_code != ERROR_NONE && !session->is_draining;
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&session->pipe, &fd) != 0 || shutdown(fd, lingers ? SHUT_WR : SHUT_RDWR) != 0) {
        session_close(session, session->why_ended);
        return;
    }

    if (lingers) {
        session->taken_us = session->sessions->clock->mono_us;
        list_push_back(&session->sessions->output.stalled, &session->stall_link);
        become(session, SESSION_LINGERING);
        return;
    }
    for (int i = 0; i < DISCARDS_MAX; i++)
        if (recv(fd, session->sessions->read_buffer, READ_BUFFER_SIZE, MSG_DONTWAIT) <= 0) break;
    session_close(session, session->why_ended);
}

/* ---- messages ---- */

/* The beginning of the next message is unknown. Earlier requests are answered first. */
static void lose_framing(struct session *session, enum error_code code, const char *message)
{
    ++*session->group->counts->closed_broken;
    session->last_code = code;
    session->final_error = message;
    end(session, message);
}

static void on_message(struct session *session, enum rpc_fault fault, const struct rpc_request *request)
{
    if (fault == RPC_FRAMING) {
        lose_framing(session, ERROR_BAD_REQUEST,
                     "a message must be [0, msgid, method, params] with an unsigned msgid, or [2, method, params]");
        return;
    }
    if (request->kind == RPC_NOTIFICATION) {
        server_counters.notifications++;
        if (fault == RPC_OK) methods_notify(session, request);
        return;
    }

    server_counters.requests++;
    session->n_requests++;
    if (session->is_draining || fault != RPC_OK) methods_count_other();
    if (session->is_draining)
        session_answer_error(session, request->msgid, ERROR_SHUTTING_DOWN, SESSION_STOPPING "; connect again");
    else if (fault == RPC_BAD_METHOD)
        session_answer_error(session, request->msgid, ERROR_BAD_REQUEST, "method: must be a str");
    else if (fault == RPC_BAD_PARAMS)
        session_answer_error(session, request->msgid, ERROR_BAD_REQUEST, "params: must be a list");
    else
        methods_run(session, request);
}

/* Is too much in flight or unread? Checks that only wait for a prefetch are decided first, and do not count. */
static bool must_pause(struct session *session)
{
    if (!session_is_full(session)) return false;
    engine_decide_ahead(session->sessions->engine);
    return session_is_full(session);
}

/* The state in which the next message must wait; SESSION_READING if it can be taken now. In a drain no message waits,
 * because each is refused at once, unless long work goes on. */
static enum session_state obstacle(struct session *session)
{
    struct sessions *sessions = session->sessions;
    if (session->is_draining && session->work == NULL) return SESSION_READING;
    if (session->fault != NULL) return SESSION_RUNNABLE;
    if (must_pause(session)) return SESSION_PAUSED;
    if (session->work != NULL) return SESSION_LISTED;
    return sessions->schedule.spent < sessions->schedule.end ? SESSION_READING : SESSION_RUNNABLE;
}

/* All work since `spent` was `before` is its turn in this round, or a part of it. */
static void note_work(struct session *session, uint32_t before)
{
    const struct sessions *sessions = session->sessions;
    if (session->turn_round != sessions->schedule.round) session->turn_units = 0;
    session->turn_round = sessions->schedule.round;
    session->turn_units += sessions->schedule.spent - before;
}

/* Handles complete messages at the front of `bytes`, until one must wait (obstacle()). Returns the number of bytes
 * handled; the new state shows what the rest waits for. */
static size_t take_messages(struct session *session, const uint8_t *bytes, size_t len)
{
    static const struct {
        enum error_code code;
        const char *text;
    } scan_faults[] = {
        [SCAN_TOO_LARGE] = {ERROR_TOO_LARGE, "the message is longer than caps.max_frame allows"},
        [SCAN_TOO_DEEP] = {ERROR_BAD_REQUEST, "the message is nested deeper than caps.max_depth allows"},
        [SCAN_BROKEN] = {ERROR_BAD_REQUEST, "this is no MessagePack-RPC message"},
    };
    enum session_state next = SESSION_READING;
    uint32_t before = session->sessions->schedule.spent;
    size_t used = 0;
    sessions_note_answers(session->sessions);
    while (used < len && (next = obstacle(session)) == SESSION_READING) {
        struct rpc_request request;
        enum rpc_fault fault;
        int64_t n = rpc_next_request(&session->scanner, bytes + used, len - used, &request, &fault);
        if (n == 0) break;
        if (n < 0) {
            lose_framing(session, scan_faults[-n].code, scan_faults[-n].text);
            return len;
        }

        sessions_spend(session->sessions, 1 + (uint32_t)n / MESSAGE_BYTES);
        on_message(session, fault, &request);
        sessions_spend_answers(session->sessions);
        if (session->state == SESSION_ENDING) return len;
        used += (size_t)n;
    }

    if (used > 0) {
        note_work(session, before);
        session->asked_us = session->sessions->clock->mono_us;
        list_remove(&session->link); /* to the end: the list is in the order of idleness */
        list_push_back(&session->sessions->all, &session->link);

        bool has_more = next == SESSION_RUNNABLE && session->sessions->schedule.spent - before >= SHARE_MIN;
        if (has_more && session->turn_units < FRESH_MAX) session->turn_units = FRESH_MAX;
    }
    if (next == SESSION_READING && must_pause(session)) next = SESSION_PAUSED;
    become(session, next);
    return used;
}

/* Handles messages that an earlier read left in `in`. */
static void take_from_in(struct session *session)
{
    size_t used = take_messages(session, buffer_data(&session->in), buffer_len(&session->in));
    buffer_consume(&session->in, used);
    if (buffer_len(&session->in) == 0) buffer_pool_return(&session->sessions->buffer_pool, &session->in);
}

/* Keeps the rest for later. 0; -1 without memory: then the message is lost and so is the framing, and the session is
 * closed. */
static int keep(struct session *session, const uint8_t *bytes, size_t len)
{
    if (len == 0) return 0;
    if (session->in.bytes == NULL) buffer_pool_borrow(&session->sessions->buffer_pool, &session->in);
    if (buffer_append(&session->in, bytes, len) == 0) return 0;
    log_sampled(LOG_LEVEL_WARNING, "no memory for a request: closing the connection");
    session_close(session, "no memory for a request");
    return -1;
}

/* ---- in later ticks ---- */

/* If the first part of a message came when a tick's work was done, its rest is read in the session's turn: else it would
 * need one turn for each small read. */
static void read_rest(struct session *session)
{
    struct sessions *sessions = session->sessions;
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&session->pipe, &fd) != 0) return;
    ssize_t n = recv(fd, sessions->read_buffer, READ_BUFFER_SIZE, MSG_DONTWAIT);
    if (n <= 0) return; /* the next read reports an end or an error */

    session->read_us = sessions->clock->mono_us;
    session->bytes_in += (uint64_t)n;
    sessions_spend(sessions, (uint32_t)n / READ_BYTES);
    if (keep(session, sessions->read_buffer, (size_t)n) == 0) take_from_in(session);
}

void session_run(struct session *session)
{
    if (session->fault != NULL) {
        session_close(session, session->fault);
        return;
    }
    sessions_begin_turn(session->sessions, session->sessions->schedule.share);
    if (session->work != NULL) {
        uint32_t before = session->sessions->schedule.spent;
        session->work->run(session->work);
        note_work(session, before);
    }
    if (session->work == NULL && session->is_draining) session_drain(session);

    bool may_go_on = session->state == SESSION_RUNNABLE || session->state == SESSION_LISTED;
    if (session->state == SESSION_PAUSED) may_go_on = !session_is_half_full(session);
    if (may_go_on) take_from_in(session);
    if (may_go_on && session->state == SESSION_READING && buffer_len(&session->in) > 0) read_rest(session);
    close_if_ended(session);
}

void session_end_tick(struct session *session)
{
    session_flush(session);
    if (session->fault != NULL) {
        session_close(session, session->fault);
        return;
    }
    if (session->state == SESSION_READING && session->n_counted > 0 && session_is_full(session))
        become(session, SESSION_PAUSED);
    session_note_less(session);
    close_if_ended(session);
}

void session_drain(struct session *session)
{
    static const struct request_fault stopping = {ERROR_SHUTTING_DOWN, SESSION_STOPPING "; connect again"};
    session->sessions->n_draining += !session->is_draining;
    session->is_draining = true;
    if (session->state == SESSION_LINGERING) session_close(session, session->why_ended);
    if (session->state >= SESSION_ENDING) return;
    if (session->work != NULL && session->work->goes_on) return; /* its end leads here again */
    if (session->work != NULL) session->work->refuse(session->work, &stopping);
    if (session->state != SESSION_READING) take_from_in(session);
    if (session->state < SESSION_ENDING) end(session, SESSION_STOPPING);
    close_if_ended(session);
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    struct session *session = handle->data;
    struct sessions *sessions = session->sessions;
    (void)suggested;
    unsigned size = sessions_is_tick_spent(sessions) ? SMALL_READ : READ_BUFFER_SIZE;
    bool may_read = session->is_resumed || sessions->reads.n < READS_MAX;
    sessions->reads.n += may_read && !session->is_resumed;
    session->is_resumed = false;
    *ret = uv_buf_init((char *)sessions->read_buffer, may_read ? size : 0); /* 0: on_read() gets UV_ENOBUFS */
}

void session_read_again(struct session *session)
{
    session->is_resumed = true;
    start_reading(session);
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
    struct sessions *sessions = session->sessions;
    if (n == 0 || session->state == SESSION_CLOSED) return;
    if (n == UV_ENOBUFS) { /* the tick has done its reads: it is ready again in a later one */
        uv_read_stop(stream);
        list_push_back(&sessions->reads.waiting, &session->unread_link);
        return;
    }
    clock_update(sessions->clock);
    if (session->state == SESSION_LINGERING) {
        if (n < 0) session_close(session, session->why_ended);
        return;
    }

    const uint8_t *bytes = (const uint8_t *)buf->base;
    session->read_us = sessions->clock->mono_us;
    if (n > 0) {
        session->bytes_in += (uint64_t)n;
        sessions_spend(sessions, (uint32_t)n / READ_BYTES);
    }
    bool must_wait = session_had_turn(session) && sessions_have_waiting(sessions);
    sessions_begin_turn(sessions, must_wait ? 0 : sessions->schedule.share);
    if (n == UV_EOF && !is_hung_up(session)) {
        end(session, CLIENT_CLOSED);
    } else if (n < 0) {
        session_fail(session, n == UV_EOF ? CLIENT_CLOSED : uv_strerror((int)n));
    } else if (buffer_len(&session->in) > 0) {
        if (keep(session, bytes, (size_t)n) == 0) take_from_in(session);
    } else { /* nothing waits before it: straight from the read buffer */
        size_t used = take_messages(session, bytes, (size_t)n);
        keep(session, bytes + used, (size_t)n - used);
    }

    /* Closing costs, too: if this tick's work is done, the next one closes it. */
    if (n < 0 && sessions_is_tick_spent(sessions))
        session_wake(session);
    else if (n < 0)
        session_run(session);
    else
        close_if_ended(session);
}

/* ---- beginning ---- */

int session_accept(struct sessions *sessions, struct session_group *group, uv_stream_t *listener)
{
    struct session *session = mem_zalloc(sizeof *session);
    if (session == NULL) return UV_ENOMEM;
    if (places_take(&sessions->places, session, &session->place) != 0) {
        mem_free(session);
        return UV_ENOMEM;
    }

    session->sessions = sessions;
    session->group = group;
    session->role = group->role;
    session->client = ++sessions->n_made;
    session->turn_round = sessions->schedule.round;
    session->turn_units = FRESH_MAX;
    session->opened_us = session->asked_us = sessions->clock->mono_us;
    list_init(&session->requests);
    slot_owner_init(&session->slots);
    list_init(&session->dirty_link);
    list_init(&session->run_link);
    list_init(&session->stall_link);
    list_init(&session->unread_link);
    list_init(&session->review_link);
    buffer_init(&session->in, 0);
    buffer_init(&session->out, 0);
    buffer_init(&session->writing, 0);
    scanner_init(&session->scanner, sessions->options.max_frame, (uint8_t)sessions->options.max_depth);
    list_push_back(&sessions->all, &session->link);
    list_push_back(&group->open, &session->group_link);
    sessions->n++;
    group->n++;
    ++*group->counts->open;

    /* Not ipc: descriptors that a client attaches stay with the kernel. */
    uv_pipe_init(sessions->loop, &session->pipe, 0);
    session->pipe.data = session;
    int rc = uv_accept(listener, session_stream(session));
    session->peer = peer_of(&session->pipe);
    if (rc != 0) {
        session_close(session, uv_strerror(rc));
        return rc;
    }
    sessions_spend(sessions, CONNECTION_UNITS);
    ++*group->counts->accepted;
    log_connection(session, "opened", NULL);
    if (access_begin(session) != 0) {
        session_close(session, ACCESS_REFUSED ", or memory is short");
        return 0;
    }
    if (session->is_refused) { /* it is closed with its first request, or if it does not come */
        session->why_ended = ACCESS_REFUSED;
        session->taken_us = sessions->clock->mono_us;
        list_push_back(&sessions->output.stalled, &session->stall_link);
    }
    start_reading(session);
    return 0;
}
