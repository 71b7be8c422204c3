/* test_redis_by_node.c: calls to a node of a cluster that hold keys of several hash slots, and where they cannot. */
#include "fakes/cluster_fixture.h"

static bool has_canary(void *arg)
{
    (void)arg;
    return nodes[0].n_canaries > 0;
}

/* Answers come in order: behind one to a check of now, that to the canary is known. */
static void until_check(void)
{
    size_t n_calls = nodes[0].n_calls, n_allowed = store_fixture->n_allowed, n_decided = store_fixture->n_decided;
    (void)check_and_send("first");
    store_fixture_settle();
    nodes[0].n_calls = n_calls;
    store_fixture->n_allowed = n_allowed;
    store_fixture->n_decided = n_decided;
}

static void until_canary(void)
{
    store_fixture_until(has_canary);
    until_check();
}

static void open_by_node(void)
{
    store_fixture->options.by_slot = false;
    open_cluster();
    until_canary();
}

static void check_two_slots(struct ask *ret[2])
{
    ret[0] = check_and_send("k");
    ret[1] = check_and_send(key_beside(false));
}

static const char *words_of_refusal(void)
{
    const char *address, *why = redis_store_by_slot(store_fixture->redis, &address);
    if (why != NULL) assert_string_equal(address, nodes[0].fake.address);
    return why;
}

static void keys_of_all_hash_slots_of_a_node_share_a_call(void **state)
{
    (void)state;
    open_by_node();
    store_fixture_check_many("key", 40, 40);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, 40);
    assert_int_equal(nodes[0].n_calls, 1);
    assert_true(nodes[0].calls[0].is_undeclared);
    assert_int_equal(nodes[0].calls[0].n_keys, 40);
    assert_int_equal(redis_counters.redis_by_slot, 0);
    assert_null(words_of_refusal());
}

static void keys_of_one_hash_slot_are_declared(void **state)
{
    (void)state;
    open_by_node();
    (void)check_and_send("k");
    (void)check_and_send(key_beside(true));
    store_fixture_settle();
    assert_int_equal(nodes[0].n_calls, 1);
    assert_false(nodes[0].calls[0].is_undeclared);
}

/* A reset of two keys could find one here and the other elsewhere, and then not know what it has removed. */
static void resets_have_calls_of_one_hash_slot(void **state)
{
    (void)state;
    open_by_node();
    (void)store_fixture_ask("k", OP_RESET, 0);
    (void)store_fixture_ask(key_beside(false), OP_RESET, 0);
    store_fixture_settle();
    assert_int_equal(nodes[0].n_calls, 2);
    assert_int_equal(store_fixture->n_decided, 2);
}

static void a_server_that_refuses_such_a_call_gets_one_for_each_hash_slot(void **state)
{
    (void)state;
    struct ask *asks[2];
    nodes[0].canary_error = "ERR Lua scripts without any input keys are not supported";
    open_by_node();
    check_two_slots(asks);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, 2);
    assert_int_equal(nodes[0].n_calls, 2);
    assert_int_equal(redis_counters.redis_by_slot, 1);
    assert_string_equal(words_of_refusal(), nodes[0].canary_error);
    assert_null(words_of_refusal()); /* once */
}

/* It may have been exchanged for one that does not, behind the same connection. */
static void a_server_that_begins_to_refuse_is_asked_again_by_slot(void **state)
{
    (void)state;
    struct ask *asks[2];
    nodes[0].batch_error = "ERR script tried accessing undeclared key";
    open_by_node();
    check_two_slots(asks);
    store_fixture_settle();
    assert_remaining(asks[0], 9);
    assert_remaining(asks[1], 9);
    assert_int_equal(nodes[0].n_calls, 3);
    assert_int_equal(redis_counters.redis_by_slot, 1);
    assert_int_equal(redis_counters.redis_errors, 0);
    assert_string_equal(words_of_refusal(), nodes[0].batch_error);
}

