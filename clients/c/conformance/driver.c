/*
 * driver.c: libratelimit under the conformance suite: commands as JSON lines on standard input, answers on standard
 * output. clients/conformance/README.md describes them.
 *
 *     client_driver async       the asynchronous client: one poll(2) loop for standard input and all clients
 *     client_driver blocking    the blocking client: a thread for each client works through its calls in turn
 *
 * A command becomes a `struct call`, which ends once, in finish(): its answer goes to standard output, to the parent of
 * fork(), or into the counts of `threads`.
 */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ratelimit.h>

#include "command.h"

enum { NAME_SIZE = 64, N_CLIENTS = 64, N_HELD = 4096, LINE_ROOM = 64 * 1024, ANSWER_MAX = 64 * 1024 };

struct count {
    char status[24];
    int n;
};

struct client {
    char name[NAME_SIZE];
    int n_checks, n_allowed, n_denied;
    struct count failures[16];
    struct ratelimit_async *async; /* owned; or */
    struct ratelimit *blocking;    /* owned */
    unsigned timeout_ms;
    pthread_t worker;
    pthread_cond_t changed;
    struct call *first, *last; /* of the worker */
    bool ends;
};

struct held { /* a slot or a reservation, by the name that the suite gave it */
    char name[NAME_SIZE];
    char *id; /* owned */
    struct client *client;
    bool is_slot, held, lost;
};

struct group { /* of `threads` */
    struct call *of;
    yaml_node_t *each;
    int times, n_running, n_allowed;
    struct count counts[16];
};

struct task { /* one thread of it */
    struct group *group;
    struct command_place place;
    int next;
    bool in_step; /* run_task() is on the stack and goes on by itself */
};

struct call {
    struct line *line;
    yaml_node_t *node;
    struct task *task; /* NULL: an answer is to be written */
    int64_t id;        /* -1: a command of a child, without one */
    struct client *client;
    char verb[NAME_SIZE], as[NAME_SIZE];
    char *policy, *key;
    size_t key_len;
    int64_t number;
    struct ratelimit_options options;
    char *request_id;
    struct ratelimit_item *items;
    size_t n_items;
    char **policies; /* of a verify */
    size_t n_policies;
    struct held *subject; /* of a release, settle or cancel */
    unsigned timeout_ms;
    struct timespec begun;
    bool ended; /* before start() has returned */
    struct call *next;
};

static bool is_async, is_child;
static struct client *clients[N_CLIENTS];
static struct held held_things[N_HELD];
static int n_held;
static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the lists above and the workers' queues */

static void start(struct line *line, yaml_node_t *node, struct task *task);
static void on_answer(const struct ratelimit_answer *answer, void *arg);
static void run_task(struct task *task);

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "driver: %s\n", what);
    exit(3);
}

static const struct command_place *place_of(const struct call *call)
{
    return call->task != NULL ? &call->task->place : NULL;
}

/* ---- Clients, slots and reservations ---- */

static struct client *client_named(const char *name)
{
    for (int i = 0; name != NULL && i < N_CLIENTS; i++) {
        if (clients[i] != NULL && strcmp(clients[i]->name, name) == 0) return clients[i];
    }
    return NULL;
}

/* The latest of that name. */
static struct held *held_named(const char *name)
{
    for (int i = n_held - 1; name != NULL && i >= 0; i--) {
        if (strcmp(held_things[i].name, name) == 0) return &held_things[i];
    }
    return NULL;
}

static void keep(struct call *call, const char *id)
{
    if (n_held == N_HELD) die("too many slots and reservations");
    struct held *held = &held_things[n_held++];
    *held = (struct held){.id = strdup(id), .client = call->client, .held = true};
    held->is_slot = strcmp(call->verb, "acquire") == 0;
    snprintf(held->name, sizeof held->name, "%s", call->as);
}

static void tell_lost(struct held *held)
{
    held->held = false;
    held->lost = true;
    if (is_child) return;
    fputs("{\"event\": \"lost\", \"slot\": ", out);
    command_put_text(out, held->name);
    fputs("}\n", out);
    fflush(out);
}

/* The connection is about to be closed: its slots end. */
static void on_change(void *arg, int fd, short events)
{
    const struct client *client = arg;
    (void)fd;
    for (int i = 0; events == 0 && i < n_held; i++) {
        if (held_things[i].client == client && held_things[i].is_slot && held_things[i].held)
            tell_lost(&held_things[i]);
    }
}

/* ---- Ending a call ---- */

