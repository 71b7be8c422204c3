#include "ctl/hold.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "client/async.h"
#include "client/wait.h"
#include "ctl/json.h"

enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127, INPUT_SIZE = 4096, FOREVER = -1 };

struct holder {
    const struct options *options;
    struct ratelimit_async *client; /* owned */
    char *slot;                     /* owned; NULL until it is ours, and once it is lost */
    char **command;                 /* NULL: none */
    pid_t child;                    /* 0: none, or ended */
    int status;                     /* of the child, as waitpid() tells it */
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

static void catch_signals(struct holder *holder)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        sigaddset(&blocked, numbers[i]);
        sigaction(numbers[i], &action, NULL);
    }
    sigprocmask(SIG_BLOCK, &blocked, &holder->unblocked);
}

/* ---- The slot ---- */

static void say(const struct holder *holder, const struct ratelimit_answer *answer)
{
    struct pull result = pull_of(answer->result, answer->result_len);
    if (holder->command != NULL && answer->decision->allowed) return;
    FILE *out = holder->command != NULL ? stderr : stdout; /* standard output is the command's */
    if (holder->options->json) {
        json_value(out, &result);
        fputc('\n', out);
    } else {
        report_slot(out, result, &(struct asked){.waited = (holder->options->given & OPTION_WAIT) != 0});
    }
    fflush(out);
}

static void on_acquired(const struct ratelimit_answer *answer, void *arg)
{
    struct holder *holder = arg;
    holder->answered = true;
    if (answer->status != RATELIMIT_OK) {
        holder->code = (int)complain(answer->status, answer->code, answer->message, holder->options->json);
        return;
    }
    const struct ratelimit_decision *decision = answer->decision;
    holder->code = decision->allowed ? EXIT_DONE : EXIT_DENIED;
    if (holder->options->given & OPTION_WAIT) {
        holder->pause_ms = decision->allowed ? decision->delay_ms
                                             : wait_next_ms(&holder->wait, decision->retry_after_ms, wait_now_ms());
    }
    if (decision->allowed || holder->pause_ms == WAIT_OVER) say(holder, answer);
    if (answer->id == NULL) return;
    holder->slot = mem_strdup(answer->id);
    if (holder->slot == NULL) holder->code = (int)usage_error("no memory", "");
}

static void on_released(const struct ratelimit_answer *answer, void *arg)
{
    struct holder *holder = arg;
    (void)answer; /* where it was not released, closing the connection does it */
    holder->answered = true;
}

static void ask_for_slot(struct holder *holder, const char *policy, const char *key)
{
    enum ratelimit_status status = ratelimit_async_acquire(holder->client, policy, key, strlen(key),
                                                           holder->options->timeout_ms, on_acquired, holder);
    if (status == RATELIMIT_OK) return;
    holder->answered = true;
    holder->code = (int)complain(status, "", ratelimit_status_text(status), holder->options->json);
}

static void give_back(struct holder *holder)
{
    holder->answered = false;
    if (ratelimit_async_release(holder->client, holder->slot, holder->options->timeout_ms, on_released, holder) !=
        RATELIMIT_OK)
        holder->answered = true;
}

/* Without a connection there is no slot. */
static void look_for_loss(struct holder *holder)
{
    if (holder->slot == NULL || ratelimit_async_fd(holder->client) >= 0) return;
    fprintf(stderr, "ratelimitctl: the connection to the daemon ended, so the slot is lost%s\n",
            holder->child > 0 ? "; the command continues without it" : "");
    mem_free(holder->slot);
    holder->slot = NULL;
    holder->code = EXIT_UNREACHABLE;
}

/* ---- The command ---- */

