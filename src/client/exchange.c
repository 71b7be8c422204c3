/*
 * exchange.c: calls go out over one connection and come back in any order.
 *
 *   ratelimit_async_check()   pack, exchange_submit() into `waiting`; nothing is sent
 *   ratelimit_async_process()
 *     receive    bytes ─▶ responses ─▶ end the call with that msgid     connection ended ─▶ exchange_lose()
 *     expire     calls whose deadline has come
 *     connect    when something waits and there is no connection: hello goes before everything that waits
 *     send       what waits, in one write as far as the socket takes it; a call whose last byte has left goes to `sent`
 *
 * A call is in `waiting` or in `sent` until it ends, and ends once: answered, refused, at its deadline, with the
 * connection (only if it was sent; a waiting one is sent on the next connection), when no daemon listens (only if it
 * waits), or with the client. A call that timed out but may still be granted a slot or a reservation is abandoned: the
 * daemon gives back what it grants. One that lacks this feature would not: there the call stays known, as an orphan,
 * until its answer comes, and the client undoes a late grant, by release or cancel, before it sends anything else.
 * Callbacks run only in process() and free(). `busy` keeps a callback from re-entering the walk that runs it, and a
 * client freed there is destroyed after that walk (`dying`).
 */
#include "client/exchange.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "client/names.h"

enum {
    SEND_PARTS = 128,    /* requests in one write */
    ORPHANS_MAX = 4096,  /* as many calls as the daemon takes of one connection; one that answers none is left */
    RECEIVE_ROUNDS = 16, /* reads in one tick, so that a flood of answers cannot keep the caller's loop */
    CODE_SIZE = 48,      /* of an error code and its NUL */
    MESSAGE_SIZE = 512,  /* of an error for people */
    BREAKER_TIMEOUTS = 3,
    BREAKER_OPEN_US = 1000000,
    BACKOFF_MIN_US = 1000,  /* between attempts to connect when the backlog is full */
    BACKOFF_MAX_US = 20000, /* little, compared with a daemon that needs this long to accept */
};

#define CODE_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"

/* ---- How calls begin and end ---- */

/* Such calls are never held back. */
static bool gives_back(const struct request *request)
{
    return request->effect == EFFECT_SLOT_ENDED || request->effect == EFFECT_ENDED;
}

enum ratelimit_status exchange_submit(struct ratelimit_async *client, struct request *request)
{
    struct breaker *breaker = &client->breaker;
    CHECK(list_empty(&request->link) && !request->sent && !client->dying);
    clock_update(&client->clock);

    if (!gives_back(request) && breaker->n_timeouts >= BREAKER_TIMEOUTS) {
        if (breaker->probes || client->clock.mono_us < breaker->open_until_us) return RATELIMIT_BREAKER;
        request->probes = true;
    }

    int64_t at_us = client->clock.mono_us + (int64_t)request->timeout_ms * 1000;
    if (heap_push(&client->deadlines, &request->deadline, at_us) != 0) return RATELIMIT_NO_MEMORY;
    if (request->probes) breaker->probes = true;
    client->next_msgid++;
    list_push_back(&client->waiting, &request->link);
    return RATELIMIT_OK;
}

enum ratelimit_status exchange_repeat(struct ratelimit_async *client, struct request *request)
{
    int64_t at_us = client->clock.mono_us + (int64_t)request->timeout_ms * 1000;
    CHECK(list_empty(&request->link) && !request->sent);
    if (heap_push(&client->deadlines, &request->deadline, at_us) != 0) {
        request_release(&client->pool, request);
        return RATELIMIT_NO_MEMORY;
    }
    request->kind = REQUEST_REPEAT;
    list_push_back(&client->repeats, &request->link);
    return RATELIMIT_OK;
}

static void update_breaker(struct breaker *breaker, enum ratelimit_status status, bool is_probe, int64_t now_us)
{
    if (status == RATELIMIT_TIMEOUT) {
        bool opens = breaker->n_timeouts < BREAKER_TIMEOUTS && ++breaker->n_timeouts == BREAKER_TIMEOUTS;
        if (opens || is_probe) breaker->open_until_us = now_us + BREAKER_OPEN_US;
        if (is_probe) breaker->probes = false;
    } else if (status == RATELIMIT_OK || status == RATELIMIT_REFUSED || is_probe) {
        *breaker = (struct breaker){0}; /* nothing hangs, however a probe ended: the next calls are tried */
    }
}

