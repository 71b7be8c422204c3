/*
 * epoll_checks.c: checks from an epoll loop, many in flight at once, with a daemon that may stop and start.
 *
 *     epoll_checks SOCKET POLICY CHECKS
 *
 * After half of them it prints "half" and waits for a line on standard input; after it has sent the next checks, it
 * prints "on". While the daemon is away, it makes no new calls for a short time. At the end it prints the number of
 * calls with each status, and exits 0 if each call ended exactly once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <ratelimit.h>

enum { UNDER_WAY = 64, DEADLINE_MS = 10000, PAUSE_MS = 20 };

struct loop {
    struct ratelimit_async *client;
    const char *policy;
    int epoll;
    int n_checks, n_made, n_ended;
    int n_of[RATELIMIT_CANCELLED + 1]; /* ends by status */
    int n_connections;
    char *ended; /* for each call: the number of ends */
    int paused;
};

static struct loop loop;

/* A new connection's descriptor is added, a changed one modified, an old one removed before it is closed. */
static void on_watch(void *arg, int fd, short events)
{
    static int watched = -1;
    struct epoll_event event = {.events = (unsigned short)events, .data.fd = fd};
    (void)arg;
    if (events == 0) {
        epoll_ctl(loop.epoll, EPOLL_CTL_DEL, fd, NULL);
        watched = -1;
        return;
    }
    if (watched < 0) loop.n_connections++;
    if (epoll_ctl(loop.epoll, watched < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0) abort();
    watched = fd;
}

static void on_answer(const struct ratelimit_answer *answer, void *arg)
{
    char *ended = arg;
    ++*ended;
    loop.n_ended++;
    loop.n_of[answer->status]++;
    if (answer->status == RATELIMIT_UNREACHABLE) loop.paused = 1;
}

static void make_calls(void)
{
    int half = loop.n_checks / 2;
    while (loop.n_made < loop.n_checks && ratelimit_async_pending(loop.client) < UNDER_WAY) {
        if (loop.n_made == half && ratelimit_async_pending(loop.client) > 0) return; /* let the first half end */
        if (loop.n_made == half) {
            printf("half\n");
            fflush(stdout);
            if (getchar() == EOF) exit(2);
        }
        char key[32];
        int len = snprintf(key, sizeof key, "user%d", loop.n_made % 100);
        if (ratelimit_async_check(loop.client, loop.policy, key, (size_t)len, 1, DEADLINE_MS, on_answer,
                                  &loop.ended[loop.n_made]) != RATELIMIT_OK) {
            abort();
        }
        loop.n_made++;
    }
    ratelimit_async_process(loop.client, 0); /* sends them in one write */
    static int announced;
    if (loop.n_made > half && !announced) {
        announced = 1;
        printf("on\n");
        fflush(stdout);
    }
}

static void tick(void)
{
    struct epoll_event event;
    int timeout_ms = ratelimit_async_next_timeout_ms(loop.client);
    if (loop.paused && (timeout_ms < 0 || timeout_ms > PAUSE_MS)) timeout_ms = PAUSE_MS;
    int n = epoll_wait(loop.epoll, &event, 1, timeout_ms);
    if (n == 0) loop.paused = 0;
    ratelimit_async_process(loop.client, n > 0 ? (short)event.events : 0);
    if (!loop.paused) make_calls();
}

int main(int argc, char **argv)
{
    int each_once = 1;
    if (argc != 4) return 2;
    loop.policy = argv[2];
    loop.n_checks = atoi(argv[3]);
    loop.ended = calloc((size_t)loop.n_checks, 1);
    loop.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (loop.ended == NULL || loop.epoll < 0 || ratelimit_async_new(argv[1], &loop.client) != RATELIMIT_OK) return 2;
    ratelimit_async_watch(loop.client, on_watch, NULL);

    make_calls();
    while (loop.n_ended < loop.n_checks) tick();
    ratelimit_async_free(loop.client);

    for (int i = 0; i < loop.n_checks; i++) each_once = each_once && loop.ended[i] == 1;
    for (int status = RATELIMIT_OK; status <= RATELIMIT_CANCELLED; status++) {
        printf("%d %s\n", loop.n_of[status], ratelimit_status_text((enum ratelimit_status)status));
    }
    printf("%d connections\n", loop.n_connections);
    free(loop.ended);
    return each_once ? 0 : 1;
}
