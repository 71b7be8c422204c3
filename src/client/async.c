/*
 * async.c: the asynchronous client: calls go out over one connection and come back in any order.
 *
 *   ratelimit_async_check()   pack, into `waiting`; nothing is sent
 *   ratelimit_async_process()
 *     receive    bytes ─▶ responses ─▶ end the call with that msgid     connection ended ─▶ lose()
 *     expire     calls whose deadline has come
 *     connect    when something waits and there is no connection: hello goes before everything that waits
 *     send       what waits, in one write as far as the socket takes it; a call that has left whole goes to `sent`
 *
 * A call is in `waiting` or in `sent` until it ends, and ends once: answered, refused, at its deadline, with the
 * connection (only if it was sent; what waits is sent on the next one), when nobody listens (only if it waits), or
 * with the client. Callbacks run in process() and free() alone; `busy` keeps a callback from getting into the middle
 * of the walk that runs it, and a client freed there goes when that walk is over (`dying`).
 */
#include "client/async.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "client/link.h"
#include "client/request.h"

enum {
    SEND_PARTS = 128,       /* requests in one write */
    RECEIVE_ROUNDS = 16,    /* reads in one process(), so that a flood of answers cannot keep the caller's loop */
    BACKOFF_MIN_US = 1000,  /* between attempts to get into a full backlog */
    BACKOFF_MAX_US = 20000, /* a poll that costs nothing against a daemon that takes this long to accept */
    MSGID_SLOTS = 4096,     /* of the table of sent calls; more calls make its chains longer */
    CODE_SIZE = 48,         /* of an error code and its NUL */
    MESSAGE_SIZE = 512,     /* of an error for people */
};

struct ratelimit_async {
    struct link connection;
    struct clock clock;
    pid_t pid; /* whose connection it is */

    struct list waiting; /* of struct request, in the order made; the first may be half written */
    struct list sent;
    struct list ending;  /* calls that one event ends, while their callbacks run */
    struct map by_msgid; /* the calls in `sent` */
    struct heap deadlines;
    struct request_pool pool;
    struct request hello; /* sent first on each connection; in no heap, not counted */
    size_t n_pending;
    uint64_t next_msgid; /* never used again, so a late answer cannot meet another call */

    struct decode_order order;
    uint32_t max_frame; /* the daemon's, once hello has answered */
    bool maps;

    bool stuck;          /* the socket is full: wait for POLLOUT */
    bool answered;       /* this connection has brought an answer */
    int64_t retry_at_us; /* no attempt to connect before */
    int64_t backoff_us;

    ratelimit_watch_fn *on_change;
    void *on_change_arg;
    short told_events; /* what on_change heard last */
    bool busy;         /* in process() or free() */
    bool dying;        /* freed by a callback */
};

static const char *path_or_default(const char *path)
{
    if (path != NULL) return path;
    path = secure_getenv("RATELIMIT_SOCKET");
    return path != NULL ? path : RATELIMIT_DEFAULT_SOCKET;
}

enum ratelimit_status ratelimit_async_new(const char *path, struct ratelimit_async **ret_client)
{
    struct ratelimit_async *client = mem_zalloc(sizeof *client);
    enum ratelimit_status status = RATELIMIT_NO_MEMORY;
    if (client == NULL) return status;
    if (link_init(&client->connection, path_or_default(path)) != 0) {
        status = RATELIMIT_BAD_ARGUMENT;
        goto err_client;
    }
    if (map_init(&client->by_msgid, MSGID_SLOTS) != 0) goto err_client;
    list_init(&client->waiting);
    list_init(&client->sent);
    list_init(&client->ending);
    heap_init(&client->deadlines);
    request_pool_init(&client->pool);
    request_init(&client->hello, REQUEST_HELLO);
    decode_order_init(&client->order);
    client->max_frame = RATELIMIT_REQUEST_MAX;
    client->pid = getpid();
    client->next_msgid = 1;
    client->backoff_us = BACKOFF_MIN_US;
    *ret_client = client;
    return RATELIMIT_OK;

err_client:
    mem_free(client);
    return status;
}

const struct decode_order *async_order(const struct ratelimit_async *client)
{
    return &client->order;
}

void async_use_maps(struct ratelimit_async *client)
{
    client->maps = true;
}

struct clock *async_clock(struct ratelimit_async *client)
{
    return &client->clock;
}