static void free_call(struct call *call)
{
    for (size_t i = 0; i < call->n_items; i++) {
        free((char *)call->items[i].policy);
        free((char *)call->items[i].key);
    }
    free(call->items);
    for (size_t i = 0; i < call->n_policies; i++) free(call->policies[i]);
    free(call->policies);
    free(call->policy);
    free(call->key);
    free(call->request_id);
    command_leave(call->line);
    free(call);
}

static double ms_since(const struct timespec *begun)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begun->tv_sec) * 1e3 + (double)(now.tv_nsec - begun->tv_nsec) / 1e6;
}

static void count(struct count *at, const char *status)
{
    while (at->n > 0 && strcmp(at->status, status) != 0) at++;
    snprintf(at->status, sizeof at->status, "%s", status);
    at->n++;
}

/* The call has ended with `status`; the rest of its answer is the JSON in `format`, which begins with a comma. */
__attribute__((format(printf, 4, 5))) static void finish(struct call *call, const char *status, bool allowed,
                                                         const char *format, ...)
{
    struct task *task = call->task;
    if (task != NULL) {
        count(task->group->counts, status);
        task->group->n_allowed += allowed;
        free_call(call);
        if (!task->in_step) run_task(task);
        return;
    }

    va_list arguments;
    va_start(arguments, format);
    fputs("{", out);
    if (call->id >= 0) fprintf(out, "\"id\": %" PRId64 ", ", call->id);
    fprintf(out, "\"status\": \"%s\", \"ms\": %.3f", status, ms_since(&call->begun));
    vfprintf(out, format, arguments);
    fputs("}\n", out);
    fflush(out);
    va_end(arguments);
    free_call(call);
}

static void put_decision(FILE *to, const struct ratelimit_decision *decision)
{
    const char *reason = ratelimit_reason_name(decision->reason);
    fprintf(to,
            "\"allowed\": %s, \"limit\": %" PRId64 ", \"remaining\": %" PRId64 ", \"retry_after_ms\": %" PRId64
            ", \"reset_after_ms\": %" PRId64 ", \"delay_ms\": %" PRId64 ", \"granted\": %" PRId64
            ", \"policy_version\": %" PRId64 ", \"shadow_denied\": %s, \"near\": %s, \"refunded\": %" PRId64
            ", \"charged\": %" PRId64 ", \"ended\": %s, \"source\": \"%s\"",
            decision->allowed ? "true" : "false", decision->limit, decision->remaining, decision->retry_after_ms,
            decision->reset_after_ms, decision->delay_ms, decision->granted, decision->policy_version,
            decision->shadow_denied ? "true" : "false", decision->near ? "true" : "false", decision->refunded,
            decision->charged, decision->ended ? "true" : "false", ratelimit_source_name(decision->source));
    fputs(", \"bound_by\": ", to);
    decision->bound_by[0] != '\0' ? command_put_text(to, decision->bound_by) : (void)fputs("null", to);
    fputs(", \"reason\": ", to);
    reason[0] != '\0' ? command_put_text(to, reason) : (void)fputs("null", to);
    if (decision->of[0] == '\0') {
        fputs(", \"of\": null, \"quota\": null, \"window_ms\": null, \"of_reset_ms\": null", to);
        return;
    }
    fputs(", \"of\": ", to);
    command_put_text(to, decision->of);
    fprintf(to, ", \"quota\": %" PRId64 ", \"window_ms\": %" PRId64 ", \"of_reset_ms\": %" PRId64, decision->quota,
            decision->window_ms, decision->of_reset_ms);
}

static void put_members(FILE *to, const char *name, const struct ratelimit_answer *answer)
{
    fprintf(to, ", \"%s\": [", name);
    for (size_t i = 0; i < answer->n_members; i++) {
        fputs(i > 0 ? ", {" : "{", to);
        put_decision(to, &answer->members[i]);
        putc('}', to);
    }
    putc(']', to);
}

