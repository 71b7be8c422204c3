/*
 * redis/link.c: life of the connection. redis/link.h has the drawing.
 *
 * What can go wrong, and what ends it:
 *   no server, refused, reset          the kernel says so; backoff
 *   no route, black hole, hung server  OPEN_MS from the first packet to the canary's reply
 *   a server that stops answering      the stall watchdog: no reply for stall_ms while a call waits, even if
 *                                      bytes still go out (a stopped process' kernel goes on to acknowledge)
 *   user, password, certificate,       a longer wait: asking again soon cannot help
 *   too many clients
 *   a name with several addresses      the next attempt takes the next one; each attempt asks anew
 */
#include "redis/link.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "redis/backoff.h"
#include "redis/counters.h"
#include "redis/dial.h"
#include "redis/sentinel.h"

enum {
    OPEN_MS = 1000,           /* from connect() to the canary's reply */
    HEALTHY_US = 2 * 1000000, /* a connection that was ready this long has cured the backoff */
    USER_TIMEOUT_FACTOR = 3,  /* TCP_USER_TIMEOUT in stall times */
    STATUS_SIZE = 640,
    MASTER_SIZE = 320,
    STEPS_PER_SECOND = 20, /* that are logged */
};

static struct log_site steps = {.most = STEPS_PER_SECOND};

enum link_state { WAITING, ASKING, DIALING, OPENING, READY, DROPPING, CLOSED };

struct redis_link {
    uv_loop_t *loop;                     /* not owned */
    struct clock *clock;                 /* not owned */
    const struct redis_options *options; /* the store's */
    const char *own_address;             /* NULL = the options' */
    struct redis_link_events events;

    enum link_state state;
    bool was_ready; /* the connection that is ending */
    int64_t ready_since_us;
    enum redis_remedy remedy;  /* how soon to try again */
    char failure[STATUS_SIZE]; /* what went wrong last; "" = nothing yet */
    char peer[320];            /* the address as people write it, with the numeric one if a name was looked up */

    struct backoff backoff;
    struct redis_conn conn;
    struct redis_handshake handshake;
    uv_timer_t timer;                /* WAITING: until the next attempt; OPENING: the deadline */
    uv_timer_t watchdog;             /* READY: the oldest call's age */
    char master[MASTER_SIZE];        /* what a Sentinel named for this attempt */
    struct redis_sentinel *sentinel; /* owned; NULL = the settings have the address */
    struct redis_dial dial;
    bool is_left; /* this attempt is given up because of news: it shows nothing about a Sentinel */

    void (*on_closed)(void *arg); /* NULL = not closing */
    void *on_closed_arg;
    int n_handles; /* timers, and the Sentinels' part, not yet closed */
};

/* Why it failed, and how soon to try again; the first cause counts. */
static void note_failure(struct redis_link *link, enum redis_remedy remedy, const char *why)
{
    char printable[256]; /* a server may write anything into its errors */
    log_escape(printable, sizeof(printable), why, strlen(why));
    snprintf(link->failure, sizeof(link->failure), "%s (%s)", printable, link->peer);
    link->remedy = remedy;
}

static void on_attempt_time(uv_timer_t *timer);

/* What has happened is for the log, too. */
static void try_again_later(struct redis_link *link, const char *what)
{
    link->state = WAITING;
    uint32_t wait_ms = backoff_next(&link->backoff, link->remedy == REMEDY_RECONNECT_LATE);
    uv_timer_start(&link->timer, on_attempt_time, wait_ms, 0);
    log_limited(&steps, LOG_LEVEL_DEBUG, "Redis: %s: %s; next attempt in %u ms", what, link->failure, wait_ms);
}

/* An attempt that did not come to a connection; why NULL: note_failure() knows already. */
static void attempt_failed(struct redis_link *link, enum redis_remedy remedy, const char *why)
{
    if (why != NULL) note_failure(link, remedy, why);
    if (link->sentinel != NULL && link->state != ASKING && !link->is_left)
        redis_sentinel_distrust(link->sentinel, link->handshake.is_replica ? link->failure : NULL);
    redis_counters.redis_connect_failures++;
    link->dial.nth++;
    try_again_later(link, "no connection");
    link->events.on_attempt(link->events.arg);
}

static void maybe_closed(struct redis_link *link)
{
    if (link->on_closed == NULL || link->conn.context != NULL || link->n_handles > 0) return;

    void (*on_closed)(void *arg) = link->on_closed;
    void *arg = link->on_closed_arg;
    redis_conn_fini(&link->conn);
    mem_free(link);
    on_closed(arg);
}

static void on_conn_gone(struct redis_conn *conn)
{
    struct redis_link *link = CONTAINER_OF(conn, struct redis_link, conn);
    uv_timer_stop(&link->watchdog);
    if (link->state == CLOSED) {
        maybe_closed(link);
        return;
    }

    if (link->state != DROPPING)
        note_failure(link, conn->is_refused ? REMEDY_RECONNECT_LATE : REMEDY_RECONNECT, conn->error);
    uv_timer_stop(&link->timer);
    if (!link->was_ready) {
        attempt_failed(link, link->remedy, NULL);
        return;
    }

    link->was_ready = false;
    redis_counters.redis_disconnects++;
    if (link->clock->mono_us - link->ready_since_us >= HEALTHY_US) backoff_reset(&link->backoff);
    try_again_later(link, "connection lost");
    link->events.on_down(link->events.arg);
}

