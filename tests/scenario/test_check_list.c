/* test_check_list.c: long lists: what many of them at once do to a tick, and to everybody else. */
#include "engine/engine_counters.h"
#include "fakes/flood_fixture.h"
#include "server/sessions.h"

enum {
    N_FLOODS = 8,
    LONG_LIST = 600,      /* several ticks' worth; its answer fits into struct heard */
    MEMBERS_A_TICK = 512, /* of all connections together */
    HANDED_MAX = 1024,    /* the same, without an answer */
    TICKS_OF_LOOP = 2,    /* libuv's loop ends the daemon's tick twice: after idle, after poll */
};

static int set_up(void **state)
{
    (void)state;
    flood_fixture_open(&server_fixture_options, true, N_FLOODS);
    return 0;
}

static int set_up_scripted(void **state)
{
    (void)state;
    flood_fixture_open(&server_fixture_options, false, N_FLOODS);
    return 0;
}

/* A check_many of n times the same, its last member of `last`. */
static void build_list(struct buffer *out, uint64_t msgid, unsigned n, const char *key, const char *last)
{
    struct packer packer = packer_of(out);
    rpc_pack_request(&packer, msgid, "check_many", 1);
    pack_array(&packer, n);
    for (unsigned i = 0; i < n; i++) {
        pack_array(&packer, 2);
        pack_text(&packer, i == n - 1 ? last : "api");
        pack_text(&packer, key);
    }
}

static void put_list(struct client *client, uint64_t msgid, unsigned n, const char *key)
{
    struct buffer out;
    buffer_init(&out, 0);
    build_list(&out, msgid, n, key, "api");
    put_built(client, &out);
}

static void send_list(struct client *client, uint64_t msgid, unsigned n, const char *last)
{
    struct buffer out;
    buffer_init(&out, 0);
    build_list(&out, msgid, n, "k", last);
    assert_int_equal(client_send(client, buffer_data(&out), buffer_len(&out)), buffer_len(&out));
    buffer_fini(&out);
}

static void tick_until_held(size_t n)
{
    for (int i = 0; fixture.engine.scripted.n_held < n; i++) {
        assert_true(i < 1000);
        server_fixture_tick(&fixture);
    }
}

static void assert_list_answer(struct client *client, uint64_t msgid, unsigned n)
{
    uint32_t length;
    client_answer(client, &heard);
    assert_int_equal(heard.msgid, msgid);
    assert_string_equal(heard.error, "");
    assert_int_equal(pull_array(&heard.result, &length), 0);
    assert_int_equal(length, n);
}

static void assert_nothing_is_left(void)
{
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    server_fixture_ticks(&fixture, 3);
    assert_int_equal(engine_n_live(fixture.engine.engine), 0);
    assert_int_equal(engine_counters.inflight, 0);
}

static void eight_floods_hand_over_a_bounded_number_of_checks_a_tick(void **state)
{
    (void)state;
    enum { N = 500 }; /* short messages: all lists begin in one tick */
    size_t handed = 0, of_flood[N_FLOODS] = {0};
    char key[2] = "a";
    for (int i = 0; i < N_FLOODS; i++, key[0]++) put_list(&floods[i], 1, N, key);

    for (int ticks = 0; handed < N_FLOODS * N; ticks++) {
        assert_true(ticks < 1000);
        server_fixture_tick(&fixture);
        assert_true(fixture.engine.scripted.n_held <= MEMBERS_A_TICK);
        handed += fixture.engine.scripted.n_held;
        LIST_FOREACH (link, &fixture.engine.scripted.held) of_flood[key_of(link).data[0] - 'a']++;
        scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
        for (int i = 0; i < N_FLOODS && handed >= N_FLOODS * N / 2; i++) assert_true(of_flood[i] >= N / 4);
    }
    assert_nothing_is_left();
}

static void floods_do_not_fill_the_stores_queue(void **state)
{
    (void)state;
    enum { N = 1000 };
    for (int i = 0; i < N_FLOODS; i++) put_list(&floods[i], 1, N, "k");
    tick_until_held(HANDED_MAX);
    server_fixture_ticks(&fixture, 20);
    assert_in_range(fixture.engine.scripted.n_held, HANDED_MAX, HANDED_MAX + 63);

    client_ask(&polite, 1, "check", 2, "ss", "api", "mine");
    assert_int_equal(n_held_of("mine"), 1); /* it is not kept waiting */
    for (int i = 0; i < 200; i++) scripted_end(&fixture.engine.scripted, 0, OP_DECIDED);
    server_fixture_ticks(&fixture, 5);
    assert_in_range(fixture.engine.scripted.n_held, HANDED_MAX, HANDED_MAX + 64);

    client_close(&floods[0]); /* the checks of a client that left do not count for ever */
    while (fixture.engine.scripted.n_held > 0) {
        scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
        server_fixture_ticks(&fixture, 20);
    }
    assert_true(fixture.engine.scripted.n_submitted >= (N_FLOODS - 1) * N);
    assert_nothing_is_left();
}

