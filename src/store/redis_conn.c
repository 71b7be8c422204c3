/*
 * redis_conn.c: what is changed about hiredis, and why.
 *
 * - Writing. hiredis' libuv adapter asks the loop for "writable" at every command: two epoll_ctl and
 *   one more epoll_wait for each batch. While corked, a command only marks the connection and
 *   redis_conn_flush() writes directly; where the kernel takes only a part, the adapter's own way
 *   finishes the rest.
 * - Reading. redis_reader.h; and a reply that stays incomplete beyond UNREAD_MAX bytes ends the
 *   connection, because hiredis would buffer whatever size the server announced. A reset behind a reply
 *   is seen (on_add_read).
 * - Formatting. Commands are put into RESP here, in one pass and one buffer that is kept: hiredis' own formatter takes
 *   as long as everything else on the way of a check together.
 * - Time. None of hiredis' timers is used: they never fire while commands keep coming. Whoever owns
 *   the connection watches redis_conn_waiting_since().
 * - Secrets. While a password may be among the bytes, the output buffer is wiped once written.
 */
#include "store/redis_conn.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hiredis/adapters/libuv.h>
#include <hiredis/sds.h>

#include "base/check.h"
#include "base/counters.h"

enum {
    UNREAD_MAX = 128 * 1024, /* bytes of one reply's part that is not parsed yet */
    LINE_MAX_LEN = 24,       /* of a RESP header: type, 20 digits, CR LF */
    KEEPALIVE_IDLE_S = 15,
    KEEPALIVE_INTERVAL_S = 5,
    KEEPALIVE_PROBES = 3,
};

static const redisContextFuncs *plain_funcs; /* hiredis' own */

static struct redis_conn *conn_of(const redisContext *context)
{
    return ((const redisAsyncContext *)(const void *)context)->data;
}

static ssize_t bounded_read(redisContext *context, char *bytes, size_t cap)
{
    if (context->reader->len - context->reader->pos > UNREAD_MAX) {
        context->err = REDIS_ERR_PROTOCOL;
        snprintf(context->errstr, sizeof(context->errstr), "a reply larger than any we asked for");
        return -1;
    }
    return plain_funcs->read(context, bytes, cap);
}

static void wipe_output(redisContext *context)
{
    if (context->obuf != NULL) explicit_bzero(context->obuf, sdsalloc(context->obuf));
}

static ssize_t wiping_write(redisContext *context)
{
    size_t len = sdslen(context->obuf);
    ssize_t n = plain_funcs->write(context);
    struct redis_conn *conn = conn_of(context);
    if (conn != NULL && conn->is_secret && n > 0 && (size_t)n == len) {
        wipe_output(context);
        conn->is_secret = false;
    }
    return n;
}

static redisContextFuncs tamed_funcs;

static void tame_io(redisContext *context)
{
    if (plain_funcs == NULL) {
        plain_funcs = context->funcs;
        tamed_funcs = *plain_funcs;
        tamed_funcs.read = bounded_read;
        tamed_funcs.write = wiping_write;
    }
    context->funcs = &tamed_funcs;
}

/* The loop's hooks: the adapter's, but for what the head of this file says. */
static void on_add_read(void *privdata)
{
    redisLibuvEvents *events = privdata;
    redisLibuvAddRead(privdata);
    /* libuv has stopped to watch a socket with an error on it, and the adapter never starts that again: what lies
     * behind the bytes just read, the connection's end included, would go unseen. */
    if (!uv_is_active((const uv_handle_t *)&events->handle))
        uv_poll_start(&events->handle, events->events, redisLibuvPoll);
}

static void on_add_write(void *privdata)
{
    redisLibuvEvents *events = privdata;
    struct redis_conn *conn = events->context->data;
    if (conn->corked)
        conn->wants_flush = true;
    else
        redisLibuvAddWrite(privdata);
}

static void on_del_write(void *privdata)
{
    redisLibuvEvents *events = privdata;
    if (events->events & UV_WRITABLE) redisLibuvDelWrite(privdata);
}

/* The context's last sign of life (its dataCleanup): all calls have had their NULL. */
static void on_context_gone(void *data)
{
    struct redis_conn *conn = data;
    redisContext *context = &conn->context->c;
    CHECK(list_empty(&conn->calls));
    if (conn->is_secret) wipe_output(context);
    const char *why = conn->reader.refusal != NULL ? conn->reader.refusal : context->errstr;
    if (context->err != 0) snprintf(conn->error, sizeof(conn->error), "%s", why);
    if (context->err == REDIS_ERR_PROTOCOL || conn->reader.refusal != NULL) counters.redis_bad_replies++;
    conn->context = NULL;
    conn->corked = conn->wants_flush = conn->is_secret = false;
    conn->on_gone(conn);
}

void redis_conn_init(struct redis_conn *conn, struct clock *clock, void (*on_gone)(struct redis_conn *conn))
{
    memset(conn, 0, sizeof(*conn));
    conn->clock = clock;
    conn->on_gone = on_gone;
    list_init(&conn->calls);
    buffer_init(&conn->command, 0);
}

void redis_conn_fini(struct redis_conn *conn)
{
    CHECK(conn->context == NULL);
    buffer_fini(&conn->command);
}

