/* cluster_watch.c: asks one node after another for the map of the cluster (redis/round.h); for redis/servers.c. */
#include "redis/cluster_watch.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/random.h"
#include "redis/handshake.h"
#include "redis/round.h"

enum {
    AGAIN_MIN_MS = 30000, /* after an answer; up to twice as long, so that not all daemons ask at once */
    EVERY_MS = 1000,      /* from round to round at least */
    DOUBTED_US = 5000000, /* a map that is doubted so soon may be that of a node that the others have left behind */
    REPLY_MAX = 1 << 20,  /* bytes: 256 masters with two replicas each, and some thousand ranges */
};

struct cluster_watch {
    struct redis_round round;
    struct cluster_watch_events events;
    bool is_asked;       /* since the present round has begun, or the last one */
    bool is_doubted;     /* and it was because a node does not serve */
    bool is_second;      /* this round asks for another opinion */
    int64_t answered_us; /* CLOCK_MONOTONIC; 0 = never, or the second opinion was no better */
    uint64_t random;
    struct buffer reply;            /* the one that is being read */
    struct cluster_map *map, *next; /* owned; the last map, and the one that is being read */
    bool has_map;
    struct redis_call shards, slots;

    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static struct cluster_watch *watch_of(const struct redis_round *round)
{
    return CONTAINER_OF(round, struct cluster_watch, round);
}

/* ---- what it answers ---- */

static size_t n_owned(const struct cluster_map *map)
{
    size_t n = 0;
    for (size_t i = 0; i < HASH_SLOTS; i++) n += map->owner[i] != CLUSTER_NONE;
    return n;
}

static void take_map(struct cluster_watch *watch, enum cluster_form form)
{
    struct redis_round *round = &watch->round;
    char fault[CLUSTER_FAULT_SIZE];
    const struct slice reply = {buffer_data(&watch->reply), buffer_len(&watch->reply)};
    const struct cluster_sender sender = {.host = round->dial.address.host, .is_tls = round->options->tls != NULL};
    /* The last one of such a round is that which the present map is of. */
    bool is_other = watch->is_second && round->n_tried < round->n_all;
    if (!cluster_map_read(watch->next, form, reply, &sender, fault))
        redis_round_pass(round, "%s", fault);
    else if (is_other && n_owned(watch->next) < n_owned(watch->map)) /* as of a node that has yet to learn */
        redis_round_pass(round, "it names masters of fewer hash slots than another node");
    else
        redis_round_answered(round);
}

static void pass_over(struct redis_round *round, const struct redis_reader *reply)
{
    enum redis_error error = redis_error_of(redis_reader_text(reply));
    if (strstr(reply->text, "cluster support disabled") != NULL || error == REDIS_ERROR_UNKNOWN_COMMAND)
        redis_round_pass(round, "it is no node of a cluster; write store.redis.topology: single, or the addresses of "
                                "the cluster into store.redis.addresses");
    else if (error == REDIS_ERROR_NOPERM)
        redis_round_pass(round,
                         "the user lacks the right to ask for the map; run: ACL SETUSER %.64s +cluster|shards "
                         "+cluster|slots",
                         redis_options_user(round->options));
    else
        redis_round_pass(round, "%s", reply->text);
}

static void on_slots(struct redis_call *call, const struct redis_reader *reply)
{
    struct cluster_watch *watch = CONTAINER_OF(call, struct cluster_watch, slots);
    if (!redis_round_is_trying(&watch->round, reply)) return;
    if (redis_reader_is_error(reply))
        pass_over(&watch->round, reply);
    else
        take_map(watch, CLUSTER_SLOTS);
}

/* A server older than 7.0, and a user without the right to SHARDS, are asked for the SLOTS. */
static void on_shards(struct redis_call *call, const struct redis_reader *reply)
{
    struct cluster_watch *watch = CONTAINER_OF(call, struct cluster_watch, shards);
    struct redis_round *round = &watch->round;
    if (!redis_round_is_trying(round, reply)) return;
    if (!redis_reader_is_error(reply)) {
        take_map(watch, CLUSTER_SHARDS);
        return;
    }

    bool is_unknown = strstr(reply->text, "subcommand") != NULL;
    if (!is_unknown && redis_error_of(redis_reader_text(reply)) != REDIS_ERROR_NOPERM) {
        pass_over(round, reply);
        return;
    }
    const struct slice args[] = {slice_of("CLUSTER"), slice_of("SLOTS")};
    if (redis_conn_send(&round->conn, &watch->slots, args, N_OF(args)) < 0) redis_round_pass(round, "out of memory");
}

/* ---- what is asked ---- */

/* The addresses of the settings first, then the nodes of the last map. */
static uint32_t server_of(struct redis_round *round, uint32_t nth, char ret_address[REDIS_ROUND_ADDRESS_SIZE])
{
    const struct cluster_watch *watch = watch_of(round);
    uint32_t n_seeds = redis_address_nth(round->options->address, nth, ret_address, REDIS_ROUND_ADDRESS_SIZE);
    uint32_t n_all = n_seeds + (watch->has_map ? watch->map->n_nodes : 0);
    nth %= n_all;
    if (nth < n_seeds)
        (void)redis_address_nth(round->options->address, nth, ret_address, REDIS_ROUND_ADDRESS_SIZE);
    else
        snprintf(ret_address, REDIS_ROUND_ADDRESS_SIZE, "%s", watch->map->address[nth - n_seeds]);
    return n_all;
}

static struct redis_round_login login_of(const struct redis_round *round)
{
    return (struct redis_round_login){.username = round->options->username,
                                      .password = round->options->password,
                                      .settings = "store.redis.username or the password in store.redis.password_file"};
}

static int ask(struct redis_round *round)
{
    const struct slice args[] = {slice_of("CLUSTER"), slice_of("SHARDS")};
    return redis_conn_send(&round->conn, &watch_of(round)->shards, args, N_OF(args));
}

static void on_begin(struct redis_round *round)
{
    struct cluster_watch *watch = watch_of(round);
    int64_t since_us = round->clock->mono_us - watch->answered_us;
    watch->is_second = watch->is_doubted && watch->has_map && watch->answered_us != 0 && since_us < DOUBTED_US;
    if (watch->is_second) round->at++; /* the one that answered last says the same for ever, if it is cut off */
    watch->is_asked = watch->is_doubted = false;
    round->next_ms = (uint32_t)(AGAIN_MIN_MS + random_below(&watch->random, AGAIN_MIN_MS + 1));
}

/* The next round, if one is wanted soon. */
static void hurry(struct cluster_watch *watch)
{
    const struct redis_round *round = &watch->round;
    int64_t since_ms = (round->clock->mono_us - round->began_us) / 1000;
    bool is_first = round->began_us == 0;
    redis_round_begin_in(&watch->round, is_first || since_ms >= EVERY_MS ? 0 : (uint64_t)(EVERY_MS - since_ms));
}

/* The connection has done its work: that of the next round is another one, to find what has changed. */
static void on_answered(struct redis_round *round)
{
    struct cluster_watch *watch = watch_of(round);
    struct cluster_map *fresh = watch->next;
    watch->next = watch->map;
    watch->map = fresh;
    watch->has_map = true;
    watch->answered_us = round->clock->mono_us;
    redis_conn_drop(&round->conn);
    buffer_fini(&watch->reply);
    if (watch->is_asked) hurry(watch);
    watch->events.on_map(watch->events.arg, watch->map);
}

static void on_failed(struct redis_round *round)
{
    struct cluster_watch *watch = watch_of(round);
    buffer_fini(&watch->reply);
    watch->answered_us = 0; /* the cluster may have become smaller: the next answer counts */
    watch->events.on_none(watch->events.arg, round->fault);
}

static const struct redis_round_kind nodes = {.server = "node",
                                              .server_of = server_of,
                                              .login_of = login_of,
                                              .ask = ask,
                                              .on_begin = on_begin,
                                              .on_answered = on_answered,
                                              .on_failed = on_failed,
                                              .on_gone = NULL};

/* ---- the owner's ---- */

struct cluster_watch *cluster_watch_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options,
                                        const struct cluster_watch_events *events)
{
    struct cluster_watch *watch = mem_zalloc(sizeof *watch);
    if (watch == NULL) return NULL;
    watch->map = mem_alloc(sizeof *watch->map);
    watch->next = mem_alloc(sizeof *watch->next);
    if (watch->map == NULL || watch->next == NULL) {
        mem_free(watch->map);
        mem_free(watch->next);
        mem_free(watch);
        return NULL;
    }
    watch->events = *events;
    watch->shards.on_reply = on_shards;
    watch->slots.on_reply = on_slots;
    watch->random = options->random_seed;
    buffer_init(&watch->reply, REPLY_MAX);
    redis_round_init(&watch->round, loop, clock, options, &options->tls, &nodes);
    watch->round.conn.reader.whole = &watch->reply;
    redis_round_begin_in(&watch->round, 0);
    return watch;
}

