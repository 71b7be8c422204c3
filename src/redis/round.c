/* redis/round.c: one question to a list of servers, one after another; for redis/sentinel.c and cluster_watch.c. */
#include "redis/round.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "redis/handshake.h"

enum {
    GUARD_RESERVE = 1024, /* bytes of the commands besides user and password */
    USER_TIMEOUT_MS = 10000,
    LATE_US = 60 * 1000000, /* how long the address of a late lookup is good for */
};

static void on_time(uv_timer_t *timer);

static void go_on_in(struct redis_round *round, enum redis_round_state state, uint64_t ms)
{
    round->state = state;
    uv_update_time(round->loop); /* the loop's time is that of the tick's begin: the timer would be as much too early */
    uv_timer_start(&round->timer, on_time, ms, 0);
}

void redis_round_begin_in(struct redis_round *round, uint64_t ms)
{
    if (round->state == ROUND_WAITING) go_on_in(round, ROUND_WAITING, ms);
}

static void note(struct redis_round *round, const char *why)
{
    snprintf(round->fault, sizeof round->fault, "%s %.*s: %.*s", round->kind->server, 100, round->name, 256, why);
    uint32_t nth = round->at % round->n_all;
    if (nth < REDIS_ADDRESSES_MAX) memcpy(round->faults[nth], round->fault, sizeof round->fault);
}

/* Of the server that is tried, in `silent`. */
static uint32_t bit_of(const struct redis_round *round)
{
    uint32_t nth = round->at % round->n_all;
    return nth < REDIS_ADDRESSES_MAX ? UINT32_C(1) << nth : 0;
}

static void forget_fault(struct redis_round *round)
{
    uint32_t nth = round->at % round->n_all;
    if (nth < REDIS_ADDRESSES_MAX) round->faults[nth][0] = '\0';
}

