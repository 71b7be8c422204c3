/*
 * benchmark.c: the measurements of ./bench: benchmark SOCKET. Prints a line for each block of checks, the row and the
 * microseconds of one check.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <ratelimit.h>

enum { ROUNDS = 5, ROUND_MS = 200, BLOCK = 1000, IN_FLIGHT = 64, TIMEOUT_MS = 10000, FOR_LONG_MS = 3600000 };

static struct ratelimit *client;
static struct ratelimit_async *async;
static int bare = -1;
static int n_left, n_running;

static void require(bool is_true, const char *what)
{
    if (is_true) return;
    fprintf(stderr, "benchmark: %s: %s\n", what, ratelimit_error(client));
    exit(1);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void ask_bare(void)
{
    static const char request[] = "\x94\x00\x01\xa5"
                                  "check\x92\xa5"
                                  "bench\xa1k";
    char answer[1024];
    for (int i = 0; i < BLOCK; i++) {
        require(send(bare, request, sizeof request - 1, 0) == sizeof request - 1, "send");
        require(recv(bare, answer, sizeof answer, 0) > 0, "recv");
    }
}

static void ask(const char *policy, int64_t cost, bool allowed)
{
    struct ratelimit_decision decision;
    for (int i = 0; i < BLOCK; i++) {
        require(ratelimit_check(client, policy, "k", 1, cost, TIMEOUT_MS, &decision) == RATELIMIT_OK, "check");
        require(decision.allowed == allowed, "another decision");
    }
}

static void ask_blocking(void)
{
    ask("bench", 1, true);
}

static void ask_remembered(void)
{
    ask("full", 2, false);
}

static void begin(bool remembered);

static void on_answer(const struct ratelimit_answer *answer, void *arg)
{
    const bool *remembered = arg;
    require(answer->status == RATELIMIT_OK && answer->decision->allowed == !*remembered, "another answer");
    n_running--;
    if (n_left > 0) begin(*remembered);
}

static void begin(bool remembered)
{
    static bool kinds[] = {false, true};
    require(ratelimit_async_check(async, remembered ? "full" : "bench", "k", 1, remembered ? 2 : 1, TIMEOUT_MS,
                                  on_answer, &kinds[remembered]) == RATELIMIT_OK,
            "check");
    n_left--;
    n_running++;
}

static void ask_async(bool remembered, int n_at_once)
{
    n_left = BLOCK;
    for (int i = 0; i < n_at_once; i++) begin(remembered);
    ratelimit_async_process(async, 0);
    while (n_running > 0) {
        int timeout_ms = ratelimit_async_next_timeout_ms(async);
        struct pollfd waits = {ratelimit_async_fd(async), ratelimit_async_events(async), 0};
        int n = timeout_ms != 0 ? poll(&waits, 1, timeout_ms) : 0;
        ratelimit_async_process(async, n > 0 ? waits.revents : 0);
    }
}

static void ask_in_flight(void)
{
    ask_async(false, IN_FLIGHT);
}

static void ask_async_remembered(void)
{
    ask_async(true, 1);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*ask)(void);
    } rows[] = {
        {"bare socket", ask_bare},
        {"blocking client", ask_blocking},
        {"blocking client, a remembered denial", ask_remembered},
        {"asynchronous client, 64 in flight", ask_in_flight},
        {"asynchronous client, a remembered denial", ask_async_remembered},
    };
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    require(argc == 2 && strlen(argv[1]) < sizeof address.sun_path, "usage: benchmark SOCKET");
    strcpy(address.sun_path, argv[1]);
    bare = socket(AF_UNIX, SOCK_STREAM, 0);
    require(connect(bare, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    require(ratelimit_open(argv[1], &client) == RATELIMIT_OK, "open");
    require(ratelimit_async_new(argv[1], &async) == RATELIMIT_OK, "open");
    require(ratelimit_remember_denials(client, FOR_LONG_MS) == RATELIMIT_OK, "remember");
    require(ratelimit_async_remember_denials(async, FOR_LONG_MS) == RATELIMIT_OK, "remember");

    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            rows[i].ask(); /* warm up */
            double until_us = now_us() + ROUND_MS * 1e3;
            for (double begun_us; (begun_us = now_us()) < until_us;) {
                rows[i].ask();
                printf("%s\t%.4f\n", rows[i].name, (now_us() - begun_us) / BLOCK);
            }
        }
    }
    ratelimit_async_free(async);
    ratelimit_close(client);
    close(bare);
    return 0;
}
