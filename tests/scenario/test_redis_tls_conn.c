/* test_redis_tls_conn.c: a connection with TLS in an event loop, and a server on a real socket that misbehaves. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <hiredis/adapters/libuv.h>
#include <openssl/err.h>

#include "base/assert.h"
#include "fakes/tls_peer.h"
#include "redis/conn.h"
#include "redis/dial.h"
#include "redis/tls_session.h"

enum { PATIENCE = 1000000, SMALL = 4096 };

static struct tls_identity ca, identity;
static uv_loop_t loop;
static struct clock now;
static struct redis_conn conn;
static struct redis_tls *tls;
static struct tls_peer peer;
static struct redis_call call;
static int listener;
static size_t n_replies, n_lost, n_gone;

static void on_reply(struct redis_call *of, const struct redis_reader *reply)
{
    assert_ptr_equal(of, &call);
    if (reply != NULL)
        n_replies++;
    else
        n_lost++;
}

static void on_gone(struct redis_conn *of)
{
    assert_ptr_equal(of, &conn);
    n_gone++;
}

static void send_ping(void)
{
    const struct slice args[] = {slice_of("PING")};
    call.on_reply = on_reply;
    assert_int_equal(redis_conn_send(&conn, &call, args, 1), 0);
}

static bool polls(int event)
{
    const redisLibuvEvents *events = conn.context->ev.data;
    return (events->events & event) != 0;
}

/* The server takes one PING and answers it, while the loop runs. */
static void serve_ping(void)
{
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    char bytes[64];
    size_t len = 0, before = n_replies;
    for (int i = 0; i < PATIENCE && n_replies == before; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        ERR_clear_error();
        int n = SSL_read(peer.ssl, bytes + len, (int)(sizeof bytes - len));
        if (n > 0) len += (size_t)n;
        if (n > 0 && len == sizeof ping - 1) assert_int_equal(SSL_write(peer.ssl, "+PONG\r\n", 7), 7);
        assert_int_equal(n_gone, 0);
    }
    assert_memory_equal(bytes, ping, sizeof ping - 1);
    assert_int_equal(n_replies, before + 1);
}

/* Connected, and the first call is answered. */
static int set_up(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    tls_identity_init(&ca, "ca", NULL, NULL, 30);
    tls_identity_init(&identity, "server", "IP:127.0.0.1", &ca, 30);
    const struct redis_tls_options options = {.ca = slice_of(ca.certificate_pem), .verify = REDIS_TLS_FULL};
    struct redis_tls_fault fault;
    tls = redis_tls_new(&options, &fault);
    assert_non_null(tls);

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int small = SMALL;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);

    n_replies = n_lost = n_gone = 0;
    assert_int_equal(uv_loop_init(&loop), 0);
    clock_update(&now);
    redis_conn_init(&conn, &now, on_gone);
    const struct redis_endpoint endpoint = {
        .host = "127.0.0.1", .port = ntohs(address.sin_port), .tls = tls, .name = "127.0.0.1"};
    assert_int_equal(redis_conn_open(&conn, &loop, &endpoint), 0);
    assert_int_equal(setsockopt(conn.context->c.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    send_ping();

    int fd = -1;
    for (int i = 0; i < PATIENCE && fd < 0; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }
    assert_true(fd >= 0);
    tls_peer_accept(&peer, &identity, TLS1_3_VERSION, fd);
    serve_ping();
    redis_conn_cork(&conn);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    redis_conn_drop(&conn);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_gone, 1);
    assert_int_equal(uv_loop_close(&loop), 0);
    redis_conn_fini(&conn);
    redis_tls_unref(tls);
    tls_peer_fini(&peer);
    close(listener);
    tls_identity_fini(&identity);
    tls_identity_fini(&ca);
    return 0;
}

static void a_corked_call_is_written_by_a_flush_alone(void **state)
{
    (void)state;
    send_ping();
    for (int i = 0; i < 10; i++) uv_run(&loop, UV_RUN_NOWAIT);
    assert_true(buffer_len(&conn.output) > 0);
    redis_conn_flush(&conn);
    assert_int_equal(buffer_len(&conn.output), 0);
    assert_false(polls(UV_WRITABLE));
    serve_ping();
}

/* Each new key must be answered. A server that reads no answer fills the socket, and its further bytes must not wake
 * the loop: it cannot take them before it has written. */
static void a_server_that_asks_for_keys_and_never_reads_does_not_spin_the_loop(void **state)
{
    (void)state;
    bool is_done = true;
    for (int i = 0; i < PATIENCE && !conn.tls->read_wants_write; i++) {
        ERR_clear_error();
        if (is_done) assert_int_equal(SSL_key_update(peer.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        is_done = SSL_do_handshake(peer.ssl) == 1;
        uv_run(&loop, UV_RUN_NOWAIT);
        assert_int_equal(n_gone, 0);
    }
    assert_true(conn.tls->read_wants_write);
    assert_false(polls(UV_READABLE));
    assert_true(polls(UV_WRITABLE));

    for (int i = 0; i < PATIENCE && (conn.tls->read_wants_write || !is_done); i++) {
        char bytes[SMALL];
        ERR_clear_error();
        assert_true(SSL_read(peer.ssl, bytes, sizeof bytes) <= 0);
        if (!is_done) is_done = SSL_do_handshake(peer.ssl) == 1;
        uv_run(&loop, UV_RUN_NOWAIT);
        assert_int_equal(n_gone, 0);
    }
    assert_true(polls(UV_READABLE));
    send_ping();
    redis_conn_flush(&conn);
    serve_ping();
}

static void a_server_that_closes_loses_the_calls_that_wait(void **state)
{
    (void)state;
    send_ping();
    redis_conn_flush(&conn);
    SSL_shutdown(peer.ssl);
    for (int i = 0; i < PATIENCE && n_gone == 0; i++) uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(n_lost, 1);
    assert_string_equal(conn.error, "Server closed the connection");
}

static void on_dialed(struct redis_dial *dial, const char *fault)
{
    assert_null(fault);
    assert_non_null(dial->conn->tls);
    redis_conn_drop(dial->conn);
}

static void on_other_gone(struct redis_conn *other)
{
    n_replies += other->context == NULL;
}

/* The connection would begin with the settings before, which are gone. */
static void a_reload_may_come_while_a_name_is_looked_up(void **state)
{
    (void)state;
    struct redis_conn other;
    struct redis_dial dial;
    redis_conn_init(&other, &now, on_other_gone);
    redis_dial_init(&dial, &loop, &other, &tls, on_dialed);
    assert_null(redis_address_parse("localhost:6379", &dial.address));
    redis_dial_start(&dial, 1000);

    const struct redis_tls_options options = {.ca = slice_of(ca.certificate_pem), .verify = REDIS_TLS_CA};
    struct redis_tls_fault fault;
    redis_tls_unref(tls);
    tls = redis_tls_new(&options, &fault);
    assert_non_null(tls);
    for (size_t before = n_replies; n_replies == before;) uv_run(&loop, UV_RUN_ONCE);
    redis_dial_fini(&dial);
    redis_conn_fini(&other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_corked_call_is_written_by_a_flush_alone),
        TEST(a_server_that_asks_for_keys_and_never_reads_does_not_spin_the_loop),
        TEST(a_server_that_closes_loses_the_calls_that_wait),
        TEST(a_reload_may_come_while_a_name_is_looked_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