void redis_round_pass(struct redis_round *round, const char *format, ...)
{
    char why[REDIS_TEXT_MAX / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    note(round, why);
    round->silent |= bit_of(round);
    go_on_in(round, ROUND_PASSING, 0);
}

void redis_round_answered(struct redis_round *round)
{
    round->silent &= ~bit_of(round);
    if ((round->distrusted & bit_of(round)) == 0) forget_fault(round);
    go_on_in(round, ROUND_ANSWERED, 0);
}

void redis_round_distrust(struct redis_round *round, const char *why)
{
    if (round->state != ROUND_WAITING) return;
    note(round, why);
    round->distrusted |= bit_of(round);
}

void redis_round_trust(struct redis_round *round)
{
    if (round->state != ROUND_WAITING) return;
    round->distrusted &= ~bit_of(round);
    forget_fault(round);
}

bool redis_round_is_trying(const struct redis_round *round, const struct redis_reader *reply)
{
    return reply != NULL && round->state == ROUND_TRYING;
}

/* ---- asking one ---- */

static void on_hello(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_round *round = CONTAINER_OF(call, struct redis_round, hello);
    if (!redis_round_is_trying(round, reply) || !redis_reader_is_error(reply)) return;
    struct slice text = redis_reader_text(reply);
    enum redis_error error = redis_error_of((const char *)text.data, text.len);
    if (error == REDIS_ERROR_UNKNOWN_COMMAND) /* its words are our arguments, the password among them */
        redis_round_pass(round, "HELLO: unknown command; a %s must be Redis 6.2 or newer, or Valkey",
                         round->kind->server);
    else if (error == REDIS_ERROR_AUTH)
        redis_round_pass(round, "%.*s; correct %s", (int)text.len, (const char *)text.data,
                         round->kind->login_of(round).settings);
    else
        redis_round_pass(round, "%.*s", (int)text.len, (const char *)text.data);
}

int redis_round_send(struct redis_round *round, struct redis_call *call,
                     void (*on_reply)(struct redis_call *, const struct redis_reader *), const struct slice *args,
                     size_t n)
{
    call->on_reply = on_reply;
    return redis_conn_send(&round->conn, call, args, n);
}

static int send_hello(struct redis_round *round)
{
    const struct redis_round_login login = round->kind->login_of(round);
    char name[REDIS_CLIENT_NAME_MAX];
    struct slice args[8] = {slice_of("HELLO"), slice_of("2")};
    size_t n = 2;
    if (login.username != NULL || login.password != NULL) {
        args[n++] = slice_of("AUTH");
        args[n++] = slice_of(login.username != NULL ? login.username : "default");
        args[n++] = slice_of(login.password != NULL ? login.password : "");
        if (redis_conn_guard(&round->conn, GUARD_RESERVE + args[3].len + args[4].len) < 0) return -1;
    }
    args[n++] = slice_of("SETNAME");
    args[n++] = slice_of(redis_client_name(name));
    return redis_round_send(round, &round->hello, on_hello, args, n);
}

static void open_host(struct redis_round *round, const char *host, bool is_v6)
{
    const struct redis_endpoint endpoint = {.host = host,
                                            .port = round->address.port,
                                            .is_v6 = is_v6,
                                            .user_timeout_ms = USER_TIMEOUT_MS,
                                            .tls = round->kind->login_of(round).tls,
                                            .name = round->address.host};
    if (redis_conn_open(&round->conn, round->loop, &endpoint) < 0)
        redis_round_pass(round, "%s", round->conn.error);
    else if (send_hello(round) < 0 || round->kind->ask(round) < 0)
        redis_round_pass(round, "out of memory");
}

static void on_resolved(struct redis_lookup *lookup, const char *fault, const struct addrinfo *all)
{
    struct redis_round *round = CONTAINER_OF(lookup, struct redis_round, lookup);
    clock_update(round->clock);
    char host[NI_MAXHOST] = "";
    bool is_v6 = false;
    if (fault == NULL) fault = redis_lookup_nth(all, round->n_failed, host, &is_v6);
    if (round->state != ROUND_TRYING || round->is_stale) {
        snprintf(round->late, sizeof round->late, "%s", fault == NULL ? host : "");
        round->is_late_v6 = is_v6;
        round->late_us = round->clock->mono_us;
        return;
    }
    if (fault != NULL) {
        redis_round_pass(round, "%s", fault);
        return;
    }
    go_on_in(round, ROUND_TRYING, REDIS_ROUND_TRY_MS);
    open_host(round, host, is_v6);
}

static void try_one(struct redis_round *round)
{
    if (round->conn.context != NULL) redis_conn_drop(&round->conn);
    if (round->n_tried > 0) round->at++;
    round->n_all = round->kind->server_of(round, round->at, round->name);
    if (round->n_tried >= round->n_all) {
        round->n_failed++;
        go_on_in(round, ROUND_WAITING, REDIS_ROUND_SOON_MS);
        round->kind->on_failed(round);
        return;
    }

    round->n_tried++;
    const char *fault = redis_address_parse(round->name, &round->address);
    if (fault != NULL || round->address.is_unix) {
        redis_round_pass(round, "%s", fault != NULL ? fault : "a Unix socket will not do; write host:port");
        return;
    }

    go_on_in(round, ROUND_TRYING, REDIS_ROUND_TRY_MS);
    round->is_stale = round->lookup.request != NULL; /* the one that is passed over had begun it */
    if (round->address.is_numeric) {
        open_host(round, round->address.host, round->address.is_v6);
        return;
    }

    /* A name: by what a late lookup has found, once; else it is looked up. */
    const char *name = round->address.host;
    bool is_same = strcmp(round->looked_up, name) == 0;
    if (is_same && round->late[0] != '\0' && round->clock->mono_us - round->late_us < LATE_US) {
        char host[NI_MAXHOST];
        memcpy(host, round->late, sizeof host);
        round->late[0] = '\0';
        open_host(round, host, round->is_late_v6);
        return;
    }
    if (is_same && round->lookup.request != NULL) {
        redis_round_pass(round, "the lookup of its name is still running");
        return;
    }
    fault = redis_lookup_start(&round->lookup, round->loop, name);
    if (fault != NULL) {
        redis_round_pass(round, "%s", fault);
        return;
    }
    round->late[0] = '\0';
    memcpy(round->looked_up, name, sizeof round->looked_up);
}

static void on_time(uv_timer_t *timer)
{
    struct redis_round *round = timer->data;
    clock_update(round->clock);
    switch (round->state) {
    case ROUND_WAITING:
        round->n_tried = 0;
        round->began_us = round->clock->mono_us;
        round->kind->on_begin(round);
        try_one(round);
        break;
    case ROUND_PASSING: try_one(round); break;
    case ROUND_TRYING:
        redis_round_pass(round, "%s within %d ms",
                         round->conn.context == NULL ? "the lookup of its name has not ended" : "no answer",
                         REDIS_ROUND_TRY_MS);
        break;
    case ROUND_ANSWERED:
        go_on_in(round, ROUND_WAITING, round->next_ms);
        round->kind->on_answered(round);
        break;
    case ROUND_CLOSED: break;
    }
}

/* ---- the owner's ---- */

static void maybe_closed(struct redis_round *round)
{
    if (round->on_closed == NULL || round->conn.context != NULL || !round->is_timer_closed) return;
    redis_conn_fini(&round->conn);
    round->on_closed(round);
}

static void on_conn_gone(struct redis_conn *conn)
{
    struct redis_round *round = CONTAINER_OF(conn, struct redis_round, conn);
    if (round->state == ROUND_CLOSED)
        maybe_closed(round);
    else if (round->state == ROUND_TRYING)
        redis_round_pass(round, "%s", conn->error);
    else if (round->state != ROUND_PASSING && round->kind->on_gone != NULL)
        round->kind->on_gone(round);
}

void redis_round_init(struct redis_round *round, uv_loop_t *loop, struct clock *clock,
                      const struct redis_options *options, const struct redis_round_kind *kind)
{
    round->loop = loop;
    round->clock = clock;
    round->options = options;
    round->kind = kind;
    round->lookup.on_done = on_resolved;
    redis_conn_init(&round->conn, clock, on_conn_gone);
    uv_timer_init(loop, &round->timer);
    round->timer.data = round;
}

void redis_round_restart(struct redis_round *round)
{
    round->at = 0;
    round->is_stale = true;
    round->silent = round->distrusted = 0;
    memset(round->faults, 0, sizeof round->faults);
    go_on_in(round, ROUND_WAITING, 0);
}

const char *redis_round_passed(const struct redis_round *round, uint32_t nth)
{
    return round->faults[nth];
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct redis_round *round = handle->data;
    round->is_timer_closed = true;
    maybe_closed(round);
}

void redis_round_close(struct redis_round *round, void (*on_closed)(struct redis_round *round))
{
    CHECK(round->on_closed == NULL);
    round->state = ROUND_CLOSED;
    round->on_closed = on_closed;
    redis_lookup_fini(&round->lookup);
    uv_close((uv_handle_t *)&round->timer, on_timer_closed);
    redis_conn_drop(&round->conn);
}
