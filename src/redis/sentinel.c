/* redis/sentinel.c: asks the Sentinels where the master is (redis/round.h), for redis/link.c. */
#include "redis/sentinel.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "redis/counters.h"
#include "redis/handshake.h"
#include "redis/round.h"

enum {
    AGAIN_MS = 10000, /* after an answer: a link to a master that is gone may look healthy */
    PORT_DIGITS = 5,
};

struct redis_sentinel {
    struct redis_round round;
    struct redis_sentinel_events events;
    bool is_asked;                           /* the owner waits for on_master or on_none */
    bool is_hinted;                          /* in this round, that the master is another one */
    char master[REDIS_ROUND_ADDRESS_SIZE];   /* what the one that answered last says */
    char answered[REDIS_ROUND_ADDRESS_SIZE]; /* the one that answered last; "" = none yet */
    struct redis_call get, subscribe, hint;

    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static struct redis_sentinel *sentinel_of(const struct redis_round *round)
{
    return CONTAINER_OF(round, struct redis_sentinel, round);
}

/* ---- what it answers ---- */

/* It reaches the log. */
static bool is_host(const char *host)
{
    for (const char *at = host; *at != '\0'; at++)
        if (*at <= ' ' || *at > '~' || *at == '/') return false;
    return strlen(host) <= REDIS_HOST_MAX;
}

/* Two texts, host and port, as "host:port". */
static bool take_master(struct redis_sentinel *sentinel, const struct redis_reader *reply)
{
    const char *host = reply->text, *port = host + strlen(host) + 1;
    bool is_pair = reply->type == REDIS_ARRAY && reply->n_elements == 2 && reply->n_integers == 0 &&
                   reply->text_len == strlen(host) + 1 + strlen(port) + 1;
    if (!is_pair || !is_host(host) || strlen(port) > PORT_DIGITS) return false;
    bool is_v6 = strchr(host, ':') != NULL;
    snprintf(sentinel->master, sizeof sentinel->master, is_v6 ? "[%s]:%.5s" : "%s:%.5s", host, port);

    struct redis_address address;
    return redis_address_parse(sentinel->master, &address) == NULL && !address.is_unix;
}

static void on_get(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_sentinel *sentinel = CONTAINER_OF(call, struct redis_sentinel, get);
    struct redis_round *round = &sentinel->round;
    if (!redis_round_is_trying(round, reply)) return;
    bool is_error = redis_reader_is_error(reply);
    if (is_error && redis_error_of(redis_reader_text(reply)) == REDIS_ERROR_UNKNOWN_COMMAND)
        redis_round_pass(round, "it is no Sentinel; write those of the Sentinels into store.redis.addresses");
    else if (is_error)
        redis_round_pass(round, "%s", reply->text);
    else if (reply->type == REDIS_NIL)
        redis_round_pass(round, "it knows no master %s; correct store.redis.master_name", round->options->master_name);
    else if (!take_master(sentinel, reply))
        redis_round_pass(round, "its answer names no host and port");
    else
        redis_round_answered(round);
}

/* The next round opens another connection; this one is closed, lest a flood of hints be read. */
static void on_hint(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_sentinel *sentinel = CONTAINER_OF(call, struct redis_sentinel, hint);
    if (reply == NULL) return;
    sentinel->is_hinted = true;
    redis_conn_drop(&sentinel->round.conn);
}

static void on_subscribe(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_sentinel *sentinel = CONTAINER_OF(call, struct redis_sentinel, subscribe);
    if (reply == NULL || redis_reader_is_error(reply)) return; /* without hints, the time does it */
    redis_conn_expect(&sentinel->round.conn, &sentinel->hint);
}

/* ---- what is asked ---- */

/* The n-th line of the addresses, round and round. */
static uint32_t server_of(struct redis_round *round, uint32_t nth, char ret_address[REDIS_ROUND_ADDRESS_SIZE])
{
    uint32_t n_all = redis_address_nth(round->options->address, nth, ret_address, REDIS_ROUND_ADDRESS_SIZE);
    CHECK(n_all <= REDIS_ADDRESSES_MAX);
    return n_all;
}

static struct redis_round_login login_of(const struct redis_round *round)
{
    return (struct redis_round_login){.username = round->options->sentinel_username,
                                      .password = round->options->sentinel_password,
                                      .settings = "store.redis.sentinel.username or its password_file"};
}

static int ask(struct redis_round *round)
{
    struct redis_sentinel *sentinel = sentinel_of(round);
    const struct slice get[] = {slice_of("SENTINEL"), slice_of("get-master-addr-by-name"),
                                slice_of(round->options->master_name)};
    const struct slice subscribe[] = {slice_of("SUBSCRIBE"), slice_of("+switch-master")};
    if (redis_conn_send(&round->conn, &sentinel->get, get, N_OF(get)) < 0) return -1;
    return redis_conn_send(&round->conn, &sentinel->subscribe, subscribe, N_OF(subscribe));
}

static void on_begin(struct redis_round *round)
{
    round->next_ms = AGAIN_MS;
    sentinel_of(round)->is_hinted = false;
}

static void count(const struct redis_round *round)
{
    redis_counters.redis_sentinels = round->n_all;
    redis_counters.redis_sentinels_silent = (uint64_t)__builtin_popcount(round->silent);
}

static void on_answered(struct redis_round *round)
{
    struct redis_sentinel *sentinel = sentinel_of(round);
    sentinel->is_asked = false;
    snprintf(sentinel->answered, sizeof sentinel->answered, "%s", round->name);
    count(round);
    sentinel->events.on_master(sentinel->events.arg, sentinel->master, round->name);
}

static void on_failed(struct redis_round *round)
{
    struct redis_sentinel *sentinel = sentinel_of(round);
    bool is_asked = sentinel->is_asked;
    sentinel->is_asked = false;
    count(round);
    if (is_asked) sentinel->events.on_none(sentinel->events.arg, round->fault);
}

/* Each new round may bring one more hint. */
static void on_gone(struct redis_round *round)
{
    int64_t since_ms = (round->clock->mono_us - round->began_us) / 1000, wait_ms = REDIS_ROUND_SOON_MS;
    if (sentinel_of(round)->is_hinted) wait_ms = since_ms < REDIS_ROUND_TRY_MS ? REDIS_ROUND_TRY_MS - since_ms : 0;
    if (round->state == ROUND_ANSWERED) round->next_ms = (uint32_t)wait_ms;
    redis_round_begin_in(round, (uint64_t)wait_ms);
}

static const struct redis_round_kind sentinels = {.server = "Sentinel",
                                                  .server_of = server_of,
                                                  .login_of = login_of,
                                                  .ask = ask,
                                                  .on_begin = on_begin,
                                                  .on_answered = on_answered,
                                                  .on_failed = on_failed,
                                                  .on_gone = on_gone};

/* ---- the owner's ---- */

struct redis_sentinel *redis_sentinel_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options,
                                          const struct redis_sentinel_events *events)
{
    struct redis_sentinel *sentinel = mem_zalloc(sizeof *sentinel);
    if (sentinel == NULL) return NULL;
    sentinel->events = *events;
    sentinel->get.on_reply = on_get;
    sentinel->subscribe.on_reply = on_subscribe;
    sentinel->hint.on_reply = on_hint;
    redis_round_init(&sentinel->round, loop, clock, options, &options->sentinel_tls, &sentinels);
    return sentinel;
}

