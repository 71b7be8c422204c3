/*
 * fuzz_http.c: whatever bytes a peer sends to the listener for HTTP, in one piece or in two, before it ends its side:
 * it is answered or not, the daemon ends the connection, and nothing of it is left. The first byte says how long the
 * first piece is.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "admin/admin.h"
#include "admin/admin_counters.h"
#include "base/assert.h"

enum { TICKS_MOST = 100000, ANSWER_MAX = 64 * 1024 };

static struct fuzzed {
    uv_loop_t loop;
    struct clock clock;
    struct policy_set *policies;
    struct admin *admin; /* NULL: not started yet */
    struct sockaddr_un address;
    socklen_t address_len;
} fuzzed;

static void look(void *arg, struct admin_view *ret_view)
{
    (void)arg;
    *ret_view = (struct admin_view){.phase = ADMIN_READY,
                                    .store = "redis",
                                    .store_status = "down: \"refused\"",
                                    .n_named = 1,
                                    .policies = fuzzed.policies};
}

/* On an abstract Unix socket that the kernel names, with the checks of one that browsers can reach. */
static void start(void)
{
    const struct admin_options options = {.max_connections = 4,
                                          .timeout_ms = 60000,
                                          .allow_hosts = "metrics.example\n",
                                          .hiredis_version = "1.2",
                                          .look = look};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    fuzzed.address.sun_family = AF_UNIX;
    CHECK(bind(fd, (struct sockaddr *)&fuzzed.address, sizeof fuzzed.address.sun_family) == 0 && listen(fd, 8) == 0);
    fuzzed.address_len = sizeof fuzzed.address;
    CHECK(getsockname(fd, (struct sockaddr *)&fuzzed.address, &fuzzed.address_len) == 0);

    CHECK(uv_loop_init(&fuzzed.loop) == 0);
    fuzzed.policies = policy_set_new(1);
    fuzzed.admin = admin_new(&fuzzed.loop, &fuzzed.clock, &options);
    CHECK(fuzzed.policies != NULL && fuzzed.admin != NULL);
    CHECK(admin_listen(fuzzed.admin, fd) == 0);
}

/* Runs the loop until all is sent; what the daemon does not read any more is dropped. */
static void send_piece(int fd, const uint8_t *data, size_t size)
{
    for (int i = 0; size > 0; i++) {
        CHECK(i < TICKS_MOST);
        ssize_t n = send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return;
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        }
        uv_run(&fuzzed.loop, UV_RUN_NOWAIT);
    }
}

/* Until the daemon ends the connection, also after half a request: the peer has ended its side. */
static size_t read_answer(int fd, char answer[ANSWER_MAX])
{
    size_t len = 0;
    for (int i = 0;; i++) {
        CHECK(i < TICKS_MOST && len < ANSWER_MAX);
        uv_run(&fuzzed.loop, UV_RUN_NOWAIT);
        ssize_t n = recv(fd, answer + len, ANSWER_MAX - len, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) return len;
        if (n > 0) len += (size_t)n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char answer[ANSWER_MAX];
    if (fuzzed.admin == NULL) start();
    if (size == 0) return 0;
    size_t first = data[0] < size ? data[0] : size - 1;

    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&fuzzed.address, fuzzed.address_len) == 0);
    send_piece(fd, data + 1, first);
    send_piece(fd, data + 1 + first, size - 1 - first);
    shutdown(fd, SHUT_WR);
    size_t len = read_answer(fd, answer);
    CHECK(len == 0 || (len > 12 && memcmp(answer, "HTTP/1.", 7) == 0));
    close(fd);
    for (int i = 0; admin_counters.admin_connections > 0; i++) {
        CHECK(i < TICKS_MOST);
        uv_run(&fuzzed.loop, UV_RUN_NOWAIT);
    }
    return 0;
}
