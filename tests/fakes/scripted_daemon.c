#include "fakes/scripted_daemon.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { READ_SIZE = 64 * 1024, LONGEST_REQUEST = 16 * 1024 * 1024 };

const char *const daemon_fields[DAEMON_N_FIELDS] = {
    "allowed", "limit",    "remaining", "retry_after_ms", "reset_after_ms", "delay_ms",
    "granted", "bound_by", "source",    "reason",         "policy_version",
};

void daemon_start(struct scripted_daemon *daemon, int backlog)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *daemon = (struct scripted_daemon){.directory = "/tmp/rl.XXXXXX", .fd = -1};
    assert_non_null(mkdtemp(daemon->directory));
    snprintf(daemon->path, sizeof daemon->path, "%s/rl.sock", daemon->directory);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", daemon->path);
    daemon->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(daemon->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(daemon->listener, backlog), 0);
    buffer_init(&daemon->in, 0);
    scanner_init(&daemon->scanner, LONGEST_REQUEST, SCAN_DEPTH_MAX);
}

void daemon_stop(struct scripted_daemon *daemon)
{
    daemon_hang_up(daemon);
    close(daemon->listener);
    unlink(daemon->path);
    rmdir(daemon->directory);
    buffer_fini(&daemon->in);
}

void daemon_accept(struct scripted_daemon *daemon)
{
    assert_int_equal(daemon->fd, -1);
    daemon->fd = accept4(daemon->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(daemon->fd >= 0);
}

void daemon_hang_up(struct scripted_daemon *daemon)
{
    if (daemon->fd >= 0) close(daemon->fd);
    daemon->fd = -1;
    daemon->consume = 0;
    buffer_fini(&daemon->in);
    scanner_init(&daemon->scanner, LONGEST_REQUEST, SCAN_DEPTH_MAX);
}

static void read_all(struct scripted_daemon *daemon)
{
    for (;;) {
        ssize_t len = recv(daemon->fd, buffer_reserve(&daemon->in, READ_SIZE), READ_SIZE, 0);
        if (len <= 0) return;
        buffer_grew(&daemon->in, (size_t)len);
    }
}

bool daemon_read(struct scripted_daemon *daemon, struct rpc_request *ret)
{
    buffer_consume(&daemon->in, daemon->consume);
    daemon->consume = 0;
    read_all(daemon);
    if (buffer_len(&daemon->in) == 0) return false;
    int64_t len = scanner_next(&daemon->scanner, buffer_data(&daemon->in), buffer_len(&daemon->in));
    assert_true(len >= 0);
    if (len == 0) return false;
    assert_int_equal(rpc_parse_request(buffer_data(&daemon->in), (size_t)len, ret), RPC_OK);
    daemon->consume = (size_t)len;
    return true;
}

uint64_t daemon_expect(struct scripted_daemon *daemon, const char *method)
{
    struct rpc_request request;
    assert_true(daemon_read(daemon, &request));
    assert_true(slice_is(request.method, method));
    return request.msgid;
}

void daemon_send(struct scripted_daemon *daemon, const void *bytes, size_t len)
{
    for (size_t sent = 0; sent < len;) {
        ssize_t part = send(daemon->fd, (const char *)bytes + sent, len - sent, MSG_NOSIGNAL);
        if (part < 0 && (errno == EPIPE || errno == ECONNRESET)) return; /* the client closed: it may */
        assert_true(part > 0);
        sent += (size_t)part;
    }
}

static void flush(struct scripted_daemon *daemon, struct buffer *out)
{
    daemon_send(daemon, buffer_data(out), buffer_len(out));
    buffer_fini(out);
}

void daemon_answer_hello(struct scripted_daemon *daemon, uint64_t msgid)
{
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, msgid);
    pack_map(&packer, 3U + daemon->lists_features);
    if (daemon->lists_features) {
        pack_text(&packer, "features");
        pack_array(&packer, 3);
        pack_text(&packer, "name");
        pack_text(&packer, "novelty");
        pack_text(&packer, "abandon");
    }
    pack_text(&packer, "version");
    pack_text(&packer, "9.9");
    pack_text(&packer, "max_frame");
    pack_int(&packer, 65536);
    pack_text(&packer, "fields");
    pack_array(&packer, DAEMON_N_FIELDS);
    for (int i = 0; i < DAEMON_N_FIELDS; i++) pack_text(&packer, daemon_fields[i]);
    flush(daemon, &out);
}

void daemon_pack_decision(struct packer *packer, bool allowed, int64_t remaining)
{
    pack_array(packer, DAEMON_N_FIELDS);
    pack_bool(packer, allowed);
    pack_int(packer, 5);
    pack_int(packer, remaining);
    pack_int(packer, allowed ? 0 : 8200);
    pack_int(packer, 10000);
    pack_int(packer, 0);
    pack_int(packer, allowed ? 1 : 0);
    pack_nil(packer);
    pack_text(packer, "memory");
    pack_nil(packer);
    pack_int(packer, 77);
}

void daemon_answer_allowed(struct scripted_daemon *daemon, uint64_t msgid, int64_t remaining)
{
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, msgid);
    daemon_pack_decision(&packer, true, remaining);
    flush(daemon, &out);
}

void daemon_answer_error(struct scripted_daemon *daemon, uint64_t msgid, enum error_code code, const char *message)
{
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_error(&packer, msgid, code, message);
    flush(daemon, &out);
}

void daemon_answer_text(struct scripted_daemon *daemon, uint64_t msgid, const char *text)
{
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, msgid);
    pack_text(&packer, text);
    flush(daemon, &out);
}

void daemon_greet(struct scripted_daemon *daemon)
{
    daemon_accept(daemon);
    daemon_answer_hello(daemon, daemon_expect(daemon, "hello"));
}