/* ---- How calls end ---- */

/* Take the call out of everything that knows it; what is half written stays, to keep the framing. */
static void forget_call(struct ratelimit_async *client, struct request *request)
{
    heap_remove(&client->deadlines, &request->deadline);
    if (request->sent) map_remove(&client->by_msgid, &request->by_msgid);
    request->sent = false;
    if (request->kind == REQUEST_HELLO) {
        list_remove(&request->link);
        return;
    }
    client->n_pending--;
    request->ended = true;
    if (request->n_written > 0 && request->n_written < buffer_len(&request->bytes)) return;
    list_remove(&request->link);
    request_release(&client->pool, request);
}

static void end_call(struct ratelimit_async *client, struct request *request, const struct ratelimit_answer *answer)
{
    ratelimit_answer_fn *callback = request->callback;
    void *arg = request->arg;
    forget_call(client, request);
    if (callback != NULL) callback(answer, arg);
}

static void end_without_answer(struct ratelimit_async *client, struct request *request, enum ratelimit_status status,
                               const char *message)
{
    const struct ratelimit_answer answer = {
        .status = status, .code = "", .message = message[0] != '\0' ? message : ratelimit_status_text(status)};
    end_call(client, request, &answer);
}

/* The calls of `list` as it is now; those that a callback adds stay. */
static void end_all(struct ratelimit_async *client, struct list *list, enum ratelimit_status status,
                    const char *message)
{
    list_append(&client->ending, list);
    while (!list_empty(&client->ending)) {
        end_without_answer(client, LIST_ITEM(client->ending.next, struct request, link), status, message);
    }
}

/* ---- The connection's end ---- */

static void tell(struct ratelimit_async *client, short events)
{
    if (events == client->told_events) return;
    client->told_events = events;
    if (client->on_change != NULL) client->on_change(client->on_change_arg, client->connection.fd, events);
}

/* What was half written begins anew on the next connection, unless nobody waits for it. */
static void rewind_waiting(struct ratelimit_async *client)
{
    if (client->hello.n_written < buffer_len(&client->hello.bytes)) list_remove(&client->hello.link);
    if (list_empty(&client->waiting)) return;
    struct request *first = LIST_ITEM(client->waiting.next, struct request, link);
    first->n_written = 0;
    if (!first->ended) return;
    list_remove(&first->link);
    request_release(&client->pool, first);
}

/* A connection that ended without any use must not be opened again at once, for ever. */
static void put_off_retry(struct ratelimit_async *client)
{
    client->retry_at_us = client->clock.mono_us + client->backoff_us;
    client->backoff_us = client->backoff_us < BACKOFF_MAX_US / 2 ? client->backoff_us * 2 : BACKOFF_MAX_US;
}

static void lose(struct ratelimit_async *client, enum ratelimit_status status, const char *message)
{
    bool of_use = client->answered || client->by_msgid.n > client->hello.sent;
    tell(client, 0);
    link_close(&client->connection);
    rewind_waiting(client);
    end_all(client, &client->sent, status, message);
    if (!of_use) put_off_retry(client);
}

/* ---- Answers ---- */

static struct request *call_of(const struct ratelimit_async *client, uint64_t msgid)
{
    struct map_node *node = map_first(&client->by_msgid, msgid);
    return node != NULL ? CONTAINER_OF(node, struct request, by_msgid) : NULL;
}

/* "CODE: message", as two texts of the caller's. */
static void split_error(struct slice error, char *ret_code, char *ret_message)
{
    size_t len = error.len < MESSAGE_SIZE ? error.len : MESSAGE_SIZE - 1;
    if (len > 0) memcpy(ret_message, error.data, len);
    ret_message[len] = '\0';
    const char *colon = strstr(ret_message, ": ");
    size_t code_len = colon != NULL && colon - ret_message < CODE_SIZE ? (size_t)(colon - ret_message) : 0;
    memcpy(ret_code, ret_message, code_len);
    ret_code[code_len] = '\0';
}

static void end_refused(struct ratelimit_async *client, struct request *request, struct slice error)
{
    char code[CODE_SIZE], message[MESSAGE_SIZE];
    split_error(error, code, message);
    const struct ratelimit_answer answer = {.status = RATELIMIT_REFUSED, .code = code, .message = message};
    end_call(client, request, &answer);
}

