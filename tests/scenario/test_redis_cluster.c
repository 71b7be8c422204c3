/* test_redis_cluster.c: which node of a cluster an op goes to, and what becomes of it where the nodes disagree. */
#include "fakes/cluster_fixture.h"

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

/* A call that is sent takes waiting checks of its keys along, but none from behind an op that it had no place for. */
static void no_check_overtakes_a_reset_of_its_key(void **state)
{
    (void)state;
    open_cluster();
    struct ask *first = check_and_send("k");
    struct ask *reset = store_fixture_ask("k", OP_RESET, 0);
    struct ask *last = check_and_send("k");
    store_fixture_settle();
    assert_int_equal(nodes[0].n_calls, 3);
    assert_remaining(first, 9);
    assert_int_equal(reset->outcome, OP_DECIDED);
    assert_remaining(last, 9); /* of what the node says behind the reset */
}

static void no_check_overtakes_one_of_its_key_with_another_wait(void **state)
{
    (void)state;
    open_cluster();
    struct ask *first = check_and_send("k"), *other = check_and_send("k"), *last = check_and_send("k");
    other->member.max_wait_us = 1; /* another's constants: not in the first one's call */
    store_fixture_settle();
    assert_int_equal(nodes[0].n_calls, 3);
    assert_remaining(first, 9);
    assert_remaining(other, 9);
    assert_remaining(last, 9);
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

/* While its slot moved it was to be asked elsewhere, but its slot waited, so it went back to where it was; the fourth
 * time it ended with "MOVED: sent from node to node three times". It goes back as often as an op whose keys are on
 * their way. */
static void an_op_that_is_to_ask_while_its_slot_waits_has_gone_nowhere(void **state)
{
    (void)state;
    enum { ROUNDS = 6 };
    nodes[0].manner = NOT_AT_ALL;
    open_cluster();
    char beside[24];
    snprintf(beside, sizeof beside, "%s", key_beside(true));
    struct ask *waits = check_and_send("k");
    (void)until_call(0, 1);
    struct ask *asks = check_and_send(beside);
    for (unsigned i = 0; i < ROUNDS; i++) {
        (void)until_call(0, 2 * i + 2);
        refuse(&nodes[0].calls[2 * i], "TRYAGAIN Multiple keys request during rehashing of slot");
        redirect(&nodes[0].calls[2 * i + 1], "ASK", 1);
    }
    (void)until_call(0, 2 * ROUNDS + 2);
    assert_int_equal(asks->op.n_hops, 0);
    assert_int_equal(asks->op.n_tries, ROUNDS);
    for (unsigned i = 0; i < 2; i++) answer(&nodes[0].calls[2 * ROUNDS + i]);
    store_fixture_settle();
    assert_int_equal(asks->outcome, OP_DECIDED);
    assert_int_equal(waits->outcome, OP_DECIDED);
    assert_int_equal(nodes[1].n_calls, 0);
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

static void a_flood_of_redirects_makes_a_bounded_number_of_nodes(void **state)
{
    (void)state;
    enum { N = 60, STRANGERS = 16 };
    char text[64];
    nodes[0].manner = NOT_AT_ALL;
    open_cluster();
    for (unsigned i = 0; i < N; i++) {
        struct ask *ask = check_and_send("k");
        struct call *call = until_call(0, i + 1);
        snprintf(text, sizeof text, "ASK %u 127.0.0.1:%u", call->hash_slot, i + 1); /* nobody listens there */
        refuse(call, text);
        store_fixture_settle();
        assert_int_equal(ask->n_done, 1);
        assert_true(ask->outcome == OP_DOWN || ask->outcome == OP_STORE_ERROR);
        assert_false(ask->op.sent);
        assert_true(redis_counters.redis_nodes <= 1 + STRANGERS);
    }
    assert_non_null(strstr(store_error_text(&store_fixture->store), "too many nodes that are on no map"));
}

static void an_op_whose_keys_never_arrive_ends(void **state)
{
    (void)state;
    nodes[0].manner = TRIES_AGAIN;
    open_cluster();
    struct ask *ask = check_and_send("k");
    store_fixture_settle();
    assert_int_equal(ask->outcome, OP_STORE_ERROR);
    assert_false(ask->op.sent);
    assert_int_equal(nodes[0].n_calls, 256);
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

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(keys_of_one_hash_slot_share_a_call_and_others_do_not),
        CASE(checks_of_a_key_are_one_in_a_cluster_too),
        CASE(no_check_overtakes_a_reset_of_its_key),
        CASE(no_check_overtakes_one_of_its_key_with_another_wait),
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
        CASE(an_op_that_is_to_ask_while_its_slot_waits_has_gone_nowhere),
        CASE(an_op_that_waits_for_its_slot_can_be_taken_back),
        CASE(a_flood_of_redirects_makes_a_bounded_number_of_nodes),
        CASE(an_op_whose_keys_never_arrive_ends),
        CASE(closing_ends_ops_that_wait_for_their_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