/* The driver's status of an answer, and whether the call may have been charged. */
static const char *status_of(const struct ratelimit_answer *answer, bool *ret_charged)
{
    static const char *const names[] = {
        [RATELIMIT_OK] = "ok",
        [RATELIMIT_TIMEOUT] = "timeout",
        [RATELIMIT_LOST] = "lost",
        [RATELIMIT_PROTOCOL] = "protocol",
        [RATELIMIT_UNREACHABLE] = "unreachable",
        [RATELIMIT_REFUSED] = "refused",
        [RATELIMIT_BAD_ARGUMENT] = "argument",
        [RATELIMIT_NO_MEMORY] = "bug",
        [RATELIMIT_BUSY] = "overloaded",
        [RATELIMIT_CANCELLED] = "cancelled",
        [RATELIMIT_BREAKER] = "breaker",
    };
    static const char *const codes[] = {"OVERLOADED",    "overloaded",        "SHUTTING_DOWN",
                                        "shutting_down", "STORE_UNAVAILABLE", "store_unavailable"};
    enum ratelimit_status status = answer->status;
    *ret_charged = status == RATELIMIT_TIMEOUT || status == RATELIMIT_LOST || status == RATELIMIT_PROTOCOL ||
                   status == RATELIMIT_CANCELLED;
    if (status != RATELIMIT_REFUSED) return names[status];
    for (unsigned i = 0; i < sizeof codes / sizeof codes[0]; i += 2) {
        if (strcmp(answer->code, codes[i]) != 0) continue;
        *ret_charged = strcmp(answer->code, "STORE_UNAVAILABLE") == 0;
        return codes[i + 1];
    }
    return "refused";
}

static void put_answer(FILE *to, struct call *call, const struct ratelimit_answer *answer)
{
    if (answer->decision != NULL) {
        fputs(", \"decision\": {", to);
        put_decision(to, answer->decision);
        if (answer->members != NULL) put_members(to, "members", answer);
        fputs("}", to);
    } else if (answer->members != NULL) {
        put_members(to, "decisions", answer);
    }
    if (strcmp(call->verb, "acquire") == 0) fprintf(to, ", \"slot\": %s", answer->id != NULL ? "true" : "false");
    if (strcmp(call->verb, "reserve") == 0) fprintf(to, ", \"reservation\": %s", answer->id != NULL ? "true" : "false");
    if (strcmp(call->verb, "reset") == 0) fprintf(to, ", \"removed\": %s", answer->done ? "true" : "false");
    if (strcmp(call->verb, "release") == 0) {
        fprintf(to, ", \"released\": %s, \"lost\": %s", answer->done ? "true" : "false",
                call->subject->lost ? "true" : "false");
    }
}

static size_t pending(void)
{
    size_t n = 0;
    for (int i = 0; is_async && i < N_CLIENTS; i++)
        n += clients[i] != NULL ? ratelimit_async_pending(clients[i]->async) : 0;
    return n;
}

static void count_check(struct call *call, const struct ratelimit_answer *answer, const char *status)
{
    struct client *client = call->client;
    if (strncmp(call->verb, "check", strlen("check")) != 0) return;
    client->n_checks++;
    if (answer->decision != NULL) answer->decision->allowed ? client->n_allowed++ : client->n_denied++;
    if (answer->status != RATELIMIT_OK) count(client->failures, status);
}

static void put_stats(struct call *call)
{
    const struct client *client = call->client;
    char *failures;
    size_t len;
    int n_refused = 0;
    FILE *to = open_memstream(&failures, &len);
    for (const struct count *at = client->failures; at->n > 0; at++) {
        bool is_refused = strcmp(at->status, "refused") == 0;
        if (is_refused) n_refused = at->n;
        if (!is_refused) fprintf(to, "%s\"%s\": %d", ftell(to) > 0 ? ", " : "", at->status, at->n);
    }
    fclose(to);
    uint64_t n_remembered =
        is_async ? ratelimit_async_remembered(client->async) : ratelimit_remembered(client->blocking);
    finish(call, "ok", false,
           ", \"counters\": {\"checks\": %d, \"allowed\": %d, \"denied\": %d, \"refused\": %d, \"remembered\": %" PRIu64
           ", \"unavailable\": {%s}}, \"pending\": %zu",
           client->n_checks, client->n_allowed, client->n_denied, n_refused, n_remembered, failures, pending());
    free(failures);
}

static void put_log(const char *message)
{
    fputs("{\"event\": \"log\", \"message\": ", out);
    command_put_text(out, message);
    fputs("}\n", out);
}

/* The names at the end of the message. */
static void put_missing(FILE *to, const char *message)
{
    const char *names = strstr(message, "has no ");
    char *copy = strdup(names != NULL ? names + strlen("has no ") : ""), *rest = copy;
    fputs(", \"missing\": [", to);
    for (char *name; (name = strtok_r(rest, ", ", &rest)) != NULL;) {
        if (name > copy) fputs(", ", to);
        command_put_text(to, name);
    }
    fputs("]", to);
    free(copy);
}

