/*
 * exchange.c: calls go out over one connection and come back in any order.
 *
 *   ratelimit_async_check()   pack, into `waiting`; nothing is sent
 *   ratelimit_async_process()
 *     receive    bytes ─▶ responses ─▶ end the call with that msgid     connection ended ─▶ lose()
 *     expire     calls whose deadline has come
 *     connect    when something waits and there is no connection: hello goes before everything that waits
 *     send       what waits, in one write as far as the socket takes it; a call that has left whole goes to `sent`
 *
 * A call is in `waiting` or in `sent` until it ends, and ends once: answered, refused, at its deadline, with the
 * connection (only if it was sent; a waiting one is sent on the next connection), when no daemon listens (only if it
 * waits), or with the client. A call that timed out but may still be granted a slot or a reservation stays known, as an
 * orphan, until its answer comes: the client undoes a late grant, by release or cancel, before it sends anything else.
 * Callbacks run only in process() and free(). `busy` keeps a callback from re-entering the walk that runs it, and a
 * client freed there is destroyed after that walk (`dying`).
 */
#include "client/exchange.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    SEND_PARTS = 128,    /* requests in one write */
    ORPHANS_MAX = 4096,  /* as many calls as the daemon takes of one connection; one that answers none is left */
    RECEIVE_ROUNDS = 16, /* reads in one turn, so that a flood of answers cannot keep the caller's loop */
    CODE_SIZE = 48,      /* of an error code and its NUL */
    MESSAGE_SIZE = 512,  /* of an error for people */
};

#define CODE_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"

/* ---- How calls end ---- */

/* Remove the call from all lists and maps; a half-written one stays, to keep the framing. */
static void forget_call(struct ratelimit_async *client, struct request *request)
{
    bool is_half_written = request->n_written > 0 && request->n_written < buffer_len(&request->bytes);
    bool is_hello = request->kind == REQUEST_HELLO;
    heap_remove(&client->deadlines, &request->deadline);
    if (!is_hello) {
        client->n_pending--;
        request->ended = true;
    }
    if (request->orphan) {
        client->n_orphans++;
        if (is_half_written) return;
        list_remove(&request->link);
        list_push_back(&client->orphans, &request->link);
        return;
    }

    if (request->sent) map_remove(&client->by_msgid, &request->by_msgid);
    request->sent = false;
    if (is_half_written && !is_hello) return;
    list_remove(&request->link);
    if (!is_hello) request_release(&client->pool, request);
}

/* Orphans end with their connection: the daemon takes back what it granted them. */
static void forget_orphans(struct ratelimit_async *client)
{
    for (struct list *link; (link = list_pop_front(&client->orphans)) != NULL;) {
        struct request *request = LIST_ITEM(link, struct request, link);
        map_remove(&client->by_msgid, &request->by_msgid);
        request_release(&client->pool, request);
    }
    client->n_orphans = 0;
}

/* The message of a failed call is never empty. */
static const char *words(const char *message, enum ratelimit_status status)
{
    return message[0] != '\0' ? message : ratelimit_status_text(status);
}

static void tell_breaker(struct ratelimit_async *client, const struct request *request, enum ratelimit_status status)
{
    if (status == RATELIMIT_OK || status == RATELIMIT_REFUSED) {
        breaker_answered(&client->breaker);
    } else if (status == RATELIMIT_TIMEOUT) {
        breaker_timed_out(&client->breaker, request->probes, client->clock.mono_us);
    } else if (request->probes) {
        breaker_probe_ended(&client->breaker);
    }
}

static void end_call(struct ratelimit_async *client, struct request *request, const struct ratelimit_answer *answer)
{
    ratelimit_answer_fn *callback = request->callback;
    void *arg = request->arg;
    tell_breaker(client, request, answer->status);
    forget_call(client, request);
    if (callback == NULL) return;
    callback(answer, arg);
    exchange_leave_parent(client); /* it may have forked: this may be the child, in the middle of the parent's tick */
}