/* It may have been charged in part. */
static void what_failed_inside_the_script_is_not_sent_again(void **state)
{
    (void)state;
    struct ask *asks[2];
    nodes[0].batch_error = "ERR The user executing the script can't access at least one of the keys mentioned in the "
                           "command arguments script: 0, on @user_script:12.";
    open_by_node();
    check_two_slots(asks);
    store_fixture_settle();
    assert_int_equal(asks[0]->outcome, OP_STORE_ERROR);
    assert_int_equal(asks[1]->outcome, OP_STORE_ERROR);
    assert_int_equal(nodes[0].n_calls, 1);
    assert_int_equal(redis_counters.redis_by_slot, 1); /* from now on it is refused before it begins */
    check_two_slots(asks);
    store_fixture_settle();
    assert_remaining(asks[0], 9);
    assert_int_equal(nodes[0].n_calls, 3);
}

static void a_server_that_cannot_answer_yet_is_asked_again_with_the_next_connection(void **state)
{
    (void)state;
    nodes[0].canary_error = "LOADING Redis is loading the dataset in memory";
    open_by_node();
    assert_int_equal(redis_counters.redis_by_slot, 0);
    struct ask *asks[2];
    check_two_slots(asks);
    store_fixture_settle();
    assert_int_equal(nodes[0].n_calls, 2);

    nodes[0].canary_error = NULL;
    nodes[0].n_canaries = 0;
    fake_hang_up(nodes[0].fake.clients);
    store_fixture_until(store_is_not_ready);
    store_fixture_until(store_is_ready);
    until_canary();
    check_two_slots(asks);
    store_fixture_settle();
    assert_int_equal(nodes[0].n_calls, 3);
    assert_int_equal(nodes[0].calls[2].n_keys, 2);
}

static void the_settings_decide_and_a_reload_changes_it(void **state)
{
    (void)state;
    struct ask *asks[2];
    open_cluster(); /* by slot */
    until_check();
    assert_int_equal(nodes[0].n_canaries, 0);
    assert_int_equal(redis_counters.redis_by_slot, 1);
    assert_null(words_of_refusal());
    check_two_slots(asks);
    store_fixture_settle();
    assert_int_equal(nodes[0].n_calls, 2);

    store_fixture->options.by_slot = false;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    until_canary();
    assert_int_equal(redis_counters.redis_by_slot, 0);
    check_two_slots(asks);
    store_fixture_settle();
    assert_int_equal(nodes[0].n_calls, 3);

    store_fixture->options.by_slot = true;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    check_two_slots(asks);
    store_fixture_settle();
    assert_int_equal(nodes[0].n_calls, 5);
    assert_int_equal(redis_counters.redis_by_slot, 1);
}

/* Redis' own name and version; a Valkey may call itself Redis 7.2.4, and says in INFO what it is. */
static const char *server_name, *server_version, *info;

static void say_hello(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)args, (void)n;
    fake_reply(client, "*8\r\n$6\r\nserver\r\n$%zu\r\n%s\r\n$7\r\nversion\r\n$%zu\r\n%s\r\n", strlen(server_name),
               server_name, strlen(server_version), server_version);
    fake_reply(client, "$4\r\nmode\r\n$7\r\ncluster\r\n$4\r\nrole\r\n$6\r\nmaster\r\n");
}

static void answer_info(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    if (slice_is(args[0], "INFO"))
        fake_reply(client, "$%zu\r\n%s\r\n", strlen(info), info);
    else
        on_other(fake, client, args, n);
}

static size_t calls_of_a(const char *name, const char *version, const char *info_text)
{
    struct ask *asks[2];
    server_name = name;
    server_version = version;
    info = info_text;
    nodes[0].fake.on_hello = say_hello;
    nodes[0].fake.on_other = answer_info;
    store_fixture->options.by_slot = false;
    open_cluster();
    until_check();
    check_two_slots(asks);
    store_fixture_settle();
    return nodes[0].n_calls;
}