/* As ratelimit.h says, of a verify with inline policies. */
static bool may_peek(struct call *call)
{
    for (size_t i = 0; i < call->n_policies; i++) {
        if (call->policies[i][0] != '{') continue;
        snprintf(call->verb, sizeof call->verb, "peek");
        return ratelimit_async_peek(call->client->async, call->policies[i], "verify", 6, 0, call->timeout_ms, on_answer,
                                    call) == RATELIMIT_OK;
    }
    return false;
}

static void on_answer(const struct ratelimit_answer *answer, void *arg)
{
    struct call *call = arg;
    bool charged, is_release = call->subject != NULL && call->subject->is_slot;
    const char *status = status_of(answer, &charged);
    char *rest;
    size_t len;
    if (answer->id != NULL) keep(call, answer->id);
    if (is_release && call->subject->held && answer->status == RATELIMIT_OK && !answer->done) tell_lost(call->subject);
    if (is_release) call->subject->held = false;
    count_check(call, answer, status);
    if (strcmp(call->verb, "verify") == 0 && answer->status == RATELIMIT_OK) {
        if (answer->message[0] != '\0') put_log(answer->message);
        if (is_async && may_peek(call)) return; /* its answer is that of the whole */
    }
    FILE *to = open_memstream(&rest, &len);
    if (answer->status == RATELIMIT_OK) {
        put_answer(to, call, answer);
    } else {
        fprintf(to, ", \"maybe_charged\": %s, \"message\": ", charged ? "true" : "false");
        command_put_text(to, answer->message);
        fputs(", \"code\": ", to);
        answer->code[0] != '\0' ? command_put_text(to, answer->code) : (void)fputs("null", to);
        if (strcmp(answer->code, "UNKNOWN_POLICY") == 0 && call->n_policies > 0) put_missing(to, answer->message);
    }
    fclose(to);
    finish(call, status, answer->decision != NULL && answer->decision->allowed, "%s", rest);
    free(rest);
}

/* ---- Making a call ---- */

static enum ratelimit_status begin(struct call *call)
{
    struct ratelimit_async *client = call->client->async;
    const char *verb = call->verb, *id = call->subject != NULL ? call->subject->id : NULL;
    unsigned ms = call->timeout_ms;
    if (strcmp(verb, "check") == 0)
        return ratelimit_async_check_with(client, call->policy, call->key, call->key_len, &call->options, ms, on_answer,
                                          call);
    if (strcmp(verb, "peek") == 0)
        return ratelimit_async_peek(client, call->policy, call->key, call->key_len, call->number, ms, on_answer, call);
    if (strcmp(verb, "check_all") == 0)
        return ratelimit_async_check_all(client, call->items, call->n_items, &call->options, ms, on_answer, call);
    if (strcmp(verb, "check_many") == 0)
        return ratelimit_async_check_many(client, call->items, call->n_items, ms, on_answer, call);
    if (strcmp(verb, "reset") == 0)
        return ratelimit_async_reset(client, call->policy, call->key, call->key_len, ms, on_answer, call);
    if (strcmp(verb, "refund") == 0)
        return ratelimit_async_refund(client, call->policy, call->key, call->key_len, call->number, ms, on_answer,
                                      call);
    if (strcmp(verb, "acquire") == 0)
        return ratelimit_async_acquire(client, call->policy, call->key, call->key_len, ms, on_answer, call);
    if (strcmp(verb, "reserve") == 0)
        return ratelimit_async_reserve(client, call->policy, call->key, call->key_len, call->number, &call->options, ms,
                                       on_answer, call);
    if (strcmp(verb, "release") == 0) return ratelimit_async_release(client, id, ms, on_answer, call);
    if (strcmp(verb, "settle") == 0) return ratelimit_async_settle(client, id, call->number, ms, on_answer, call);
    if (strcmp(verb, "verify") == 0)
        return ratelimit_async_verify(client, (const char *const *)call->policies, call->n_policies, ms, on_answer,
                                      call);
    return ratelimit_async_cancel(client, id, ms, on_answer, call);
}

