/*
 * redis/conn.c: what hiredis does here, and what it does not.
 *
 * hiredis connects, asks the loop for the socket's events, and takes the connection down. The bytes are ours:
 *
 * - Writing. A command is put into RESP at the end of `output`. Asking the loop for "writable" at every command, as
 *   hiredis' libuv adapter does, costs two epoll_ctl and one more epoll_wait for each batch. So while corked, nothing
 *   is written until redis_conn_flush(); if the kernel takes only a part, the adapter's way finishes the rest.
 * - Reading. redis/reader.h. hiredis' own parser and its list of callbacks take as long as everything else on the way
 *   of a lone check. A reset behind a reply is seen (on_add_read).
 * - Time. None of hiredis' timers is used: they never fire while commands keep coming. The owner of the connection
 *   watches redis_conn_waiting_since().
 * - TLS. redis/tls_session.h, whose handshake is a part of reads and writes. A write that waits for the server's
 *   bytes, and a read that waits to write, go on when the other event comes.
 * - Secrets. While a password may be among the bytes, the output buffer is wiped once written.
 */
#include "redis/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hiredis/adapters/libuv.h>

#include "base/assert.h"
#include "base/decimal.h"
#include "redis/counters.h"
#include "redis/tls_session.h"

enum {
    READ_BYTES = 16 * 1024,
    OUTPUT_KEEP = 256 * 1024, /* a larger buffer, which a stalled server has made, is freed once it is empty */
    LINE_MAX_LEN = 1 + DECIMAL_MAX + 2, /* of a RESP header: type, number, CR LF */
    KEEPALIVE_IDLE_S = 15,
    KEEPALIVE_INTERVAL_S = 5,
    KEEPALIVE_PROBES = 3,
};

/* ---- the end ---- */

static void wipe_output(struct redis_conn *conn)
{
    if (conn->is_secret && conn->output.bytes != NULL) explicit_bzero(conn->output.bytes, conn->output.cap);
    conn->is_secret = false;
}

/* The context's last sign of life (its dataCleanup). */
static void on_context_gone(void *data)
{
    struct redis_conn *conn = data;
    const redisContext *context = &conn->context->c;
    conn->is_ending = true;
    clock_update(conn->clock);
    for (struct list *it; (it = list_pop_front(&conn->calls)) != NULL;) {
        struct redis_call *call = LIST_ITEM(it, struct redis_call, link);
        call->on_reply(call, NULL);
    }

    if (conn->error[0] == '\0' && context->err != 0) snprintf(conn->error, sizeof conn->error, "%s", context->errstr);
    wipe_output(conn);
    buffer_truncate(&conn->output, 0);
    buffer_shrink(&conn->output, OUTPUT_KEEP);
    buffer_truncate(&conn->input, 0);
    redis_tls_session_free(conn->tls);
    conn->tls = NULL;
    conn->context = NULL;
    conn->is_corked = false;
    conn->on_gone(conn);
}

void redis_conn_drop(struct redis_conn *conn)
{
    conn->is_ending = true; /* while replies are given out: read_replies() does the rest */
    if (conn->context != NULL && !conn->is_reading) redisAsyncFree(conn->context);
}

static void fail_conn(struct redis_conn *conn, const char *why)
{
    snprintf(conn->error, sizeof conn->error, "%s", why);
    redis_conn_drop(conn);
}

/* A read or a write that returned `n`: 0 = the server has closed, -1 = errno. */
static void fail_io(struct redis_conn *conn, ssize_t n)
{
    const char *why = n == 0 ? "Server closed the connection" : strerror(errno);
    if (n < 0 && errno == EPROTO && conn->tls != NULL) {
        why = conn->tls->fault;
        conn->is_refused = conn->tls->is_refused;
    }
    fail_conn(conn, why);
}

/* ---- the loop ---- */

static void on_add_read(void *privdata)
{
    redisLibuvEvents *events = privdata;
    redisLibuvAddRead(privdata);
    /* libuv has stopped to watch a socket with an error on it, and the adapter never starts that again: what lies
     * behind the bytes just read, the connection's end included, would go unseen. */
    if (!uv_is_active((const uv_handle_t *)&events->handle))
        uv_poll_start(&events->handle, events->events, redisLibuvPoll);
}

static void on_del_write(void *privdata)
{
    redisLibuvEvents *events = privdata;
    if (events->events & UV_WRITABLE) redisLibuvDelWrite(privdata);
}

/* ---- the bytes ---- */

/* "*3\r\n" or "$5\r\n"; returns where it ends. */
static uint8_t *put_line(uint8_t *to, char type, size_t number)
{
    *to++ = (uint8_t)type;
    to += decimal_put(to, number);
    *to++ = '\r';
    *to++ = '\n';
    return to;
}