static void end_answered(struct ratelimit_async *client, struct request *request, struct pull result)
{
    struct ratelimit_decision decision;
    struct ratelimit_answer answer = {
        .code = "", .message = "", .result = result.at, .result_len = (size_t)(result.end - result.at)};
    if (request->kind == REQUEST_DECISION) {
        answer.decision = &decision;
        if (decode_decision(&result, &client->order, request->cost, &decision) != 0) {
            end_without_answer(client, request, RATELIMIT_PROTOCOL, "the answer is no decision");
            return;
        }
    }
    end_call(client, request, &answer);
}

/* Where hello was refused or is not understood, decisions come as maps or in the protocol's order: both are read. */
static void on_hello(struct ratelimit_async *client, const struct rpc_response *response)
{
    if (!response->is_error) decode_hello(response->result, &client->order, &client->max_frame);
    forget_call(client, &client->hello);
}

/* 0, or -1 when the connection was lost over it. */
static int on_response(struct ratelimit_async *client, const struct rpc_response *response)
{
    char code[CODE_SIZE], message[MESSAGE_SIZE];
    if (!response->has_msgid) {
        split_error(response->error, code, message);
        lose(client, RATELIMIT_LOST, message);
        return -1;
    }
    struct request *request = call_of(client, response->msgid);
    if (request == NULL && response->msgid >= client->next_msgid) {
        lose(client, RATELIMIT_PROTOCOL, "an answer to a call that was never made");
        return -1;
    }
    client->answered = true;
    client->backoff_us = BACKOFF_MIN_US;
    if (request == NULL) return 0; /* late: its call has ended */
    if (request->kind == REQUEST_HELLO) {
        on_hello(client, response);
    } else if (response->is_error) {
        end_refused(client, request, response->error);
    } else {
        end_answered(client, request, response->result);
    }
    return 0;
}

/* The connection or the client may be gone afterwards. */
static void handle_responses(struct ratelimit_async *client)
{
    struct rpc_response response;
    size_t len;
    enum link_step step;
    while ((step = link_next(&client->connection, &response, &len)) == LINK_DONE) {
        if (on_response(client, &response) != 0 || client->dying) return;
        link_consume(&client->connection, len);
    }
    if (step == LINK_FAILED) lose(client, RATELIMIT_PROTOCOL, client->connection.error);
}

/* True where the connection lives and may have more to read now. */
static bool receive(struct ratelimit_async *client)
{
    bool more = true;
    for (int i = 0; i < RECEIVE_ROUNDS && more && client->connection.fd >= 0 && !client->dying; i++) {
        switch (link_receive(&client->connection, &more)) {
        case LINK_DONE: handle_responses(client); break;
        case LINK_LATER: more = false; break;
        case LINK_FAILED: lose(client, RATELIMIT_LOST, client->connection.error); break;
        }
    }
    return more && client->connection.fd >= 0;
}

/* ---- Deadlines ---- */

static struct request *due_call(const struct ratelimit_async *client)
{
    struct heap_node *first = heap_min(&client->deadlines);
    return first != NULL && first->at_us <= client->clock.mono_us ? CONTAINER_OF(first, struct request, deadline)
                                                                  : NULL;
}

/* Half written counts as sent: the rest will follow. */
static void expire(struct ratelimit_async *client)
{
    for (struct request *request; !client->dying && (request = due_call(client)) != NULL;) {
        if (request->n_written > 0) {
            end_without_answer(client, request, RATELIMIT_TIMEOUT, "");
        } else {
            end_without_answer(client, request, RATELIMIT_UNREACHABLE, client->connection.error);
        }
    }
}

/* ---- Connecting and sending ---- */

static void say_hello(struct ratelimit_async *client)
{
    struct request *hello = &client->hello;
    request_init(hello, REQUEST_HELLO);
    if (request_pack_hello(hello, client->next_msgid++, client->maps) != 0) return; /* maps come, and are read too */
    list_push_back(client->waiting.next, &hello->link);                             /* before the first */
}

static void connect_now(struct ratelimit_async *client)
{
    if (client->clock.mono_us < client->retry_at_us) return;
    switch (link_connect(&client->connection)) {
    case LINK_DONE:
        client->connection.error[0] = '\0';
        client->stuck = client->answered = false;
        decode_order_init(&client->order);
        say_hello(client);
        break;
    case LINK_LATER: put_off_retry(client); break;
    case LINK_FAILED: end_all(client, &client->waiting, RATELIMIT_UNREACHABLE, client->connection.error); break;
    }
}

