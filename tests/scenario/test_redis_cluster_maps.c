/* test_redis_cluster_maps.c: nodes of a cluster that come and go, and hash slots that a fresh map moves. */
#include "fakes/cluster_fixture.h"

static struct {
    int from, to; /* the node that has the hash slot of "k", and the one that gets it */
    struct ask *ask;
    struct call *call;
} moved;

/* On all its connections. */
static void hang_up(int node)
{
    while (nodes[node].fake.clients != NULL) fake_hang_up(nodes[node].fake.clients);
}

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
    hang_up(1);
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
    hang_up(1); /* it asks for a map then */
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

/* Of two nodes, the one that has the hash slot does not answer the first call. */
static void open_with_a_call_under_way(void)
{
    set_map(0, HASH_SLOTS / 2, 1);
    open_cluster();
    moved.from = place_of("k") < HASH_SLOTS / 2 ? 0 : 1;
    moved.to = 1 - moved.from;
    nodes[moved.from].manner = NOT_AT_ALL;
    moved.ask = check_and_send("k");
    moved.call = until_call(moved.from, 1);
    n_told = 0;
}

/* The map has moved the slot: the next check waits until the call to the old node is answered. */
static void assert_order_is_kept(void)
{
    size_t n_before = nodes[moved.to].n_calls;
    struct ask *second = check_and_send("k");
    patient_loop_ticks(&store_fixture->patient, 20);
    assert_int_equal(second->n_done, 0);
    assert_int_equal(nodes[moved.to].n_calls, n_before);

    answer(moved.call);
    store_fixture_settle();
    assert_int_equal(moved.ask->outcome, OP_DECIDED);
    assert_int_equal(second->outcome, OP_DECIDED);
    assert_int_equal(nodes[moved.to].n_calls, n_before + 1);
}

static void a_fresh_map_moves_a_slot_once_its_calls_are_answered(void **state)
{
    (void)state;
    open_with_a_call_under_way();
    set_map(moved.to, HASH_SLOTS, moved.to);
    hang_up(moved.to); /* it asks for a map then */
    store_fixture_until(has_told_new_map);
    patient_loop_ticks(&store_fixture->patient, 50);
    assert_order_is_kept();
}

static void more_ops_than_go_on_in_a_tick_all_go_on(void **state)
{
    (void)state;
    enum { N = 8000 }; /* half of them wait at each node */
    store_fixture->options.window = 2;
    set_map(0, HASH_SLOTS / 2, 1);
    open_cluster();
    nodes[0].manner = NOT_AT_ALL;
    store_fixture_check_many("key", N, N);
    patient_loop_ticks(&store_fixture->patient, 20);
    size_t n_sent = nodes[0].n_calls;
    assert_in_range(n_sent, 1, CALLS_MAX);

    n_told = 0;
    set_map(1, HASH_SLOTS, 1);
    store_fixture->options.address = nodes[1].fake.address;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    store_fixture_until(has_told_new_map);
    patient_loop_ticks(&store_fixture->patient, 50);
    assert_true(store_fixture->n_answered < N);
    for (size_t i = 0; i < n_sent; i++) answer(&nodes[0].calls[i]);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, N);
    assert_int_equal(nodes[0].n_calls, n_sent);
}

/* In a second round: one asks no more than all of them. */
static bool has_told_again(void *arg)
{
    (void)arg;
    return n_told > N_NODES;
}

static void a_slot_that_nobody_had_for_a_while_keeps_its_order(void **state)
{
    (void)state;
    open_with_a_call_under_way();
    set_map_of_half(moved.from == 0 ? HASH_SLOTS / 2 : 0, 2);
    hang_up(moved.to); /* it asks for a map then, and for the next one: one of a failover may leave slots out */
    store_fixture_until(has_told_again);
    patient_loop_ticks(&store_fixture->patient, 50);
    assert_int_equal(store_fixture_check("k")->submitted, SUBMIT_DOWN);
    store_fixture_until(store_is_ready);

    n_told = 0;
    set_map(moved.to, HASH_SLOTS, moved.to);
    hang_up(2);
    store_fixture_until(has_told_new_map);
    store_fixture_until(store_is_ready);
    patient_loop_ticks(&store_fixture->patient, 50);
    assert_order_is_kept();
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

static void only_a_reload_that_names_other_servers_asks_for_the_map(void **state)
{
    (void)state;
    set_map(0, HASH_SLOTS / 2, 1);
    open_cluster();
    n_told = 0;
    store_fixture->options.window++;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    patient_loop_ticks(&store_fixture->patient, 50);
    assert_int_equal(n_told, 0);

    store_fixture->options.address = nodes[1].fake.address;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    store_fixture_until(has_told_new_map);
    assert_int_equal(redis_counters.redis_disconnects, 0); /* the masters are the same */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_node_that_is_down_fails_only_its_own_hash_slots),
        CASE(a_node_that_no_map_names_any_more_is_left),
        CASE(a_fresh_map_moves_a_slot_once_its_calls_are_answered),
        CASE(more_ops_than_go_on_in_a_tick_all_go_on),
        CASE(a_slot_that_nobody_had_for_a_while_keeps_its_order),
        CASE(only_a_reload_that_names_other_servers_asks_for_the_map),
        CASE(without_a_map_nothing_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