void redis_link_drop(struct redis_link *link, enum redis_remedy remedy, const char *why)
{
    if (link->state != OPENING && link->state != READY) return;
    note_failure(link, remedy, why);
    link->state = DROPPING;
    redis_conn_drop(&link->conn);
}

/* READY: watch the oldest call. */
static void on_watchdog(uv_timer_t *timer)
{
    struct redis_link *link = timer->data;
    clock_update(link->clock);
    int64_t since_us = redis_conn_waiting_since(&link->conn);
    if (since_us == INT64_MAX) return; /* the next call starts it again */

    int64_t left_us = since_us + (int64_t)link->options->stall_ms * 1000 - link->clock->mono_us;
    if (left_us > 0) {
        uv_timer_start(timer, on_watchdog, (uint64_t)left_us / 1000 + 1, 0);
        return;
    }

    char why[64];
    snprintf(why, sizeof why, "no reply for %u ms", link->options->stall_ms);
    redis_counters.redis_stalls++;
    redis_link_drop(link, REMEDY_RECONNECT, why);
}

static void on_handshake_over(struct redis_handshake *handshake, const char *fault, enum redis_remedy remedy)
{
    struct redis_link *link = CONTAINER_OF(handshake, struct redis_link, handshake);
    if (link->state != OPENING) return;
    if (fault != NULL) {
        redis_link_drop(link, remedy, fault);
        return;
    }

    uv_timer_stop(&link->timer);
    link->state = READY;
    link->was_ready = true;
    link->ready_since_us = link->clock->mono_us;
    redis_conn_cork(&link->conn);
    const char *tls = redis_conn_tls_version(&link->conn);
    log_limited(&steps, LOG_LEVEL_DEBUG, "Redis: connection ready%s%s", tls == NULL ? "" : ", ",
                tls == NULL ? "" : tls);
    if (link->sentinel != NULL) redis_sentinel_trust(link->sentinel);
    link->events.on_ready(link->events.arg);
    link->events.on_attempt(link->events.arg);
}

static void on_open_deadline(uv_timer_t *timer)
{
    struct redis_link *link = timer->data;
    clock_update(link->clock);
    const char *why = "connected, but no answer in time";
    if (!redis_conn_is_connected(&link->conn))
        why = "no connection in time";
    else if (!redis_conn_is_secure(&link->conn))
        why = "connected, but no handshake of TLS in time; is this the port for TLS?";
    redis_link_drop(link, REMEDY_RECONNECT, why);
}

static void on_dialed(struct redis_dial *dial, const char *fault)
{
    struct redis_link *link = CONTAINER_OF(dial, struct redis_link, dial);
    const char *found = redis_dial_found(dial);
    size_t len = strlen(link->peer);
    if (found[0] != '\0') snprintf(link->peer + len, sizeof link->peer - len, " at %.45s", found);
    if (fault != NULL) {
        attempt_failed(link, REMEDY_RECONNECT, fault);
        return;
    }

    link->state = OPENING;
    link->remedy = REMEDY_RECONNECT;
    log_limited(&steps, LOG_LEVEL_DEBUG, "Redis: connecting to %s", link->peer);
    uv_timer_start(&link->timer, on_open_deadline, OPEN_MS, 0);
    if (redis_handshake_start(&link->handshake, link->options) < 0)
        redis_link_drop(link, REMEDY_RECONNECT, "out of memory");
}

/* Opens a connection to the address, `text`, for this attempt. */
static void open_address(struct redis_link *link, const char *text)
{
    snprintf(link->peer, sizeof link->peer, "%s", text);
    const char *fault = redis_address_parse(text, &link->dial.address);
    if (fault != NULL) {
        attempt_failed(link, REMEDY_RECONNECT_LATE, fault);
        return;
    }
    link->state = DIALING;
    redis_dial_start(&link->dial, link->options->stall_ms * USER_TIMEOUT_FACTOR);
}

/* Each attempt asks anew where the server is: the settings, or the Sentinels. */
static void on_attempt_time(uv_timer_t *timer)
{
    struct redis_link *link = timer->data;
    clock_update(link->clock);
    redis_counters.redis_connects++;
    link->is_left = link->handshake.is_replica = false;
    if (link->sentinel == NULL) {
        open_address(link, link->own_address != NULL ? link->own_address : link->options->address);
        return;
    }
    link->state = ASKING;
    snprintf(link->peer, sizeof link->peer, "the master %.250s", link->options->master_name);
    redis_sentinel_ask(link->sentinel);
}

