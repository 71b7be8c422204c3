/* test_redis_cluster.c: which node of a cluster an op goes to, and what becomes of it where the nodes disagree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/fake_redis.h"
#include "fakes/store_fixture.h"
#include "store/batch.h"
#include "store/hash_slot.h"
#include "store/redis_counters.h"

enum { N_NODES = 3, CALLS_MAX = 256, KEY_MAX = 96 };

/* An EVALSHA with keys, as it came. */
struct call {
    struct fake_client *client;
    unsigned nonce, n_keys;
    uint16_t hash_slot;
    bool is_asking;
    bool is_answered;
};

/* How a node answers by itself. */
enum manner { WELL, NOT_AT_ALL, MOVED_ON, ASKS };

struct node {
    struct fake_redis fake;
    enum manner manner;
    int to; /* the node that a redirect names */
    char map[256];
    struct call calls[CALLS_MAX]; /* the first ones, and the last */
    size_t n_calls, n_asking;
    bool was_asking; /* by the last command */
    size_t n_wanted;
};

static struct node nodes[N_NODES];
static unsigned n_told; /* maps */

static void answer(struct call *call)
{
    char text[512];
    size_t at = 0;
    for (unsigned i = 0; i < call->n_keys; i++) at += (size_t)snprintf(text + at, sizeof text - at, ":0\r\n");
    call->is_answered = true;
    fake_reply(call->client, "*%u\r\n%s:1700000000000000\r\n:0\r\n:%u\r\n", call->n_keys + 3, text, call->nonce);
}

static void redirect(struct call *call, const char *word, int to)
{
    call->is_answered = true;
    fake_reply(call->client, "-%s %u %s\r\n", word, call->hash_slot, nodes[to].fake.address);
}

static void refuse(struct call *call, const char *error)
{
    call->is_answered = true;
    fake_reply(call->client, "-%s\r\n", error);
}

static void on_evalsha(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    struct node *node = fake->arg;
    unsigned nonce = fake_batch_nonce(args, n);
    bool is_asking = node->was_asking;
    node->was_asking = false;
    if (slice_is(args[2], "0")) {
        fake_reply(client, "*3\r\n:1700000000000000\r\n:0\r\n:%u\r\n", nonce);
        return;
    }

    struct call *call = &node->calls[node->n_calls < CALLS_MAX ? node->n_calls : CALLS_MAX - 1];
    node->n_calls++;
    *call = (struct call){.client = client,
                          .nonce = nonce,
                          .n_keys = (unsigned)(n - 4),
                          .hash_slot = hash_slot_of(args[3].data, args[3].len),
                          .is_asking = is_asking};
    for (size_t i = 3; i < n - 1; i++) assert_int_equal(hash_slot_of(args[i].data, args[i].len), call->hash_slot);
    if (node->manner == WELL) answer(call);
    if (node->manner == MOVED_ON) redirect(call, "MOVED", node->to);
    if (node->manner == ASKS) redirect(call, "ASK", node->to);
}

static void on_other(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
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
static void set_map(int a, unsigned first_of_b, int b)
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

static int setup(void **state)
{
    (void)store_fixture_setup(state);
    store_fixture->options.is_cluster = true;
    store_fixture->limit = store_fixture_limit("window", ALGO_FIXED_WINDOW, 10);
    memset(nodes, 0, sizeof nodes);
    for (int i = 0; i < N_NODES; i++) {
        fake_redis_init_tcp(&nodes[i].fake, &store_fixture->patient.loop, batch_script_sha1, on_evalsha);
        nodes[i].fake.arg = &nodes[i];
        nodes[i].fake.on_other = on_other;
    }
    set_map(0, HASH_SLOTS, 0);
    return 0;
}

static int teardown(void **state)
{
    if (!store_fixture->is_closing) store_fixture_close();
    for (int i = 0; i < N_NODES; i++) fake_redis_close(&nodes[i].fake);
    return store_fixture_teardown(state);
}

static void open_cluster(void)
{
    store_fixture_open_ready(nodes[0].fake.address);
}

static bool has_calls(void *arg)
{
    (void)arg;
    for (int i = 0; i < N_NODES; i++)
        if (nodes[i].n_calls < nodes[i].n_wanted) return false;
    return true;
}

/* Until so many calls have come to the node ever. */
static struct call *until_call(int node, size_t n)
{
    nodes[node].n_wanted = n;
    store_fixture_until(has_calls);
    assert_int_equal(nodes[node].n_calls, n);
    return &nodes[node].calls[n - 1];
}

static struct ask *check_and_send(const char *key)
{
    struct ask *ask = store_fixture_check(key);
    assert_int_equal(ask->submitted, SUBMIT_PENDING);
    return ask;
}

static bool has_redirects(void *arg)
{
    return redis_counters.redis_redirects + redis_counters.redis_try_again >= *(const uint64_t *)arg;
}

static void until_redirects(uint64_t n)
{
    patient_loop_until(&store_fixture->patient, has_redirects, &n);
}

static uint32_t place_of(const char *key)
{
    const struct op_member member = {.limit = store_fixture->limit, .key = slice_of(key)};
    return store_place_of(&store_fixture->store, &member);
}

/* Another key than "k" that is in its hash slot, or in another one of the same half. */
static const char *key_beside(bool is_same)
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

static void assert_remaining(const struct ask *ask, int64_t remaining)
{
    assert_int_equal(ask->n_done, 1);
    assert_int_equal(ask->outcome, OP_DECIDED);
    assert_int_equal(ask->member.decision.remaining, remaining);
}

/* ---- calls and hash slots ---- */

static void keys_of_one_hash_slot_share_a_call_and_others_do_not(void **state)
{
    (void)state;
    open_cluster();
    assert_true(store_has_places(&store_fixture->store));
    char beside[24];
    snprintf(beside, sizeof beside, "%s", key_beside(true));
    (void)check_and_send("k");
    (void)check_and_send(beside);
    (void)check_and_send(key_beside(false));
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, 3);
    assert_int_equal(nodes[0].n_calls, 2);
    assert_int_equal(nodes[0].calls[0].n_keys, 2);
    assert_int_equal(nodes[0].calls[1].n_keys, 1);
}