/* Is it to be sent although it has ended? A half-written one is, to keep the framing; and one that gives back a slot or
 * a reservation, as long as the connection lives: it would stay taken. */
static bool must_go(const struct ratelimit_async *client, const struct request *request)
{
    bool has_begun = request->n_written > 0 && request->n_written < buffer_len(&request->bytes);
    return has_begun || (request->n_written == 0 && gives_back(request) && client->connection.fd >= 0);
}

/* Remove the call from all lists and maps; one that must go stays. True: the request is free. */
static bool forget_call(struct ratelimit_async *client, struct request *request)
{
    bool stays = must_go(client, request);
    heap_remove(&client->deadlines, &request->deadline);
    request->ended = true;

    if (request->orphan) {
        client->n_orphans++;
        if (stays) return false;
        list_remove(&request->link);
        list_push_back(&client->orphans, &request->link);
        return false;
    }

    if (request->sent) map_remove(&client->by_msgid, &request->by_msgid);
    request->sent = false;
    if (stays) return false;
    list_remove(&request->link);
    return request != &client->hello;
}

static void end_call(struct ratelimit_async *client, struct request *request, const struct ratelimit_answer *answer)
{
    if (request->kind != REQUEST_REPEAT) /* which says nothing about the daemon */
        update_breaker(&client->breaker, answer->status, request->probes, client->clock.mono_us);
    bool is_free = forget_call(client, request);
    if (request->callback != NULL) {
        request->callback(answer, request->arg);
        exchange_leave_parent(client); /* it may have forked: this may be the child, in the parent's tick */
    }
    if (is_free) request_release(&client->pool, request); /* only now: the answer's members are in it */
}

const char *ratelimit_status_text(enum ratelimit_status status)
{
    switch (status) {
    case RATELIMIT_OK: return "answered";
    case RATELIMIT_TIMEOUT: return "no answer by the deadline";
    case RATELIMIT_LOST: return "the connection ended before the answer";
    case RATELIMIT_PROTOCOL: return "the answer is not valid";
    case RATELIMIT_UNREACHABLE: return "the daemon cannot be reached";
    case RATELIMIT_REFUSED: return "the daemon answered with an error";
    case RATELIMIT_BAD_ARGUMENT: return "bad argument";
    case RATELIMIT_NO_MEMORY: return "no memory";
    case RATELIMIT_BUSY: return "too many calls in flight";
    case RATELIMIT_CANCELLED: return "the client was freed";
    case RATELIMIT_BREAKER: return "not tried: the last three calls got no answer in time";
    }
    return "unknown status";
}

/* Without a result. `code` is "", unless the daemon's error had one. The message is never empty. */
static void end_failed(struct ratelimit_async *client, struct request *request, enum ratelimit_status status,
                       const char *code, const char *message)
{
    if (message[0] == '\0') message = ratelimit_status_text(status);
    end_call(client, request, &(struct ratelimit_answer){.status = status, .code = code, .message = message});
}

/* The calls of `list` as it is now; those that a callback adds stay. */
static void end_all(struct ratelimit_async *client, struct list *list, enum ratelimit_status status, const char *code,
                    const char *message)
{
    list_append(&client->ending, list);
    while (!list_empty(&client->ending))
        end_failed(client, LIST_ITEM(client->ending.next, struct request, link), status, code, message);
}

/* ---- The connection's end ---- */

void exchange_report_events(struct ratelimit_async *client, short events)
{
    if (events == client->reported_events) return;
    client->reported_events = events;
    if (client->on_change != NULL) client->on_change(client->on_change_arg, client->connection.fd, events);
}

/* End what belongs to the connection, whatever happens to the calls. A half-written request is sent again from its
 * start on the next connection; one that no caller waits for is dropped. Orphans end, because the daemon takes back
 * what it granted them. */