/* Replies to the calls that wait, oldest first; as many as are whole. */
static void read_replies(struct redis_conn *conn)
{
    const char *fault = NULL;
    enum redis_progress progress = REDIS_WHOLE;
    conn->is_reading = true;
    while (progress == REDIS_WHOLE && buffer_len(&conn->input) > 0 && !conn->is_ending) {
        struct list *oldest = list_pop_front(&conn->calls);
        if (oldest == NULL) {
            fault = "a reply that no command waits for";
            break;
        }

        size_t used;
        progress = redis_reader_feed(&conn->reader, buffer_data(&conn->input), buffer_len(&conn->input), &used);
        buffer_consume(&conn->input, used);
        if (progress == REDIS_WHOLE) {
            struct redis_call *call = LIST_ITEM(oldest, struct redis_call, link);
            conn->last_reply_us = conn->clock->mono_us;
            call->on_reply(call, &conn->reader);
        } else {
            list_push_front(&conn->calls, oldest); /* it goes on waiting, before the others */
            fault = conn->reader.fault;
        }
    }

    conn->is_reading = false;
    if (progress == REDIS_MORE && buffer_len(&conn->input) > REDIS_UNREAD_MAX + LINE_MAX_LEN)
        fault = "a reply larger than any we asked for";
    if (fault != NULL) {
        redis_counters.redis_bad_replies++;
        fail_conn(conn, fault);
    } else if (conn->is_ending) {
        redis_conn_drop(conn);
    }
}

