#include "fakes/fake_redis.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/buffer.h"

enum { MAX_ARGS = 256, READ_SIZE = 65536 };

struct fake_client {
    union fake_socket socket;
    struct fake_redis *fake;
    struct fake_client *next;
    struct buffer in;
    char chunk[READ_SIZE];
};

struct pending_write {
    uv_write_t request;
    uv_buf_t bytes;
};

static void on_written(uv_write_t *request, int status)
{
    (void)status;
    struct pending_write *pending = request->data;
    mem_free(pending->bytes.base);
    mem_free(pending);
}

void fake_reply_bytes(struct fake_client *client, const void *bytes, size_t len)
{
    struct pending_write *pending = mem_zalloc(sizeof(*pending));
    assert_non_null(pending);
    pending->bytes = uv_buf_init(mem_alloc(len), (unsigned)len);
    memcpy(pending->bytes.base, bytes, len);
    pending->request.data = pending;
    assert_int_equal(uv_write(&pending->request, &client->socket.stream, &pending->bytes, 1, on_written), 0);
}

void fake_reply(struct fake_client *client, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    assert_true(len > 0 && (size_t)len < sizeof(text));
    fake_reply_bytes(client, text, (size_t)len);
}

static void on_client_closed(uv_handle_t *handle)
{
    struct fake_client *client = handle->data;
    buffer_fini(&client->in);
    mem_free(client);
}

void fake_hang_up(struct fake_client *client)
{
    if (uv_is_closing(&client->socket.handle)) return;
    struct fake_client **it = &client->fake->clients;
    while (*it != client) it = &(*it)->next;
    *it = client->next;
    uv_close(&client->socket.handle, on_client_closed);
}

struct fake_redis *fake_of(const struct fake_client *client)
{
    return client->fake;
}

unsigned fake_nonce(const struct slice *args, size_t n)
{
    char text[24] = "";
    size_t len = args[n - 1].len < sizeof(text) - 1 ? args[n - 1].len : sizeof(text) - 1;
    memcpy(text, args[n - 1].data, len);
    return (unsigned)strtoul(text, NULL, 10);
}

bool fake_is_canary(const struct slice *args)
{
    static const char end[] = ":scratch";
    size_t len = sizeof end - 1;
    return args[3].len > len && memcmp(args[3].data + args[3].len - len, end, len) == 0;
}

unsigned fake_batch_nonce(const struct slice *args, size_t n)
{
    assert_true(args[n - 1].len >= 4);
    const uint8_t *bytes = args[n - 1].data;
    return bytes[0] | (unsigned)bytes[1] << 8 | (unsigned)bytes[2] << 16 | (unsigned)bytes[3] << 24;
}

/* "*3\r\n" or "$5\r\n" at `at`: the number, and the end of the line; -1 if it is not complete. */
static long line_number(const uint8_t *bytes, size_t len, size_t *at)
{
    const uint8_t *end = memchr(bytes + *at, '\n', len - *at);
    if (end == NULL) return -1;
    long number = strtol((const char *)bytes + *at + 1, NULL, 10);
    *at = (size_t)(end - bytes) + 1;
    return number;
}

/* The first complete command; its length in bytes, 0 if there is none yet. */
static size_t parse_command(const uint8_t *bytes, size_t len, struct slice *args, size_t *ret_n)
{
    size_t at = 0;
    long n = len > 0 ? line_number(bytes, len, &at) : -1;
    if (n < 0) return 0;
    assert_true(n <= MAX_ARGS);
    for (long i = 0; i < n; i++) {
        long size = at < len ? line_number(bytes, len, &at) : -1;
        if (size < 0 || at + (size_t)size + 2 > len) return 0;
        args[i] = (struct slice){bytes + at, (size_t)size};
        at += (size_t)size + 2;
    }
    *ret_n = (size_t)n;
    return at;
}