static void leave_connection(struct ratelimit_async *client)
{
    if (client->hello.n_written < buffer_len(&client->hello.bytes)) list_remove(&client->hello.link);
    LIST_FOREACH (link, &client->waiting) {
        struct request *request = LIST_ITEM(link, struct request, link);
        request->n_written = 0;
        if (!request->ended) continue;
        list_remove(&request->link);
        request_release(&client->pool, request);
    }

    for (struct list *link; (link = list_pop_front(&client->orphans)) != NULL;) {
        struct request *request = LIST_ITEM(link, struct request, link);
        map_remove(&client->by_msgid, &request->by_msgid);
        request_release(&client->pool, request);
    }
    client->n_orphans = 0;
    client->n_slots = 0;
    client->features = 0;
}

/* Do not open a connection again and again at once if it ends without any use. */
static void put_off_retry(struct ratelimit_async *client)
{
    int64_t last_us = client->backoff_us;
    client->backoff_us = last_us == 0 ? BACKOFF_MIN_US : last_us < BACKOFF_MAX_US / 2 ? last_us * 2 : BACKOFF_MAX_US;
    client->retry_at_us = client->clock.mono_us + client->backoff_us;
}

void exchange_lose(struct ratelimit_async *client, enum ratelimit_status status, const char *code, const char *message)
{
    bool of_use = client->answered || client->by_msgid.n > client->hello.sent;
    exchange_report_events(client, 0);
    link_close(&client->connection);
    leave_connection(client);
    end_all(client, &client->sent, status, code, message);
    if (!of_use) put_off_retry(client);
}

/* ---- Answers ---- */

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

/* To ratelimit_async_verify(). With RATELIMIT_OK the message may be a warning. */
static void end_verified(struct ratelimit_async *client, struct request *request, struct pull result)
{
    char missing[MESSAGE_SIZE / 2], counting[MESSAGE_SIZE / 2], message[MESSAGE_SIZE];
    if (decode_policies(result, &request->names, missing, counting, sizeof missing) != 0) {
        end_failed(client, request, RATELIMIT_PROTOCOL, "", "the answer is not a list of policies");
    } else if (missing[0] != '\0') {
        snprintf(message, sizeof message, "the daemon's configuration has no %s", missing);
        end_failed(client, request, RATELIMIT_REFUSED, "UNKNOWN_POLICY", message);
    } else {
        bool warns = client->denials.all != NULL && counting[0] != '\0';
        snprintf(message, sizeof message, "remembered denials are not counted by policies with count_denied: %s",
                 counting);
        end_call(client, request,
                 &(struct ratelimit_answer){.status = RATELIMIT_OK,
                                            .code = "",
                                            .message = warns ? message : "",
                                            .result = result.at,
                                            .result_len = (size_t)(result.end - result.at)});
    }
}

/* What this kind of request is answered with, into `answer`: a decision, which `decision` has space for, decisions of
 * the members, an id, or a flag. 0, or -1: the answer is not valid. */
static int decode_answer(struct ratelimit_async *client, const struct request *request, struct pull result,
                         struct ratelimit_decision *decision, struct ratelimit_answer *answer)
{
    const struct decode_order *order = &client->order;
    switch (request->kind) {
    case REQUEST_DECISION: answer->decision = decision; return decode_decision(&result, order, request->cost, decision);
    case REQUEST_ID:
        answer->decision = decision;
        if (decode_with_id(&result, order, request->cost, decision, &client->id) != 0) return -1;
        if (buffer_len(&client->id) > 0) answer->id = (const char *)buffer_data(&client->id);
        return 0;
    case REQUEST_MANY: return decode_many(&result, order, request->members, request->n_members);
    case REQUEST_ALL:
        answer->decision = decision;
        return decode_all(&result, order, request->cost, decision, request->members, request->n_members);
    case REQUEST_FLAG: return decode_flag(result, request->flag, &answer->done);
    case REQUEST_HELLO:
    case REQUEST_ABANDON:
    case REQUEST_REPEAT:
    case REQUEST_VERIFY:
    case REQUEST_OTHER: break;
    }
    return 0;
}