/* Plain text, or TLS, of which a read may have to wait to write, and a write for bytes. */
static void on_readable(redisAsyncContext *context)
{
    struct redis_conn *conn = context->data;
    struct redis_tls_session *tls = conn->tls;
    clock_update(conn->clock);
    uint8_t *to = buffer_reserve(&conn->input, READ_BYTES);
    if (to == NULL) {
        fail_conn(conn, "out of memory");
        return;
    }

    ssize_t n = tls == NULL ? recv(context->c.fd, to, READ_BYTES, 0) : redis_tls_read(tls, to, READ_BYTES);
    if (n > 0) {
        buffer_grew(&conn->input, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        fail_io(conn, n);
        return;
    }

    if (tls != NULL && tls->read_wants_write)
        redisLibuvDelRead(context->ev.data); /* bytes may come meanwhile, and would wake the loop again and again */
    else
        on_add_read(context->ev.data);
    if (tls != NULL && (tls->read_wants_write || tls->write_wants_read)) redisLibuvAddWrite(context->ev.data);
    read_replies(conn);
}

static void on_writable(redisAsyncContext *context)
{
    struct redis_conn *conn = context->data;
    struct redis_tls_session *tls = conn->tls;
    size_t len = buffer_len(&conn->output);
    if (len > 0) {
        const uint8_t *bytes = buffer_data(&conn->output);
        ssize_t n = tls == NULL ? send(context->c.fd, bytes, len, MSG_NOSIGNAL) : redis_tls_write(tls, bytes, len);
        if (n > 0) {
            buffer_consume(&conn->output, (size_t)n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            fail_io(conn, n);
            return;
        }
    }

    bool is_written = buffer_len(&conn->output) == 0;
    if (is_written) {
        wipe_output(conn);
        buffer_shrink(&conn->output, OUTPUT_KEEP);
    }
    if (is_written || (tls != NULL && tls->write_wants_read))
        on_del_write(context->ev.data); /* a socket whose write waits for bytes is writable all the time */
    else
        redisLibuvAddWrite(context->ev.data);
    if (tls != NULL && tls->read_wants_write)
        on_readable(context);
    else
        on_add_read(context->ev.data);
}

void redis_conn_init(struct redis_conn *conn, struct clock *clock, void (*on_gone)(struct redis_conn *conn))
{
    memset(conn, 0, sizeof(*conn));
    conn->clock = clock;
    conn->on_gone = on_gone;
    list_init(&conn->calls);
    buffer_init(&conn->output, 0);
    buffer_init(&conn->input, 0);
}

void redis_conn_fini(struct redis_conn *conn)
{
    CHECK(conn->context == NULL);
    buffer_fini(&conn->output);
    buffer_fini(&conn->input);
}

static void set_int(int fd, int level, int name, int value)
{
    /* A connection without the option is better than none: our own watchdogs remain. */
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

static void set_socket_options(int fd, const struct redis_endpoint *endpoint)
{
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (endpoint->path != NULL) return;
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)endpoint->user_timeout_ms);
}

int redis_conn_open(struct redis_conn *conn, uv_loop_t *loop, const struct redis_endpoint *endpoint)
{
    CHECK(conn->context == NULL);
    redisOptions options = {0};
    if (endpoint->path != NULL) {
        REDIS_OPTIONS_SET_UNIX(&options, endpoint->path);
    } else {
        REDIS_OPTIONS_SET_TCP(&options, endpoint->host, endpoint->port);
        options.options |= endpoint->is_v6 ? REDIS_OPT_PREFER_IPV6 : REDIS_OPT_PREFER_IPV4;
    }

    const char *why = "out of memory";
    conn->is_refused = false;
    redisAsyncContext *context = redisAsyncConnectWithOptions(&options);
    if (context == NULL) goto err_say_why;
    if (context->err != 0) {
        why = context->errstr;
        goto err_say_why;
    }

    set_socket_options(context->c.fd, endpoint);
    if (endpoint->tls != NULL) {
        conn->tls = redis_tls_session_new(endpoint->tls, context->c.fd, endpoint->name);
        if (conn->tls == NULL) goto err_say_why;
    }
    if (redisLibuvAttach(context, loop) != REDIS_OK) {
        context->ev.cleanup = NULL; /* the adapter's would read what it has not set */
        why = "the event loop cannot watch the connection";
        goto err_say_why;
    }

    /* from here on the bytes are ours */
    static redisContextFuncs funcs;
    funcs = *context->c.funcs;
    funcs.async_read = on_readable;
    funcs.async_write = on_writable;
    context->c.funcs = &funcs;
    context->ev.addRead = on_add_read;
    context->ev.delWrite = on_del_write;
    context->data = conn;
    context->dataCleanup = on_context_gone;

    conn->context = context;
    conn->is_ending = false;
    conn->error[0] = '\0';
    conn->reader.depth = 0;
    conn->reader.fault = NULL;
    return 0;

err_say_why:
    redis_tls_session_free(conn->tls);
    conn->tls = NULL;
    snprintf(conn->error, sizeof conn->error, "%s", why);
    if (context != NULL) redisAsyncFree(context);
    return -1;
}

bool redis_conn_is_connected(const struct redis_conn *conn)
{
    return conn->context != NULL && (conn->context->c.flags & REDIS_CONNECTED) != 0;
}

bool redis_conn_is_secure(const struct redis_conn *conn)
{
    return conn->tls == NULL || redis_tls_is_open(conn->tls);
}

const char *redis_conn_tls_version(const struct redis_conn *conn)
{
    return conn->tls == NULL ? NULL : redis_tls_version_text(conn->tls);
}

int redis_conn_guard(struct redis_conn *conn, size_t reserve)
{
    if (buffer_reserve(&conn->output, reserve) == NULL) return -1;
    conn->is_secret = true;
    return 0;
}

int redis_conn_send(struct redis_conn *conn, struct redis_call *call, const struct slice *args, size_t n)
{
    CHECK(n > 0 && call->on_reply != NULL);
    if (conn->context == NULL || conn->is_ending) return -1;
    size_t most = LINE_MAX_LEN;
    for (size_t i = 0; i < n; i++) most += LINE_MAX_LEN + args[i].len + 2;
    uint8_t *start = buffer_reserve(&conn->output, most);
    if (start == NULL) return -1;

    uint8_t *to = put_line(start, '*', n);
    for (size_t i = 0; i < n; i++) {
        to = put_line(to, '$', args[i].len);
        if (args[i].len > 0) memcpy(to, args[i].data, args[i].len);
        to += args[i].len;
        *to++ = '\r';
        *to++ = '\n';
    }
    buffer_grew(&conn->output, (size_t)(to - start));

    if (!conn->is_corked) redisLibuvAddWrite(conn->context->ev.data);
    call->sent_us = conn->clock->mono_us;
    list_push_back(&conn->calls, &call->link);
    return 0;
}

void redis_conn_expect(struct redis_conn *conn, struct redis_call *call)
{
    call->sent_us = conn->clock->mono_us;
    list_push_back(&conn->calls, &call->link);
}

void redis_conn_cork(struct redis_conn *conn)
{
    conn->is_corked = true;
}

void redis_conn_flush(struct redis_conn *conn)
{
    if (!conn->is_corked || conn->is_ending || buffer_len(&conn->output) == 0) return;
    const redisLibuvEvents *events = conn->context->ev.data;
    if ((events->events & UV_WRITABLE) == 0) on_writable(conn->context);
}

int64_t redis_conn_waiting_since(const struct redis_conn *conn)
{
    if (list_empty(&conn->calls)) return INT64_MAX;
    const struct redis_call *oldest = LIST_ITEM(conn->calls.next, struct redis_call, link);
    return oldest->sent_us > conn->last_reply_us ? oldest->sent_us : conn->last_reply_us;
}
