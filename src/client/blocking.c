/*
 * blocking.c: the blocking client: an asynchronous one, and poll(2) until the one call has ended.
 *
 * So there is one state machine for connections, deadlines and losses, and its tests count for both clients. The
 * callback copies what the caller may read later, and the results into the caller's structs.
 */
#include "client/blocking.h"

#include <poll.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "client/call.h"
#include "client/exchange.h"

enum {
    ERROR_SIZE = 512,
    CODE_SIZE = 48,
    RESULT_KEPT = 64 * 1024, /* storage that a long answer made larger than this is given back */
};

#define MS_US INT64_C(1000)

/* Where the caller wants the results; NULL: it does not want them. */
struct results {
    struct ratelimit_decision *decision;
    struct ratelimit_decision *members; /* as many as were asked about */
    bool *done;
    bool raw; /* into client->result */
};

struct ratelimit {
    struct ratelimit_async *async; /* owned */
    bool done;
    enum ratelimit_status status;
    struct results results; /* of the call in flight */
    struct buffer result;   /* owned: the last result of ratelimit_call() */
    struct buffer id;       /* owned: of the last reserve or acquire, with a NUL behind it */
    char error[ERROR_SIZE];
    char code[CODE_SIZE];
};

enum ratelimit_status ratelimit_open(const char *path, struct ratelimit **ret_client)
{
    struct ratelimit *client = mem_zalloc(sizeof *client);
    if (client == NULL) return RATELIMIT_NO_MEMORY;
    enum ratelimit_status status = ratelimit_async_new(path, &client->async);
    if (status != RATELIMIT_OK) {
        mem_free(client);
        return status;
    }
    *ret_client = client;
    return RATELIMIT_OK;
}

void ratelimit_close(struct ratelimit *client)
{
    if (client == NULL) return;
    ratelimit_async_free(client->async);
    buffer_fini(&client->result);
    buffer_fini(&client->id);
    mem_free(client);
}

static enum ratelimit_status finish_call(struct ratelimit *client, enum ratelimit_status status, const char *code,
                                         const char *message)
{
    snprintf(client->error, sizeof client->error, "%s", message);
    snprintf(client->code, sizeof client->code, "%s", code);
    client->done = true;
    return client->status = status;
}

void ratelimit_use_maps(struct ratelimit *client)
{
    client->async->maps = true;
}

void ratelimit_describe(struct ratelimit *client)
{
    ratelimit_async_describe(client->async);
}

enum ratelimit_status ratelimit_remember_denials(struct ratelimit *client, int64_t duration_ms)
{
    if (client == NULL) return RATELIMIT_BAD_ARGUMENT;
    enum ratelimit_status status = ratelimit_async_remember_denials(client->async, duration_ms);
    bool is_named = status == RATELIMIT_BAD_ARGUMENT;
    return finish_call(client, status, "",
                       is_named                 ? client->async->fault
                       : status == RATELIMIT_OK ? ""
                                                : ratelimit_status_text(status));
}

uint64_t ratelimit_remembered(const struct ratelimit *client)
{
    return ratelimit_async_remembered(client->async);
}

const struct link *blocking_link(const struct ratelimit *client)
{
    return &client->async->connection;
}

const char *ratelimit_error(const struct ratelimit *client)
{
    return client->error;
}

const char *ratelimit_error_code(const struct ratelimit *client)
{
    return client->code;
}

const char *ratelimit_id(const struct ratelimit *client)
{
    return client->status == RATELIMIT_OK && buffer_len(&client->id) > 0 ? (const char *)buffer_data(&client->id) : "";
}

static void on_answer(const struct ratelimit_answer *answer, void *arg)
{
    struct ratelimit *client = arg;
    const struct results *to = &client->results;
    finish_call(client, answer->status, answer->code, answer->message);
    if (answer->status != RATELIMIT_OK) return;

    if (to->decision != NULL) *to->decision = *answer->decision;
    if (to->members != NULL && answer->n_members > 0)
        memcpy(to->members, answer->members, answer->n_members * sizeof *to->members);
    if (to->done != NULL) *to->done = answer->done;

    buffer_truncate(&client->id, 0);
    if (answer->id != NULL && buffer_append(&client->id, answer->id, strlen(answer->id) + 1) != 0)
        finish_call(client, RATELIMIT_PROTOCOL, "", "no memory to keep the answer");
    if (to->raw && buffer_append(&client->result, answer->result, answer->result_len) != 0)
        finish_call(client, RATELIMIT_PROTOCOL, "", "no memory to keep the answer");
}

/* The asynchronous client for the next call, whose results go to `to`. */
static struct ratelimit_async *begin_call(struct ratelimit *client, struct results to)
{
    client->done = false;
    client->results = to;
    buffer_truncate(&client->result, 0);
    buffer_shrink(&client->result, RESULT_KEPT);
    return client->async;
}

/* `accepted`: what the asynchronous client returned for the call. */
static enum ratelimit_status wait_for_end(struct ratelimit *client, enum ratelimit_status accepted)
{
    struct ratelimit_async *async = client->async;
    if (accepted == RATELIMIT_BAD_ARGUMENT) return finish_call(client, accepted, "", async->fault);
    if (accepted != RATELIMIT_OK) return finish_call(client, accepted, "", ratelimit_status_text(accepted));