/* `code` is "", unless the daemon's final error had one. */
static void end_with_code(struct ratelimit_async *client, struct request *request, enum ratelimit_status status,
                          const char *code, const char *message)
{
    const struct ratelimit_answer answer = {.status = status, .code = code, .message = words(message, status)};
    end_call(client, request, &answer);
}

static void end_without_answer(struct ratelimit_async *client, struct request *request, enum ratelimit_status status,
                               const char *message)
{
    end_with_code(client, request, status, "", message);
}

/* The calls of `list` as it is now; those that a callback adds stay. */
static void end_all(struct ratelimit_async *client, struct list *list, enum ratelimit_status status, const char *code,
                    const char *message)
{
    list_append(&client->ending, list);
    while (!list_empty(&client->ending)) {
        end_with_code(client, LIST_ITEM(client->ending.next, struct request, link), status, code, message);
    }
}

/* ---- The connection's end ---- */

void exchange_tell(struct ratelimit_async *client, short events)
{
    if (events == client->told_events) return;
    client->told_events = events;
    if (client->on_change != NULL) client->on_change(client->on_change_arg, client->connection.fd, events);
}

/* A half-written request is sent again from its start on the next connection. One that nobody waits for is dropped. */
static void rewind_waiting(struct ratelimit_async *client)
{
    if (client->hello.n_written < buffer_len(&client->hello.bytes)) list_remove(&client->hello.link);
    LIST_FOREACH (link, &client->waiting) {
        struct request *request = LIST_ITEM(link, struct request, link);
        request->n_written = 0;
        if (!request->ended) continue;
        list_remove(&request->link);
        request_release(&client->pool, request);
    }
}

/* End what belongs to the connection, whatever happens to the calls. */
static void leave_connection(struct ratelimit_async *client)
{
    rewind_waiting(client);
    forget_orphans(client);
    client->n_slots = 0;
}

/* Do not open a connection again and again at once if it ends without any use. */
static void put_off_retry(struct ratelimit_async *client)
{
    client->retry_at_us = client->clock.mono_us + client->backoff_us;
    client->backoff_us =
        client->backoff_us < EXCHANGE_BACKOFF_MAX_US / 2 ? client->backoff_us * 2 : EXCHANGE_BACKOFF_MAX_US;
}

static void lose_with_code(struct ratelimit_async *client, enum ratelimit_status status, const char *code,
                           const char *message)
{
    bool of_use = client->answered || client->by_msgid.n > client->hello.sent;
    exchange_tell(client, 0);
    link_close(&client->connection);
    leave_connection(client);
    end_all(client, &client->sent, status, code, message);
    if (!of_use) put_off_retry(client);
}

static void lose(struct ratelimit_async *client, enum ratelimit_status status, const char *message)
{
    lose_with_code(client, status, "", message);
}

/* ---- Answers ---- */

static struct request *call_of(const struct ratelimit_async *client, uint64_t msgid)
{
    struct map_node *node = map_first(&client->by_msgid, msgid);
    return node != NULL ? CONTAINER_OF(node, struct request, by_msgid) : NULL;
}

/* "CODE: message", or a code alone, as two texts of the caller's. */
static void split_error(struct slice error, char *ret_code, char *ret_message)
{
    size_t len = error.len < MESSAGE_SIZE ? error.len : MESSAGE_SIZE - 1;
    if (len > 0) memcpy(ret_message, error.data, len);
    ret_message[len] = '\0';
    const char *colon = strstr(ret_message, ": ");
    size_t code_len = colon != NULL ? (size_t)(colon - ret_message) : strspn(ret_message, CODE_LETTERS);
    if (code_len >= CODE_SIZE || (colon == NULL && ret_message[code_len] != '\0')) code_len = 0;
    memcpy(ret_code, ret_message, code_len);
    ret_code[code_len] = '\0';
}

static void end_refused(struct ratelimit_async *client, struct request *request, struct slice error)
{
    char code[CODE_SIZE], message[MESSAGE_SIZE];
    split_error(error, code, message);
    const struct ratelimit_answer answer = {
        .status = RATELIMIT_REFUSED, .code = code, .message = words(message, RATELIMIT_REFUSED)};
    end_call(client, request, &answer);
}

