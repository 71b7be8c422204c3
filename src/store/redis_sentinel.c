#include "store/redis_sentinel.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/redis_conn.h"
#include "store/redis_handshake.h"
#include "store/redis_lookup.h"

enum {
    TRY_MS = 250,        /* from the lookup of its name to its answer */
    AGAIN_MS = 10000,    /* after an answer: a link to a master that is gone may look healthy */
    SOON_MS = 1000,      /* after a failed round, or a connection that ended */
    GUARD_RESERVE = 512, /* bytes of the commands besides user, password and the master's name */
    PORT_DIGITS = 5,
    ADDRESS_SIZE = REDIS_HOST_MAX + sizeof "[]:65535",
    FAULT_SIZE = 384,
};

enum sentinel_state { WAITING, TRYING, PASSING, ANSWERED, CLOSED };

struct redis_sentinel {
    uv_loop_t *loop;                     /* not owned */
    struct clock *clock;                 /* not owned */
    const struct redis_options *options; /* the store's */
    struct redis_sentinel_events events;

    enum sentinel_state state;
    bool is_asked;     /* the owner waits for on_master or on_none */
    bool is_stale;     /* the lookup that runs is not wanted any more */
    bool is_hinted;    /* in this round, that the master is another one */
    uint32_t at;       /* the Sentinel that is tried, or that answered last */
    uint32_t n_tried;  /* of this round */
    uint32_t n_failed; /* rounds: each name's next address is taken then */
    int64_t round_us;  /* CLOCK_MONOTONIC, when it began */
    uint32_t next_ms;  /* ANSWERED: when the next round begins */
    struct redis_address address;
    char name[ADDRESS_SIZE];                      /* of the Sentinel, as the settings have it */
    char master[ADDRESS_SIZE];                    /* what it says */
    char fault[FAULT_SIZE];                       /* why one was passed over last */
    char faults[REDIS_SENTINELS_MAX][FAULT_SIZE]; /* the same of each */
    uint32_t n_all;

    struct redis_conn conn;
    struct redis_lookup lookup;
    struct redis_call hello, get, subscribe, hint;
    uv_timer_t timer;

    void (*on_closed)(void *arg); /* NULL = not closing */
    void *on_closed_arg;
    bool is_timer_closed;
};

static void on_time(uv_timer_t *timer);

static void go_on_in(struct redis_sentinel *sentinel, enum sentinel_state state, uint64_t ms)
{
    sentinel->state = state;
    uv_timer_start(&sentinel->timer, on_time, ms, 0);
}

static void note_fault(struct redis_sentinel *sentinel, const char *why)
{
    snprintf(sentinel->fault, sizeof sentinel->fault, "Sentinel %.*s: %.*s", 100, sentinel->name, 256, why);
    memcpy(sentinel->faults[sentinel->at % sentinel->n_all], sentinel->fault, FAULT_SIZE);
}

