/* hold.c: acquires a slot, runs the command or waits, and releases it, for ratelimitctl.c. */
#include "ctl/hold.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "client/exchange.h"
#include "client/wait.h"
#include "ctl/json.h"

enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127, INPUT_SIZE = 4096, FOREVER = -1 };

struct holder {
    const struct options *options;
    struct ratelimit_async *client; /* owned */
    char *slot;                     /* owned; NULL until it is ours, and once it is lost */
    char **command;                 /* NULL: none */
    pid_t child;                    /* 0: none, or ended */
    int status;                     /* of the child, as waitpid() reports it */
    bool answered;
    struct wait wait;   /* with --wait */
    int64_t pause_ms;   /* before the slot is asked for again, or the command may start */
    int code;           /* the exit status, unless the command has one */
    sigset_t unblocked; /* while waiting */
};

/* What has come, for the loop to see: a signal interrupts ppoll() and nothing else, since it is blocked elsewhere. */
static volatile sig_atomic_t got_signal;

static void on_signal(int number)
{
    if (number != SIGCHLD) got_signal = number;
}

static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
enum { N_CAUGHT = N_OF(caught) };

/* One tick: whatever comes first of the daemon, a signal, the child's end, the end of `most_ms` and, if `input` says
 * so, standard input. False: that has ended. */
static bool tick(struct holder *holder, bool input, int64_t most_ms)
{
    char dropped[INPUT_SIZE];
    struct pollfd waits[2] = {
        {.fd = ratelimit_async_fd(holder->client), .events = ratelimit_async_events(holder->client)},
        {.fd = input ? STDIN_FILENO : -1, .events = POLLIN}};
    int timeout_ms = ratelimit_async_next_timeout_ms(holder->client);
    if (most_ms >= 0 && (timeout_ms < 0 || timeout_ms > most_ms))
        timeout_ms = (int)(most_ms < INT_MAX ? most_ms : INT_MAX);
    struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
    int n = ppoll(waits, 2, timeout_ms < 0 ? NULL : &timeout, &holder->unblocked);
    ratelimit_async_process(holder->client, n > 0 ? waits[0].revents : 0);

    if (holder->slot != NULL && ratelimit_async_fd(holder->client) < 0) { /* without a connection there is no slot */
        fprintf(stderr, "ratelimitctl: the connection to the daemon ended, so the slot is lost%s\n",
                holder->child > 0 ? "; the command continues without it" : "");
        mem_free(holder->slot);
        holder->slot = NULL;
        holder->code = EXIT_UNREACHABLE;
    }
    if (holder->child > 0 && waitpid(holder->child, &holder->status, WNOHANG) == holder->child) holder->child = 0;
    return n <= 0 || waits[1].revents == 0 || read(STDIN_FILENO, dropped, sizeof dropped) > 0;
}

/* ---- The slot ---- */

static void on_acquired(const struct ratelimit_answer *answer, void *arg)
{
    struct holder *holder = arg;
    const struct ratelimit_decision *decision = answer->decision;
    const struct options *options = holder->options;
    holder->answered = true;
    if (answer->status != RATELIMIT_OK) {
        holder->code = (int)complain(&holder->client->connection, answer->status, answer->code, answer->message);
        return;
    }

    bool waits = (options->given & OPTION_WAIT) != 0, has_command = holder->command != NULL;
    int denied = options->given & OPTION_TAKEN_EXIT ? options->taken_exit : EXIT_DENIED;
    holder->code = decision->allowed ? EXIT_DONE : denied;
    if (waits && decision->allowed) holder->pause_ms = decision->delay_ms;
    if (waits && !decision->allowed)
        holder->pause_ms = wait_next_ms(&holder->wait, decision->retry_after_ms, wait_now_ms());

    bool is_final = decision->allowed ? !has_command : holder->pause_ms == WAIT_OVER;
    if (is_final) {
        struct pull result = pull_of(answer->result, answer->result_len);
        FILE *out = has_command ? stderr : stdout; /* standard output is the command's */
        if (options->json) {
            json_value(out, &result);
            fputc('\n', out);
        } else {
            report_slot(out, result, &(struct asked){.waited = waits});
        }
        fflush(out);
    }

    if (answer->id == NULL) return;
    holder->slot = mem_strdup(answer->id);
    if (holder->slot == NULL) holder->code = (int)usage_error("no memory", "");
}