static void checks_of_a_key_are_one_in_a_cluster_too(void **state)
{
    (void)state;
    open_cluster();
    struct ask *first = check_and_send("k"), *second = check_and_send("k");
    store_fixture_settle();
    assert_remaining(first, 9);
    assert_remaining(second, 8);
    assert_int_equal(nodes[0].n_calls, 1);
}

static void each_node_gets_the_keys_of_its_hash_slots(void **state)
{
    (void)state;
    set_map(0, HASH_SLOTS / 2, 1);
    open_cluster();
    store_fixture_check_many("key", 200, 200);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, 200);
    assert_true(nodes[0].n_calls > 0 && nodes[1].n_calls > 0);
    for (size_t i = 0; i < nodes[0].n_calls; i++) assert_true(nodes[0].calls[i].hash_slot < HASH_SLOTS / 2);
    for (size_t i = 0; i < nodes[1].n_calls; i++) assert_true(nodes[1].calls[i].hash_slot >= HASH_SLOTS / 2);
    assert_int_equal(redis_counters.redis_nodes, 2);
    assert_int_equal(redis_counters.redis_up, 2);
}

/* ---- MOVED ---- */

static void ops_that_are_moved_and_those_behind_them_keep_their_order(void **state)
{
    (void)state;
    nodes[0].manner = NOT_AT_ALL;
    open_cluster();
    struct ask *first = check_and_send("k");
    (void)until_call(0, 1);
    struct ask *second = check_and_send("k");
    (void)until_call(0, 2);

    redirect(&nodes[0].calls[0], "MOVED", 1);
    until_redirects(1);
    struct ask *third = check_and_send("k");
    patient_loop_ticks(&store_fixture->patient, 20);
    assert_int_equal(nodes[1].n_calls, 0); /* the second one is still on its way */
    redirect(&nodes[0].calls[1], "MOVED", 1);
    store_fixture_settle();
    assert_remaining(first, 9);
    assert_remaining(second, 8);
    assert_remaining(third, 7);
    assert_int_equal(nodes[0].n_calls, 2);

    struct ask *last = check_and_send("k"); /* it knows the way */
    store_fixture_settle();
    assert_int_equal(last->outcome, OP_DECIDED);
    assert_int_equal(nodes[0].n_calls, 2);
    assert_int_equal(redis_counters.redis_redirects, 2);
}

static void an_op_that_was_overtaken_where_its_slot_moved_is_not_sent_again(void **state)
{
    (void)state;
    nodes[0].manner = NOT_AT_ALL;
    open_cluster();
    struct ask *first = check_and_send("k");
    (void)until_call(0, 1);
    struct ask *second = check_and_send("k");
    (void)until_call(0, 2);
    redirect(&nodes[0].calls[0], "MOVED", 1);
    answer(&nodes[0].calls[1]);
    store_fixture_settle();
    assert_int_equal(first->outcome, OP_STORE_ERROR);
    assert_false(first->op.sent);
    assert_remaining(second, 9);
    assert_int_equal(nodes[1].n_calls, 0);
}