/* The decision, and a copy of the id that came with it. */
static int decode_id(struct ratelimit_async *client, const struct request *request, struct pull *result,
                     struct ratelimit_decision *decision, struct ratelimit_answer *answer)
{
    struct slice id;
    if (decode_with_id(result, &client->order, request->cost, decision, &id) != 0) return -1;
    if (id.len == 0) return 0;
    buffer_truncate(&client->id, 0);
    if (memchr(id.data, '\0', id.len) != NULL) return -1;
    if (buffer_append(&client->id, id.data, id.len) != 0 || buffer_append(&client->id, "", 1) != 0) return -1;
    answer->id = (const char *)buffer_data(&client->id);
    return 0;
}

/* Decode the result as the call's kind needs it, into `answer`; `decision` is the answer's. 0, or -1 if it is not
 * valid. */
static int decode_result(struct ratelimit_async *client, struct request *request, struct pull result,
                         struct ratelimit_decision *decision, struct ratelimit_answer *answer)
{
    const struct decode_order *order = &client->order;
    bool has_members = request->kind == REQUEST_MANY || request->kind == REQUEST_ALL;
    bool is_decided = request->kind == REQUEST_DECISION || request->kind == REQUEST_ID || request->kind == REQUEST_ALL;
    answer->decision = is_decided ? decision : NULL;
    answer->members = has_members ? request->members : NULL;
    answer->n_members = has_members ? request->n_members : 0;
    switch (request->kind) {
    case REQUEST_DECISION: return decode_decision(&result, order, request->cost, decision);
    case REQUEST_ID: return decode_id(client, request, &result, decision, answer);
    case REQUEST_MANY: return decode_many(&result, order, request->members, request->n_members);
    case REQUEST_ALL: return decode_all(&result, order, request->cost, decision, request->members, request->n_members);
    case REQUEST_FLAG: return decode_flag(result, request->flag, &answer->done);
    default: return 0;
    }
}

static void count_slots(struct ratelimit_async *client, const struct request *request,
                        const struct ratelimit_answer *answer)
{
    bool has_id = answer->id != NULL || request->kind == REQUEST_OTHER; /* whose result nobody here has read */
    if (request->effect == EFFECT_SLOT && has_id) client->n_slots++;
    if (request->effect == EFFECT_SLOT_ENDED && answer->done && client->n_slots > 0) client->n_slots--;
}

static void end_answered(struct ratelimit_async *client, struct request *request, struct pull result)
{
    struct ratelimit_decision decision;
    struct ratelimit_answer answer = {
        .code = "", .message = "", .result = result.at, .result_len = (size_t)(result.end - result.at)};
    if (decode_result(client, request, result, &decision, &answer) != 0) {
        end_without_answer(client, request, RATELIMIT_PROTOCOL, "the answer is not valid for this method");
        return;
    }
    count_slots(client, request, &answer);
    request_swap_members(request, &client->members, &client->members_cap);
    end_call(client, request, &answer);
}

/* Before the first call that has not begun to leave: what asks for the same again finds it free. */
static void put_first(struct ratelimit_async *client, struct request *request)
{
    struct list *first = client->waiting.next;
    bool has_begun = first != &client->waiting && LIST_ITEM(first, struct request, link)->n_written > 0;
    list_push_back(has_begun ? first->next : first, &request->link);
}

