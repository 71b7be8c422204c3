/* call.c: checks what a caller passes, packs it and hands it to exchange.c; for async.c and blocking.c. */
#include "client/call.h"

#include <stdio.h>
#include <string.h>

#include "client/exchange.h"

enum {
    ITEM_SIZE = 32,          /* bytes that an item needs besides its texts, at most */
    OPTIONS_SIZE_MAX = 4096, /* no later version has more; a size that was not set may be anything */
};

enum ratelimit_status call_refuse(struct ratelimit_async *client, const char *about, const char *fault)
{
    if (client != NULL) snprintf(client->fault, sizeof client->fault, "%s%s", about, fault);
    return RATELIMIT_BAD_ARGUMENT;
}

enum ratelimit_status call_begin(struct ratelimit_async *client, struct call_end end, struct request **ret)
{
    if (client == NULL || end.callback == NULL) return call_refuse(client, "", "the callback is NULL");
    if (client->dying) return RATELIMIT_CANCELLED;
    exchange_leave_parent(client);
    if (client->deadlines.n >= RATELIMIT_CALLS_MAX) return RATELIMIT_BUSY;

    *ret = request_new(&client->pool);
    if (*ret == NULL) return RATELIMIT_NO_MEMORY;
    (*ret)->msgid = client->next_msgid;
    (*ret)->callback = end.callback;
    (*ret)->arg = end.arg;
    (*ret)->timeout_ms = end.timeout_ms > 0 ? end.timeout_ms : RATELIMIT_DEFAULT_TIMEOUT_MS;
    return RATELIMIT_OK;
}

enum ratelimit_status call_submit(struct ratelimit_async *client, struct request *request, int packed)
{
    enum ratelimit_status status = RATELIMIT_NO_MEMORY;
    if (request->wrong != NULL)
        status = call_refuse(client, "the policy's settings: ", request->wrong);
    else if (packed == 0 && buffer_len(&request->bytes) > client->max_frame)
        status = call_refuse(client, "", "the request is longer than the daemon accepts (caps.max_frame)");
    else if (packed == 0)
        status = exchange_submit(client, request);

    if (status == RATELIMIT_OK && request->effect == EFFECT_FREED) { /* what it frees may be asked for next */
        const struct buffer *bytes = &request->bytes;
        struct rpc_request message;
        bool is_packed = rpc_parse_request(buffer_data(bytes), buffer_len(bytes), &message) == RPC_OK;
        if (is_packed) denials_forget(&client->denials, message.params);
    }
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
        return call_refuse(client, about, "size is not valid; start with RATELIMIT_OPTIONS");
    for (size_t i = sizeof *from; i < from->size; i++) { /* at zero a later version's field asks for nothing */
        if (((const unsigned char *)from)[i] != 0)
            return call_refuse(client, about, "a field is set that this version of the library does not have");
    }

    if (from->at_most < 0 || from->max_wait_ms < -1 || from->ttl_ms < 0)
        return call_refuse(client, about, "at_most, max_wait_ms or ttl_ms is negative");
    if (from->at_most > 0 && from->cost != 1)
        return call_refuse(client, about, "at_most replaces cost; set only one of them");
    size_t id_len = from->request_id_len;
    if (from->request_id != NULL ? id_len == 0 || id_len > RATELIMIT_REQUEST_ID_MAX : id_len != 0)
        return call_refuse(client, about, "request_id must have 1 to 64 bytes");
    if (!has_cost && (from->cost != 1 || from->at_most != 0))
        return call_refuse(client, about, "cost and at_most must have their defaults here");

    *ret = *from;
    return RATELIMIT_OK;
}

enum request_effect call_effect(const char *method)
{
    static const struct {
        const char *method;
        enum request_effect effect;
    } effects[] = {
#define CALL(function, method, kind, effect, ...) {method, EFFECT_##effect},
#include "client/methods.def"
    };
    for (size_t i = 0; i < N_OF(effects); i++)
        if (strcmp(method, effects[i].method) == 0) return effects[i].effect;
    return EFFECT_NONE;
}

enum ratelimit_status call_ask(struct ratelimit_async *client, const struct question *asked, struct call_end end)
{
    struct request *request;
    struct ratelimit_options options;
    struct question question = *asked;
    if (question.has_options) {
        bool has_cost = question_has_cost(asked);
        enum ratelimit_status status = read_options(client, asked->options, has_cost, &options);
        if (status != RATELIMIT_OK) return status;
        question.options = &options;
        if (has_cost) question.granted = options.at_most > 0 ? options.at_most : options.cost;
    }
    if (question.about == ABOUT_ID && question.id == NULL)
        return call_refuse(client, "", "the reservation or slot is NULL");
    if (!are_items(question.items, question.n_items))
        return call_refuse(client, "", "a policy or key is NULL, or too long for a request");
    enum ratelimit_status status = call_begin(client, end, &request);
    if (status != RATELIMIT_OK) return status;

    request->kind = question.kind;
    request->effect = question.effect;
    request->flag = question.flag;
    if (question.is_check && client->denials.all != NULL) {
        clock_update(&client->clock);
        if (denials_find(&client->denials, &question, request, client->clock.mono_us))
            return exchange_repeat(client, request);
    }
    return call_submit(client, request, request_pack(request, &question, client->features));
}