static void nodes_that_send_an_op_in_a_circle_are_asked_four_times(void **state)
{
    (void)state;
    nodes[0].manner = nodes[1].manner = MOVED_ON;
    nodes[0].to = 1;
    open_cluster();
    struct ask *ask = check_and_send("k");
    store_fixture_settle();
    assert_int_equal(ask->outcome, OP_STORE_ERROR);
    assert_true(ask->op.is_refused);
    assert_non_null(strstr(store_error_text(&store_fixture->store), "MOVED"));
    assert_int_equal(nodes[0].n_calls + nodes[1].n_calls, 4);
}

static void a_redirect_without_sense_is_an_error_reply(void **state)
{
    static const char *const errors[] = {"MOVED",
                                         "MOVED 1",
                                         "MOVED 99999 127.0.0.1:1",
                                         "MOVED -1 127.0.0.1:1",
                                         "ASK 17 127.0.0.1:0",
                                         "MOVED 17 127.0.0.1:1", /* of another hash slot */
                                         "ASK x y z"};
    (void)state;
    nodes[0].manner = NOT_AT_ALL;
    open_cluster();
    assert_int_not_equal(place_of("k"), 17);
    for (size_t i = 0; i < N_OF(errors); i++) {
        struct ask *ask = check_and_send("k");
        refuse(until_call(0, i + 1), errors[i]);
        store_fixture_settle();
        assert_int_equal(ask->outcome, OP_STORE_ERROR);
        assert_int_equal(ask->op.sent, false);
    }
    assert_int_equal(redis_counters.redis_errors, N_OF(errors));
    assert_int_equal(redis_counters.redis_nodes, 1);
}

static void a_redirect_without_a_host_means_the_one_that_sent_it(void **state)
{
    (void)state;
    char text[64];
    nodes[0].manner = NOT_AT_ALL;
    open_cluster();
    struct ask *ask = check_and_send("k");
    struct call *call = until_call(0, 1);
    snprintf(text, sizeof text, "MOVED %u :%u", call->hash_slot, nodes[2].fake.port);
    refuse(call, text);
    store_fixture_settle();
    assert_remaining(ask, 9);
    assert_int_equal(nodes[2].n_calls, 1);
}

static void an_op_that_is_moved_to_nowhere_ends_in_time(void **state)
{
    (void)state;
    char text[64];
    nodes[0].manner = NOT_AT_ALL;
    open_cluster();
    struct ask *ask = check_and_send("k");
    struct call *call = until_call(0, 1);
    fake_redis_close(&nodes[2].fake);
    snprintf(text, sizeof text, "MOVED %u 127.0.0.1:%u", call->hash_slot, nodes[2].fake.port);
    refuse(call, text);
    store_fixture_settle();
    assert_int_equal(ask->outcome, OP_DOWN);
    assert_false(ask->op.sent);
    fake_redis_init_tcp(&nodes[2].fake, &store_fixture->patient.loop, batch_script_sha1, on_evalsha);
}

/* ---- ASK and TRYAGAIN ---- */

static void an_op_that_is_to_ask_goes_alone_behind_asking_and_the_slot_stays(void **state)
{
    (void)state;
    nodes[0].manner = NOT_AT_ALL;
    open_cluster();
    char beside[24];
    snprintf(beside, sizeof beside, "%s", key_beside(true));
    struct ask *first = check_and_send("k"), *second = check_and_send(beside);
    redirect(until_call(0, 1), "ASK", 1);
    store_fixture_settle();
    assert_remaining(first, 9);
    assert_remaining(second, 9);
    assert_int_equal(nodes[1].n_calls, 2);
    assert_int_equal(nodes[1].n_asking, 2);
    for (size_t i = 0; i < 2; i++) assert_true(nodes[1].calls[i].is_asking);

    nodes[0].manner = WELL;
    struct ask *third = check_and_send("k");
    store_fixture_settle();
    assert_int_equal(third->outcome, OP_DECIDED);
    assert_int_equal(nodes[0].n_calls, 2);
    assert_int_equal(nodes[1].n_calls, 2);
}