static size_t gather(const struct ratelimit_async *client, struct iovec *parts)
{
    size_t n = 0;
    LIST_FOREACH (link, &client->waiting) {
        const struct request *request = LIST_ITEM(link, struct request, link);
        if (n == SEND_PARTS) break;
        parts[n++] = (struct iovec){.iov_base = buffer_data(&request->bytes) + request->n_written,
                                    .iov_len = buffer_len(&request->bytes) - request->n_written};
    }
    return n;
}

/* The whole request has left. */
static void on_sent(struct ratelimit_async *client, struct request *request)
{
    list_remove(&request->link);
    if (request->ended) {
        request_release(&client->pool, request);
        return;
    }
    request->sent = true;
    map_insert(&client->by_msgid, &request->by_msgid, request->msgid);
    list_push_back(&client->sent, &request->link);
}

/* `len` bytes have left. */
static void on_written(struct ratelimit_async *client, size_t len)
{
    while (len > 0) {
        struct request *request = LIST_ITEM(client->waiting.next, struct request, link);
        size_t left = buffer_len(&request->bytes) - request->n_written;
        size_t part = len < left ? len : left;
        request->n_written += part;
        len -= part;
        if (part == left) on_sent(client, request);
    }
}

/* A daemon that closed may have answered before: its answers are read before anything is called lost. */
static void on_send_failed(struct ratelimit_async *client)
{
    char message[LINK_ERROR_SIZE];
    snprintf(message, sizeof message, "%s", client->connection.error);
    client->stuck = receive(client);
    if (client->connection.fd >= 0 && !client->stuck && !client->dying) lose(client, RATELIMIT_LOST, message);
}

static void send_waiting(struct ratelimit_async *client)
{
    struct iovec parts[SEND_PARTS];
    size_t len;
    while (!list_empty(&client->waiting)) {
        switch (link_send(&client->connection, parts, gather(client, parts), &len)) {
        case LINK_DONE: on_written(client, len); break;
        case LINK_LATER: client->stuck = true; return;
        case LINK_FAILED: on_send_failed(client); return;
        }
    }
}

/* ---- The turn ---- */

static void turn(struct ratelimit_async *client, short revents)
{
    if ((revents & ~POLLOUT) != 0 || due_call(client) != NULL) receive(client);
    if (revents & POLLOUT) client->stuck = false;
    expire(client);
    if (client->dying || list_empty(&client->waiting)) return;
    if (client->connection.fd < 0) connect_now(client);
    if (client->connection.fd >= 0 && !client->stuck && !client->dying) send_waiting(client);
}

/* In a child of fork(): the connection and the calls are the parent's. The child's event loop may share the parent's
 * registrations, so nobody is told to forget the descriptor. */
static void leave_parent(struct ratelimit_async *client)
{
    if (client->pid == getpid()) return;
    client->pid = getpid();
    client->told_events = 0;
    link_close(&client->connection);
    rewind_waiting(client);
    list_append(&client->ending, &client->waiting);
    list_append(&client->ending, &client->sent);
    while (!list_empty(&client->ending)) forget_call(client, LIST_ITEM(client->ending.next, struct request, link));
}

static void destroy(struct ratelimit_async *client)
{
    client->busy = client->dying = true;
    tell(client, 0);
    link_close(&client->connection);
    rewind_waiting(client);
    end_all(client, &client->sent, RATELIMIT_CANCELLED, "");
    end_all(client, &client->waiting, RATELIMIT_CANCELLED, "");
    CHECK(client->n_pending == 0);
    request_fini(&client->hello);
    request_pool_fini(&client->pool);
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
    leave_parent(client);
    destroy(client);
}

void ratelimit_async_process(struct ratelimit_async *client, short revents)
{
    if (client->busy) return;
    client->busy = true;
    leave_parent(client);
    clock_update(&client->clock);
    turn(client, revents);
    client->busy = false;
    if (client->dying) {
        destroy(client);
    } else if (client->connection.fd >= 0) {
        tell(client, ratelimit_async_events(client));
    }
}

/* ---- Making calls ---- */

