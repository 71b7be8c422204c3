/*
 * cluster_fixture.h: the store of store_fixture.h on a cluster of fake nodes, which tell any map and answer in several
 * manners.
 */
#ifndef RL_FAKES_CLUSTER_FIXTURE_H
#define RL_FAKES_CLUSTER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/fake_redis.h"
#include "fakes/store_fixture.h"
#include "redis/batch.h"
#include "redis/cluster_map.h"
#include "redis/counters.h"

enum { N_NODES = 3, CALLS_MAX = 256, KEY_MAX = 96 };

/* An EVALSHA with keys, as it came. */
struct call {
    struct fake_client *client;
    unsigned nonce, n_keys;
    uint16_t hash_slot; /* of the first key; of all if they are declared */
    uint16_t slots[BATCH_KEYS_MAX];
    bool is_undeclared;
    bool is_asking;
    bool is_answered;
};

/* How a node answers by itself. */
enum manner { WELL, NOT_AT_ALL, MOVED_ON, ASKS, TRIES_AGAIN };

struct node {
    struct fake_redis fake;
    enum manner manner;
    int to; /* the node that a redirect names */
    char map[256];
    struct call calls[CALLS_MAX]; /* the first ones, and the last */
    size_t n_calls, n_asking;
    bool was_asking; /* by the last command */
    size_t n_wanted;
    /* Of calls whose keys are not declared: an error of such a canary, and of such a batch; keys of these hash slots
     * are not there, or not permitted. */
    size_t n_canaries;
    const char *canary_error, *batch_error;
    int away_slot, barred_slot; /* -1 = none */
};

static struct node nodes[N_NODES];
static unsigned n_told; /* maps */

static inline void answer(struct call *call)
{
    char text[1024];
    size_t at = 0;
    const struct node *node = fake_of(call->client)->arg;
    for (unsigned i = 0; i < call->n_keys; i++) {
        int used = !call->is_undeclared                  ? 0
                   : call->slots[i] == node->barred_slot ? -3
                   : call->slots[i] == node->away_slot   ? -2
                                                         : 0;
        at += (size_t)snprintf(text + at, sizeof text - at, ":%d\r\n", used);
    }
    call->is_answered = true;
    fake_reply(call->client, "*%u\r\n%s:1700000000000000\r\n:0\r\n:%u\r\n", call->n_keys + 3, text, call->nonce);
}

static inline void redirect(struct call *call, const char *word, int to)
{
    call->is_answered = true;
    fake_reply(call->client, "-%s %u %s\r\n", word, call->hash_slot, nodes[to].fake.address);
}

static inline void refuse(struct call *call, const char *error)
{
    call->is_answered = true;
    fake_reply(call->client, "-%s\r\n", error);
}

static inline void on_evalsha(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    struct node *node = fake->arg;
    unsigned nonce = fake_batch_nonce(args, n);
    bool is_asking = node->was_asking;
    node->was_asking = false;
    bool is_undeclared = slice_is(args[2], "0");
    if (fake_is_canary(args)) {
        node->n_canaries += is_undeclared;
        if (is_undeclared && node->canary_error != NULL)
            fake_reply(client, "-%s\r\n", node->canary_error);
        else
            fake_reply(client, "*3\r\n:1700000000000000\r\n:0\r\n:%u\r\n", nonce);
        return;
    }

    struct call *call = &node->calls[node->n_calls < CALLS_MAX ? node->n_calls : CALLS_MAX - 1];
    node->n_calls++;
    *call = (struct call){.client = client,
                          .nonce = nonce,
                          .n_keys = (unsigned)(n - 4),
                          .hash_slot = hash_slot_of(args[3].data, args[3].len),
                          .is_undeclared = is_undeclared,
                          .is_asking = is_asking};
    for (size_t i = 3; i < n - 1; i++) {
        call->slots[i - 3] = hash_slot_of(args[i].data, args[i].len);
        if (!is_undeclared) assert_int_equal(call->slots[i - 3], call->hash_slot);
    }
    if (is_undeclared && node->batch_error != NULL) {
        refuse(call, node->batch_error);
        return;
    }
    if (node->manner == WELL) answer(call);
    if (node->manner == MOVED_ON) redirect(call, "MOVED", node->to);
    if (node->manner == TRIES_AGAIN) refuse(call, "TRYAGAIN Multiple keys request during rehashing of slot");
    if (node->manner == ASKS) redirect(call, "ASK", node->to);
}

static inline void on_other(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    struct node *node = fake->arg;
    bool is_cluster = n == 2 && slice_is(args[0], "CLUSTER");
    if (n == 1 && slice_is(args[0], "ASKING")) {
        node->was_asking = true;
        node->n_asking++;
    }
    if (!is_cluster)
        fake_reply(client, "+OK\r\n");
    else if (slice_is(args[1], "SLOTS"))
        n_told++, fake_reply(client, "%s", node->map);
    else
        fake_reply(client, "-ERR unknown subcommand\r\n");
}

