/*
 * calls.c: making calls of the asynchronous client: one function for each method.
 *
 *   begin     check the arguments and the number of calls in flight; take a request from the pool
 *   pack      request.c
 *   submit    set its deadline and queue it for sending (exchange.c), or return it to the pool
 */
#include <stdio.h>
#include <string.h>

#include "client/exchange.h"

enum {
    ITEM_SIZE = 32,          /* bytes that an item needs besides its texts, at most */
    OPTIONS_SIZE_MAX = 4096, /* no later version has more; a size that was not set may be anything */
};

/* How a call ends: the last three arguments of every function here. */
struct end {
    uint32_t timeout_ms;
    ratelimit_answer_fn *callback;
    void *arg;
};

static enum ratelimit_status bad_argument(struct ratelimit_async *client, const char *about, const char *fault)
{
    if (client != NULL) snprintf(client->fault, sizeof client->fault, "%s%s", about, fault);
    return RATELIMIT_BAD_ARGUMENT;
}

static enum ratelimit_status too_long(struct ratelimit_async *client)
{
    return bad_argument(client, "", "the request is longer than the daemon accepts (caps.max_frame)");
}

static enum ratelimit_status begin(struct ratelimit_async *client, enum request_kind kind, size_t least_len,
                                   ratelimit_answer_fn *callback, struct request **ret)
{
    if (client == NULL || callback == NULL) return bad_argument(client, "", "the callback is NULL");
    if (client->dying) return RATELIMIT_CANCELLED;
    exchange_leave_parent(client);
    if (least_len > client->max_frame) return too_long(client);
    if (client->n_pending >= RATELIMIT_CALLS_MAX) return RATELIMIT_BUSY;
    *ret = request_new(&client->pool, kind);
    return *ret != NULL ? RATELIMIT_OK : RATELIMIT_NO_MEMORY;
}

/* What gives back is never held back. */
static bool ask_breaker(struct ratelimit_async *client, struct request *request)
{
    if (request->effect == EFFECT_SLOT_ENDED || request->effect == EFFECT_ENDED) return true;
    enum breaker_verdict verdict = breaker_ask(&client->breaker, client->clock.mono_us);
    request->probes = verdict == BREAKER_PROBE;
    return verdict != BREAKER_REFUSE;
}

/* `status` is what packing said. */
static enum ratelimit_status submit(struct ratelimit_async *client, struct request *request,
                                    enum ratelimit_status status, struct end end)
{
    if (status == RATELIMIT_BAD_ARGUMENT) bad_argument(client, "the policy's settings: ", request->wrong);
    if (status == RATELIMIT_OK && buffer_len(&request->bytes) > client->max_frame) status = too_long(client);
    if (status != RATELIMIT_OK) goto err_call;
    clock_update(&client->clock);
    status = RATELIMIT_BREAKER;
    if (!ask_breaker(client, request)) goto err_call;
    status = RATELIMIT_NO_MEMORY;
    int64_t wait_us = (int64_t)(end.timeout_ms > 0 ? end.timeout_ms : RATELIMIT_DEFAULT_TIMEOUT_MS) * 1000;
    if (heap_push(&client->deadlines, &request->deadline, client->clock.mono_us + wait_us) != 0) goto err_probe;
    request->callback = end.callback;
    request->arg = end.arg;
    client->next_msgid++;
    client->n_pending++;
    list_push_back(&client->waiting, &request->link);
    return RATELIMIT_OK;

err_probe:
    if (request->probes) breaker_probe_ended(&client->breaker);
err_call:
    request_release(&client->pool, request);
    return status;
}

/* The bytes of the items, or SIZE_MAX where they are none or too many for a request. */
static size_t items_len(const struct ratelimit_item *items, size_t n)
{
    size_t len = 0;
    if (items == NULL && n > 0) return SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        if (items[i].policy == NULL || (items[i].key == NULL && items[i].key_len > 0)) return SIZE_MAX;
        size_t policy_len = strlen(items[i].policy), room = RATELIMIT_REQUEST_MAX - len;
        if (policy_len > room || items[i].key_len > room - policy_len) return SIZE_MAX;
        size_t item_len = policy_len + items[i].key_len + ITEM_SIZE;
        if (item_len > room) return SIZE_MAX;
        len += item_len;
    }
    return len;
}