/* Some of them at a time, as ticks do. */
static void expire_all(void)
{
    while (engine_next_deadline(fixture.engine.engine) <= fixture.engine.clock.mono_us)
        engine_expire(fixture.engine.engine);
}

static void a_store_that_let_a_deadline_of_a_list_pass_is_not_waited_for_again(void **state)
{
    (void)state;
    enum { N = 5000 };
    send_list(&polite, 1, N, "api");
    tick_until_held(HANDED_MAX);
    fixture.engine.clock.mono_us = engine_next_deadline(fixture.engine.engine);
    expire_all();
    assert_in_range(engine_counters.failure_deadline, HANDED_MAX, HANDED_MAX + 63);

    for (int ticks = 0; ticks < 20; ticks++) { /* the rest has a millisecond, and a tick or two */
        server_fixture_tick(&fixture);
        fixture.engine.clock.mono_us += 1000;
        expire_all();
    }
    assert_int_equal(engine_counters.failure_deadline, N);
    server_fixture_ticks(&fixture, 2);
    assert_true(has_answer(&polite));
    assert_nothing_is_left();
}

/* A list of 8000 was answered up to 340 ms late: its rest waited a millisecond and more for each 1024 members. */
static void a_late_list_does_not_wait_for_its_answers(void **state)
{
    (void)state;
    enum { N = 5000 };
    send_list(&polite, 1, N, "api");
    tick_until_held(HANDED_MAX);
    fixture.engine.clock.mono_us = engine_next_deadline(fixture.engine.engine);
    expire_all();
    tick_until_held(N); /* the answers are still to come */
    fixture.engine.clock.mono_us += 1000;
    expire_all();
    assert_int_equal(engine_counters.failure_deadline, N);
    server_fixture_ticks(&fixture, 2);
    assert_true(has_answer(&polite));
    assert_nothing_is_left();
}

/* Clients with 64 000 checks in lists left, and one tick let go of all. */
static void clients_that_leave_their_lists_are_let_go_in_several_ticks(void **state)
{
    (void)state;
    enum { N = 4000, UNITS = 32 + N / 4, PER_TICK = TICKS_OF_LOOP * (TICK_UNITS / UNITS + 1) };
    engine_set_options(fixture.engine.engine,
                       &(struct engine_options){.max_inflight = N_FLOODS * N + 100, .local_max_keys = 100});
    for (int i = 0; i < N_FLOODS; i++) send_list(&floods[i], 1, N, "api");
    server_fixture_ticks(&fixture, 2 * N_FLOODS * N / MEMBERS_A_TICK); /* all are read */

    for (int i = 0; i < N_FLOODS; i++) client_close(&floods[i]);
    for (size_t before = N_FLOODS + 1, ticks = 0; before > 1; before = server_counters.connections) {
        assert_true(ticks++ < 100);
        server_fixture_tick(&fixture);
        assert_true(before - server_counters.connections <= PER_TICK);
    }
    assert_nothing_is_left();
}

static void another_clients_check_is_answered_before_the_floods(void **state)
{
    (void)state;
    for (int i = 0; i < N_FLOODS; i++) put_list(&floods[i], 1, LONG_LIST, "k");
    server_fixture_ticks(&fixture, 2);

    put_check(&polite, 7, "mine");
    server_fixture_tick(&fixture);
    assert_true(has_answer(&polite));
    for (int i = 0; i < N_FLOODS; i++) assert_false(has_answer(&floods[i]));

    for (int i = 0; i < N_FLOODS; i++) assert_list_answer(&floods[i], 1, LONG_LIST);
    client_answer(&polite, &heard);
    assert_int_equal(heard.msgid, 7);
}

static void many_short_lists_of_one_connection_share_its_budget(void **state)
{
    (void)state;
    enum { N = 50, N_LISTS = 40, CHECKS_PER_TURN = 256 };
    struct buffer out;
    buffer_init(&out, 0);
    for (unsigned i = 0; i < N_LISTS; i++) build_list(&out, i, N, "k", "api");
    put_built(&floods[0], &out);

    server_fixture_tick(&fixture);
    assert_in_range(fixture.engine.scripted.n_submitted, N, 2 * (CHECKS_PER_TURN + N)); /* libuv's tick ends twice */
    tick_until_held(N_LISTS * N);
    assert_nothing_is_left();
}