static void ops_that_ask_keep_their_order_before_those_that_are_moved(void **state)
{
    (void)state;
    nodes[0].manner = nodes[1].manner = NOT_AT_ALL;
    open_cluster();
    struct ask *first = check_and_send("k");
    (void)until_call(0, 1);
    struct ask *second = check_and_send("k");
    (void)until_call(0, 2);
    redirect(&nodes[0].calls[0], "ASK", 1);
    (void)until_call(1, 1);
    redirect(&nodes[0].calls[1], "MOVED", 1);
    until_redirects(2);
    patient_loop_ticks(&store_fixture->patient, 20);
    assert_int_equal(nodes[1].n_calls, 1); /* the first one is still on its way there */
    assert_int_equal(second->n_done, 0);
    answer(&nodes[1].calls[0]);
    answer(until_call(1, 2));
    store_fixture_settle();
    assert_int_equal(first->outcome, OP_DECIDED);
    assert_int_equal(second->outcome, OP_DECIDED);
    assert_true(nodes[1].calls[0].is_asking);
    assert_false(nodes[1].calls[1].is_asking);
}

static void refuse_asking(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)n;
    if (slice_is(args[0], "ASKING"))
        fake_reply(client, "-NOPERM this user has no permissions to run the 'asking' command\r\n");
    else
        fake_reply(client, "+OK\r\n");
}

static void a_user_without_the_right_to_ask_gets_an_error(void **state)
{
    (void)state;
    nodes[0].manner = nodes[1].manner = NOT_AT_ALL;
    nodes[1].fake.on_other = refuse_asking;
    open_cluster();
    struct ask *ask = check_and_send("k");
    redirect(until_call(0, 1), "ASK", 1);
    redirect(until_call(1, 1), "MOVED", 0);
    store_fixture_settle();
    assert_int_equal(ask->outcome, OP_STORE_ERROR);
    assert_false(ask->op.sent);
    assert_non_null(strstr(store_error_text(&store_fixture->store), "ASKING: NOPERM"));
    assert_int_equal(nodes[0].n_calls, 1);
}

static void ops_whose_keys_are_on_their_way_are_sent_again_alone(void **state)
{
    (void)state;
    nodes[0].manner = NOT_AT_ALL;
    open_cluster();
    char beside[24];
    snprintf(beside, sizeof beside, "%s", key_beside(true));
    struct ask *first = check_and_send("k"), *second = check_and_send(beside);
    struct call *call = until_call(0, 1);
    assert_int_equal(call->n_keys, 2);
    refuse(call, "TRYAGAIN Multiple keys request during rehashing of slot");
    until_redirects(1);
    struct ask *third = check_and_send("k");
    nodes[0].manner = WELL;
    store_fixture_settle();
    assert_int_equal(first->outcome, OP_DECIDED);
    assert_int_equal(second->outcome, OP_DECIDED);
    assert_int_equal(third->outcome, OP_DECIDED);
    assert_int_equal(nodes[0].n_calls, 4);
    for (size_t i = 1; i < 4; i++) assert_int_equal(nodes[0].calls[i].n_keys, 1);
    assert_int_equal(redis_counters.redis_try_again, 1);
}

static void an_op_that_waits_for_its_slot_can_be_taken_back(void **state)
{
    (void)state;
    nodes[0].manner = NOT_AT_ALL;
    open_cluster();
    struct ask *first = check_and_send("k");
    (void)until_call(0, 1);
    struct ask *second = check_and_send("k");
    (void)until_call(0, 2);
    redirect(&nodes[0].calls[0], "MOVED", 1);
    until_redirects(1);
    assert_true(store_withdraw(&store_fixture->store, &first->op));
    store_fixture->n_pending--;
    assert_false(store_withdraw(&store_fixture->store, &second->op));
    redirect(&nodes[0].calls[1], "MOVED", 1);
    store_fixture_settle();
    assert_int_equal(first->n_done, 0);
    assert_remaining(second, 9);
}

static void closing_ends_ops_that_wait_for_their_slot(void **state)
{
    (void)state;
    nodes[0].manner = NOT_AT_ALL;
    open_cluster();
    struct ask *first = check_and_send("k");
    (void)until_call(0, 1);
    struct ask *second = check_and_send("k");
    (void)until_call(0, 2);
    redirect(&nodes[0].calls[0], "MOVED", 1);
    until_redirects(1);
    store_fixture_close();
    store_fixture_until(store_is_closed);
    assert_int_equal(first->outcome, OP_DOWN);
    assert_int_equal(second->outcome, OP_DOWN);
    assert_false(first->op.sent);
    assert_true(second->op.sent);
}

/* ---- nodes that are away ---- */

static bool one_is_down(void *arg)
{
    (void)arg;
    return redis_counters.redis_up == 1;
}

