/*
 * async.c: the public functions of the asynchronous client: new and free, one function for each method, and what the
 * caller's event loop waits for. A call is packed by request.c; exchange.c sends it and handles the answer.
 */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/exchange.h"

enum {
    MSGID_SLOTS = 4096,      /* of the table of sent calls; more calls make its chains longer */
    ITEM_SIZE = 32,          /* bytes that an item needs besides its texts, at most */
    OPTIONS_SIZE_MAX = 4096, /* no later version has more; a size that was not set may be anything */
};

#define REMEMBERED_MAX_MS (INT64_C(1) << 40) /* no retry time that counts is longer; in us it still fits */

static enum ratelimit_status bad_argument(struct ratelimit_async *client, const char *about, const char *fault)
{
    if (client != NULL) snprintf(client->fault, sizeof client->fault, "%s%s", about, fault);
    return RATELIMIT_BAD_ARGUMENT;
}

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
    if (client == NULL || duration_ms < 0) return bad_argument(client, "", "the duration is negative");
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

/* ---- Calls: checked, packed, submitted ---- */

/* How a call ends: the last three arguments of every function here. */
struct end {
    uint32_t timeout_ms;
    ratelimit_answer_fn *callback;
    void *arg;
};

/* A request from the pool, for the caller to pack. */
static enum ratelimit_status begin_call(struct ratelimit_async *client, const char *method, struct end end,
                                        struct request **ret)
{
    if (client == NULL || end.callback == NULL) return bad_argument(client, "", "the callback is NULL");
    if (client->dying) return RATELIMIT_CANCELLED;
    exchange_leave_parent(client);
    if (client->deadlines.n >= RATELIMIT_CALLS_MAX) return RATELIMIT_BUSY;

    *ret = request_new(&client->pool, method);
    if (*ret == NULL) return RATELIMIT_NO_MEMORY;
    (*ret)->msgid = client->next_msgid;
    (*ret)->callback = end.callback;
    (*ret)->arg = end.arg;
    (*ret)->timeout_ms = end.timeout_ms > 0 ? end.timeout_ms : RATELIMIT_DEFAULT_TIMEOUT_MS;
    return RATELIMIT_OK;
}

/* What a reset or refund frees may be asked for next. */
static void forget_denials(struct ratelimit_async *client, const struct request *request)
{
    struct rpc_request message;
    bool is_packed = rpc_parse_request(buffer_data(&request->bytes), buffer_len(&request->bytes), &message) == RPC_OK;
    if (is_packed) denials_forget(&client->denials, message.params);
}

/* `packed`: 0, or -1 without memory. The request is queued, or back in the pool. */
static enum ratelimit_status submit_call(struct ratelimit_async *client, struct request *request, int packed)
{
    enum ratelimit_status status = RATELIMIT_NO_MEMORY;
    if (request->wrong != NULL)
        status = bad_argument(client, "the policy's settings: ", request->wrong);
    else if (packed == 0 && buffer_len(&request->bytes) > client->max_frame)
        status = bad_argument(client, "", "the request is longer than the daemon accepts (caps.max_frame)");
    else if (packed == 0)
        status = exchange_submit(client, request);
    if (status == RATELIMIT_OK && request->effect == EFFECT_FREED) forget_denials(client, request);
    if (status != RATELIMIT_OK) request_release(&client->pool, request);
    return status;
}

/* Policies and keys that are there, and together fit into a request. */
static bool are_items(const struct ratelimit_item *items, size_t n)
{
    size_t len = 0;
    if (items == NULL && n > 0) return false;
    for (size_t i = 0; i < n; i++) {
        const struct ratelimit_item *item = &items[i];
        if (item->policy == NULL || (item->key == NULL && item->key_len > 0)) return false;
        if (item->key_len > RATELIMIT_REQUEST_MAX) return false;
        len += strlen(item->policy) + item->key_len + ITEM_SIZE;
        if (len > RATELIMIT_REQUEST_MAX) return false;
    }
    return true;
}

