/* redis/round.c: one question to a list of servers, one after another; for redis/sentinel.c and cluster_watch.c. */
#include "redis/round.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "redis/handshake.h"

enum {
    QUESTION_RESERVE = 1024, /* bytes of the kind's commands */
    USER_TIMEOUT_MS = 10000,
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
    redis_dial_give_up(&round->dial);
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
    enum redis_error error = redis_error_of(redis_reader_text(reply));
    if (error == REDIS_ERROR_UNKNOWN_COMMAND) /* its words are our arguments, the password among them */
        redis_round_pass(round, "HELLO: unknown command; a %s must be Redis 6.2 or newer, or Valkey",
                         round->kind->server);
    else if (error == REDIS_ERROR_AUTH)
        redis_round_pass(round, "%s; correct %s", reply->text, round->kind->login_of(round).settings);
    else
        redis_round_pass(round, "%s", reply->text);
}

static void on_dialed(struct redis_dial *dial, const char *fault)
{
    struct redis_round *round = CONTAINER_OF(dial, struct redis_round, dial);
    if (fault != NULL) {
        redis_round_pass(round, "%s", fault);
        return;
    }
    go_on_in(round, ROUND_TRYING, REDIS_ROUND_TRY_MS);
    const struct redis_round_login login = round->kind->login_of(round);
    if (redis_hello_send(&round->conn, &round->hello, login.username, login.password, QUESTION_RESERVE) < 0 ||
        round->kind->ask(round) < 0)
        redis_round_pass(round, "out of memory");
}

static void try_one(struct redis_round *round)
{
    if (round->conn.context != NULL) redis_conn_drop(&round->conn);
    if (round->n_tried > 0) round->at++;
    round->n_all = round->kind->server_of(round, round->at, round->name);
    if (round->n_tried >= round->n_all) {
        round->dial.nth++;
        go_on_in(round, ROUND_WAITING, REDIS_ROUND_SOON_MS);
        round->kind->on_failed(round);
        return;
    }

    round->n_tried++;
    const struct redis_address *address = &round->dial.address;
    const char *fault = redis_address_parse(round->name, &round->dial.address);
    if (fault != NULL || address->is_unix) {
        redis_round_pass(round, "%s", fault != NULL ? fault : "a Unix socket will not do; write host:port");
        return;
    }
    go_on_in(round, ROUND_TRYING, REDIS_ROUND_TRY_MS);
    redis_dial_start(&round->dial, USER_TIMEOUT_MS);
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
                      const struct redis_options *options, struct redis_tls *const *tls,
                      const struct redis_round_kind *kind)
{
    round->loop = loop;
    round->clock = clock;
    round->options = options;
    round->kind = kind;
    round->hello.on_reply = on_hello;
    redis_conn_init(&round->conn, clock, on_conn_gone);
    redis_dial_init(&round->dial, loop, &round->conn, tls, on_dialed);
    uv_timer_init(loop, &round->timer);
    round->timer.data = round;
}

void redis_round_restart(struct redis_round *round)
{
    round->at = 0;
    redis_dial_give_up(&round->dial);
    round->silent = round->distrusted = 0;
    memset(round->faults, 0, sizeof round->faults);
    go_on_in(round, ROUND_WAITING, 0);
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
    redis_dial_fini(&round->dial);
    uv_close((uv_handle_t *)&round->timer, on_timer_closed);
    redis_conn_drop(&round->conn);
}