static void end_answered(struct ratelimit_async *client, struct request *request, struct pull result)
{
    struct ratelimit_decision decision;
    struct ratelimit_answer answer = {.code = "",
                                      .message = "",
                                      .result = result.at,
                                      .result_len = (size_t)(result.end - result.at),
                                      .members = request->n_members > 0 ? request->members : NULL,
                                      .n_members = request->n_members};
    if (decode_answer(client, request, result, &decision, &answer) != 0) {
        end_failed(client, request, RATELIMIT_PROTOCOL, "", "the answer is not valid for this method");
        return;
    }

    /* The names of inline policies, which the daemon does not know. */
    if (answer.members != NULL)
        names_put_members(&request->names, request->members, request->n_members,
                          answer.decision != NULL ? &decision : NULL);
    else if (answer.decision != NULL)
        names_put(&request->names, &decision);

    if (answer.decision != NULL) denials_put(&client->denials, request, &decision, client->clock.mono_us);
    bool has_id = answer.id != NULL || request->kind == REQUEST_OTHER; /* its result is not read here */
    if (request->effect == EFFECT_SLOT && has_id) client->n_slots++;
    if (request->effect == EFFECT_SLOT_ENDED && answer.done && client->n_slots > 0) client->n_slots--;
    end_call(client, request, &answer);
}

/* Before the first call that has not begun to leave: what asks for the same again finds it free. */
static void send_first(struct ratelimit_async *client, struct request *request)
{
    struct list *first = client->waiting.next;
    bool has_begun = first != &client->waiting && LIST_ITEM(first, struct request, link)->n_written > 0;
    request->n_written = 0;
    list_push_back(has_begun ? first->next : first, &request->link);
}

/* The late answer to a call that has ended: if it is a yes, the request becomes the call that takes it back. */
static void undo_grant(struct ratelimit_async *client, struct request *request, const struct rpc_response *response)
{
    struct ratelimit_decision decision;
    struct pull result = response->result;
    map_remove(&client->by_msgid, &request->by_msgid);
    list_remove(&request->link);
    request->sent = request->orphan = false;
    client->n_orphans--;

    request->msgid = client->next_msgid;
    bool is_yes = !response->is_error &&
                  decode_with_id(&result, &client->order, request->cost, &decision, &client->id) == 0 &&
                  buffer_len(&client->id) > 0;
    struct question undoing = {.method = request->effect == EFFECT_SLOT ? "release" : "cancel", .about = ABOUT_ID};
    if (is_yes) undoing.id = (const char *)buffer_data(&client->id);
    if (!is_yes || request_pack(request, &undoing, client->features) != 0) {
        request_release(&client->pool, request);
        return;
    }
    client->next_msgid++;
    send_first(client, request);
}

/* Leave the orphans to the daemon, if it takes them: each becomes the notification that gives it up, and its answer is
 * none of ours. Without memory it stays an orphan. */
static void abandon_orphans(struct ratelimit_async *client)
{
    if (!(client->features & FEATURE_ABANDON)) return;
    LIST_FOREACH (link, &client->orphans) {
        struct request *request = LIST_ITEM(link, struct request, link);
        if (request_pack_abandon(request) != 0) return;
        map_remove(&client->by_msgid, &request->by_msgid);
        list_remove(&request->link);
        request->sent = false;
        request->kind = REQUEST_ABANDON;
        send_first(client, request);
    }
}

/* The connection or the client may be gone afterwards. */
static void on_response(struct ratelimit_async *client, const struct rpc_response *response)
{
    char code[CODE_SIZE], message[MESSAGE_SIZE];
    if (!response->has_msgid) {
        split_error(response->error, code, message);
        exchange_lose(client, RATELIMIT_LOST, code, message);
        return;
    }
    if (response->msgid >= client->next_msgid) {
        exchange_lose(client, RATELIMIT_PROTOCOL, "", "an answer to a call that was never made");
        return;
    }
    client->answered = true;
    client->backoff_us = 0;

    struct map_node *node = map_first(&client->by_msgid, response->msgid);
    if (node == NULL) return; /* late: its call has ended */
    struct request *request = CONTAINER_OF(node, struct request, by_msgid);
    if (request->orphan) {
        undo_grant(client, request, response);
    } else if (request->kind == REQUEST_HELLO) {
        /* Where hello was refused or is not understood, decisions come as maps or in the protocol's order: both are
         * read. */
        if (!response->is_error) decode_hello(response->result, &client->order, &client->max_frame, &client->features);
        forget_call(client, request);
    } else if (response->is_error) {
        split_error(response->error, code, message);
        end_failed(client, request, RATELIMIT_REFUSED, code, message);
    } else if (request->kind == REQUEST_VERIFY) {
        end_verified(client, request, response->result);
    } else {
        end_answered(client, request, response->result);
    }
}

