#include "fakes/server_fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "fakes/all_counters.h"
#include "server/server_counters.h"
#include "store/store_key.h"

#define SECOND_US INT64_C(1000000)

static const struct policy_spec specs[] = {
    {.name = "login", .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 5, .window_us = 10 * SECOND_US}}},
    {.name = "api", .limits = {{.algo = ALGO_BUCKET, .limit = 1000000, .window_us = SECOND_US}}},
    {.name = "closed", .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 0, .window_us = SECOND_US}}},
    {.name = "strict",
     .on_failure = ON_FAILURE_ERROR,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 5, .window_us = SECOND_US}}},
};

const struct server_options server_fixture_options = {
    .max_key = 1024,
    .max_frame = 65536,
    .max_depth = 8,
    .max_connections = 100,
    .max_inflight_per_connection = 4096,
    .watch = {.top_window_us = INT64_C(60) * SECOND_US},
    .max_output = 1024 * 1024,
    .max_output_total = 64 * 1024 * 1024,
    .write_stall_ms = 5000,
    .store_name = "memory",
    .hiredis_version = "1.2.0",
    .n_shards = STORE_SHARDS,
};

static const struct engine_options engine_options = {
    .max_inflight = 10000, .local_max_keys = 100, .slots = {.max = 100, .max_per_owner = 50}};

/* As in the daemon: right after I/O, and before the loop may sleep. */
static void end_tick(struct server_fixture *fixture)
{
    if (fixture->server == NULL) return;
    engine_expire(fixture->engine.engine);
    engine_flush(fixture->engine.engine);
    server_tick_end(fixture->server);
}

static void on_check(uv_check_t *handle)
{
    end_tick(handle->data);
}

static void on_prepare(uv_prepare_t *handle)
{
    end_tick(handle->data);
}

static void start_server(struct server_fixture *fixture, const struct server_options *options)
{
    char text[256], path[sizeof fixture->directory + 16];
    snprintf(path, sizeof path, "%s/s", fixture->directory);
    struct listener_options listener_options = {.path = path, .mode = 0600};
    CHECK(listener_open(&fixture->listener, &listener_options, text, sizeof text) == 0);
    fixture->server = server_new(&fixture->loop, &fixture->engine.clock, fixture->engine.engine, options);
    CHECK(fixture->server != NULL);
    CHECK(server_listen(fixture->server, SERVER_DATA, fixture->listener.fd) == 0);
    fixture->listener.fd = -1;
}

void server_fixture_open_control(struct server_fixture *fixture)
{
    char text[256], path[sizeof fixture->directory + 16];
    snprintf(path, sizeof path, "%s/c", fixture->directory);
    struct listener_options options = {.path = path, .mode = 0600};
    CHECK(listener_open(&fixture->control, &options, text, sizeof text) == 0);
    CHECK(server_listen(fixture->server, SERVER_CONTROL, fixture->control.fd) == 0);
    fixture->control.fd = -1;
}

static void open_rest(struct server_fixture *fixture, const struct server_options *options)
{
    signal(SIGPIPE, SIG_IGN); /* as the daemon does: it may answer a client that has left */
    all_counters_reset();
    fixture->control = (struct listener){.fd = -1, .lock_fd = -1};
    fixture->n_drained = 0;
    CHECK(uv_loop_init(&fixture->loop) == 0);
    uv_check_init(&fixture->loop, &fixture->check);
    uv_prepare_init(&fixture->loop, &fixture->prepare);
    fixture->check.data = fixture->prepare.data = fixture;
    uv_check_start(&fixture->check, on_check);
    uv_prepare_start(&fixture->prepare, on_prepare);
    strcpy(fixture->directory, "/tmp/rl.XXXXXX");
    CHECK(mkdtemp(fixture->directory) != NULL);
    start_server(fixture, options);
}

void server_fixture_open(struct server_fixture *fixture, const struct server_options *options)
{
    fixture_open(&fixture->engine, specs, sizeof specs / sizeof specs[0], &engine_options);
    open_rest(fixture, options);
}

void server_fixture_open_memory(struct server_fixture *fixture, const struct server_options *options)
{
    fixture_open_memory(&fixture->engine, specs, sizeof specs / sizeof specs[0], &engine_options);
    open_rest(fixture, options);
}

void server_fixture_tick(struct server_fixture *fixture)
{
    uv_run(&fixture->loop, UV_RUN_NOWAIT);
}

void server_fixture_ticks(struct server_fixture *fixture, int n)
{
    while (n-- > 0) server_fixture_tick(fixture);
}