static void a_valkey_that_loads_such_calls_wrongly_gets_none(void **state)
{
    (void)state;
    assert_int_equal(calls_of_a("valkey", "9.0.1", ""), 2);
    assert_int_equal(nodes[0].n_canaries, 0);
    assert_non_null(strstr(words_of_refusal(), "Valkey 9.0.1"));
}

static void so_does_one_that_calls_itself_redis(void **state)
{
    (void)state;
    assert_int_equal(calls_of_a("redis", "7.2.4", "# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.0.0\r\nos:L"),
                     2);
    assert_non_null(strstr(words_of_refusal(), "Valkey 9.0.0"));
}

static void the_next_valkey_gets_them(void **state)
{
    (void)state;
    assert_int_equal(calls_of_a("valkey", "9.0.2", ""), 1);
    assert_null(words_of_refusal());
}

static void a_redis_of_that_version_gets_them_too(void **state)
{
    (void)state;
    assert_int_equal(calls_of_a("redis", "7.2.4", "# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.0.02"), 1);
}

/* ---- keys that are not there ---- */

static void an_op_whose_key_has_left_goes_on_alone_and_the_others_are_decided(void **state)
{
    (void)state;
    struct ask *asks[2];
    open_by_node();
    nodes[0].away_slot = (int)place_of("k");
    check_two_slots(asks);
    (void)until_call(0, 1);
    nodes[0].manner = MOVED_ON;
    nodes[0].to = 1;
    store_fixture_settle();
    assert_remaining(asks[0], 9);
    assert_remaining(asks[1], 9);
    assert_int_equal(redis_counters.redis_away, 1);
    assert_int_equal(redis_counters.redis_redirects, 1);
    assert_int_equal(nodes[0].n_calls, 2);
    assert_false(nodes[0].calls[1].is_undeclared);
    assert_int_equal(nodes[0].calls[1].hash_slot, place_of("k"));
    assert_int_equal(nodes[1].n_calls, 1);
}

/* Until a map confirms it: the keys that are still there would be missed otherwise, one call after the other. */
static void ops_of_a_hash_slot_that_moves_go_alone(void **state)
{
    (void)state;
    struct ask *asks[2];
    open_by_node();
    nodes[0].away_slot = (int)place_of("k");
    check_two_slots(asks);
    store_fixture_settle(); /* it was sent again, alone, and was there */
    assert_int_equal(nodes[0].n_calls, 2);
    check_two_slots(asks);
    store_fixture_settle();
    assert_int_equal(nodes[0].n_calls, 4);
    assert_int_equal(redis_counters.redis_away, 1);
}

static void what_is_behind_an_op_that_is_away_waits_for_it(void **state)
{
    (void)state;
    struct ask *asks[2];
    open_by_node();
    nodes[0].manner = NOT_AT_ALL;
    nodes[0].away_slot = (int)place_of("k");
    check_two_slots(asks);
    struct call *first = until_call(0, 1);
    struct ask *behind = check_and_send("k"), *last = check_and_send(key_beside(false));
    struct call *second = until_call(0, 2);
    answer(first);
    patient_loop_ticks(&store_fixture->patient, 50);
    assert_int_equal(asks[0]->n_done, 0); /* the second call is on its way */
    assert_int_equal(asks[1]->n_done, 1);
    nodes[0].manner = WELL;
    answer(second);
    store_fixture_settle();
    assert_int_equal(asks[0]->outcome, OP_DECIDED);
    assert_int_equal(behind->outcome, OP_DECIDED);
    assert_int_equal(last->outcome, OP_DECIDED);
    assert_int_equal(redis_counters.redis_away, 2);
    assert_int_equal(asks[0]->op.number + 2, behind->op.number);
}