/* The map that every node tells from now on: the first hash slots are `a`'s, the others `b`'s. */
static inline void set_map(int a, unsigned first_of_b, int b)
{
    static const char form[] = "*3\r\n:%u\r\n:%u\r\n*3\r\n$9\r\n127.0.0.1\r\n:%u\r\n$2\r\nid\r\n";
    for (int i = 0; i < N_NODES; i++) {
        char *map = nodes[i].map;
        size_t at = (size_t)snprintf(map, sizeof nodes[i].map, "*%d\r\n", first_of_b < HASH_SLOTS ? 2 : 1);
        at += (size_t)snprintf(map + at, sizeof nodes[i].map - at, form, 0U, first_of_b - 1, nodes[a].fake.port);
        if (first_of_b < HASH_SLOTS)
            snprintf(map + at, sizeof nodes[i].map - at, form, first_of_b, HASH_SLOTS - 1U, nodes[b].fake.port);
    }
}

/* The half from there is `a`'s, the other one nobody's. */
static inline void set_map_of_half(unsigned first, int a)
{
    for (int i = 0; i < N_NODES; i++)
        snprintf(nodes[i].map, sizeof nodes[i].map,
                 "*1\r\n*3\r\n:%u\r\n:%u\r\n*3\r\n$9\r\n127.0.0.1\r\n:%u\r\n$2\r\nid\r\n", first,
                 first + HASH_SLOTS / 2 - 1, nodes[a].fake.port);
}

static inline int setup(void **state)
{
    (void)store_fixture_setup(state);
    store_fixture->options.topology = TOPOLOGY_CLUSTER;
    store_fixture->options.by_slot = true;
    store_fixture->limit = store_fixture_limit("window", ALGO_FIXED_WINDOW, 10);
    memset(nodes, 0, sizeof nodes);
    for (int i = 0; i < N_NODES; i++) {
        fake_redis_init_tcp(&nodes[i].fake, &store_fixture->patient.loop, batch_script_sha1, on_evalsha);
        nodes[i].fake.arg = &nodes[i];
        nodes[i].fake.on_other = on_other;
        nodes[i].away_slot = nodes[i].barred_slot = -1;
    }
    set_map(0, HASH_SLOTS, 0);
    return 0;
}

static inline int teardown(void **state)
{
    if (!store_fixture->is_closing) store_fixture_close();
    for (int i = 0; i < N_NODES; i++) fake_redis_close(&nodes[i].fake);
    return store_fixture_teardown(state);
}

static inline void open_cluster(void)
{
    store_fixture_open_ready(nodes[0].fake.address);
}

static inline bool has_calls(void *arg)
{
    (void)arg;
    for (int i = 0; i < N_NODES; i++)
        if (nodes[i].n_calls < nodes[i].n_wanted) return false;
    return true;
}

/* Until so many calls have come to the node ever. */
static inline struct call *until_call(int node, size_t n)
{
    nodes[node].n_wanted = n;
    store_fixture_until(has_calls);
    assert_int_equal(nodes[node].n_calls, n);
    return &nodes[node].calls[n - 1];
}

static inline struct ask *check_and_send(const char *key)
{
    struct ask *ask = store_fixture_check(key);
    assert_int_equal(ask->submitted, SUBMIT_PENDING);
    return ask;
}

static inline bool has_redirects(void *arg)
{
    return redis_counters.redis_redirects + redis_counters.redis_try_again >= *(const uint64_t *)arg;
}

static inline void until_redirects(uint64_t n)
{
    patient_loop_until(&store_fixture->patient, has_redirects, &n);
}

static inline uint32_t place_of(const char *key)
{
    const struct op_member member = {.limit = store_fixture->limit, .key = slice_of(key)};
    return store_place_of(&store_fixture->store, &member);
}

/* Another key than "k" that is in its hash slot, or in another one of the same half. */
static inline const char *key_beside(bool is_same)
{
    static char key[24];
    uint32_t wanted = place_of("k");
    for (int i = 0; i < 100000; i++) {
        snprintf(key, sizeof key, "beside%d", i);
        bool is_in_half = (place_of(key) < HASH_SLOTS / 2) == (wanted < HASH_SLOTS / 2);
        if ((place_of(key) == wanted) == is_same && is_in_half) return key;
    }
    fail();
    return NULL;
}

static inline void assert_remaining(const struct ask *ask, int64_t remaining)
{
    assert_int_equal(ask->n_done, 1);
    assert_int_equal(ask->outcome, OP_DECIDED);
    assert_int_equal(ask->member.decision.remaining, remaining);
}

#endif