/* The late answer to a call that nobody waits for: of a yes the request becomes the call that takes it back. */
static void undo(struct ratelimit_async *client, struct request *request, const struct rpc_response *response)
{
    struct ratelimit_decision decision;
    struct ratelimit_answer answer = {0};
    struct pull result = response->result;
    const char *method = request->effect == EFFECT_SLOT ? "release" : "cancel";
    map_remove(&client->by_msgid, &request->by_msgid);
    list_remove(&request->link);
    request->sent = request->orphan = false;
    client->n_orphans--;

    bool is_yes =
        !response->is_error && decode_id(client, request, &result, &decision, &answer) == 0 && answer.id != NULL;
    if (is_yes && request_pack_id(request, client->next_msgid, method, answer.id, NULL) == RATELIMIT_OK) {
        client->next_msgid++;
        request->n_written = 0;
        put_first(client, request);
    } else {
        request_release(&client->pool, request);
    }
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
        lose_with_code(client, RATELIMIT_LOST, code, message);
        return -1;
    }
    struct request *request = call_of(client, response->msgid);
    if (request == NULL && response->msgid >= client->next_msgid) {
        lose(client, RATELIMIT_PROTOCOL, "an answer to a call that was never made");
        return -1;
    }
    client->answered = true;
    client->backoff_us = EXCHANGE_BACKOFF_MIN_US;
    if (request == NULL) return 0; /* late: its call has ended */
    if (request->orphan) {
        undo(client, request, response);
        return 0;
    }
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
        if (on_response(client, &response) != 0 || client->dying || client->connection.fd < 0) return;
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
            request->orphan = request->effect == EFFECT_SLOT || request->effect == EFFECT_RESERVATION;
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
    if (request_pack_hello(hello, client->next_msgid++, client->maps, client->describes) != 0)
        return;                                         /* maps come, and are read too */
    list_push_back(client->waiting.next, &hello->link); /* before the first */
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
    case LINK_FAILED: end_all(client, &client->waiting, RATELIMIT_UNREACHABLE, "", client->connection.error); break;
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
    if (request->ended && !request->orphan) {
        request_release(&client->pool, request);
        return;
    }
    request->sent = true;
    map_insert(&client->by_msgid, &request->by_msgid, request->msgid);
    list_push_back(request->orphan ? &client->orphans : &client->sent, &request->link);
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
        size_t n = gather(client, parts);
        switch (link_send(&client->connection, parts, n, &len)) {
        case LINK_DONE: on_written(client, len); break;
        case LINK_LATER: client->stuck = true; return;
        case LINK_FAILED: on_send_failed(client); return;
        }
    }
}

/* ---- The turn ---- */

void exchange_turn(struct ratelimit_async *client, short revents)
{
    if ((revents & ~POLLOUT) != 0 || due_call(client) != NULL || client->n_orphans > 0) receive(client);
    if (revents & POLLOUT) client->stuck = false;
    expire(client);
    if (client->n_orphans > ORPHANS_MAX && !client->dying) lose(client, RATELIMIT_LOST, "too many calls unanswered");
    if (client->dying || list_empty(&client->waiting)) return;
    if (client->connection.fd < 0) connect_now(client);
    if (client->connection.fd >= 0 && !client->stuck && !client->dying) send_waiting(client);
}

/* In a child of fork(): the connection and the calls are the parent's. The child's event loop may share the parent's
 * registrations, so no callback asks to forget the descriptor. A callback may still be reading its answer. */
void exchange_leave_parent(struct ratelimit_async *client)
{
    if (origin_is_here(&client->origin)) return;
    origin_move_here(&client->origin);
    client->told_events = 0;
    link_leave(&client->connection);
    leave_connection(client);
    breaker_answered(&client->breaker); /* the probe is the parent's */
    list_append(&client->ending, &client->waiting);
    list_append(&client->ending, &client->sent);
    while (!list_empty(&client->ending)) forget_call(client, LIST_ITEM(client->ending.next, struct request, link));
}

void exchange_drop_orphans(struct ratelimit_async *client)
{
    if (client->n_orphans > 0 && client->n_slots == 0) lose(client, RATELIMIT_LOST, "");
}

void exchange_cancel(struct ratelimit_async *client)
{
    exchange_tell(client, 0);
    link_close(&client->connection);
    leave_connection(client);
    end_all(client, &client->sent, RATELIMIT_CANCELLED, "", "");
    end_all(client, &client->waiting, RATELIMIT_CANCELLED, "", "");
    CHECK(client->n_pending == 0);
}