static void on_server_closed(void *arg)
{
    struct server_fixture *fixture = arg;
    fixture->server = NULL;
}

void server_fixture_close_server(struct server_fixture *fixture)
{
    if (fixture->server == NULL) return;
    server_close(fixture->server, on_server_closed, fixture);
    CHECK(fixture->server != NULL);
    while (fixture->server != NULL) server_fixture_tick(fixture);
    CHECK(server_counters.connections == 0 && control_counters.control_connections == 0);
}

void server_fixture_close(struct server_fixture *fixture)
{
    server_fixture_close_server(fixture);
    listener_close(&fixture->listener);
    listener_close(&fixture->control);
    scripted_end_all(&fixture->engine.scripted, OP_DOWN);
    CHECK(engine_n_live(fixture->engine.engine) == 0);
    fixture_close(&fixture->engine);
    uv_close((uv_handle_t *)&fixture->check, NULL);
    uv_close((uv_handle_t *)&fixture->prepare, NULL);
    uv_run(&fixture->loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&fixture->loop) == 0);
    char path[sizeof fixture->directory + 16];
    snprintf(path, sizeof path, "%s/s.lock", fixture->directory);
    unlink(path);
    snprintf(path, sizeof path, "%s/c.lock", fixture->directory);
    unlink(path);
    CHECK(rmdir(fixture->directory) == 0);
}

static void on_drained(void *arg)
{
    struct server_fixture *fixture = arg;
    fixture->n_drained++;
}

void server_fixture_drain(struct server_fixture *fixture, uint32_t timeout_ms)
{
    server_drain(fixture->server, timeout_ms, on_drained, fixture);
    CHECK(fixture->n_drained == 0);
}

static void open_client(struct client *client, struct server_fixture *fixture, const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    strcpy(addr.sun_path, path);
    *client = (struct client){.fixture = fixture, .is_reading = true};
    client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(connect(client->fd, (struct sockaddr *)&addr, sizeof addr) == 0);
    buffer_init(&client->in, 0);
}

void client_open(struct client *client, struct server_fixture *fixture)
{
    open_client(client, fixture, fixture->listener.path);
}

void client_open_control(struct client *client, struct server_fixture *fixture)
{
    open_client(client, fixture, fixture->control.path);
}

void client_close(struct client *client)
{
    if (client->fd >= 0) close(client->fd);
    client->fd = -1;
    buffer_fini(&client->in);
}

void client_half_close(struct client *client)
{
    CHECK(shutdown(client->fd, SHUT_WR) == 0);
}

/* What the server has written so far; 0 at its end. */
static ssize_t read_some(struct client *client)
{
    uint8_t bytes[16384];
    ssize_t n = recv(client->fd, bytes, sizeof bytes, 0);
    if (n > 0) CHECK(buffer_append(&client->in, bytes, (size_t)n) == 0);
    return n < 0 && (errno == ECONNRESET || errno == EPIPE) ? 0 : n;
}

size_t client_send(struct client *client, const void *bytes, size_t len)
{
    size_t sent = 0;
    for (int idle_ticks = 0; sent < len && idle_ticks < 100; idle_ticks++) {
        ssize_t n = send(client->fd, (const uint8_t *)bytes + sent, len - sent, MSG_NOSIGNAL);
        if (n > 0) {
            sent += (size_t)n;
            idle_ticks = 0;
        } else if (errno != EAGAIN) {
            return sent;
        }
        server_fixture_tick(client->fixture);
        if (client->is_reading) read_some(client);
    }
    server_fixture_ticks(client->fixture, 2); /* the first may only accept */
    return sent;
}

static void build(struct buffer *out, uint64_t msgid, const char *method, uint32_t n, const char *format, va_list args)
{
    struct packer packer = packer_of(out);
    rpc_pack_request(&packer, msgid, method, n);
    for (; *format != '\0'; format++) {
        switch (*format) {
        case 's': pack_text(&packer, va_arg(args, const char *)); break;
        case 'b': pack_bin(&packer, slice_of(va_arg(args, const char *))); break;
        case 'i': pack_int(&packer, va_arg(args, int)); break;
        case 'n': pack_nil(&packer); break;
        case '[': pack_array(&packer, va_arg(args, unsigned)); break;
        case '{': pack_map(&packer, va_arg(args, unsigned)); break;
        case 't': pack_bool(&packer, true); break;
        case 'f': { /* a double, which pack.h does not support */
            uint8_t bytes[9] = {0xcb};
            union {
                double number;
                uint64_t bits;
            } value = {va_arg(args, double)};
            for (int i = 0; i < 8; i++) bytes[1 + i] = (uint8_t)(value.bits >> (56 - 8 * i));
            CHECK(buffer_append(out, bytes, sizeof bytes) == 0);
            break;
        }
        default: CHECK(!"a known character");
        }
    }
    CHECK(!packer.failed);
}