static enum ratelimit_status bad_items(struct ratelimit_async *client)
{
    return bad_argument(client, "", "a policy or key is NULL, or too long for a request");
}

/* What every method about one policy and key begins with. */
static enum ratelimit_status begin_one(struct ratelimit_async *client, enum request_kind kind,
                                       const struct ratelimit_item *item, ratelimit_answer_fn *callback,
                                       struct request **ret)
{
    if (items_len(item, 1) == SIZE_MAX) return bad_items(client);
    return begin(client, kind, item->key_len < RATELIMIT_KEY_MAX ? item->key_len : RATELIMIT_KEY_MAX, callback, ret);
}

/* ---- Options ---- */

/* Fields behind those that this version knows: at zero they ask for nothing. */
static bool asks_for_more(const struct ratelimit_options *options)
{
    const unsigned char *bytes = (const unsigned char *)options;
    for (size_t i = sizeof *options; i < options->size; i++) {
        if (bytes[i] != 0) return true;
    }
    return false;
}

/* Is what is there of the request id one, or none? */
static bool is_request_id(const struct ratelimit_options *options)
{
    if (options->request_id == NULL) return options->request_id_len == 0;
    return options->request_id_len > 0 && options->request_id_len <= RATELIMIT_REQUEST_ID_MAX;
}

/* NULL, or what is wrong with them. */
static const char *options_fault(const struct ratelimit_options *options)
{
    if (options->size < sizeof *options || options->size > OPTIONS_SIZE_MAX)
        return "size is not valid; start with RATELIMIT_OPTIONS";
    if (asks_for_more(options)) return "a field is set that this version of the library does not have";
    if (options->at_most < 0 || options->max_wait_ms < -1 || options->ttl_ms < 0)
        return "at_most, max_wait_ms or ttl_ms is negative";
    if (options->at_most > 0 && options->cost != 1) return "at_most replaces cost; set only one of them";
    return is_request_id(options) ? NULL : "request_id must have 1 to 64 bytes";
}

static enum ratelimit_status read_options(struct ratelimit_async *client, const struct ratelimit_options *from,
                                          struct ratelimit_options *ret)
{
    *ret = (struct ratelimit_options)RATELIMIT_OPTIONS;
    if (from == NULL) return RATELIMIT_OK;
    const char *fault = options_fault(from);
    if (fault != NULL) return bad_argument(client, "options: ", fault);
    *ret = *from;
    return RATELIMIT_OK;
}

/* Where the cost stands elsewhere: it is no option then. */
static enum ratelimit_status read_options_without_cost(struct ratelimit_async *client,
                                                       const struct ratelimit_options *from,
                                                       struct ratelimit_options *ret)
{
    enum ratelimit_status status = read_options(client, from, ret);
    if (status != RATELIMIT_OK || (ret->cost == 1 && ret->at_most == 0)) return status;
    return bad_argument(client, "options: ", "cost and at_most must have their defaults here");
}

/* ---- Questions about one policy and key ---- */

static enum ratelimit_status ask_with_cost(struct ratelimit_async *client, const char *method,
                                           const struct ratelimit_item *item, struct end end)
{
    struct request *request;
    enum ratelimit_status status = begin_one(client, REQUEST_DECISION, item, end.callback, &request);
    if (status != RATELIMIT_OK) return status;
    status = request_pack_cost(request, client->next_msgid, method, item);
    return submit(client, request, status, end);
}