    short revents = 0;
    for (;;) {
        ratelimit_async_process(async, revents);
        if (client->done) break;
        struct pollfd waits = {ratelimit_async_fd(async), ratelimit_async_events(async), 0};
        int n = poll(&waits, 1, ratelimit_async_next_timeout_ms(async));
        revents = n > 0 ? waits.revents : 0;
    }

    /* The next call may be long in coming. A timed-out acquire or reserve may still be granted: close the
     * connection, which gives up the grant, unless slots are held on it. Then the next call undoes the grant first. */
    if (async->n_orphans > 0 && async->n_slots == 0) exchange_lose(async, RATELIMIT_LOST, "", "");
    return client->status;
}

/* ---- Calls ---- */

static enum ratelimit_status no_place(struct ratelimit *client)
{
    return finish_call(client, RATELIMIT_BAD_ARGUMENT, "", "the pointer for the result is NULL");
}

static enum ratelimit_status ask(struct ratelimit *client, const struct question *question, uint32_t timeout_ms,
                                 struct results to)
{
    bool has_place = question->kind == REQUEST_FLAG || to.decision != NULL;
    if (question->kind == REQUEST_MANY) has_place = to.members != NULL || question->n_items == 0;
    if (client == NULL) return RATELIMIT_BAD_ARGUMENT;
    if (!has_place) return no_place(client);
    struct ratelimit_async *async = begin_call(client, to);
    return wait_for_end(client, call_ask(async, question, (struct call_end){timeout_ms, on_answer, client}));
}

/* Where each kind of answer goes. */
#define RESULT_DECISION struct ratelimit_decision *ret_decision
#define INTO_DECISION   .decision = ret_decision
#define RESULT_ID       RESULT_DECISION
#define INTO_ID         INTO_DECISION
#define RESULT_MANY     struct ratelimit_decision *ret_decisions
#define INTO_MANY       .members = ret_decisions
#define RESULT_ALL      struct ratelimit_decision *ret_whole, struct ratelimit_decision *ret_members
#define INTO_ALL        .decision = ret_whole, .members = ret_members
#define RESULT_FLAG     bool *ret_done
#define INTO_FLAG       .done = ret_done

#define CALL(function, method, kind, effect, fields, ...)                                                              \
    enum ratelimit_status ratelimit_##function(struct ratelimit *client, __VA_ARGS__, uint32_t timeout_ms,             \
                                               RESULT_##kind)                                                          \
    {                                                                                                                  \
        return ask(client, &QUESTION(method, kind, effect, fields), timeout_ms, (struct results){INTO_##kind});        \
    }
#include "client/methods.def"

enum ratelimit_status ratelimit_ping(struct ratelimit *client, uint32_t timeout_ms)
{
    if (client == NULL) return RATELIMIT_BAD_ARGUMENT;
    struct ratelimit_async *async = begin_call(client, (struct results){0});
    return wait_for_end(client, ratelimit_async_call(async, "ping", NULL, 0, timeout_ms, on_answer, client));
}

/* Are the inline ones among them allowed? One that cannot be peeked at, such as one with slots, is. */
static enum ratelimit_status peek_inline(struct ratelimit *client, const char *const *policies, size_t n,
                                         int64_t until_us)
{
    struct ratelimit_decision decision;
    for (size_t i = 0; i < n; i++) {
        if (policies[i][0] != '{') continue;
        int64_t left_ms = (until_us - clock_mono_us()) / MS_US;
        enum ratelimit_status status = ratelimit_peek(client, policies[i], "verify", strlen("verify"), 0,
                                                      left_ms > 0 ? (uint32_t)left_ms : 1, &decision);
        bool is_allowed = status == RATELIMIT_OK || strcmp(client->code, "UNSUPPORTED") == 0;
        if (!is_allowed) return status;
    }
    return RATELIMIT_OK;
}

enum ratelimit_status ratelimit_verify(struct ratelimit *client, const char *const *policies, size_t n,
                                       uint32_t timeout_ms)
{
    char warning[ERROR_SIZE];
    if (client == NULL) return RATELIMIT_BAD_ARGUMENT;
    int64_t until_us = clock_mono_us() + MS_US * (timeout_ms > 0 ? timeout_ms : RATELIMIT_DEFAULT_TIMEOUT_MS);
    struct ratelimit_async *async = begin_call(client, (struct results){0});
    enum ratelimit_status status =
        wait_for_end(client, ratelimit_async_verify(async, policies, n, timeout_ms, on_answer, client));
    if (status != RATELIMIT_OK) return status;

    memcpy(warning, client->error, sizeof warning);
    status = peek_inline(client, policies, n, until_us);
    return status == RATELIMIT_OK ? finish_call(client, status, "", warning) : status;
}

enum ratelimit_status ratelimit_call(struct ratelimit *client, const char *method, const void *params,
                                     size_t params_len, uint32_t timeout_ms, const void **ret_result,
                                     size_t *ret_result_len)
{
    if (client == NULL) return RATELIMIT_BAD_ARGUMENT;
    if (ret_result == NULL || ret_result_len == NULL) return no_place(client);
    struct ratelimit_async *async = begin_call(client, (struct results){.raw = true});
    enum ratelimit_status status =
        wait_for_end(client, ratelimit_async_call(async, method, params, params_len, timeout_ms, on_answer, client));
    if (status != RATELIMIT_OK) return status;
    *ret_result = buffer_data(&client->result);
    *ret_result_len = buffer_len(&client->result);
    return RATELIMIT_OK;
}