static void on_released(const struct ratelimit_answer *answer, void *arg)
{
    struct holder *holder = arg;
    (void)answer; /* if it was not released, closing the connection does it */
    holder->answered = true;
}

/* ---- What holds it ---- */

static void start_command(struct holder *holder)
{
    pid_t self = getpid();
    holder->child = fork();
    if (holder->child > 0) return;
    if (holder->child < 0) {
        fprintf(stderr, "ratelimitctl: cannot start %s: %s\n", holder->command[0], strerror(errno));
        holder->code = EXIT_NOT_EXECUTABLE;
        holder->child = 0;
        return;
    }

    for (int i = 0; i < N_CAUGHT; i++) signal(caught[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &holder->unblocked, NULL);

    /* It ends if ratelimitctl is killed, since the slot is free then. SIGTERM, because a command with processes of its
     * own can end them and clean up; SIGKILL would leave them behind for certain. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != self) _exit(EXIT_SIGNALLED + SIGTERM); /* it was killed before */

    execvp(holder->command[0], holder->command);
    int error = errno;
    fprintf(stderr, "ratelimitctl: %s: %s\n", holder->command[0], strerror(error));
    _exit(error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

/* The exit status. */
static int hold(struct holder *holder, const char *policy, const char *key)
{
    /* Until there is a slot, an error, a denial to be taken, or a signal. */
    do {
        holder->answered = false;
        holder->pause_ms = WAIT_OVER;
        enum ratelimit_status status = ratelimit_async_acquire(
            holder->client, policy, key, strlen(key), (uint32_t)holder->options->timeout_ms, on_acquired, holder);
        if (status != RATELIMIT_OK) {
            holder->answered = true;
            holder->code = (int)complain(&holder->client->connection, status, "", ratelimit_status_text(status));
        }
        while (!holder->answered && got_signal == 0) tick(holder, false, FOREVER);

        int64_t left_ms = holder->pause_ms, until_ms = wait_now_ms() + left_ms;
        for (; left_ms > 0 && got_signal == 0; left_ms = until_ms - wait_now_ms()) tick(holder, false, left_ms);
    } while (got_signal == 0 && holder->slot == NULL && holder->pause_ms != WAIT_OVER);

    if (got_signal != 0) return EXIT_SIGNALLED + got_signal;
    if (holder->slot == NULL) return holder->code;

    if (holder->command != NULL) start_command(holder);
    bool started = holder->child > 0;
    while (holder->child > 0) {
        tick(holder, false, FOREVER);
        /* A signal from a terminal has reached the command too; what was sent to us alone is passed on. */
        if (holder->child > 0 && got_signal != 0 && got_signal != SIGINT) kill(holder->child, got_signal);
        if (holder->child > 0) got_signal = 0;
    }
    bool goes_on = holder->command == NULL;
    while (goes_on && got_signal == 0 && holder->slot != NULL) goes_on = tick(holder, true, FOREVER);

    if (holder->slot != NULL) {
        enum ratelimit_status status = ratelimit_async_release(
            holder->client, holder->slot, (uint32_t)holder->options->timeout_ms, on_released, holder);
        holder->answered = status != RATELIMIT_OK;
    }
    while (holder->slot != NULL && !holder->answered) tick(holder, false, FOREVER);

    if (!started) return holder->code;
    return WIFSIGNALED(holder->status) ? EXIT_SIGNALLED + WTERMSIG(holder->status) : WEXITSTATUS(holder->status);
}

int hold_run(const struct options *options, int n, char **arguments)
{
    struct holder holder = {.options = options, .command = n > 3 ? arguments + 3 : NULL};
    enum ratelimit_status status = ratelimit_async_new(options->socket, &holder.client);
    if (status != RATELIMIT_OK) return (int)complain_open(status);
    holder.client->maps = true;
    ratelimit_async_describe(holder.client);
    wait_start(&holder.wait, WAIT_FOR_SLOT, options->wait_ms, wait_now_ms(), wait_seed());

    struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked;
    sigemptyset(&blocked);
    for (int i = 0; i < N_CAUGHT; i++) {
        sigaddset(&blocked, caught[i]);
        sigaction(caught[i], &action, NULL);
    }
    sigprocmask(SIG_BLOCK, &blocked, &holder.unblocked);

    int code = hold(&holder, arguments[0], arguments[1]);
    ratelimit_async_free(holder.client);
    mem_free(holder.slot);
    return code;
}