enum ratelimit_status ratelimit_async_check(struct ratelimit_async *client, const char *policy, const void *key,
                                            size_t key_len, int64_t cost, uint32_t timeout_ms,
                                            ratelimit_answer_fn *callback, void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, cost};
    return ask_with_cost(client, "check", &item, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_peek(struct ratelimit_async *client, const char *policy, const void *key,
                                           size_t key_len, int64_t cost, uint32_t timeout_ms,
                                           ratelimit_answer_fn *callback, void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, cost};
    return ask_with_cost(client, "peek", &item, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_refund(struct ratelimit_async *client, const char *policy, const void *key,
                                             size_t key_len, int64_t units, uint32_t timeout_ms,
                                             ratelimit_answer_fn *callback, void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, units};
    struct request *request;
    enum ratelimit_status status = begin_one(client, REQUEST_DECISION, &item, callback, &request);
    if (status != RATELIMIT_OK) return status;
    status = request_pack_cost(request, client->next_msgid, "refund", &item);
    request->cost = 0; /* it charges nothing */
    return submit(client, request, status, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_check_with(struct ratelimit_async *client, const char *policy, const void *key,
                                                 size_t key_len, const struct ratelimit_options *options,
                                                 uint32_t timeout_ms, ratelimit_answer_fn *callback, void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, 0};
    struct ratelimit_options read;
    struct request *request;
    enum ratelimit_status status = read_options(client, options, &read);
    if (status == RATELIMIT_OK) status = begin_one(client, REQUEST_DECISION, &item, callback, &request);
    if (status != RATELIMIT_OK) return status;
    status = request_pack_check(request, client->next_msgid, &item, &read);
    return submit(client, request, status, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_reserve(struct ratelimit_async *client, const char *policy, const void *key,
                                              size_t key_len, int64_t estimate, const struct ratelimit_options *options,
                                              uint32_t timeout_ms, ratelimit_answer_fn *callback, void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, estimate};
    struct ratelimit_options read;
    struct request *request;
    enum ratelimit_status status = read_options_without_cost(client, options, &read);
    if (status == RATELIMIT_OK) status = begin_one(client, REQUEST_ID, &item, callback, &request);
    if (status != RATELIMIT_OK) return status;
    request->effect = EFFECT_RESERVATION;
    status = request_pack_reserve(request, client->next_msgid, &item, &read);
    return submit(client, request, status, (struct end){timeout_ms, callback, arg});
}

static enum ratelimit_status ask_target(struct ratelimit_async *client, const char *method, enum request_kind kind,
                                        const struct ratelimit_item *item, struct end end)
{
    struct request *request;
    enum ratelimit_status status = begin_one(client, kind, item, end.callback, &request);
    if (status != RATELIMIT_OK) return status;
    request->flag = "removed";
    request->effect = kind == REQUEST_ID ? EFFECT_SLOT : EFFECT_NONE;
    status = request_pack_target(request, client->next_msgid, method, item);
    return submit(client, request, status, end);
}

enum ratelimit_status ratelimit_async_reset(struct ratelimit_async *client, const char *policy, const void *key,
                                            size_t key_len, uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                            void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, 0};
    return ask_target(client, "reset", REQUEST_FLAG, &item, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_acquire(struct ratelimit_async *client, const char *policy, const void *key,
                                              size_t key_len, uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                              void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, 0};
    return ask_target(client, "acquire", REQUEST_ID, &item, (struct end){timeout_ms, callback, arg});
}

/* ---- Several checks ---- */

static enum ratelimit_status ask_items(struct ratelimit_async *client, enum request_kind kind,
                                       const struct ratelimit_item *items, size_t n,
                                       const struct ratelimit_options *options, struct end end)
{
    struct request *request;
    size_t len = items_len(items, n);
    if (len == SIZE_MAX) return bad_items(client);
    enum ratelimit_status status = begin(client, kind, 0, end.callback, &request);
    if (status != RATELIMIT_OK) return status;
    const char *method = kind == REQUEST_ALL ? "check_all" : "check_many";
    status = request_pack_items(request, client->next_msgid, method, items, n, options);
    return submit(client, request, status, end);
}

enum ratelimit_status ratelimit_async_check_many(struct ratelimit_async *client, const struct ratelimit_item *items,
                                                 size_t n, uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                                 void *arg)
{
    return ask_items(client, REQUEST_MANY, items, n, NULL, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_check_all(struct ratelimit_async *client, const struct ratelimit_item *items,
                                                size_t n, const struct ratelimit_options *options, uint32_t timeout_ms,
                                                ratelimit_answer_fn *callback, void *arg)
{
    struct ratelimit_options read;
    enum ratelimit_status status = read_options_without_cost(client, options, &read);
    if (status != RATELIMIT_OK) return status;
    return ask_items(client, REQUEST_ALL, items, n, &read, (struct end){timeout_ms, callback, arg});
}

/* ---- Reservations and slots, by their ids ---- */

static enum ratelimit_status ask_id(struct ratelimit_async *client, const char *method, enum request_kind kind,
                                    const char *id, const int64_t *units, struct end end)
{
    struct request *request;
    if (id == NULL) return bad_argument(client, "", "the reservation or slot is NULL");
    enum ratelimit_status status = begin(client, kind, strlen(id), end.callback, &request);
    if (status != RATELIMIT_OK) return status;
    request->flag = "released";
    request->effect = kind == REQUEST_FLAG ? EFFECT_SLOT_ENDED : EFFECT_ENDED;
    status = request_pack_id(request, client->next_msgid, method, id, units);
    return submit(client, request, status, end);
}

enum ratelimit_status ratelimit_async_settle(struct ratelimit_async *client, const char *reservation, int64_t units,
                                             uint32_t timeout_ms, ratelimit_answer_fn *callback, void *arg)
{
    return ask_id(client, "settle", REQUEST_DECISION, reservation, &units, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_cancel(struct ratelimit_async *client, const char *reservation,
                                             uint32_t timeout_ms, ratelimit_answer_fn *callback, void *arg)
{
    return ask_id(client, "cancel", REQUEST_DECISION, reservation, NULL, (struct end){timeout_ms, callback, arg});
}

enum ratelimit_status ratelimit_async_release(struct ratelimit_async *client, const char *slot, uint32_t timeout_ms,
                                              ratelimit_answer_fn *callback, void *arg)
{
    return ask_id(client, "release", REQUEST_FLAG, slot, NULL, (struct end){timeout_ms, callback, arg});
}

/* ---- Any method ---- */

/* One whole array and nothing behind it, or nothing: the caller's bytes must not break the framing. */
static bool are_params(struct slice params)
{
    struct scanner scanner;
    if (params.len == 0) return true;
    if (params.data == NULL || params.len > RATELIMIT_REQUEST_MAX) return false;
    scanner_init(&scanner, RATELIMIT_REQUEST_MAX, SCAN_DEPTH_MAX - 1);
    return scanner_next(&scanner, params.data, params.len) == (int64_t)params.len;
}

/* A late yes must be taken back, and what gives back go out, whoever packed the call. */
static enum request_effect effect_of(const char *method)
{
    if (strcmp(method, "acquire") == 0) return EFFECT_SLOT;
    if (strcmp(method, "reserve") == 0) return EFFECT_RESERVATION;
    bool ends = strcmp(method, "release") == 0 || strcmp(method, "settle") == 0 || strcmp(method, "cancel") == 0;
    return ends ? EFFECT_ENDED : EFFECT_NONE;
}

enum ratelimit_status ratelimit_async_call(struct ratelimit_async *client, const char *method, const void *params,
                                           size_t params_len, uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                           void *arg)
{
    const struct slice packed = {params, params_len};
    struct request *request;
    if (method == NULL || !are_params(packed))
        return bad_argument(client, "", "the method is NULL, or the parameters are not one MessagePack array");
    enum ratelimit_status status = begin(client, REQUEST_OTHER, params_len, callback, &request);
    if (status != RATELIMIT_OK) return status;
    request->effect = effect_of(method);
    int rc = request_pack_other(request, client->next_msgid, method, packed);
    return submit(client, request, rc == 0 ? RATELIMIT_OK : RATELIMIT_NO_MEMORY,
                  (struct end){timeout_ms, callback, arg});
}