__attribute__((format(printf, 2, 3))) static void pass_over(struct redis_sentinel *sentinel, const char *format, ...)
{
    char why[REDIS_TEXT_MAX / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    note_fault(sentinel, why);
    go_on_in(sentinel, PASSING, 0);
}

/* ---- what it answers ---- */

static bool is_of_try(const struct redis_sentinel *sentinel, const struct redis_reader *reply)
{
    return reply != NULL && sentinel->state == TRYING; /* after a fault, the other replies mean nothing */
}

static void on_hello(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_sentinel *sentinel = CONTAINER_OF(call, struct redis_sentinel, hello);
    if (!is_of_try(sentinel, reply) || !redis_reader_is_error(reply)) return;
    struct slice text = redis_reader_text(reply);
    enum redis_error error = redis_error_of((const char *)text.data, text.len);
    if (error == REDIS_ERROR_UNKNOWN_COMMAND) /* its words are our arguments, the password among them */
        pass_over(sentinel, "HELLO: unknown command; a Sentinel must be Redis 6.2 or newer, or Valkey");
    else
        pass_over(sentinel, "%.*s%s", (int)text.len, (const char *)text.data,
                  error == REDIS_ERROR_AUTH ? "; correct store.redis.sentinel.username or its password_file" : "");
}

/* Two texts, host and port, as "host:port". */
static bool take_master(struct redis_sentinel *sentinel, const struct redis_reader *reply)
{
    const char *host = reply->text, *port = host + strlen(host) + 1;
    bool is_pair = reply->type == REDIS_ARRAY && reply->n_elements == 2 && reply->n_integers == 0 &&
                   reply->text_len == strlen(host) + 1 + strlen(port) + 1;
    if (!is_pair || strlen(host) > REDIS_HOST_MAX || strlen(port) > PORT_DIGITS || strchr(host, '/') != NULL)
        return false;
    bool is_v6 = strchr(host, ':') != NULL;
    snprintf(sentinel->master, sizeof sentinel->master, is_v6 ? "[%s]:%.5s" : "%s:%.5s", host, port);

    struct redis_address address;
    return redis_address_parse(sentinel->master, &address) == NULL && !address.is_unix;
}

static void on_get(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_sentinel *sentinel = CONTAINER_OF(call, struct redis_sentinel, get);
    if (!is_of_try(sentinel, reply)) return;
    struct slice text = redis_reader_text(reply);
    if (redis_reader_is_error(reply) &&
        redis_error_of((const char *)text.data, text.len) == REDIS_ERROR_UNKNOWN_COMMAND)
        pass_over(sentinel, "it is no Sentinel; write those of the Sentinels into store.redis.addresses");
    else if (redis_reader_is_error(reply))
        pass_over(sentinel, "%.*s", (int)text.len, (const char *)text.data);
    else if (reply->type == REDIS_NIL)
        pass_over(sentinel, "it knows no master %s; correct store.redis.master_name", sentinel->options->master_name);
    else if (!take_master(sentinel, reply))
        pass_over(sentinel, "its answer names no host and port");
    else
        go_on_in(sentinel, ANSWERED, 0);
}

/* The next round opens another connection; this one is closed, lest a flood of hints be read. */
static void on_hint(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_sentinel *sentinel = CONTAINER_OF(call, struct redis_sentinel, hint);
    if (reply == NULL) return;
    sentinel->is_hinted = true;
    redis_conn_drop(&sentinel->conn);
}

static void on_subscribe(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_sentinel *sentinel = CONTAINER_OF(call, struct redis_sentinel, subscribe);
    if (reply == NULL || redis_reader_is_error(reply)) return; /* without hints, the time does it */
    sentinel->hint.on_reply = on_hint;
    redis_conn_expect(&sentinel->conn, &sentinel->hint);
}

/* ---- asking one ---- */

static int send_command(struct redis_sentinel *sentinel, struct redis_call *call,
                        void (*on_reply)(struct redis_call *, const struct redis_reader *), const struct slice *args,
                        size_t n)
{
    call->on_reply = on_reply;
    return redis_conn_send(&sentinel->conn, call, args, n);
}

static int send_commands(struct redis_sentinel *sentinel)
{
    const struct redis_options *options = sentinel->options;
    const char *user = options->sentinel_username, *password = options->sentinel_password;
    char name[REDIS_CLIENT_NAME_MAX];
    struct slice args[8] = {slice_of("HELLO"), slice_of("2")};
    size_t n = 2;
    if (user != NULL || password != NULL) {
        args[n++] = slice_of("AUTH");
        args[n++] = slice_of(user != NULL ? user : "default");
        args[n++] = slice_of(password != NULL ? password : "");
        if (redis_conn_guard(&sentinel->conn,
                             GUARD_RESERVE + args[3].len + args[4].len + strlen(options->master_name)) < 0)
            return -1;
    }
    args[n++] = slice_of("SETNAME");
    args[n++] = slice_of(redis_client_name(name));

    const struct slice get[] = {slice_of("SENTINEL"), slice_of("get-master-addr-by-name"),
                                slice_of(options->master_name)};
    const struct slice subscribe[] = {slice_of("SUBSCRIBE"), slice_of("+switch-master")};
    if (send_command(sentinel, &sentinel->hello, on_hello, args, n) < 0) return -1;
    if (send_command(sentinel, &sentinel->get, on_get, get, N_OF(get)) < 0) return -1;
    return send_command(sentinel, &sentinel->subscribe, on_subscribe, subscribe, N_OF(subscribe));
}

static void open_host(struct redis_sentinel *sentinel, const char *host, bool is_v6)
{
    const struct redis_endpoint endpoint = {.host = host,
                                            .port = sentinel->address.port,
                                            .is_v6 = is_v6,
                                            .user_timeout_ms = AGAIN_MS,
                                            .tls = sentinel->options->sentinel_tls,
                                            .name = sentinel->address.host};
    if (redis_conn_open(&sentinel->conn, sentinel->loop, &endpoint) < 0)
        pass_over(sentinel, "%s", sentinel->conn.error);
    else if (send_commands(sentinel) < 0)
        pass_over(sentinel, "out of memory");
}

static void on_resolved(struct redis_lookup *lookup, const char *fault, const struct addrinfo *all)
{
    struct redis_sentinel *sentinel = CONTAINER_OF(lookup, struct redis_sentinel, lookup);
    if (sentinel->state != TRYING || sentinel->is_stale) return;
    clock_update(sentinel->clock);
    char host[NI_MAXHOST];
    bool is_v6 = false;
    if (fault == NULL) fault = redis_lookup_nth(all, sentinel->n_failed, host, &is_v6);
    if (fault != NULL)
        pass_over(sentinel, "%s", fault);
    else
        open_host(sentinel, host, is_v6);
}

/* The n-th line of the addresses, round and round, into `name`. Their number. */
static uint32_t name_of(struct redis_sentinel *sentinel, uint32_t nth)
{
    const char *all = sentinel->options->address;
    uint32_t n_all = 1;
    for (const char *at = all; (at = strchr(at, '\n')) != NULL; at++) n_all++;
    const char *at = all;
    for (uint32_t i = nth % n_all; i > 0; i--) at = strchr(at, '\n') + 1;
    snprintf(sentinel->name, sizeof sentinel->name, "%.*s", (int)strcspn(at, "\n"), at);
    CHECK(n_all <= REDIS_SENTINELS_MAX);
    sentinel->n_all = n_all;
    return n_all;
}

static void try_one(struct redis_sentinel *sentinel)
{
    if (sentinel->conn.context != NULL) redis_conn_drop(&sentinel->conn);
    if (sentinel->n_tried > 0) sentinel->at++;
    if (sentinel->n_tried == name_of(sentinel, sentinel->at)) {
        bool is_asked = sentinel->is_asked;
        sentinel->is_asked = false;
        sentinel->n_failed++;
        go_on_in(sentinel, WAITING, SOON_MS);
        if (is_asked) sentinel->events.on_none(sentinel->events.arg, sentinel->fault);
        return;
    }

    sentinel->n_tried++;
    const char *fault = redis_address_parse(sentinel->name, &sentinel->address);
    if (fault == NULL && sentinel->address.is_unix) fault = "a Sentinel has no Unix socket; write host:port";
    if (fault != NULL) {
        pass_over(sentinel, "%s", fault);
        return;
    }

    go_on_in(sentinel, TRYING, TRY_MS);
    sentinel->is_stale = sentinel->lookup.request != NULL; /* the one that is passed over had begun it */
    if (sentinel->address.is_numeric) {
        open_host(sentinel, sentinel->address.host, sentinel->address.is_v6);
        return;
    }
    fault = redis_lookup_start(&sentinel->lookup, sentinel->loop, sentinel->address.host);
    if (fault != NULL) pass_over(sentinel, "%s", fault);
}

static void on_time(uv_timer_t *timer)
{
    struct redis_sentinel *sentinel = timer->data;
    clock_update(sentinel->clock);
    switch (sentinel->state) {
    case WAITING:
        sentinel->n_tried = 0;
        sentinel->next_ms = AGAIN_MS;
        sentinel->is_hinted = false;
        sentinel->round_us = sentinel->clock->mono_us;
        try_one(sentinel);
        break;
    case PASSING: try_one(sentinel); break;
    case TRYING: pass_over(sentinel, "no answer within %d ms", TRY_MS); break;
    case ANSWERED:
        sentinel->is_asked = false;
        go_on_in(sentinel, WAITING, sentinel->next_ms);
        sentinel->events.on_master(sentinel->events.arg, sentinel->master, sentinel->name);
        break;
    case CLOSED: break;
    }
}

/* ---- the owner's ---- */

static void maybe_closed(struct redis_sentinel *sentinel)
{
    if (sentinel->on_closed == NULL || sentinel->conn.context != NULL || !sentinel->is_timer_closed) return;
    void (*on_closed)(void *arg) = sentinel->on_closed;
    void *arg = sentinel->on_closed_arg;
    redis_conn_fini(&sentinel->conn);
    mem_free(sentinel);
    on_closed(arg);
}

static void on_conn_gone(struct redis_conn *conn)
{
    struct redis_sentinel *sentinel = CONTAINER_OF(conn, struct redis_sentinel, conn);
    int64_t since_ms = (sentinel->clock->mono_us - sentinel->round_us) / 1000, wait_ms = SOON_MS;
    if (sentinel->is_hinted) wait_ms = since_ms < TRY_MS ? TRY_MS - since_ms : 0; /* each new round may bring one */
    if (sentinel->state == CLOSED)
        maybe_closed(sentinel);
    else if (sentinel->state == TRYING)
        pass_over(sentinel, "%s", conn->error);
    else if (sentinel->state == WAITING)
        go_on_in(sentinel, WAITING, (uint64_t)wait_ms);
    else if (sentinel->state == ANSWERED)
        sentinel->next_ms = (uint32_t)wait_ms;
}

struct redis_sentinel *redis_sentinel_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options,
                                          const struct redis_sentinel_events *events)
{
    struct redis_sentinel *sentinel = mem_zalloc(sizeof *sentinel);
    if (sentinel == NULL) return NULL;
    sentinel->loop = loop;
    sentinel->clock = clock;
    sentinel->options = options;
    sentinel->events = *events;
    sentinel->lookup.on_done = on_resolved;
    redis_conn_init(&sentinel->conn, clock, on_conn_gone);
    uv_timer_init(loop, &sentinel->timer);
    sentinel->timer.data = sentinel;
    return sentinel;
}