/* The same with the blocking client; then on_answer() as above. */
static void block(struct call *call)
{
    struct ratelimit *client = call->client->blocking;
    struct ratelimit_decision decision;
    struct ratelimit_decision *members = calloc(call->n_items + 1, sizeof *members);
    struct ratelimit_answer answer = {.decision = &decision};
    const char *verb = call->verb, *id = call->subject != NULL ? call->subject->id : NULL;
    unsigned ms = call->timeout_ms;
    enum ratelimit_status status;
    clock_gettime(CLOCK_MONOTONIC, &call->begun); /* it may have waited for its turn */
    if (strcmp(verb, "check") == 0) {
        status = ratelimit_check_with(client, call->policy, call->key, call->key_len, &call->options, ms, &decision);
    } else if (strcmp(verb, "peek") == 0) {
        status = ratelimit_peek(client, call->policy, call->key, call->key_len, call->number, ms, &decision);
    } else if (strcmp(verb, "check_all") == 0) {
        status = ratelimit_check_all(client, call->items, call->n_items, &call->options, ms, &decision, members);
        answer.members = members;
    } else if (strcmp(verb, "check_many") == 0) {
        status = ratelimit_check_many(client, call->items, call->n_items, ms, members);
        answer.members = members;
        answer.decision = NULL;
    } else if (strcmp(verb, "reset") == 0) {
        status = ratelimit_reset(client, call->policy, call->key, call->key_len, ms, &answer.done);
        answer.decision = NULL;
    } else if (strcmp(verb, "refund") == 0) {
        status = ratelimit_refund(client, call->policy, call->key, call->key_len, call->number, ms, &decision);
    } else if (strcmp(verb, "acquire") == 0) {
        status = ratelimit_acquire(client, call->policy, call->key, call->key_len, ms, &decision);
    } else if (strcmp(verb, "reserve") == 0) {
        status = ratelimit_reserve(client, call->policy, call->key, call->key_len, call->number, &call->options, ms,
                                   &decision);
    } else if (strcmp(verb, "release") == 0) {
        status = ratelimit_release(client, id, ms, &answer.done);
        answer.decision = NULL;
    } else if (strcmp(verb, "settle") == 0) {
        status = ratelimit_settle(client, id, call->number, ms, &decision);
    } else if (strcmp(verb, "verify") == 0) {
        status = ratelimit_verify(client, (const char *const *)call->policies, call->n_policies, ms);
        answer.decision = NULL;
    } else {
        status = ratelimit_cancel(client, id, ms, &decision);
    }
    answer.status = status;
    answer.message = ratelimit_error(client);
    answer.code = ratelimit_error_code(client);
    answer.n_members = call->n_items;
    if (status != RATELIMIT_OK) answer.decision = answer.members = NULL;
    if (status == RATELIMIT_OK && ratelimit_id(client)[0] != '\0') answer.id = ratelimit_id(client);
    pthread_mutex_lock(&lock);
    on_answer(&answer, call);
    pthread_mutex_unlock(&lock);
    free(members);
}

static void *work(void *arg)
{
    struct client *client = arg;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (client->first == NULL && !client->ends) pthread_cond_wait(&client->changed, &lock);
        struct call *call = client->first;
        if (call != NULL) client->first = call->next;
        pthread_mutex_unlock(&lock);
        if (call == NULL) return NULL;
        block(call);
    }
}

static void make(struct call *call)
{
    if (is_async) {
        enum ratelimit_status status = begin(call);
        if (status == RATELIMIT_OK) {
            ratelimit_async_process(call->client->async, 0);
            return;
        }
        on_answer(&(struct ratelimit_answer){.status = status, .code = "", .message = ratelimit_status_text(status)},
                  call);
    } else if (is_child || call->task != NULL) { /* the suite knows that these wait */
        pthread_mutex_unlock(&lock);
        block(call);
        pthread_mutex_lock(&lock);
    } else {
        struct client *client = call->client;
        call->next = NULL;
        if (client->first == NULL)
            client->first = call;
        else
            client->last->next = call;
        client->last = call;
        pthread_cond_signal(&client->changed);
    }
}

static void open_client(struct call *call)
{
    struct client *client = calloc(1, sizeof *client);
    char *name =
        command_text(call->line, command_field(call->line, call->node, "client"), place_of(call), &(size_t){0});
    const char *path = command_word(call->line, call->node, "socket");
    enum ratelimit_status status =
        is_async ? ratelimit_async_new(path, &client->async) : ratelimit_open(path, &client->blocking);
    int i = 0;
    snprintf(client->name, sizeof client->name, "%s", name);
    free(name);
    int64_t remember_ms = command_number(call->line, call->node, "remember_denials_ms", 0);
    if (status == RATELIMIT_OK)
        status = is_async ? ratelimit_async_remember_denials(client->async, remember_ms)
                          : ratelimit_remember_denials(client->blocking, remember_ms);
    if (status != RATELIMIT_OK) {
        ratelimit_async_free(client->async);
        ratelimit_close(client->blocking);
        free(client);
        finish(call, "argument", false, ", \"maybe_charged\": false, \"message\": \"%s\"",
               ratelimit_status_text(status));
        return;
    }
    client->timeout_ms = (unsigned)command_number(call->line, call->node, "timeout_ms", 0);
    while (i < N_CLIENTS && clients[i] != NULL) i++;
    if (i == N_CLIENTS) die("too many clients");
    clients[i] = client;
    if (is_async) ratelimit_async_watch(client->async, on_change, client);
    if (is_async) ratelimit_async_describe(client->async);
    if (!is_async) ratelimit_describe(client->blocking);
    pthread_cond_init(&client->changed, NULL);
    if (!is_async && !is_child && pthread_create(&client->worker, NULL, work, client) != 0) die("no thread");
    finish(call, "ok", false, "%s", "");
}

