/*
 * async.c: the public functions of the asynchronous client: new and free, one function for each row of methods.def, and
 * what the caller's event loop waits for. call.c makes a request of a call; exchange.c sends it and handles the answer.
 */
#include <limits.h>
#include <poll.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "client/call.h"
#include "client/exchange.h"

enum { MSGID_SLOTS = 4096 }; /* of the table of sent calls; more calls make its chains longer */

#define REMEMBERED_MAX_MS (INT64_C(1) << 40) /* no retry time that counts is longer; in us it still fits */

enum ratelimit_status ratelimit_async_new(const char *path, struct ratelimit_async **ret_client)
{
    if (path == NULL) {
        path = secure_getenv("RATELIMIT_SOCKET");
        if (path == NULL || path[0] == '\0') path = RATELIMIT_DEFAULT_SOCKET;
    }

    enum ratelimit_status status = RATELIMIT_NO_MEMORY;
    struct ratelimit_async *client = mem_zalloc(sizeof *client);
    if (client == NULL) return status;
    status = link_init(&client->connection, path);
    if (status != RATELIMIT_OK) goto err_client;
    status = RATELIMIT_NO_MEMORY;
    if (map_init(&client->by_msgid, MSGID_SLOTS) != 0) goto err_link;

    list_init(&client->waiting);
    list_init(&client->sent);
    list_init(&client->repeats);
    list_init(&client->ending);
    list_init(&client->orphans);
    heap_init(&client->deadlines);
    buffer_init(&client->id, 0);
    denials_init(&client->denials);
    request_pool_init(&client->pool);
    request_init(&client->hello, REQUEST_HELLO);
    decode_order_init(&client->order);
    client->max_frame = RATELIMIT_REQUEST_MAX;
    client->next_msgid = 1;
    *ret_client = client;
    return RATELIMIT_OK;

err_link:
    link_fini(&client->connection);
err_client:
    mem_free(client);
    return status;
}

void ratelimit_async_describe(struct ratelimit_async *client)
{
    client->describes = true;
}

enum ratelimit_status ratelimit_async_remember_denials(struct ratelimit_async *client, int64_t duration_ms)
{
    if (client == NULL || duration_ms < 0) return call_refuse(client, "", "the duration is negative");
    if (duration_ms > REMEMBERED_MAX_MS) duration_ms = REMEMBERED_MAX_MS;
    return denials_set(&client->denials, duration_ms * 1000) == 0 ? RATELIMIT_OK : RATELIMIT_NO_MEMORY;
}

uint64_t ratelimit_async_remembered(const struct ratelimit_async *client)
{
    return client->denials.n_repeated;
}

static void destroy_client(struct ratelimit_async *client)
{
    client->busy = client->dying = true;
    exchange_cancel(client);
    request_fini(&client->hello);
    request_pool_fini(&client->pool);
    denials_fini(&client->denials);
    buffer_fini(&client->id);
    heap_fini(&client->deadlines);
    map_fini(&client->by_msgid);
    link_fini(&client->connection);
    mem_free(client);
}

void ratelimit_async_free(struct ratelimit_async *client)
{
    if (client == NULL) return;
    client->dying = true;
    if (client->busy) return;
    exchange_leave_parent(client);
    destroy_client(client);
}

void ratelimit_async_process(struct ratelimit_async *client, short revents)
{
    if (client->busy) return;
    client->busy = true;

    exchange_leave_parent(client);
    clock_update(&client->clock);
    exchange_tick(client, revents);
    if (client->connection.fd >= 0 && !client->dying) exchange_report_events(client, ratelimit_async_events(client));

    client->busy = false;
    if (client->dying) destroy_client(client);
}

/* ---- Calls ---- */

