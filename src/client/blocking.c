/*
 * blocking.c: the blocking client: an asynchronous one, and poll(2) until the one call has ended.
 *
 * So there is one state machine for connections, deadlines and losses, and what its tests prove holds for both. The
 * callback copies what the caller may look at later; results that the caller gave a place for are decoded there.
 */
#include <poll.h>
#include <stdio.h>

#include "base/alloc.h"
#include "client/async.h"
#include "proto/pack.h"

enum {
    ERROR_SIZE = 512,
    CODE_SIZE = 48,
    ITEM_SIZE = 32,          /* bytes that an item needs beside its texts, at most */
    RESULT_KEPT = 64 * 1024, /* storage that a long answer made larger than this is given back */
};

struct ratelimit {
    struct ratelimit_async *async; /* owned */
    bool done;
    enum ratelimit_status status;
    struct ratelimit_decision *ret_decision; /* of the call under way: the caller's; NULL for other calls */
    struct buffer result;                    /* owned: the last result of other calls */
    struct buffer params;                    /* owned: of the call under way */
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
    buffer_fini(&client->params);
    buffer_fini(&client->result);
    mem_free(client);
}

void ratelimit_use_maps(struct ratelimit *client)
{
    async_use_maps(client->async);
}

const char *ratelimit_error(const struct ratelimit *client)
{
    return client->error;
}

const char *ratelimit_error_code(const struct ratelimit *client)
{
    return client->code;
}

static enum ratelimit_status finish(struct ratelimit *client, enum ratelimit_status status, const char *code,
                                    const char *message)
{
    snprintf(client->error, sizeof client->error, "%s", message);
    snprintf(client->code, sizeof client->code, "%s", code);
    client->done = true;
    return client->status = status;
}

static void on_answer(const struct ratelimit_answer *answer, void *arg)
{
    struct ratelimit *client = arg;
    finish(client, answer->status, answer->code, answer->message);
    if (answer->status != RATELIMIT_OK) return;
    if (answer->decision != NULL) {
        *client->ret_decision = *answer->decision;
    } else if (buffer_append(&client->result, answer->result, answer->result_len) != 0) {
        finish(client, RATELIMIT_PROTOCOL, "", "no memory to keep the answer");
    }
}

/* `accepted`: what the asynchronous client said to the call. */
static enum ratelimit_status wait_for_end(struct ratelimit *client, enum ratelimit_status accepted)
{
    if (accepted != RATELIMIT_OK) return finish(client, accepted, "", ratelimit_status_text(accepted));
    short revents = 0;
    for (;;) {
        ratelimit_async_process(client->async, revents);
        if (client->done) return client->status;
        struct pollfd waits = {ratelimit_async_fd(client->async), ratelimit_async_events(client->async), 0};
        int n = poll(&waits, 1, ratelimit_async_next_timeout_ms(client->async));
        revents = n > 0 ? waits.revents : 0;
    }
}

static void begin(struct ratelimit *client, struct ratelimit_decision *ret_decision)
{
    client->done = false;
    client->ret_decision = ret_decision;
    buffer_truncate(&client->result, 0);
    buffer_shrink(&client->result, RESULT_KEPT);
    buffer_truncate(&client->params, 0);
    buffer_shrink(&client->params, RESULT_KEPT);
}

enum ratelimit_status ratelimit_check(struct ratelimit *client, const char *policy, const void *key, size_t key_len,
                                      int64_t cost, uint32_t deadline_ms, struct ratelimit_decision *ret_decision)
{
    if (client == NULL || ret_decision == NULL) return RATELIMIT_BAD_ARGUMENT;
    begin(client, ret_decision);
    return wait_for_end(
        client, ratelimit_async_check(client->async, policy, key, key_len, cost, deadline_ms, on_answer, client));
}

enum ratelimit_status ratelimit_peek(struct ratelimit *client, const char *policy, const void *key, size_t key_len,
                                     int64_t cost, uint32_t deadline_ms, struct ratelimit_decision *ret_decision)
{
    if (client == NULL || ret_decision == NULL) return RATELIMIT_BAD_ARGUMENT;
    begin(client, ret_decision);
    return wait_for_end(
        client, ratelimit_async_peek(client->async, policy, key, key_len, cost, deadline_ms, on_answer, client));
}

/* Any method but check and peek; the result is in client->result. */
static enum ratelimit_status call_with(struct ratelimit *client, const char *method, const void *params,
                                       size_t params_len, uint32_t deadline_ms)
{
    return wait_for_end(
        client, ratelimit_async_call(client->async, method, params, params_len, deadline_ms, on_answer, client));
}

static enum ratelimit_status call_packed(struct ratelimit *client, const char *method, const struct packer *packer,
                                         uint32_t deadline_ms)
{
    if (packer->failed) {
        return finish(client, RATELIMIT_NO_MEMORY, "", ratelimit_status_text(RATELIMIT_NO_MEMORY));
    }
    return call_with(client, method, buffer_data(&client->params), buffer_len(&client->params), deadline_ms);
}

static struct pull result_of(const struct ratelimit *client)
{
    return pull_of(buffer_data(&client->result), buffer_len(&client->result));
}