/* True if the connection lives and may have more to read now. */
static bool receive_answers(struct ratelimit_async *client)
{
    struct link *connection = &client->connection;
    bool more = true;
    for (int i = 0; i < RECEIVE_ROUNDS && more && connection->fd >= 0 && !client->dying; i++) {
        struct rpc_response response;
        enum link_step step = link_receive(connection, &more);
        if (step == LINK_LATER) return false;
        if (step == LINK_FAILED) {
            exchange_lose(client, RATELIMIT_LOST, "", connection->error);
            return false;
        }

        while (connection->fd >= 0 && !client->dying && (step = link_next(connection, &response)) == LINK_DONE)
            on_response(client, &response);
        if (step == LINK_FAILED) exchange_lose(client, RATELIMIT_PROTOCOL, "", connection->error);
    }
    return more && connection->fd >= 0;
}

/* ---- Connecting and sending ---- */

static void connect_now(struct ratelimit_async *client)
{
    struct request *hello = &client->hello;
    if (client->clock.mono_us < client->retry_at_us) return;
    switch (link_connect(&client->connection)) {
    case LINK_LATER: put_off_retry(client); return;
    case LINK_FAILED: end_all(client, &client->waiting, RATELIMIT_UNREACHABLE, "", client->connection.error); return;
    case LINK_DONE: break;
    }
    client->connection.error[0] = '\0';
    client->stuck = client->answered = false;
    decode_order_init(&client->order);
    LIST_FOREACH (link, &client->waiting)
        request_drop_names(LIST_ITEM(link, struct request, link)); /* packed for the connection before */

    request_init(hello, REQUEST_HELLO);
    hello->msgid = client->next_msgid++;
    if (request_pack_hello(hello, client->maps, client->describes) != 0) return; /* maps come, and are read too */
    list_push_back(client->waiting.next, &hello->link);                          /* before the first */
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
        if (part < left) return;

        list_remove(&request->link);
        if (request->kind == REQUEST_ABANDON) client->n_orphans--;
        if (request->kind == REQUEST_ABANDON || (request->ended && !request->orphan)) {
            request_release(&client->pool, request);
            continue;
        }
        request->sent = true;
        map_insert(&client->by_msgid, &request->by_msgid, request->msgid);
        list_push_back(request->orphan ? &client->orphans : &client->sent, &request->link);
    }
}

static void send_waiting(struct ratelimit_async *client)
{
    while (!list_empty(&client->waiting)) {
        struct iovec parts[SEND_PARTS];
        size_t n = 0, len;
        LIST_FOREACH (link, &client->waiting) {
            const struct request *request = LIST_ITEM(link, struct request, link);
            if (n == SEND_PARTS) break;
            parts[n++] = (struct iovec){.iov_base = buffer_data(&request->bytes) + request->n_written,
                                        .iov_len = buffer_len(&request->bytes) - request->n_written};
        }

        enum link_step step = link_send(&client->connection, parts, n, &len);
        if (step == LINK_DONE) {
            on_written(client, len);
            abandon_orphans(client); /* one that had ended half written */
            continue;
        }
        if (step == LINK_LATER) {
            client->stuck = true;
            return;
        }

        /* A daemon that closed may have answered before: its answers are read before anything is called lost. */
        char message[LINK_ERROR_SIZE];
        snprintf(message, sizeof message, "%s", client->connection.error);
        client->stuck = receive_answers(client);
        if (client->connection.fd >= 0 && !client->stuck && !client->dying)
            exchange_lose(client, RATELIMIT_LOST, "", message);
        return;
    }
}

/* ---- The tick ---- */

static struct request *due_call(const struct ratelimit_async *client)
{
    struct heap_node *first = heap_min(&client->deadlines);
    return first != NULL && first->at_us <= client->clock.mono_us ? CONTAINER_OF(first, struct request, deadline)
                                                                  : NULL;
}