/* For a server that is another one now. A lookup that runs is not waited for: it may hang. */
static void leave(struct redis_link *link, const char *why)
{
    backoff_reset(&link->backoff);
    redis_dial_give_up(&link->dial);
    if (link->state == DIALING) link->state = WAITING;
    if (link->state == WAITING) uv_timer_start(&link->timer, on_attempt_time, 0, 0);
    link->is_left = true;
    redis_link_drop(link, REMEDY_RECONNECT, why);
}

/* ---- Sentinels ---- */

static void on_master(void *arg, const char *address, const char *sentinel)
{
    struct redis_link *link = arg;
    if (link->state == ASKING) {
        log_limited(&steps, LOG_LEVEL_DEBUG, "Redis: Sentinel %s names %s", sentinel, address);
        snprintf(link->master, sizeof link->master, "%s", address);
        open_address(link, link->master);
    } else if (strcmp(link->master, address) != 0) {
        leave(link, "the Sentinels name another master");
    } else if (link->state == READY) {
        redis_sentinel_trust(link->sentinel);
    }
}

static void on_no_master(void *arg, const char *why)
{
    struct redis_link *link = arg;
    if (link->state == ASKING) attempt_failed(link, REMEDY_RECONNECT, why);
}

struct redis_link *redis_link_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options,
                                  const char *address, const struct redis_script *script,
                                  const struct redis_link_events *events)
{
    struct redis_link *link = mem_zalloc(sizeof(*link));
    if (link == NULL) return NULL;
    link->loop = loop;
    link->clock = clock;
    link->options = options;
    link->own_address = address;
    link->events = *events;

    redis_conn_init(&link->conn, clock, on_conn_gone);
    link->handshake.conn = &link->conn;
    link->handshake.script = script;
    link->handshake.on_over = on_handshake_over;
    redis_dial_init(&link->dial, loop, &link->conn, &options->tls, on_dialed);
    if (options->topology == TOPOLOGY_SENTINEL) {
        const struct redis_sentinel_events of_sentinel = {.arg = link, .on_master = on_master, .on_none = on_no_master};
        link->sentinel = redis_sentinel_new(loop, clock, options, &of_sentinel);
        if (link->sentinel == NULL) {
            mem_free(link);
            return NULL;
        }
    }
    uint64_t seed = options->random_seed; /* of a cluster's nodes each its own, lest all are tried at once */
    if (address != NULL) seed = hash_stable(seed, address, strlen(address));
    backoff_init(&link->backoff, seed);
    redis_link_options_changed(link);

    uv_timer_init(loop, &link->timer);
    uv_timer_init(loop, &link->watchdog);
    link->timer.data = link->watchdog.data = link;
    link->n_handles = 2 + (link->sentinel != NULL);
    uv_timer_start(&link->timer, on_attempt_time, 0, 0);
    return link;
}

void redis_link_options_changed(struct redis_link *link)
{
    const struct redis_options *options = link->options;
    backoff_set(&link->backoff, options->backoff_min_ms, options->backoff_max_ms, options->refused_max_ms);
}

void redis_link_move(struct redis_link *link)
{
    link->dial.nth = 0;
    link->handshake.without_hello = false;
    leave(link, "the settings have changed");
    if (link->sentinel != NULL) redis_sentinel_options_changed(link->sentinel);
}

bool redis_link_is_ready(const struct redis_link *link)
{
    return link->state == READY;
}

const char *redis_link_status(const struct redis_link *link)
{
    if (link->state == READY) return "ready";
    return link->failure[0] != '\0' ? link->failure : "connecting";
}

const char *redis_link_server(const struct redis_link *link)
{
    return link->handshake.server;
}

int redis_link_send(struct redis_link *link, struct redis_call *call, const struct slice *args, size_t n)
{
    if (link->state != READY || redis_conn_send(&link->conn, call, args, n) < 0) return -1;
    if (!uv_is_active((uv_handle_t *)&link->watchdog))
        uv_timer_start(&link->watchdog, on_watchdog, link->options->stall_ms, 0);
    return 0;
}

void redis_link_flush(struct redis_link *link)
{
    redis_conn_flush(&link->conn);
}

size_t redis_link_output(const struct redis_link *link)
{
    return buffer_len(&link->conn.output);
}

const struct redis_sentinel *redis_link_sentinel(const struct redis_link *link)
{
    return link->sentinel;
}

static void on_part_closed(void *arg)
{
    struct redis_link *link = arg;
    link->n_handles--;
    maybe_closed(link);
}

static void on_handle_closed(uv_handle_t *handle)
{
    on_part_closed(handle->data);
}

void redis_link_close(struct redis_link *link, void (*on_closed)(void *arg), void *arg)
{
    CHECK(link->on_closed == NULL);
    link->state = CLOSED;
    link->on_closed = on_closed;
    link->on_closed_arg = arg;

    uv_close((uv_handle_t *)&link->timer, on_handle_closed);
    uv_close((uv_handle_t *)&link->watchdog, on_handle_closed);
    if (link->sentinel != NULL) redis_sentinel_close(link->sentinel, on_part_closed, link);
    redis_dial_fini(&link->dial);
    redis_conn_drop(&link->conn);
}