/* The caller's, or the defaults. Without `has_cost` the cost is a parameter, and no option. */
static enum ratelimit_status read_options(struct ratelimit_async *client, const struct ratelimit_options *from,
                                          bool has_cost, struct ratelimit_options *ret)
{
    static const char about[] = "options: ";
    *ret = (struct ratelimit_options)RATELIMIT_OPTIONS;
    if (from == NULL) return RATELIMIT_OK;

    if (from->size < sizeof *from || from->size > OPTIONS_SIZE_MAX)
        return bad_argument(client, about, "size is not valid; start with RATELIMIT_OPTIONS");
    for (size_t i = sizeof *from; i < from->size; i++) { /* at zero a later version's field asks for nothing */
        if (((const unsigned char *)from)[i] != 0)
            return bad_argument(client, about, "a field is set that this version of the library does not have");
    }

    if (from->at_most < 0 || from->max_wait_ms < -1 || from->ttl_ms < 0)
        return bad_argument(client, about, "at_most, max_wait_ms or ttl_ms is negative");
    if (from->at_most > 0 && from->cost != 1)
        return bad_argument(client, about, "at_most replaces cost; set only one of them");
    size_t id_len = from->request_id_len;
    if (from->request_id != NULL ? id_len == 0 || id_len > RATELIMIT_REQUEST_ID_MAX : id_len != 0)
        return bad_argument(client, about, "request_id must have 1 to 64 bytes");
    if (!has_cost && (from->cost != 1 || from->at_most != 0))
        return bad_argument(client, about, "cost and at_most must have their defaults here");

    *ret = *from;
    return RATELIMIT_OK;
}

/* ---- Questions ---- */

static enum ratelimit_status ask(struct ratelimit_async *client, const struct question *question, struct end end)
{
    struct request *request;
    if (!are_items(question->items, question->n_items))
        return bad_argument(client, "", "a policy or key is NULL, or too long for a request");
    enum ratelimit_status status = begin_call(client, question->method, end, &request);
    if (status != RATELIMIT_OK) return status;

    if (question->is_check && client->denials.all != NULL) {
        clock_update(&client->clock);
        if (denials_find(&client->denials, question, request, client->clock.mono_us))
            return exchange_repeat(client, request);
    }
    return submit_call(client, request, request_pack(request, question, client->features));
}