static void become_command(const struct holder *holder)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &holder->unblocked, NULL);
    execvp(holder->command[0], holder->command);
    int error = errno;
    fprintf(stderr, "ratelimitctl: %s: %s\n", holder->command[0], strerror(error));
    _exit(error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

static void start_command(struct holder *holder)
{
    holder->child = fork();
    if (holder->child == 0) become_command(holder);
    if (holder->child > 0) return;
    fprintf(stderr, "ratelimitctl: cannot start %s: %s\n", holder->command[0], strerror(errno));
    holder->code = EXIT_NOT_EXECUTABLE;
    holder->child = 0;
}

static void look_for_end(struct holder *holder)
{
    if (holder->child > 0 && waitpid(holder->child, &holder->status, WNOHANG) == holder->child) holder->child = 0;
}

static int status_of(const struct holder *holder)
{
    if (WIFSIGNALED(holder->status)) return EXIT_SIGNALLED + WTERMSIG(holder->status);
    return WEXITSTATUS(holder->status);
}

/* ---- Waiting ---- */

/* One tick: whatever comes first of the daemon, a signal, the child's end, the end of `most_ms` and, where `input` says
 * so, standard input. */
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
    look_for_loss(holder);
    look_for_end(holder);
    return n <= 0 || waits[1].revents == 0 || read(STDIN_FILENO, dropped, sizeof dropped) > 0;
}

/* A signal from a terminal has reached the command too; what was sent to us alone is passed on. */
static void pass_signal_on(const struct holder *holder)
{
    if (got_signal != 0 && got_signal != SIGINT) kill(holder->child, got_signal);
    got_signal = 0;
}

static void wait_for_command(struct holder *holder)
{
    while (holder->child > 0) {
        tick(holder, false, FOREVER);
        if (holder->child > 0) pass_signal_on(holder);
    }
}

static void wait_for_input(struct holder *holder)
{
    bool more = true;
    while (more && got_signal == 0 && holder->slot != NULL) more = tick(holder, true, FOREVER);
}

/* The pause that the last answer demands, or a signal. */
static void rest(struct holder *holder)
{
    int64_t until_ms = wait_now_ms() + holder->pause_ms;
    for (int64_t left_ms = holder->pause_ms; left_ms > 0 && got_signal == 0; left_ms = until_ms - wait_now_ms())
        tick(holder, false, left_ms);
}

/* Until there is a slot, an error, a denial to be taken, or a signal. */
static void get_slot(struct holder *holder, const char *policy, const char *key)
{
    do {
        holder->answered = false;
        holder->pause_ms = WAIT_OVER;
        ask_for_slot(holder, policy, key);
        ratelimit_async_process(holder->client, 0);
        while (!holder->answered && got_signal == 0) tick(holder, false, FOREVER);
        rest(holder);
    } while (got_signal == 0 && holder->slot == NULL && holder->pause_ms != WAIT_OVER);
}

static int hold(struct holder *holder, const char *policy, const char *key)
{
    get_slot(holder, policy, key);
    if (got_signal != 0) return EXIT_SIGNALLED + got_signal;
    if (holder->slot == NULL) return holder->code;
    bool started = false;
    if (holder->command != NULL) {
        start_command(holder);
        started = holder->child > 0;
        wait_for_command(holder);
    } else {
        wait_for_input(holder);
    }
    if (holder->slot != NULL) give_back(holder);
    while (holder->slot != NULL && !holder->answered) tick(holder, false, FOREVER);
    return started ? status_of(holder) : holder->code;
}

int hold_run(const struct options *options, int n, char **arguments)
{
    struct holder holder = {.options = options, .command = n > 3 ? arguments + 3 : NULL};
    enum ratelimit_status status = ratelimit_async_new(options->socket, &holder.client);
    if (status != RATELIMIT_OK) return (int)complain_open(status);
    async_use_maps(holder.client);
    ratelimit_async_describe(holder.client);
    catch_signals(&holder);
    wait_start(&holder.wait, WAIT_FOR_SLOT, options->wait_ms, wait_now_ms(), wait_seed());
    int code = hold(&holder, arguments[0], arguments[1]);
    ratelimit_async_free(holder.client);
    mem_free(holder.slot);
    return code;
}