void cluster_watch_ask(struct cluster_watch *watch)
{
    if (watch->is_asked) return; /* the timer runs already, or the present round's end starts it */
    watch->is_asked = true;
    hurry(watch);
}

void cluster_watch_doubt(struct cluster_watch *watch)
{
    watch->is_doubted = true;
    cluster_watch_ask(watch);
}

int64_t cluster_watch_asked_us(const struct cluster_watch *watch)
{
    return watch->round.began_us;
}

void cluster_watch_options_changed(struct cluster_watch *watch)
{
    watch->has_map = false; /* its nodes may be another cluster's */
    redis_round_restart(&watch->round);
}

const char *cluster_watch_passed(const struct cluster_watch *watch, uint32_t nth)
{
    char address[REDIS_ROUND_ADDRESS_SIZE];
    uint32_t n_seeds = redis_address_nth(watch->round.options->address, 0, address, sizeof address);
    return nth < n_seeds ? watch->round.faults[nth] : NULL;
}

static void on_round_closed(struct redis_round *round)
{
    struct cluster_watch *watch = watch_of(round);
    void (*on_closed)(void *arg) = watch->on_closed;
    void *arg = watch->on_closed_arg;
    buffer_fini(&watch->reply);
    mem_free(watch->map);
    mem_free(watch->next);
    mem_free(watch);
    on_closed(arg);
}

void cluster_watch_close(struct cluster_watch *watch, void (*on_closed)(void *arg), void *arg)
{
    watch->on_closed = on_closed;
    watch->on_closed_arg = arg;
    redis_round_close(&watch->round, on_round_closed);
}