static enum ratelimit_status may_call(struct ratelimit_async *client, size_t request_len)
{
    if (client->dying) return RATELIMIT_CANCELLED;
    leave_parent(client);
    if (request_len > client->max_frame) return RATELIMIT_BAD_ARGUMENT;
    return client->n_pending < RATELIMIT_CALLS_MAX ? RATELIMIT_OK : RATELIMIT_BUSY;
}

/* The call is packed; `failed` where that failed. */
static enum ratelimit_status submit(struct ratelimit_async *client, struct request *request, bool failed,
                                    uint32_t deadline_ms, ratelimit_answer_fn *callback, void *arg)
{
    enum ratelimit_status status = RATELIMIT_NO_MEMORY;
    if (failed) goto err_call;
    status = RATELIMIT_BAD_ARGUMENT;
    if (buffer_len(&request->bytes) > client->max_frame) goto err_call;
    status = RATELIMIT_NO_MEMORY;
    clock_update(&client->clock);
    int64_t wait_us = (int64_t)(deadline_ms > 0 ? deadline_ms : RATELIMIT_DEFAULT_DEADLINE_MS) * 1000;
    if (heap_push(&client->deadlines, &request->deadline, client->clock.mono_us + wait_us) != 0) goto err_call;
    request->callback = callback;
    request->arg = arg;
    client->next_msgid++;
    client->n_pending++;
    list_push_back(&client->waiting, &request->link);
    return RATELIMIT_OK;

err_call:
    request_release(&client->pool, request);
    return status;
}

static enum ratelimit_status ask(struct ratelimit_async *client, const char *method, const struct ratelimit_item *item,
                                 uint32_t deadline_ms, ratelimit_answer_fn *callback, void *arg)
{
    if (client == NULL || item->policy == NULL || callback == NULL || (item->key == NULL && item->key_len > 0)) {
        return RATELIMIT_BAD_ARGUMENT;
    }
    enum ratelimit_status status = may_call(client, item->key_len);
    if (status != RATELIMIT_OK) return status;
    struct request *request = request_new(&client->pool, REQUEST_DECISION);
    if (request == NULL) return RATELIMIT_NO_MEMORY;
    int rc = request_pack_check(request, client->next_msgid, method, item);
    return submit(client, request, rc != 0, deadline_ms, callback, arg);
}

enum ratelimit_status ratelimit_async_check(struct ratelimit_async *client, const char *policy, const void *key,
                                            size_t key_len, int64_t cost, uint32_t deadline_ms,
                                            ratelimit_answer_fn *callback, void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, cost};
    return ask(client, "check", &item, deadline_ms, callback, arg);
}

enum ratelimit_status ratelimit_async_peek(struct ratelimit_async *client, const char *policy, const void *key,
                                           size_t key_len, int64_t cost, uint32_t deadline_ms,
                                           ratelimit_answer_fn *callback, void *arg)
{
    const struct ratelimit_item item = {policy, key, key_len, cost};
    return ask(client, "peek", &item, deadline_ms, callback, arg);
}

/* One whole array and nothing behind it, or nothing: the caller's bytes must not break the framing. */
static bool are_params(struct slice params)
{
    struct scanner scanner;
    if (params.len == 0) return true;
    if (params.data == NULL || params.len > RATELIMIT_REQUEST_MAX) return false;
    scanner_init(&scanner, RATELIMIT_REQUEST_MAX, SCAN_DEPTH_MAX - 1);
    return scanner_next(&scanner, params.data, params.len) == (int64_t)params.len;
}

enum ratelimit_status ratelimit_async_call(struct ratelimit_async *client, const char *method, const void *params,
                                           size_t params_len, uint32_t deadline_ms, ratelimit_answer_fn *callback,
                                           void *arg)
{
    const struct slice packed = {params, params_len};
    if (client == NULL || method == NULL || callback == NULL || !are_params(packed)) return RATELIMIT_BAD_ARGUMENT;
    enum ratelimit_status status = may_call(client, params_len);
    if (status != RATELIMIT_OK) return status;
    struct request *request = request_new(&client->pool, REQUEST_OTHER);
    if (request == NULL) return RATELIMIT_NO_MEMORY;
    int rc = request_pack_other(request, client->next_msgid, method, packed);
    return submit(client, request, rc != 0, deadline_ms, callback, arg);
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
    client->told_events = 0;
}

size_t ratelimit_async_pending(const struct ratelimit_async *client)
{
    return client->n_pending;
}