static enum ratelimit_status not_understood(struct ratelimit *client)
{
    return finish(client, RATELIMIT_PROTOCOL, "", "the answer is not what this method answers");
}

static bool are_items(const struct ratelimit_item *items, size_t n)
{
    size_t room = RATELIMIT_REQUEST_MAX;
    for (size_t i = 0; i < n; i++) {
        if (items[i].policy == NULL || (items[i].key == NULL && items[i].key_len > 0)) return false;
        size_t policy_len = strlen(items[i].policy);
        if (policy_len > room || items[i].key_len > room - policy_len) return false;
        size_t needs = policy_len + items[i].key_len + ITEM_SIZE;
        if (needs > room) return false;
        room -= needs;
    }
    return true;
}

static struct packer pack_items(struct ratelimit *client, const struct ratelimit_item *items, size_t n)
{
    struct packer packer = packer_of(&client->params);
    pack_array(&packer, 1);
    pack_array(&packer, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        pack_array(&packer, 3);
        pack_text(&packer, items[i].policy);
        pack_str(&packer, (struct slice){items[i].key, items[i].key_len});
        pack_int(&packer, items[i].cost);
    }
    return packer;
}

static int decode_items(const struct ratelimit *client, const struct ratelimit_item *items, size_t n,
                        struct ratelimit_decision *ret_decisions)
{
    struct pull pull = result_of(client);
    uint32_t n_answered;
    if (pull_array(&pull, &n_answered) != 0 || n_answered != n) return -1;
    for (size_t i = 0; i < n; i++) {
        if (decode_decision(&pull, async_order(client->async), items[i].cost, &ret_decisions[i]) != 0) return -1;
    }
    return 0;
}

enum ratelimit_status ratelimit_check_many(struct ratelimit *client, const struct ratelimit_item *items, size_t n,
                                           uint32_t deadline_ms, struct ratelimit_decision *ret_decisions)
{
    if (client == NULL || (n > 0 && (items == NULL || ret_decisions == NULL))) return RATELIMIT_BAD_ARGUMENT;
    begin(client, NULL);
    if (!are_items(items, n)) {
        return finish(client, RATELIMIT_BAD_ARGUMENT, "", ratelimit_status_text(RATELIMIT_BAD_ARGUMENT));
    }
    struct packer packer = pack_items(client, items, n);
    enum ratelimit_status status = call_packed(client, "check_many", &packer, deadline_ms);
    if (status != RATELIMIT_OK) return status;
    return decode_items(client, items, n, ret_decisions) == 0 ? RATELIMIT_OK : not_understood(client);
}

/* {removed: bool} and whatever a later daemon adds. */
static int decode_removed(struct pull pull, bool *ret)
{
    uint32_t n;
    struct slice name;
    bool found = false;
    if (pull_map(&pull, &n) != 0) return -1;
    for (uint32_t i = 0; i < n; i++) {
        if (pull_text(&pull, &name) != 0) return -1;
        bool is_it = slice_is(name, "removed");
        if ((is_it ? pull_bool(&pull, ret) : pull_skip(&pull)) != 0) return -1;
        found = found || is_it;
    }
    return found ? 0 : -1;
}

enum ratelimit_status ratelimit_reset(struct ratelimit *client, const char *policy, const void *key, size_t key_len,
                                      uint32_t deadline_ms, bool *ret_removed)
{
    const struct ratelimit_item item = {.policy = policy, .key = key, .key_len = key_len};
    if (client == NULL) return RATELIMIT_BAD_ARGUMENT;
    begin(client, NULL);
    if (!are_items(&item, 1)) {
        return finish(client, RATELIMIT_BAD_ARGUMENT, "", ratelimit_status_text(RATELIMIT_BAD_ARGUMENT));
    }
    struct packer packer = packer_of(&client->params);
    pack_array(&packer, 2);
    pack_text(&packer, policy);
    pack_str(&packer, (struct slice){key, key_len});
    enum ratelimit_status status = call_packed(client, "reset", &packer, deadline_ms);
    if (status != RATELIMIT_OK) return status;
    bool removed = false;
    if (decode_removed(result_of(client), &removed) != 0) return not_understood(client);
    if (ret_removed != NULL) *ret_removed = removed;
    return RATELIMIT_OK;
}

enum ratelimit_status ratelimit_ping(struct ratelimit *client, uint32_t deadline_ms)
{
    if (client == NULL) return RATELIMIT_BAD_ARGUMENT;
    begin(client, NULL);
    return call_with(client, "ping", NULL, 0, deadline_ms);
}

enum ratelimit_status ratelimit_call(struct ratelimit *client, const char *method, const void *params,
                                     size_t params_len, uint32_t deadline_ms, const void **ret_result,
                                     size_t *ret_result_len)
{
    if (client == NULL || ret_result == NULL || ret_result_len == NULL) return RATELIMIT_BAD_ARGUMENT;
    begin(client, NULL);
    enum ratelimit_status status = call_with(client, method, params, params_len, deadline_ms);
    if (status != RATELIMIT_OK) return status;
    *ret_result = buffer_data(&client->result);
    *ret_result_len = buffer_len(&client->result);
    return RATELIMIT_OK;
}
