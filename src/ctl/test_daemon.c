/* test_daemon.c: starts the private daemon, asks it and ends it, for test_run.c. */
#include "ctl/test_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"

enum { LISTEN_FD = 3, PATH_SIZE = sizeof((struct sockaddr_un){0}.sun_path), EXIT_OF_CONFIG = 3, EXIT_NOT_FOUND = 127 };

#define PROGRAM "ratelimitd"

/* ---- The process ---- */

/* The one next to this program, or else one that the shell would find. */
static void find_program(char *ret, size_t size)
{
    ssize_t len = readlink("/proc/self/exe", ret, size - 1);
    ret[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(ret, '/');
    size_t at = slash != NULL ? (size_t)(slash - ret) + 1 : 0;
    if (at + sizeof PROGRAM <= size) strcpy(ret + at, PROGRAM);
    if (slash == NULL || access(ret, X_OK) != 0) snprintf(ret, size, PROGRAM);
}

/* In the child. */
static void run_program(const char *config, int listen_fd, pid_t parent)
{
    char program[4096], pid[32];
    find_program(program, sizeof program);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(EXIT_NOT_FOUND);

    if (listen_fd == LISTEN_FD)
        fcntl(listen_fd, F_SETFD, 0);
    else
        dup2(listen_fd, LISTEN_FD);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_PID", pid, 1);
    unsetenv("LISTEN_FDNAMES");
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    execlp(program, PROGRAM, "--test-limits", "-c", config, (char *)NULL);
    _exit(EXIT_NOT_FOUND);
}

/* A listening socket at a path of its own. -1 with the reason in daemon->words. */
static int listen_at(struct test_daemon *daemon, char folder[PATH_SIZE], struct sockaddr_un *ret)
{
    const char *place = getenv("TMPDIR");
    const size_t longest = PATH_SIZE - sizeof "/ratelimitctl.XXXXXX/s";
    if (place == NULL || place[0] != '/' || strlen(place) > longest) place = "/tmp";
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(folder, PATH_SIZE, "%.*s/ratelimitctl.XXXXXX", (int)longest, place);
    if (mkdtemp(folder) == NULL) {
        snprintf(daemon->words, sizeof daemon->words, "cannot make a folder in %s: %s; set TMPDIR", place,
                 strerror(errno));
        return -1;
    }

    snprintf(ret->sun_path, sizeof ret->sun_path, "%.*s/s", (int)(PATH_SIZE - sizeof "/s"), folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)ret, sizeof *ret) == 0 && listen(fd, 1) == 0) return fd;
    snprintf(daemon->words, sizeof daemon->words, "cannot listen on %s: %s", ret->sun_path, strerror(errno));
    if (fd >= 0) close(fd);
    rmdir(folder);
    return -1;
}

/* Waits for its end; how it came is in daemon->words. */
static int reap(struct test_daemon *daemon)
{
    int status = 0;
    while (waitpid(daemon->pid, &status, 0) < 0 && errno == EINTR) continue;
    daemon->pid = 0;
    if (WIFSIGNALED(status))
        snprintf(daemon->words, sizeof daemon->words, "was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == EXIT_NOT_FOUND)
        snprintf(daemon->words, sizeof daemon->words,
                 "is neither next to ratelimitctl nor on the PATH; install the package ratelimitd");
    else
        snprintf(daemon->words, sizeof daemon->words, "ended with status %d", WEXITSTATUS(status));
    return status;
}

/* Is a call that ends so a sign that the daemon has ended? Else it may hang. */
static bool shows_end(enum ratelimit_status status)
{
    return status == RATELIMIT_LOST || status == RATELIMIT_UNREACHABLE;
}

static void on_ready(const struct ratelimit_answer *answer, void *arg)
{
    *(enum ratelimit_status *)arg = answer->status;
}

enum test_started test_daemon_start(struct test_daemon *daemon, const char *config)
{
    char folder[PATH_SIZE];
    struct sockaddr_un address;
    CHECK(daemon->pid == 0 && daemon->client == NULL);
    int listen_fd = listen_at(daemon, folder, &address);
    if (listen_fd < 0) return TEST_NOT_STARTED;

    pid_t self = getpid();
    daemon->pid = fork();
    if (daemon->pid == 0) run_program(config, listen_fd, self);
    close(listen_fd);
    enum ratelimit_status status_of_ping = RATELIMIT_NO_MEMORY;
    if (daemon->pid < 0) {
        snprintf(daemon->words, sizeof daemon->words, "cannot be started: %s", strerror(errno));
        daemon->pid = 0;
    } else if (ratelimit_async_new(address.sun_path, &daemon->client) == RATELIMIT_OK) {
        daemon->client->maps = true;
        test_daemon_call(daemon, "ping", NULL, on_ready, &status_of_ping);
        test_daemon_wait(daemon, 0);
    }
    unlink(address.sun_path);
    rmdir(folder);
    if (status_of_ping == RATELIMIT_OK) return TEST_STARTED;

    ratelimit_async_free(daemon->client);
    daemon->client = NULL;
    if (daemon->pid == 0) return TEST_NOT_STARTED;
    if (!shows_end(status_of_ping)) kill(daemon->pid, SIGKILL);
    int status = reap(daemon);
    return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_OF_CONFIG ? TEST_WRONG_CONFIG : TEST_NOT_STARTED;
}

void test_daemon_end(struct test_daemon *daemon, enum ratelimit_status status)
{
    CHECK(daemon->pid > 0);
    if (!shows_end(status)) kill(daemon->pid, SIGKILL);
    ratelimit_async_free(daemon->client);
    daemon->client = NULL;
    reap(daemon);
    if (!shows_end(status))
        snprintf(daemon->words, sizeof daemon->words, "gave no answer (%s) and was killed",
                 ratelimit_status_text(status));
}

bool test_daemon_stop(struct test_daemon *daemon)
{
    if (daemon->pid == 0) return true;
    ratelimit_async_free(daemon->client);
    daemon->client = NULL;
    kill(daemon->pid, SIGTERM);
    int status = reap(daemon);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- Calls ---- */

enum ratelimit_status test_daemon_call(struct test_daemon *daemon, const char *method, const struct buffer *params,
                                       ratelimit_answer_fn *callback, void *arg)
{
    const void *bytes = params != NULL ? buffer_data(params) : NULL;
    CHECK(daemon->client != NULL);
    return ratelimit_async_call(daemon->client, method, bytes, params != NULL ? buffer_len(params) : 0,
                                daemon->timeout_ms, callback, arg);
}

void test_daemon_wait(struct test_daemon *daemon, size_t n)
{
    struct ratelimit_async *client = daemon->client;
    short revents = 0;
    for (;;) {
        ratelimit_async_process(client, revents);
        if (ratelimit_async_pending(client) <= n) return;
        struct pollfd waits = {ratelimit_async_fd(client), ratelimit_async_events(client), 0};
        int n_ready = poll(&waits, 1, ratelimit_async_next_timeout_ms(client));
        revents = n_ready > 0 ? waits.revents : 0;
    }
}
