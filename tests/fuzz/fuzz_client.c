/*
 * fuzz_client.c: whatever answers on the socket, whole or in pieces, each call of the asynchronous client ends exactly
 * once, and what came is kept only as far as a message goes.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "client/exchange.h"
#include "proto/pull.h"

enum { N_CALLS = 12, PIECES = 5 };

static char directory[] = "/tmp/rl.fuzz.XXXXXX";
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int listener = -1;

static void remove_socket(void)
{
    unlink(address.sun_path);
    rmdir(directory);
}

static void listen_once(void)
{
    if (listener >= 0) return;
    CHECK(mkdtemp(directory) != NULL);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/rl.sock", directory);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 8) == 0);
    atexit(remove_socket);
}

/* Every byte of what an answer shows must be readable. */
static void on_end(const struct ratelimit_answer *answer, void *arg)
{
    int *n_ends = arg;
    ++*n_ends;
    CHECK((answer->status == RATELIMIT_OK) == (answer->result != NULL));
    CHECK(answer->status == RATELIMIT_OK || answer->message[0] != '\0');
    CHECK(answer->decision == NULL || (strlen(answer->decision->bound_by) < RATELIMIT_BOUND_BY_SIZE &&
                                       strlen(answer->decision->of) < RATELIMIT_BOUND_BY_SIZE));
    for (size_t i = 0; i < answer->n_members; i++)
        CHECK(strlen(answer->members[i].bound_by) < RATELIMIT_BOUND_BY_SIZE &&
              strlen(answer->members[i].of) < RATELIMIT_BOUND_BY_SIZE);
    CHECK(answer->id == NULL || strlen(answer->id) > 0);
    if (answer->result == NULL) return;
    struct pull pull = pull_of(answer->result, answer->result_len);
    CHECK(pull_skip(&pull) == 0 && pull.at == pull.end);
}

static void make_calls(struct ratelimit_async *client, int *n_ends)
{
    const struct ratelimit_item items[] = {{"login", "alice", 5, 1}, {"{name: x, limit: 5}", "bob", 3, 2}};
    static const char *const policies[] = {"login", "web"};
    for (int i = 0; i < N_CALLS; i++) {
        int *n = &n_ends[i];
        enum ratelimit_status status =
            i % 6 == 0   ? ratelimit_async_check(client, "login", "alice", 5, i, 1000, on_end, n)
            : i % 6 == 1 ? ratelimit_async_peek(client, "login", "alice", 5, i, 1000, on_end, n)
            : i == 2     ? ratelimit_async_call(client, "policies", NULL, 0, 1000, on_end, n)
            : i % 6 == 2 ? ratelimit_async_verify(client, policies, 2, 1000, on_end, n)
            : i % 6 == 3 ? ratelimit_async_check_all(client, items, 2, NULL, 1000, on_end, n)
            : i % 6 == 4 ? ratelimit_async_acquire(client, "jobs", "alice", 5, 1000, on_end, n)
                         : ratelimit_async_release(client, "slot", 1000, on_end, n);
        CHECK(status == RATELIMIT_OK);
    }
}

/* The daemon's side: the input's length also says in what pieces it comes. */
static void answer_with(struct ratelimit_async *client, const uint8_t *data, size_t size)
{
    int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    CHECK(peer >= 0);
    size_t piece = size % PIECES == 0 ? size : size % PIECES;
    for (size_t at = 0; at < size && ratelimit_async_fd(client) >= 0; at += piece) {
        if (send(peer, data + at, piece < size - at ? piece : size - at, MSG_NOSIGNAL) <= 0) break;
        ratelimit_async_process(client, POLLIN);
    }
    close(peer);
    ratelimit_async_process(client, POLLIN);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ratelimit_async *client;
    int n_ends[N_CALLS] = {0};
    listen_once();
    CHECK(ratelimit_async_new(address.sun_path, &client) == RATELIMIT_OK);
    CHECK(ratelimit_async_remember_denials(client, 1000) == RATELIMIT_OK);
    client->clock.frozen = true;
    make_calls(client, n_ends);
    ratelimit_async_process(client, 0);
    answer_with(client, data, size);
    ratelimit_async_free(client);
    for (int i = 0; i < N_CALLS; i++) CHECK(n_ends[i] == 1);
    return 0;
}