enum ratelimit_status ratelimit_async_check(struct ratelimit_async *client, const char *policy, const void *key,
                                            size_t key_len, int64_t cost, uint32_t timeout_ms,
                                            ratelimit_answer_fn *callback, void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, 0};
    const struct question question = {
        .method = "check", .items = &item, .n_items = 1, .units = &cost, .granted = cost, .is_check = true};
    return ask(client, &question, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_peek(struct ratelimit_async *client, const char *policy, const void *key,
                                           size_t key_len, int64_t cost, uint32_t timeout_ms,
                                           ratelimit_answer_fn *callback, void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, 0};
    const struct question question = {.method = "peek", .items = &item, .n_items = 1, .units = &cost, .granted = cost};
    return ask(client, &question, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_refund(struct ratelimit_async *client, const char *policy, const void *key,
                                             size_t key_len, int64_t units, uint32_t timeout_ms,
                                             ratelimit_answer_fn *callback, void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, 0};
    const struct question question = {.method = "refund", .items = &item, .n_items = 1, .units = &units};
    return ask(client, &question, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_check_with(struct ratelimit_async *client, const char *policy, const void *key,
                                                 size_t key_len, const struct ratelimit_options *options,
                                                 uint32_t timeout_ms, ratelimit_answer_fn *callback, void *arg)
{
    struct ratelimit_options read;
    enum ratelimit_status status = read_options(client, options, true, &read);
    if (status != RATELIMIT_OK) return status;

    const struct ratelimit_item item = {policy, key, key_len, 0};
    const struct question question = {.method = "check",
                                      .items = &item,
                                      .n_items = 1,
                                      .options = &read,
                                      .granted = read.at_most > 0 ? read.at_most : read.cost,
                                      .is_check = true};
    return ask(client, &question, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_reserve(struct ratelimit_async *client, const char *policy, const void *key,
                                              size_t key_len, int64_t estimate, const struct ratelimit_options *options,
                                              uint32_t timeout_ms, ratelimit_answer_fn *callback, void *arg)
{
    struct ratelimit_options read;
    enum ratelimit_status status = read_options(client, options, false, &read);
    if (status != RATELIMIT_OK) return status;

    const struct ratelimit_item item = {policy, key, key_len, 0};
    const struct question question = {
        .method = "reserve", .items = &item, .n_items = 1, .units = &estimate, .options = &read, .granted = estimate};
    return ask(client, &question, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_reset(struct ratelimit_async *client, const char *policy, const void *key,
                                            size_t key_len, uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                            void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, 0};
    const struct question question = {.method = "reset", .items = &item, .n_items = 1};
    return ask(client, &question, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_acquire(struct ratelimit_async *client, const char *policy, const void *key,
                                              size_t key_len, uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                              void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, 0};
    const struct question question = {.method = "acquire", .items = &item, .n_items = 1, .granted = 1};
    return ask(client, &question, (struct end){timeout_ms, callback, arg});
}

/* ---- Several checks ---- */

enum ratelimit_status ratelimit_async_check_many(struct ratelimit_async *client, const struct ratelimit_item *items,
                                                 size_t n, uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                                 void *arg)
{
    const struct question question = {.method = "check_many", .items = items, .n_items = n, .is_list = true};
    return ask(client, &question, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_check_all(struct ratelimit_async *client, const struct ratelimit_item *items,
                                                size_t n, const struct ratelimit_options *options, uint32_t timeout_ms,
                                                ratelimit_answer_fn *callback, void *arg)
{
    struct ratelimit_options read;
    enum ratelimit_status status = read_options(client, options, false, &read);
    if (status != RATELIMIT_OK) return status;

    const struct question question = {
        .method = "check_all", .items = items, .n_items = n, .is_list = true, .options = &read, .is_check = true};
    return ask(client, &question, (struct end){timeout_ms, callback, arg});
}

/* ---- Reservations and slots, by their ids ---- */

static enum ratelimit_status ask_id(struct ratelimit_async *client, const char *method, const char *id,
                                    const int64_t *units, struct end end)
{
    if (id == NULL) return bad_argument(client, "", "the reservation or slot is NULL");
    return ask(client, &(struct question){.method = method, .id = id, .units = units}, end);
}

enum ratelimit_status ratelimit_async_settle(struct ratelimit_async *client, const char *reservation, int64_t units,
                                             uint32_t timeout_ms, ratelimit_answer_fn *callback, void *arg)
{
    return ask_id(client, "settle", reservation, &units, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_cancel(struct ratelimit_async *client, const char *reservation,
                                             uint32_t timeout_ms, ratelimit_answer_fn *callback, void *arg)
{
    return ask_id(client, "cancel", reservation, NULL, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_release(struct ratelimit_async *client, const char *slot, uint32_t timeout_ms,
                                              ratelimit_answer_fn *callback, void *arg)
{
    return ask_id(client, "release", slot, NULL, (struct end){timeout_ms, callback, arg});
}

/* ---- Any method ---- */

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
        return bad_argument(client, "", "the method is NULL, or the parameters are not one MessagePack array");

    enum ratelimit_status status = begin_call(client, method, (struct end){timeout_ms, callback, arg}, &request);
    if (status != RATELIMIT_OK) return status;

    request->kind = REQUEST_OTHER; /* the caller reads the result; the effect stays, whoever packed the call */
    return submit_call(client, request, request_pack_other(request, method, (struct slice){params, params_len}));
}

enum ratelimit_status ratelimit_async_verify(struct ratelimit_async *client, const char *const *policies, size_t n,
                                             uint32_t timeout_ms, ratelimit_answer_fn *callback, void *arg)
{
    struct request *request;
    for (size_t i = 0; i < n; i++) {
        if (policies == NULL || policies[i] == NULL) return bad_argument(client, "", "the name of a policy is NULL");
    }
    enum ratelimit_status status = begin_call(client, "policies", (struct end){timeout_ms, callback, arg}, &request);
    if (status != RATELIMIT_OK) return status;

    request->kind = REQUEST_VERIFY;
    int packed = request_pack_other(request, "policies", (struct slice){0});
    for (size_t i = 0; i < n && packed == 0; i++) {
        if (policies[i][0] != '{') packed = buffer_append(&request->names, policies[i], strlen(policies[i]) + 1);
    }
    return submit_call(client, request, packed);
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