static void close_client(struct client *client)
{
    for (int i = 0; i < n_held; i++) {
        if (held_things[i].client == client) held_things[i].held = false; /* it gives them up: they are not lost */
    }
    for (int i = 0; i < N_CLIENTS; i++) {
        if (clients[i] == client) clients[i] = NULL;
    }
    if (!is_async && !is_child) {
        client->ends = true;
        pthread_cond_signal(&client->changed);
        pthread_mutex_unlock(&lock);
        pthread_join(client->worker, NULL);
        pthread_mutex_lock(&lock);
    }
    ratelimit_async_free(client->async);
    ratelimit_close(client->blocking);
    if (!is_child) pthread_cond_destroy(&client->changed); /* the child's copy has waiters that do not exist there */
    free(client);
}

/* ---- The loop ---- */

/* Wait for clients, and for standard input where `with_input`; true: there is something to read. */
static bool turn(bool with_input)
{
    struct pollfd waits[N_CLIENTS + 1] = {{with_input ? STDIN_FILENO : -1, POLLIN, 0}};
    struct client *known[N_CLIENTS];
    int n = 1, timeout_ms = -1;
    for (int i = 0; is_async && i < N_CLIENTS; i++) {
        if (clients[i] == NULL) continue;
        int own_ms = ratelimit_async_next_timeout_ms(clients[i]->async);
        if (own_ms >= 0 && (timeout_ms < 0 || own_ms < timeout_ms)) timeout_ms = own_ms;
        waits[n] = (struct pollfd){ratelimit_async_fd(clients[i]->async), ratelimit_async_events(clients[i]->async), 0};
        known[n++ - 1] = clients[i];
    }
    pthread_mutex_unlock(&lock);
    poll(waits, (nfds_t)n, timeout_ms);
    pthread_mutex_lock(&lock);
    for (int i = 1; i < n; i++) {
        bool is_there = client_named(known[i - 1]->name) == known[i - 1];
        if (is_there) ratelimit_async_process(known[i - 1]->async, waits[i].revents);
    }
    return waits[0].revents != 0;
}

/* ---- Commands ---- */

static void run_task(struct task *task)
{
    struct group *group = task->group;
    task->in_step = true;
    for (;;) {
        yaml_node_t *node = command_member(group->of->line, group->each, task->next);
        if (node == NULL) {
            task->next = 0;
            if (++task->place.time < group->times) continue;
            break;
        }
        task->next++;
        int n_before = task->next;
        int ended = 0;
        for (struct count *at = group->counts; at->n > 0; at++) ended += at->n;
        start(group->of->line, node, task);
        int ended_now = 0;
        for (struct count *at = group->counts; at->n > 0; at++) ended_now += at->n;
        if (n_before == task->next && ended_now == ended) { /* it goes on when the answer comes */
            task->in_step = false;
            return;
        }
    }
    free(task);
    if (--group->n_running > 0) return;

    char *counts;
    size_t len;
    FILE *to = open_memstream(&counts, &len);
    for (struct count *at = group->counts; at->n > 0; at++)
        fprintf(to, "%s\"%s\": %d", at > group->counts ? ", " : "", at->status, at->n);
    fclose(to);
    struct call *of = group->of;
    int n_allowed = group->n_allowed;
    free(group);
    finish(of, "ok", false, ", \"counts\": {%s}, \"allowed\": %d", counts, n_allowed);
    free(counts);
}

static void run_threads(struct call *call)
{
    struct group *group = calloc(1, sizeof *group);
    int n = (int)command_number(call->line, call->node, "n", 1);
    *group = (struct group){.of = call, .each = command_field(call->line, call->node, "each"), .n_running = n};
    group->times = (int)command_number(call->line, call->node, "times", 1);
    for (int i = 0; i < n; i++) {
        struct task *task = calloc(1, sizeof *task);
        *task = (struct task){.group = group, .place.thread = i};
        run_task(task);
    }
}