static void a_wrong_member_at_the_end_of_a_long_list_charges_nothing(void **state)
{
    (void)state;
    send_list(&polite, 3, LONG_LIST, "nope");
    client_answer(&polite, &heard);
    assert_int_equal(heard.msgid, 3);
    assert_int_equal(strncmp(heard.error, "UNKNOWN_POLICY: checks[599]: ", 29), 0);
    assert_int_equal(fixture.engine.scripted.n_submitted, 0);
    assert_nothing_is_left();

    client_ask(&polite, 4, "check", 2, "ss", "api", "k");
    assert_int_equal(fixture.engine.scripted.n_held, 1);
}

static void later_calls_of_a_connection_wait_for_the_last_piece(void **state)
{
    (void)state;
    send_list(&polite, 1, LONG_LIST, "api");
    client_ask(&polite, 2, "check", 2, "ss", "api", "later");
    tick_until_held(LONG_LIST + 1);
    assert_true(slice_is(key_of(fixture.engine.scripted.held.prev), "later"));
    assert_int_equal(n_held_of("later"), 1);
}

static void answers_of_a_long_list_are_in_its_order(void **state)
{
    (void)state;
    send_list(&polite, 1, LONG_LIST, "api");
    tick_until_held(LONG_LIST);
    for (unsigned i = LONG_LIST; i-- > 0;) {
        fixture.engine.scripted.decision.remaining = i;
        scripted_end(&fixture.engine.scripted, i, OP_DECIDED);
    }
    assert_list_answer(&polite, 1, LONG_LIST);
    for (unsigned i = 0; i < LONG_LIST; i++) assert_int_equal(heard_decision(&heard.result).remaining, i);
}

static void a_member_of_a_long_list_without_a_decision_is_named(void **state)
{
    (void)state;
    send_list(&polite, 1, LONG_LIST, "strict");
    tick_until_held(LONG_LIST);
    scripted_end_all(&fixture.engine.scripted, OP_DOWN);
    client_answer(&polite, &heard);
    assert_int_equal(strncmp(heard.error, "STORE_UNAVAILABLE: checks[599]: ", 32), 0);
    assert_nothing_is_left();
}

/* A tick at a time, from its first byte to its last piece: whenever the client leaves, nothing stays behind. */
static void a_client_that_leaves_amid_its_list_leaves_nothing(void **state)
{
    (void)state;
    for (int ticks = 0; ticks < 8; ticks++) {
        client_close(&polite);
        client_open(&polite, &fixture);
        server_fixture_ticks(&fixture, 2);
        put_list(&polite, 1, 1000, "k");
        server_fixture_ticks(&fixture, ticks);
        client_close(&polite);
        server_fixture_ticks(&fixture, 10);
        assert_int_equal(server_counters.connections, N_FLOODS);
        assert_nothing_is_left();
    }
}

static void a_drain_refuses_a_list_of_which_nothing_was_charged(void **state)
{
    (void)state;
    put_list(&polite, 1, 2000, "k"); /* takes four ticks to be read */
    server_fixture_ticks(&fixture, 3);
    assert_int_equal(fixture.engine.scripted.n_submitted, 0);
    server_fixture_drain(&fixture, 60000);
    client_answer(&polite, &heard);
    assert_int_equal(strncmp(heard.error, "SHUTTING_DOWN: ", 15), 0);
    assert_true(client_is_closed(&polite));
    assert_int_equal(fixture.n_drained, 1);
    assert_int_equal(fixture.engine.scripted.n_submitted, 0);
}

static void a_drain_finishes_a_list_that_is_being_handed_over(void **state)
{
    (void)state;
    struct buffer out;
    buffer_init(&out, 0);
    build_list(&out, 1, LONG_LIST, "k", "api");
    client_build(&out, 2, "ping", 0, "");
    put_built(&polite, &out);
    tick_until_held(1);
    assert_true(fixture.engine.scripted.n_held < LONG_LIST);

    server_fixture_drain(&fixture, 60000);
    client_answer(&polite, &heard);
    assert_int_equal(heard.msgid, 2);
    assert_int_equal(strncmp(heard.error, "SHUTTING_DOWN: ", 15), 0);
    tick_until_held(LONG_LIST);
    assert_int_equal(fixture.n_drained, 0);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    assert_list_answer(&polite, 1, LONG_LIST);
    assert_true(client_is_closed(&polite));
    assert_int_equal(fixture.n_drained, 1);
}

static void a_drain_ends_a_connection_that_asks_nothing_behind_its_list(void **state)
{
    (void)state;
    send_list(&polite, 1, LONG_LIST, "api");
    tick_until_held(1);
    assert_true(fixture.engine.scripted.n_held < LONG_LIST);

    server_fixture_drain(&fixture, 60000);
    tick_until_held(LONG_LIST);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    assert_list_answer(&polite, 1, LONG_LIST);
    assert_true(client_is_closed(&polite));
    assert_int_equal(fixture.n_drained, 1);
}