void client_build(struct buffer *out, uint64_t msgid, const char *method, uint32_t n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    build(out, msgid, method, n, format, args);
    va_end(args);
}

void client_ask(struct client *client, uint64_t msgid, const char *method, uint32_t n, const char *format, ...)
{
    struct buffer out;
    va_list args;
    buffer_init(&out, 0);
    va_start(args, format);
    build(&out, msgid, method, n, format, args);
    va_end(args);
    CHECK(client_send(client, buffer_data(&out), buffer_len(&out)) == buffer_len(&out));
    buffer_fini(&out);
}

/* Removes the first message from client->in. */
static bool take_message(struct client *client, struct heard *ret)
{
    struct scanner scanner;
    struct rpc_response response;
    scanner_init(&scanner, sizeof ret->bytes, SCAN_DEPTH_MAX);
    if (buffer_len(&client->in) == 0) return false;
    int64_t n = scanner_next(&scanner, buffer_data(&client->in), buffer_len(&client->in));
    CHECK(n >= 0);
    if (n == 0) return false;
    memcpy(ret->bytes, buffer_data(&client->in), (size_t)n);
    buffer_consume(&client->in, (size_t)n);
    CHECK(rpc_parse_response(ret->bytes, (size_t)n, &response) == 0);
    ret->has_msgid = response.has_msgid;
    ret->msgid = response.msgid;
    snprintf(ret->error, sizeof ret->error, "%.*s", (int)response.error.len, (const char *)response.error.data);
    ret->result = response.result;
    return true;
}

int client_hear(struct client *client, struct heard *ret)
{
    for (int ticks = 0; ticks < 100; ticks++) {
        if (take_message(client, ret)) return 1;
        server_fixture_tick(client->fixture);
        if (read_some(client) == 0) return take_message(client, ret) ? 1 : -1;
    }
    return 0;
}

void client_answer(struct client *client, struct heard *ret)
{
    CHECK(client_hear(client, ret) == 1);
    CHECK(ret->has_msgid);
}

void client_assert_served(struct client *client)
{
    static struct heard heard;
    client_ask(client, 5, "ping", 0, "");
    client_answer(client, &heard);
    CHECK(heard.msgid == 5 && heard.error[0] == '\0');
}

bool client_is_closed(struct client *client)
{
    static struct heard heard;
    return client_hear(client, &heard) == -1;
}

void heard_text(struct pull *pull, char *out, size_t size)
{
    struct slice text;
    CHECK(pull_text(pull, &text) == 0);
    snprintf(out, size, "%.*s", (int)text.len, (const char *)text.data);
}

bool heard_find(struct pull *result, const char *name)
{
    uint32_t n;
    CHECK(pull_map(result, &n) == 0);
    for (; n > 0; n--) {
        struct slice key;
        CHECK(pull_text(result, &key) == 0);
        if (slice_is(key, name)) return true;
        CHECK(pull_skip(result) == 0);
    }
    return false;
}

struct heard_decision heard_decision(struct pull *result)
{
    struct heard_decision heard = {.granted = -1};
    CHECK(pull_map(result, &heard.n_fields) == 0);
    for (uint32_t i = 0; i < heard.n_fields; i++) {
        struct slice name;
        CHECK(pull_text(result, &name) == 0);
        int rc = 0;
        if (slice_is(name, "allowed"))
            rc = pull_bool(result, &heard.allowed);
        else if (slice_is(name, "limit"))
            rc = pull_int(result, &heard.limit);
        else if (slice_is(name, "remaining"))
            rc = pull_int(result, &heard.remaining);
        else if (slice_is(name, "retry_after_ms"))
            rc = pull_int(result, &heard.retry_after_ms);
        else if (slice_is(name, "reset_after_ms"))
            rc = pull_int(result, &heard.reset_after_ms);
        else if (slice_is(name, "granted"))
            rc = pull_int(result, &heard.granted);
        else if (slice_is(name, "source"))
            heard_text(result, heard.source, sizeof heard.source);
        else if (slice_is(name, "reason"))
            heard_text(result, heard.reason, sizeof heard.reason);
        else
            rc = pull_skip(result);
        CHECK(rc == 0);
    }
    return heard;
}