static void a_node_that_is_down_fails_only_its_own_hash_slots(void **state)
{
    (void)state;
    set_map(0, HASH_SLOTS / 2, 1);
    open_cluster();
    while (nodes[1].fake.clients != NULL) fake_hang_up(nodes[1].fake.clients);
    fake_redis_close(&nodes[1].fake);
    store_fixture_until(one_is_down);
    store_fixture_check_many("key", 100, 100);
    store_fixture_settle();
    assert_true(store_fixture->n_allowed > 0 && store_fixture->n_refused > 0);
    assert_int_equal(store_fixture->n_allowed + store_fixture->n_refused + store_fixture->n_down, 100);
    assert_false(redis_store_ready(store_fixture->redis));
    store_fixture_status_has("1 of 2 nodes ready");
    fake_redis_init_tcp(&nodes[1].fake, &store_fixture->patient.loop, batch_script_sha1, on_evalsha);
}

static bool a_node_has_left(void *arg)
{
    (void)arg;
    return redis_counters.redis_nodes == 1;
}

static void a_node_that_no_map_names_any_more_is_left(void **state)
{
    (void)state;
    set_map(0, HASH_SLOTS / 2, 1);
    open_cluster();
    set_map(0, HASH_SLOTS, 0);
    while (nodes[1].fake.clients != NULL) fake_hang_up(nodes[1].fake.clients); /* it asks for a map then */
    store_fixture_until(a_node_has_left);
    store_fixture_until(store_is_ready);
    store_fixture_check_many("key", 50, 50);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, 50);
    assert_int_equal(nodes[1].n_calls, 0);
}

static bool has_told_new_map(void *arg)
{
    (void)arg;
    return n_told > 0;
}

static void a_fresh_map_moves_a_slot_once_its_calls_are_answered(void **state)
{
    (void)state;
    set_map(0, HASH_SLOTS / 2, 1);
    open_cluster();
    int from = place_of("k") < HASH_SLOTS / 2 ? 0 : 1, to = 1 - from;
    nodes[from].manner = NOT_AT_ALL;
    struct ask *first = check_and_send("k");
    struct call *call = until_call(from, 1);
    n_told = 0;
    set_map(to, HASH_SLOTS, to);
    while (nodes[to].fake.clients != NULL) fake_hang_up(nodes[to].fake.clients); /* it asks for a map then */
    store_fixture_until(has_told_new_map);
    patient_loop_ticks(&store_fixture->patient, 50);

    struct ask *second = check_and_send("k");
    patient_loop_ticks(&store_fixture->patient, 20);
    assert_int_equal(second->n_done, 0);
    size_t n_before = nodes[to].n_calls;
    answer(call);
    store_fixture_settle();
    assert_int_equal(first->outcome, OP_DECIDED);
    assert_int_equal(second->outcome, OP_DECIDED);
    assert_int_equal(nodes[to].n_calls, n_before + 1);
}

static void without_a_map_nothing_is_sent(void **state)
{
    (void)state;
    for (int i = 0; i < N_NODES; i++) snprintf(nodes[i].map, sizeof nodes[i].map, "-ERR no map\r\n");
    store_fixture_open(nodes[0].fake.address);
    assert_int_equal(store_fixture_check("k")->submitted, SUBMIT_DOWN);
    store_fixture_until(had_first_attempt);
    assert_false(redis_store_ready(store_fixture->redis));
    assert_int_equal(store_fixture_check("k")->submitted, SUBMIT_DOWN);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(keys_of_one_hash_slot_share_a_call_and_others_do_not),
        CASE(checks_of_a_key_are_one_in_a_cluster_too),
        CASE(each_node_gets_the_keys_of_its_hash_slots),
        CASE(ops_that_are_moved_and_those_behind_them_keep_their_order),
        CASE(an_op_that_was_overtaken_where_its_slot_moved_is_not_sent_again),
        CASE(nodes_that_send_an_op_in_a_circle_are_asked_four_times),
        CASE(a_redirect_without_sense_is_an_error_reply),
        CASE(a_redirect_without_a_host_means_the_one_that_sent_it),
        CASE(an_op_that_is_moved_to_nowhere_ends_in_time),
        CASE(an_op_that_is_to_ask_goes_alone_behind_asking_and_the_slot_stays),
        CASE(ops_that_ask_keep_their_order_before_those_that_are_moved),
        CASE(a_user_without_the_right_to_ask_gets_an_error),
        CASE(ops_whose_keys_are_on_their_way_are_sent_again_alone),
        CASE(an_op_that_waits_for_its_slot_can_be_taken_back),
        CASE(closing_ends_ops_that_wait_for_their_slot),
        CASE(a_node_that_is_down_fails_only_its_own_hash_slots),
        CASE(a_node_that_no_map_names_any_more_is_left),
        CASE(a_fresh_map_moves_a_slot_once_its_calls_are_answered),
        CASE(without_a_map_nothing_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