static void a_list_waits_until_the_connection_may_have_it_in_flight(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    options.max_inflight_per_connection = 100;
    server_set_options(fixture.server, &options);

    client_ask(&polite, 1, "check", 2, "ss", "api", "k");
    send_list(&polite, 2, 99, "api"); /* fits next to the check */
    tick_until_held(100);
    send_list(&polite, 3, 300, "api"); /* never fits: it goes alone */
    client_ask(&polite, 4, "ping", 0, "");
    server_fixture_ticks(&fixture, 10);
    assert_int_equal(fixture.engine.scripted.n_submitted, 100);

    scripted_end(&fixture.engine.scripted, 0, OP_DECIDED);
    server_fixture_ticks(&fixture, 10);
    assert_int_equal(fixture.engine.scripted.n_submitted, 100);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    tick_until_held(300);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    for (unsigned msgid = 1; msgid <= 4; msgid++) {
        client_answer(&polite, &heard);
        assert_int_equal(heard.msgid, msgid);
        assert_string_equal(heard.error, "");
    }
}

static void the_answer_to_a_list_that_never_fits_is_to_split_it(void **state)
{
    (void)state;
    struct engine_options options = {.max_inflight = 200, .local_max_keys = 10};
    engine_set_options(fixture.engine.engine, &options);
    send_list(&polite, 1, 201, "api");
    client_answer(&polite, &heard);
    assert_string_equal(heard.error,
                        "BAD_REQUEST: 201 checks in one request; caps.max_inflight is 200, split the list");
    assert_int_equal(engine_counters.overloaded, 0);
    assert_int_equal(fixture.engine.scripted.n_submitted, 0);

    send_list(&polite, 2, 200, "api");
    tick_until_held(200);
}

/* Two that do not fit together: one has its place from the beginning, so that not both fail half-way. */
static void of_two_lists_that_are_too_much_together_one_is_served(void **state)
{
    (void)state;
    struct engine_options options = {.max_inflight = 1000, .local_max_keys = 10};
    engine_set_options(fixture.engine.engine, &options);
    put_list(&floods[0], 1, LONG_LIST, "a");
    put_list(&floods[1], 1, LONG_LIST, "b");
    tick_until_held(LONG_LIST);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);

    int n_served = 0;
    for (int i = 0; i < 2; i++) {
        client_answer(&floods[i], &heard);
        bool is_refused = strncmp(heard.error, "OVERLOADED: ", 12) == 0;
        assert_true(is_refused || heard.error[0] == '\0');
        n_served += !is_refused;
    }
    assert_int_equal(n_served, 1);
    assert_int_equal(engine_counters.overloaded, 1);
    assert_nothing_is_left();
}

#define TEST(name)          cmocka_unit_test_setup_teardown(name, set_up, flood_fixture_close)
#define TEST_SCRIPTED(name) cmocka_unit_test_setup_teardown(name, set_up_scripted, flood_fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_SCRIPTED(eight_floods_hand_over_a_bounded_number_of_checks_a_tick),
        TEST_SCRIPTED(floods_do_not_fill_the_stores_queue),
        TEST_SCRIPTED(a_store_that_let_a_deadline_of_a_list_pass_is_not_waited_for_again),
        TEST_SCRIPTED(a_late_list_does_not_wait_for_its_answers),
        TEST_SCRIPTED(clients_that_leave_their_lists_are_let_go_in_several_ticks),
        TEST(another_clients_check_is_answered_before_the_floods),
        TEST_SCRIPTED(many_short_lists_of_one_connection_share_its_budget),
        TEST_SCRIPTED(a_wrong_member_at_the_end_of_a_long_list_charges_nothing),
        TEST_SCRIPTED(later_calls_of_a_connection_wait_for_the_last_piece),
        TEST_SCRIPTED(answers_of_a_long_list_are_in_its_order),
        TEST_SCRIPTED(a_member_of_a_long_list_without_a_decision_is_named),
        TEST_SCRIPTED(a_client_that_leaves_amid_its_list_leaves_nothing),
        TEST_SCRIPTED(a_drain_refuses_a_list_of_which_nothing_was_charged),
        TEST_SCRIPTED(a_drain_finishes_a_list_that_is_being_handed_over),
        TEST_SCRIPTED(a_drain_ends_a_connection_that_asks_nothing_behind_its_list),
        TEST_SCRIPTED(a_list_waits_until_the_connection_may_have_it_in_flight),
        TEST_SCRIPTED(the_answer_to_a_list_that_never_fits_is_to_split_it),
        TEST_SCRIPTED(of_two_lists_that_are_too_much_together_one_is_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