#define CALL(function, method, kind, effect, fields, ...)                                                              \
    enum ratelimit_status ratelimit_async_##function(struct ratelimit_async *client, __VA_ARGS__, uint32_t timeout_ms, \
                                                     ratelimit_answer_fn *callback, void *arg)                         \
    {                                                                                                                  \
        return call_ask(client, &QUESTION(method, kind, effect, fields),                                               \
                        (struct call_end){timeout_ms, callback, arg});                                                 \
    }
#include "client/methods.def"

enum ratelimit_status ratelimit_async_call(struct ratelimit_async *client, const char *method, const void *params,
                                           size_t params_len, uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                           void *arg)
{
    struct request *request;

    /* One whole array and nothing behind it, or nothing: the caller's bytes must not break the framing. */
    struct scanner scanner;
    scanner_init(&scanner, RATELIMIT_REQUEST_MAX, SCAN_DEPTH_MAX - 1);
    bool is_array = params != NULL && params_len <= RATELIMIT_REQUEST_MAX &&
                    scanner_next(&scanner, params, params_len) == (int64_t)params_len;
    if (method == NULL || (params_len > 0 && !is_array))
        return call_refuse(client, "", "the method is NULL, or the parameters are not one MessagePack array");

    enum ratelimit_status status = call_begin(client, (struct call_end){timeout_ms, callback, arg}, &request);
    if (status != RATELIMIT_OK) return status;

    request->effect = call_effect(method); /* the caller packed it, and it has the same effect */
    return call_submit(client, request, request_pack_other(request, method, (struct slice){params, params_len}));
}

enum ratelimit_status ratelimit_async_verify(struct ratelimit_async *client, const char *const *policies, size_t n,
                                             uint32_t timeout_ms, ratelimit_answer_fn *callback, void *arg)
{
    struct request *request;
    for (size_t i = 0; i < n; i++) {
        if (policies == NULL || policies[i] == NULL) return call_refuse(client, "", "the name of a policy is NULL");
    }
    enum ratelimit_status status = call_begin(client, (struct call_end){timeout_ms, callback, arg}, &request);
    if (status != RATELIMIT_OK) return status;

    request->kind = REQUEST_VERIFY;
    int packed = request_pack_other(request, "policies", (struct slice){0});
    for (size_t i = 0; i < n && packed == 0; i++) {
        if (policies[i][0] != '{') packed = buffer_append(&request->names, policies[i], strlen(policies[i]) + 1);
    }
    return call_submit(client, request, packed);
}

/* ---- What the caller's loop waits for ---- */

int ratelimit_async_fd(const struct ratelimit_async *client)
{
    return client->connection.fd;
}

short ratelimit_async_events(const struct ratelimit_async *client)
{
    if (client->connection.fd < 0) return 0;
    return client->stuck ? POLLIN | POLLOUT : POLLIN;
}

int ratelimit_async_next_timeout_ms(const struct ratelimit_async *client)
{
    struct heap_node *first = heap_min(&client->deadlines);
    int64_t at_us = first != NULL ? first->at_us : INT64_MAX;

    if (!list_empty(&client->waiting)) {
        if (client->connection.fd < 0 && client->retry_at_us < at_us) at_us = client->retry_at_us;
        if (client->connection.fd >= 0 && !client->stuck) return 0;
    }
    if (!list_empty(&client->repeats)) return 0;
    if (at_us == INT64_MAX) return -1;

    struct clock clock = client->clock;
    clock_update(&clock);
    int64_t wait_ms = at_us > clock.mono_us ? (at_us - clock.mono_us + 999) / 1000 : 0;
    return wait_ms < INT_MAX ? (int)wait_ms : INT_MAX;
}

void ratelimit_async_watch(struct ratelimit_async *client, ratelimit_watch_fn *on_change, void *arg)
{
    client->on_change = on_change;
    client->on_change_arg = arg;
    client->reported_events = 0;
}

size_t ratelimit_async_pending(const struct ratelimit_async *client)
{
    return client->deadlines.n;
}

const char *ratelimit_version(void)
{
    return RL_VERSION;
}