static void an_op_that_ran_ahead_of_one_that_was_away_ends_that_one(void **state)
{
    (void)state;
    struct ask *asks[2];
    open_by_node();
    nodes[0].manner = NOT_AT_ALL;
    nodes[0].away_slot = (int)place_of("k");
    check_two_slots(asks);
    struct call *first = until_call(0, 1);
    struct ask *behind = check_and_send("k");
    struct call *second = until_call(0, 2);
    answer(first);
    nodes[0].manner = WELL;
    answer(second); /* the keys came back: it ran */
    store_fixture_settle();
    assert_int_equal(behind->outcome, OP_DECIDED);
    assert_int_equal(asks[0]->outcome, OP_STORE_ERROR);
    assert_false(asks[0]->op.sent);
}

static void a_key_without_a_right_is_refused_alone(void **state)
{
    (void)state;
    struct ask *asks[2];
    open_by_node();
    nodes[0].barred_slot = (int)place_of("k");
    check_two_slots(asks);
    store_fixture_settle();
    assert_int_equal(asks[0]->outcome, OP_STORE_ERROR);
    assert_false(asks[0]->op.sent);
    assert_remaining(asks[1], 9);
    assert_int_equal(redis_counters.redis_by_slot, 0);
    struct redis_refusal refusal = redis_store_refusal(store_fixture->redis);
    assert_string_equal(refusal.policy, "window");
    assert_non_null(strstr(refusal.text, "NOPERM"));
}

/* As a Valkey 9 after a command of somebody else on keys of two slots: no circle. */
static void a_node_to_which_no_key_is_its_own_ends_in_errors(void **state)
{
    (void)state;
    struct ask *asks[2];
    open_by_node();
    nodes[0].away_slot = (int)place_of("k");
    nodes[0].manner = NOT_AT_ALL;
    check_two_slots(asks);
    answer(until_call(0, 1));
    refuse(until_call(0, 2),
           "ERR Error running script (call to f_0): @user_script:90: Script attempted to access a non local key "
           "in a cluster node");
    store_fixture_settle();
    assert_int_equal(asks[0]->outcome, OP_STORE_ERROR);
    assert_int_equal(nodes[0].n_calls, 2);
}

static void closing_ends_ops_that_are_away(void **state)
{
    (void)state;
    struct ask *asks[2];
    open_by_node();
    nodes[0].manner = NOT_AT_ALL;
    nodes[0].away_slot = (int)place_of("k");
    check_two_slots(asks);
    answer(until_call(0, 1));
    (void)until_call(0, 2);
    (void)check_and_send("k");
    store_fixture_close();
    store_fixture_until(store_is_closed);
    assert_int_equal(asks[0]->outcome, OP_DOWN);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(keys_of_all_hash_slots_of_a_node_share_a_call),
        CASE(keys_of_one_hash_slot_are_declared),
        CASE(resets_have_calls_of_one_hash_slot),
        CASE(a_server_that_refuses_such_a_call_gets_one_for_each_hash_slot),
        CASE(a_server_that_begins_to_refuse_is_asked_again_by_slot),
        CASE(what_failed_inside_the_script_is_not_sent_again),
        CASE(a_server_that_cannot_answer_yet_is_asked_again_with_the_next_connection),
        CASE(the_settings_decide_and_a_reload_changes_it),
        CASE(a_valkey_that_loads_such_calls_wrongly_gets_none),
        CASE(so_does_one_that_calls_itself_redis),
        CASE(the_next_valkey_gets_them),
        CASE(a_redis_of_that_version_gets_them_too),
        CASE(an_op_whose_key_has_left_goes_on_alone_and_the_others_are_decided),
        CASE(ops_of_a_hash_slot_that_moves_go_alone),
        CASE(what_is_behind_an_op_that_is_away_waits_for_it),
        CASE(an_op_that_ran_ahead_of_one_that_was_away_ends_that_one),
        CASE(a_key_without_a_right_is_refused_alone),
        CASE(a_node_to_which_no_key_is_its_own_ends_in_errors),
        CASE(closing_ends_ops_that_are_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