static void set_int(int fd, int level, int name, int value)
{
    /* An option that cannot be had is no reason to do without the connection: our own watchdogs stand. */
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

static redisAsyncContext *connect_to(const struct redis_endpoint *endpoint)
{
    redisOptions options = {0};
    if (endpoint->path != NULL) {
        REDIS_OPTIONS_SET_UNIX(&options, endpoint->path);
    } else {
        REDIS_OPTIONS_SET_TCP(&options, endpoint->host, endpoint->port);
        options.options |= endpoint->is_v6 ? REDIS_OPT_PREFER_IPV6 : REDIS_OPT_PREFER_IPV4;
    }
    return redisAsyncConnectWithOptions(&options);
}

static int attach(redisAsyncContext *context, uv_loop_t *loop)
{
    if (redisLibuvAttach(context, loop) != REDIS_OK) {
        context->ev.cleanup = NULL; /* the adapter's would read what it has not set */
        return -1;
    }
    context->ev.addRead = on_add_read;
    context->ev.addWrite = on_add_write;
    context->ev.delWrite = on_del_write;
    return 0;
}

int redis_conn_open(struct redis_conn *conn, uv_loop_t *loop, const struct redis_endpoint *endpoint)
{
    CHECK(conn->context == NULL);
    const char *why = "out of memory";
    redisAsyncContext *context = connect_to(endpoint);
    if (context == NULL) goto err_no_context;
    if (context->err != 0) {
        why = context->errstr;
        goto err_free_context;
    }
    set_socket_options(context->c.fd, endpoint);
    if (attach(context, loop) < 0) {
        why = "the event loop cannot watch the connection";
        goto err_free_context;
    }
    tame_io(&context->c);
    redis_reader_attach(&conn->reader, context);
    context->data = conn;
    context->dataCleanup = on_context_gone;
    conn->context = context;
    conn->error[0] = '\0';
    return 0;

err_free_context:
    snprintf(conn->error, sizeof(conn->error), "%s", why);
    redisAsyncFree(context);
    return -1;
err_no_context:
    snprintf(conn->error, sizeof(conn->error), "%s", why);
    return -1;
}

bool redis_conn_is_connected(const struct redis_conn *conn)
{
    return conn->context != NULL && (conn->context->c.flags & REDIS_CONNECTED) != 0;
}

static void on_hiredis_reply(redisAsyncContext *context, void *reply, void *privdata)
{
    struct redis_conn *conn = context->data;
    struct redis_call *call = privdata;
    list_remove(&call->link);
    clock_update(conn->clock);
    if (reply != NULL) conn->last_reply_us = conn->clock->mono_us;
    call->on_reply(call, reply != NULL ? &conn->reader : NULL);
}

int redis_conn_guard(struct redis_conn *conn, size_t reserve)
{
    sds grown = sdsMakeRoomFor(conn->context->c.obuf, reserve);
    if (grown == NULL) return -1;
    conn->context->c.obuf = grown;
    conn->is_secret = true;
    return 0;
}

/* "*3\r\n" or "$5\r\n"; returns where it ends. */
static uint8_t *put_line(uint8_t *to, char type, size_t number)
{
    char digits[LINE_MAX_LEN];
    size_t n = 0;
    do digits[n++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    *to++ = (uint8_t)type;
    while (n > 0) *to++ = (uint8_t)digits[--n];
    *to++ = '\r';
    *to++ = '\n';
    return to;
}

/* The command in RESP, in conn->command. 0, or -1 without memory. */
static int format_command(struct redis_conn *conn, const struct slice *args, size_t n)
{
    size_t most = LINE_MAX_LEN;
    for (size_t i = 0; i < n; i++) most += LINE_MAX_LEN + args[i].len + 2;
    buffer_truncate(&conn->command, 0);
    uint8_t *start = buffer_reserve(&conn->command, most);
    if (start == NULL) return -1;
    uint8_t *to = put_line(start, '*', n);
    for (size_t i = 0; i < n; i++) {
        to = put_line(to, '$', args[i].len);
        if (args[i].len > 0) memcpy(to, args[i].data, args[i].len);
        to += args[i].len;
        *to++ = '\r';
        *to++ = '\n';
    }
    buffer_grew(&conn->command, (size_t)(to - start));
    return 0;
}

int redis_conn_send(struct redis_conn *conn, struct redis_call *call, const struct slice *args, size_t n)
{
    if (conn->context == NULL || format_command(conn, args, n) < 0) return -1;
    const char *bytes = (const char *)buffer_data(&conn->command);
    size_t len = buffer_len(&conn->command);
    int status = redisAsyncFormattedCommand(conn->context, on_hiredis_reply, call, bytes, len);
    if (conn->is_secret) explicit_bzero(buffer_data(&conn->command), len);
    if (status != REDIS_OK) return -1;
    call->sent_us = conn->clock->mono_us;
    list_push_back(&conn->calls, &call->link);
    return 0;
}

void redis_conn_cork(struct redis_conn *conn)
{
    conn->corked = true;
}

void redis_conn_flush(struct redis_conn *conn)
{
    if (!conn->wants_flush) return;
    if (conn->context->c.flags & REDIS_IN_CALLBACK) return; /* hiredis forbids it; the tick's end will come */
    conn->wants_flush = false;
    conn->corked = false; /* what the kernel does not take now goes the adapter's way */
    redisAsyncHandleWrite(conn->context);
    if (conn->context != NULL) conn->corked = true;
}

void redis_conn_drop(struct redis_conn *conn)
{
    if (conn->context != NULL) redisAsyncFree(conn->context);
}

size_t redis_conn_output(const struct redis_conn *conn)
{
    return conn->context != NULL ? sdslen(conn->context->c.obuf) : 0;
}

int64_t redis_conn_waiting_since(const struct redis_conn *conn)
{
    if (list_empty(&conn->calls)) return INT64_MAX;
    const struct redis_call *oldest = LIST_ITEM(conn->calls.next, struct redis_call, link);
    return oldest->sent_us > conn->last_reply_us ? oldest->sent_us : conn->last_reply_us;
}