static void answer(struct fake_client *client, const struct slice *args, size_t n)
{
    struct fake_redis *fake = client->fake;
    bool is_hello = slice_is(args[0], "HELLO") || slice_is(args[0], "AUTH");
    if (slice_is(args[0], "EVALSHA")) {
        fake->n_evalsha++;
        fake->on_evalsha(fake, client, args, n);
    } else if (is_hello && fake->on_hello != NULL) {
        fake->on_hello(fake, client, args, n);
    } else if (slice_is(args[0], "HELLO")) {
        fake_reply(client, "*4\r\n$5\r\nproto\r\n:2\r\n$4\r\nrole\r\n$6\r\nmaster\r\n");
    } else if (slice_is(args[0], "SCRIPT")) {
        fake->n_loads++;
        if (fake->on_load != NULL)
            fake->on_load(fake, client, args, n);
        else
            fake_reply(client, "$40\r\n%s\r\n", fake->sha1);
    } else if (fake->on_other != NULL) {
        fake->on_other(fake, client, args, n);
    } else {
        fake_reply(client, "+OK\r\n");
    }
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buf)
{
    struct fake_client *client = stream->data;
    if (n_read < 0) {
        fake_hang_up(client);
        return;
    }
    assert_int_equal(buffer_append(&client->in, buf->base, (size_t)n_read), 0);
    struct slice args[MAX_ARGS];
    size_t n, len;
    while (!uv_is_closing((uv_handle_t *)stream) &&
           (len = parse_command(buffer_data(&client->in), buffer_len(&client->in), args, &n)) > 0) {
        answer(client, args, n);
        buffer_consume(&client->in, len);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct fake_client *client = handle->data;
    *buf = uv_buf_init(client->chunk, sizeof(client->chunk));
}

static void on_connection(uv_stream_t *listener, int status)
{
    assert_int_equal(status, 0);
    struct fake_redis *fake = listener->data;
    struct fake_client *client = mem_zalloc(sizeof(*client));
    assert_non_null(client);
    client->fake = fake;
    buffer_init(&client->in, 0);
    if (fake->port == 0)
        uv_pipe_init(listener->loop, &client->socket.pipe, 0);
    else
        uv_tcp_init(listener->loop, &client->socket.tcp);
    client->socket.handle.data = client;
    assert_int_equal(uv_accept(listener, &client->socket.stream), 0);
    client->next = fake->clients;
    fake->clients = client;
    fake->n_connections++;
    uv_read_start(&client->socket.stream, on_alloc, on_read);
}

static void begin(struct fake_redis *fake, const char *sha1, fake_handler *on_evalsha)
{
    signal(SIGPIPE, SIG_IGN); /* it may answer a connection that has ended */
    memset(fake, 0, sizeof(*fake));
    fake->sha1 = sha1;
    fake->on_evalsha = on_evalsha;
}

void fake_redis_init(struct fake_redis *fake, uv_loop_t *loop, const char *sha1, fake_handler *on_evalsha)
{
    begin(fake, sha1, on_evalsha);
    snprintf(fake->folder, sizeof(fake->folder), "/tmp/rl-fake-XXXXXX");
    assert_non_null(mkdtemp(fake->folder));
    snprintf(fake->path, sizeof(fake->path), "%s/redis.sock", fake->folder);
    snprintf(fake->address, sizeof(fake->address), "unix:%s", fake->path);
    uv_pipe_init(loop, &fake->listener.pipe, 0);
    fake->listener.handle.data = fake;
    assert_int_equal(uv_pipe_bind(&fake->listener.pipe, fake->path), 0);
    assert_int_equal(uv_listen(&fake->listener.stream, 16, on_connection), 0);
}

void fake_redis_init_tcp(struct fake_redis *fake, uv_loop_t *loop, const char *sha1, fake_handler *on_evalsha)
{
    struct sockaddr_in address;
    int len = sizeof address;
    begin(fake, sha1, on_evalsha);
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(loop, &fake->listener.tcp);
    fake->listener.handle.data = fake;
    assert_int_equal(uv_tcp_bind(&fake->listener.tcp, (const struct sockaddr *)&address, 0), 0);
    assert_int_equal(uv_listen(&fake->listener.stream, 16, on_connection), 0);
    assert_int_equal(uv_tcp_getsockname(&fake->listener.tcp, (struct sockaddr *)&address, &len), 0);
    fake->port = ntohs(address.sin_port);
    snprintf(fake->address, sizeof fake->address, "127.0.0.1:%u", fake->port);
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct fake_redis *fake = handle->data;
    if (fake->port > 0) return;
    unlink(fake->path);
    rmdir(fake->folder);
}

void fake_redis_close(struct fake_redis *fake)
{
    while (fake->clients != NULL) fake_hang_up(fake->clients);
    uv_close(&fake->listener.handle, on_listener_closed);
}