static _Noreturn void be_child(struct call *call, int to)
{
    is_child = true;
    out = fdopen(to, "w");
    for (int i = 0; command_member(call->line, command_field(call->line, call->node, "each"), i) != NULL; i++) {
        start(call->line, command_member(call->line, command_field(call->line, call->node, "each"), i), NULL);
        while (pending() > 0 && is_async) turn(false);
    }
    for (int i = 0; i < N_CLIENTS; i++) {
        if (clients[i] != NULL) close_client(clients[i]);
    }
    fclose(out);
    _exit(0); /* what it has inherited besides, the parent frees */
}

static void run_fork(struct call *call)
{
    int ends[2], status = 0;
    char answers[ANSWER_MAX];
    size_t len = 0;
    if (pipe(ends) != 0) die("no pipe");
    fflush(out);
    pid_t child = fork();
    if (child < 0) die("fork failed");
    if (child == 0) {
        close(ends[0]);
        be_child(call, ends[1]);
    }
    close(ends[1]);
    for (ssize_t n; (n = read(ends[0], answers + len, sizeof answers - 1 - len)) > 0;) len += (size_t)n;
    close(ends[0]);
    waitpid(child, &status, 0);
    if (len > 0) len--; /* the last newline */
    answers[len] = '\0';
    for (char *at = answers; (at = strchr(at, '\n')) != NULL;) *at = ',';
    finish(call, "ok", false, ", \"answers\": [%s], \"exit\": %d", answers,
           WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void run_block(struct call *call)
{
    int64_t ms = command_number(call->line, call->node, "ms", 0);
    fputs("{\"event\": \"blocking\"}\n", out);
    fflush(out);
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&left, NULL);
    finish(call, "ok", false, "%s", "");
}

/* The parameters of a call of the client. */
static void read_call(struct call *call)
{
    struct line *line = call->line;
    yaml_node_t *node = call->node, *items = command_field(line, node, "items");
    const char *name = strcmp(call->verb, "refund") == 0    ? "units"
                       : strcmp(call->verb, "reserve") == 0 ? "estimate"
                       : strcmp(call->verb, "settle") == 0  ? "actual"
                                                            : "cost";
    call->policy = command_policy(line, command_field(line, node, "policy"), place_of(call));
    call->key = command_text(line, command_field(line, node, "key"), place_of(call), &call->key_len);
    call->number = command_number(line, node, name, strcmp(call->verb, "peek") == 0 ? 0 : 1);
    call->timeout_ms = (unsigned)command_number(line, node, "timeout_ms", call->client->timeout_ms);
    snprintf(call->as, sizeof call->as, "%s", "");
    if (command_field(line, node, "as") != NULL) {
        char *as = command_text(line, command_field(line, node, "as"), place_of(call), &(size_t){0});
        snprintf(call->as, sizeof call->as, "%s", as);
        free(as);
    }

    call->options = (struct ratelimit_options)RATELIMIT_OPTIONS;
    if (strcmp(call->verb, "check") == 0) call->options.cost = call->number;
    call->options.at_most = command_number(line, node, "at_most", 0);
    call->options.max_wait_ms = command_number(line, node, "max_wait_ms", -1);
    call->options.ttl_ms = command_number(line, node, "ttl_ms", 0);
    call->options.deadline_ms = (uint32_t)command_number(line, node, "deadline_ms", 0);
    if (command_word(line, node, "request_id") != NULL) {
        call->request_id = strdup(command_word(line, node, "request_id"));
        call->options.request_id = call->request_id;
        call->options.request_id_len = (uint32_t)strlen(call->request_id);
    }

    yaml_node_t *policies = command_field(line, node, "policies");
    while (command_member(line, policies, (long)call->n_policies) != NULL) call->n_policies++;
    call->policies = calloc(call->n_policies + 1, sizeof *call->policies);
    for (size_t i = 0; i < call->n_policies; i++)
        call->policies[i] = command_policy(line, command_member(line, policies, (long)i), place_of(call));
    if (command_flag(line, node, "inline"))
        call->policies[call->n_policies++] = strdup("{algorithm: fixed_window, limit: 1, window: 1s}");

    while (command_member(line, items, (long)call->n_items) != NULL) call->n_items++;
    call->items = calloc(call->n_items + 1, sizeof *call->items);
    for (size_t i = 0; i < call->n_items; i++) {
        yaml_node_t *item = command_member(line, items, (long)i), *cost = command_member(line, item, 2);
        call->items[i].policy = command_policy(line, command_member(line, item, 0), place_of(call));
        call->items[i].key = command_text(line, command_member(line, item, 1), place_of(call), &call->items[i].key_len);
        call->items[i].cost = cost != NULL ? strtoll((char *)cost->data.scalar.value, NULL, 10) : 1;
    }
}

static bool is_one_of(const char *verb, const char *list)
{
    const char *at = strstr(list, verb);
    size_t len = strlen(verb);
    return at != NULL && (at == list || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0');
}

static void start_call(struct call *call)
{
    char *name =
        command_text(call->line, command_field(call->line, call->node, "client"), place_of(call), &(size_t){0});
    call->client = client_named(name);
    free(name);
    if (is_one_of(call->verb, "release settle cancel_reservation slot_state")) {
        char *held = command_text(call->line,
                                  command_field(call->line, call->node,
                                                call->verb[0] == 's' && call->verb[1] == 'e' ? "reservation"
                                                : call->verb[0] == 'c'                       ? "reservation"
                                                                                             : "slot"),
                                  place_of(call), &(size_t){0});
        call->subject = held_named(held);
        free(held);
        if (call->subject != NULL) call->client = call->subject->client;
    }
    if (call->client == NULL) {
        finish(call, "bug", false, ", \"message\": \"no such client, slot or reservation\"");
        return;
    }
    if (strcmp(call->verb, "stats") == 0) {
        put_stats(call);
        return;
    }
    if (strcmp(call->verb, "slot_state") == 0) {
        finish(call, "ok", false, ", \"held\": %s, \"lost\": %s", call->subject->held ? "true" : "false",
               call->subject->lost ? "true" : "false");
        return;
    }
    if (strcmp(call->verb, "release") == 0 && !call->subject->held) { /* nothing is sent */
        finish(call, "ok", false, ", \"released\": false, \"lost\": %s", call->subject->lost ? "true" : "false");
        return;
    }
    read_call(call);
    make(call);
}

static void start(struct line *line, yaml_node_t *node, struct task *task)
{
    struct call *call = calloc(1, sizeof *call);
    const char *verb = command_word(line, node, "do");
    *call = (struct call){.line = line, .node = node, .task = task, .id = command_number(line, node, "id", -1)};
    line->n_users++;
    snprintf(call->verb, sizeof call->verb, "%s", verb != NULL ? verb : "");
    clock_gettime(CLOCK_MONOTONIC, &call->begun);
    verb = call->verb;
    if (is_one_of(verb, "check peek check_all check_many reset refund acquire release reserve settle "
                        "cancel_reservation slot_state stats verify")) {
        if (command_flag(line, node, "cancelled") || command_flag(line, node, "resend"))
            finish(call, "unknown", false, "%s", "");
        else
            start_call(call);
    } else if (strcmp(verb, "open") == 0) {
        open_client(call);
    } else if (strcmp(verb, "close") == 0) {
        char *name = command_text(line, command_field(line, node, "client"), place_of(call), &(size_t){0});
        if (client_named(name) != NULL) close_client(client_named(name));
        free(name);
        finish(call, "ok", false, "%s", "");
    } else if (strcmp(verb, "fork") == 0) {
        run_fork(call);
    } else if (strcmp(verb, "threads") == 0) {
        run_threads(call);
    } else if (strcmp(verb, "block_ms") == 0) {
        run_block(call);
    } else {
        finish(call, "unknown", false, "%s", "");
    }
}

static void take_line(const char *text, size_t len)
{
    struct line *line = command_read(text, len);
    if (line == NULL) die("a line that is no JSON");
    start(line, yaml_document_get_root_node(&line->document), NULL);
    command_leave(line);
}

int main(int argc, char **argv)
{
    char *input = NULL;
    size_t len = 0;
    is_async = argc > 1 && strcmp(argv[1], "async") == 0;
    out = stdout;
    printf("{\"ready\": true, \"pid\": %d}\n", (int)getpid());
    fflush(stdout);

    pthread_mutex_lock(&lock);
    for (;;) {
        if (!turn(true)) continue;
        input = realloc(input, len + LINE_ROOM);
        ssize_t n = read(STDIN_FILENO, input + len, LINE_ROOM);
        if (n <= 0) break;
        len += (size_t)n;
        for (char *end; (end = memchr(input, '\n', len)) != NULL;) {
            size_t line_len = (size_t)(end - input);
            take_line(input, line_len);
            len -= line_len + 1;
            memmove(input, end + 1, len);
        }
    }
    for (int i = 0; i < N_CLIENTS; i++) {
        if (clients[i] != NULL) close_client(clients[i]);
    }
    for (int i = 0; i < n_held; i++) free(held_things[i].id);
    free(input);
    return 0;
}