void redis_sentinel_ask(struct redis_sentinel *sentinel)
{
    sentinel->is_asked = true;
    redis_round_begin_in(&sentinel->round, 0);
}

void redis_sentinel_distrust(struct redis_sentinel *sentinel, const char *lie)
{
    char why[REDIS_TEXT_MAX / 2];
    if (sentinel->round.state != ROUND_WAITING) return;
    if (lie != NULL) {
        snprintf(why, sizeof why, "it names no master: %.220s", lie);
        redis_round_distrust(&sentinel->round, why);
    }
    sentinel->round.at++;
}

void redis_sentinel_trust(struct redis_sentinel *sentinel)
{
    redis_round_trust(&sentinel->round);
}

void redis_sentinel_options_changed(struct redis_sentinel *sentinel)
{
    redis_round_restart(&sentinel->round);
}

void redis_sentinel_text(const struct redis_sentinel *sentinel, char *out, size_t size)
{
    out[0] = '\0';
    if (sentinel != NULL && sentinel->answered[0] != '\0')
        snprintf(out, size, "Sentinel %s answered last, %d of %u silent", sentinel->answered,
                 __builtin_popcount(sentinel->round.silent), sentinel->round.n_all);
}

const char *redis_sentinel_passed(const struct redis_sentinel *sentinel, uint32_t nth)
{
    return sentinel != NULL && nth < sentinel->round.n_all ? sentinel->round.faults[nth] : NULL;
}

static void on_round_closed(struct redis_round *round)
{
    struct redis_sentinel *sentinel = sentinel_of(round);
    void (*on_closed)(void *arg) = sentinel->on_closed;
    void *arg = sentinel->on_closed_arg;
    mem_free(sentinel);
    on_closed(arg);
}

void redis_sentinel_close(struct redis_sentinel *sentinel, void (*on_closed)(void *arg), void *arg)
{
    sentinel->on_closed = on_closed;
    sentinel->on_closed_arg = arg;
    redis_round_close(&sentinel->round, on_round_closed);
}