void redis_sentinel_ask(struct redis_sentinel *sentinel)
{
    sentinel->is_asked = true;
    if (sentinel->state == WAITING) go_on_in(sentinel, WAITING, 0);
}

void redis_sentinel_distrust(struct redis_sentinel *sentinel, const char *lie)
{
    char why[REDIS_TEXT_MAX / 2];
    if (sentinel->state != WAITING) return;
    if (lie != NULL) {
        snprintf(why, sizeof why, "it names no master: %.220s", lie);
        note_fault(sentinel, why);
    }
    sentinel->at++;
}

void redis_sentinel_options_changed(struct redis_sentinel *sentinel)
{
    sentinel->at = 0;
    sentinel->is_stale = true;
    memset(sentinel->faults, 0, sizeof sentinel->faults);
    go_on_in(sentinel, WAITING, 0);
}

const char *redis_sentinel_passed(const struct redis_sentinel *sentinel, uint32_t nth)
{
    return nth < sentinel->n_all ? sentinel->faults[nth] : NULL;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct redis_sentinel *sentinel = handle->data;
    sentinel->is_timer_closed = true;
    maybe_closed(sentinel);
}

void redis_sentinel_close(struct redis_sentinel *sentinel, void (*on_closed)(void *arg), void *arg)
{
    CHECK(sentinel->on_closed == NULL);
    sentinel->state = CLOSED;
    sentinel->on_closed = on_closed;
    sentinel->on_closed_arg = arg;
    redis_lookup_fini(&sentinel->lookup);
    uv_close((uv_handle_t *)&sentinel->timer, on_timer_closed);
    redis_conn_drop(&sentinel->conn);
}
