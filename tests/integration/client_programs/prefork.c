/*
 * prefork.c: a server's parent makes a check before it forks. Then it and its children make checks at the same time,
 * each on its own connection.
 *
 *     prefork SOCKET POLICY CHILDREN CHECKS
 *
 * Every process makes CHECKS checks of the same key. It exits with 1 if it gets no answer, or the answer to another
 * call. The parent prints the total number of allowed checks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ratelimit.h>

enum { DEADLINE_MS = 10000 };

static struct ratelimit *client;

/* The number of allowed checks; -1 after an error. */
static int ask(const char *policy, int n_checks)
{
    int n_allowed = 0;
    for (int i = 0; i < n_checks; i++) {
        struct ratelimit_decision decision;
        int64_t cost = 1 + i % 3;
        if (ratelimit_check(client, policy, "all", 3, cost, DEADLINE_MS, &decision) != RATELIMIT_OK) {
            fprintf(stderr, "%d: %s\n", (int)getpid(), ratelimit_error(client));
            return -1;
        }
        if (decision.granted != (decision.allowed ? cost : 0)) return -1;
        n_allowed += (int)decision.granted;
    }
    return n_allowed;
}

int main(int argc, char **argv)
{
    int results[2];
    if (argc != 5 || ratelimit_open(argv[1], &client) != RATELIMIT_OK || pipe(results) != 0) return 2;
    int n_children = atoi(argv[3]), n_checks = atoi(argv[4]);
    int n_allowed = ask(argv[2], n_checks);
    for (int i = 0; i < n_children; i++) {
        if (fork() != 0) continue;
        int result = ask(argv[2], n_checks);
        int written = write(results[1], &result, sizeof result) == sizeof result;
        ratelimit_close(client);
        _exit(written && result >= 0 ? 0 : 1);
    }
    int more = ask(argv[2], n_checks);
    if (n_allowed < 0 || more < 0) return 1;
    n_allowed += more;
    for (int i = 0; i < n_children; i++) {
        int status, result;
        if (wait(&status) < 0 || status != 0 || read(results[0], &result, sizeof result) != sizeof result) return 1;
        n_allowed += result;
    }
    printf("%d\n", n_allowed);
    ratelimit_close(client);
    return 0;
}