void exchange_tick(struct ratelimit_async *client, short revents)
{
    CHECK(client->busy);

    /* Those that a callback adds wait for the next tick, so that a program that asks again at once leaves this one. */
    list_append(&client->ending, &client->repeats);
    while (!list_empty(&client->ending)) {
        struct request *request = LIST_ITEM(client->ending.next, struct request, link);
        size_t n = request->n_members;
        end_call(client, request,
                 &(struct ratelimit_answer){.status = RATELIMIT_OK,
                                            .code = "",
                                            .message = "",
                                            .decision = &request->members[n],
                                            .members = n > 0 ? request->members : NULL,
                                            .n_members = n});
    }

    if ((revents & ~POLLOUT) != 0 || due_call(client) != NULL || client->n_orphans > 0) receive_answers(client);
    if (revents & POLLOUT) client->stuck = false;

    for (struct request *request; !client->dying && (request = due_call(client)) != NULL;) {
        if (request->n_written > 0 || must_go(client, request)) { /* counts as sent: it will follow */
            /* a yes that comes later is to be taken back */
            request->orphan = request->effect == EFFECT_SLOT || request->effect == EFFECT_RESERVATION;
            end_failed(client, request, RATELIMIT_TIMEOUT, "", "");
        } else {
            end_failed(client, request, RATELIMIT_UNREACHABLE, "", client->connection.error);
        }
    }
    if (client->n_orphans > ORPHANS_MAX && !client->dying)
        exchange_lose(client, RATELIMIT_LOST, "", "too many calls unanswered");

    abandon_orphans(client);
    if (client->dying || list_empty(&client->waiting)) return;
    if (client->connection.fd < 0) connect_now(client);
    if (client->connection.fd >= 0 && !client->stuck && !client->dying) send_waiting(client);
}

/* The child's event loop may share the parent's registrations, so no callback asks to forget the descriptor. */
void exchange_leave_parent(struct ratelimit_async *client)
{
    if (!link_is_inherited(&client->connection)) return;
    client->reported_events = 0;
    link_disown(&client->connection);
    leave_connection(client);
    client->breaker = (struct breaker){0}; /* the probe is the parent's */

    list_append(&client->ending, &client->waiting);
    list_append(&client->ending, &client->sent);
    list_append(&client->ending, &client->repeats);
    while (!list_empty(&client->ending)) {
        struct request *request = LIST_ITEM(client->ending.next, struct request, link);
        if (forget_call(client, request)) request_release(&client->pool, request);
    }
}

/* The daemon cancels a reserve that it has not answered when its connection ends, but the answer to another may be on
 * its way. As far as the socket takes it: else such a reservation ends at its time limit. */
static void abandon_reservations(struct ratelimit_async *client)
{
    size_t len;
    struct buffer notices = {0};
    bool has_begun =
        !list_empty(&client->waiting) && LIST_ITEM(client->waiting.next, struct request, link)->n_written > 0;
    if (client->connection.fd < 0 || has_begun || !(client->features & FEATURE_ABANDON)) return;

    LIST_FOREACH (link, &client->sent) {
        struct request *request = LIST_ITEM(link, struct request, link);
        if (request->effect != EFFECT_RESERVATION || request_pack_abandon(request) != 0) continue;
        if (buffer_append(&notices, buffer_data(&request->bytes), buffer_len(&request->bytes)) != 0) break;
    }
    const struct iovec part = {.iov_base = buffer_data(&notices), .iov_len = buffer_len(&notices)};
    if (part.iov_len > 0) link_send(&client->connection, &part, 1, &len);
    buffer_fini(&notices);
}

void exchange_cancel(struct ratelimit_async *client)
{
    CHECK(client->busy && client->dying);
    abandon_reservations(client);
    exchange_report_events(client, 0);
    link_close(&client->connection);
    leave_connection(client);
    end_all(client, &client->sent, RATELIMIT_CANCELLED, "", "");
    end_all(client, &client->waiting, RATELIMIT_CANCELLED, "", "");
    end_all(client, &client->repeats, RATELIMIT_CANCELLED, "", "");
    CHECK(client->deadlines.n == 0);
}
