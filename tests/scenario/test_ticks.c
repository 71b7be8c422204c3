/* test_ticks.c: how much one tick of the loop does for all connections together. What is left over goes on in the next
 * one, each connection in its turn. */
#include "base/units.h"
#include "engine/engine.h"
#include "fakes/flood_fixture.h"
#include "server/sessions.h"

enum {
    N_FLOODS = 40,
    TICKS_OF_LOOP = 2, /* libuv's loop ends the daemon's tick twice: after idle, after poll */
    UNITS_MAX = TICKS_OF_LOOP * (TICK_UNITS + 2 * SHARE_MAX), /* of one, with what the last message costs beyond it */
};

static int set_up(void **state)
{
    (void)state;
    flood_fixture_open(&server_fixture_options, false, N_FLOODS);
    return 0;
}

static int set_up_memory(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    options.max_output_total = 1024 * 1024;
    flood_fixture_open(&options, true, N_FLOODS);
    return 0;
}

static void build_check(struct buffer *out, uint64_t msgid, const char *key)
{
    client_build(out, msgid, "check", 2, "ss", "api", key);
}

/* A check_many or check_all of n members with long keys. */
static void build_list(struct buffer *out, const char *method, unsigned n, size_t key_len)
{
    struct packer packer = packer_of(out);
    char key[1024];
    memset(key, 'k', sizeof key);
    rpc_pack_request(&packer, 1, method, 1);
    pack_array(&packer, n);
    for (unsigned i = 0; i < n; i++) {
        key[0] = (char)('a' + i);
        pack_array(&packer, 2);
        pack_text(&packer, "api");
        pack_str(&packer, (struct slice){(const uint8_t *)key, key_len});
    }
    assert_false(packer.failed);
}

/* All floods at once send n times the request in `one`. */
static void flood(const struct buffer *one, unsigned n)
{
    struct buffer out;
    buffer_init(&out, 0);
    for (unsigned i = 0; i < n; i++) assert_int_equal(buffer_append(&out, buffer_data(one), buffer_len(one)), 0);
    for (int i = 0; i < N_FLOODS; i++) put(&floods[i], &out);
    buffer_fini(&out);
}

static void flood_with(unsigned n, const char *method)
{
    struct buffer one;
    buffer_init(&one, 0);
    client_build(&one, 1, method, 0, "");
    flood(&one, n);
    buffer_fini(&one);
}

/* Runs ticks until `n` requests are taken; no tick takes more than `most`. How many ticks it took. */
static int tick_until_taken(uint64_t n, uint64_t most)
{
    int ticks = 0;
    for (uint64_t before = server_counters.requests, end = before + n; before < end; ticks++) {
        assert_true(ticks < 10000);
        server_fixture_tick(&fixture);
        assert_true(server_counters.requests - before <= most);
        before = server_counters.requests;
        scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
        for (int i = 0; i < N_FLOODS; i++) {
            static uint8_t bytes[1 << 20];
            while (recv(floods[i].fd, bytes, sizeof bytes, 0) > 0) {
            }
        }
    }
    return ticks;
}

static void many_connections_that_pipeline_checks_share_the_work_of_a_tick(void **state)
{
    (void)state;
    struct buffer one;
    buffer_init(&one, 0);
    build_check(&one, 1, "k");
    flood(&one, 500);
    tick_until_taken(N_FLOODS * 500, UNITS_MAX / 2); /* to wait for Redis is as much again */
    buffer_fini(&one);
}

static void a_polite_check_waits_for_one_round_of_the_floods_at_most(void **state)
{
    (void)state;
    struct buffer one;
    buffer_init(&one, 0);
    build_check(&one, 1, "k");
    flood(&one, 1000);
    tick_until_taken(4 * TICK_UNITS, UNITS_MAX);

    uint64_t before = server_counters.requests;
    put_check(&polite, 7, "mine");
    for (bool is_decided = false; !is_decided;) {
        server_fixture_tick(&fixture);
        is_decided = n_held_of("mine") > 0;
        scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    }
    assert_true(server_counters.requests - before <= UNITS_MAX);
    buffer_fini(&one);
}

enum { N_LONG = 10 };

/* The floods have more than a tick can do, in messages of which each is more than a turn. */
static void flood_with_long_messages(void)
{
    struct buffer one;
    buffer_init(&one, 0);
    build_list(&one, "check_many", 60, 200);
    flood(&one, N_LONG);
    tick_until_taken(N_FLOODS, UNITS_MAX / 100);
    buffer_fini(&one);
}

static int ticks_until_held(const char *key)
{
    int ticks = 0;
    for (bool is_held = false; !is_held; ticks++) {
        assert_true(ticks < 1000);
        server_fixture_tick(&fixture);
        is_held = n_held_of(key) > 0;
        scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    }
    return ticks;
}

static void a_single_check_does_not_wait_for_a_round_of_long_messages(void **state)
{
    (void)state;
    flood_with_long_messages();
    for (int i = 0; i < 10; i++) {
        put_check(&polite, 1, "mine");
        assert_int_equal(ticks_until_held("mine"), 1);
    }
    assert_true(server_counters.requests < N_FLOODS * N_LONG); /* they have work left */
}

/* Nor does one that is not read at once: what the tick leaves of it has its turn before the floods. */
static void a_single_long_message_does_not_wait_for_a_round_of_others(void **state)
{
    (void)state;
    struct buffer one;
    buffer_init(&one, 0);
    flood_with_long_messages();
    build_list(&one, "check_many", 30, 500);
    put(&polite, &one);
    int ticks = 0;
    for (uint64_t client = 1; client != 0; ticks++) { /* the polite one is the first connection */
        assert_true(ticks <= 5);
        server_fixture_tick(&fixture);
        LIST_FOREACH (link, &fixture.engine.scripted.held)
            if (LIST_ITEM(link, struct op, link)->client == 1) client = 0;
        scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    }
    assert_true(server_counters.requests < N_FLOODS * N_LONG);
    buffer_fini(&one);
}

/* The lists of a connection that the store has, all of their members at once. */
static size_t n_lists_held_of(uint64_t client)
{
    size_t n = 0;
    LIST_FOREACH (link, &fixture.engine.scripted.held)
        n += LIST_ITEM(link, struct op, link)->client == client && key_of(link).data[0] == 'a'; /* the first member */
    return n;
}

/* 800 connections with long messages: a client that asked for one each 10 ms got one in a round, which took longer. */
static void a_long_message_now_and_then_does_not_wait_for_a_round_each_time(void **state)
{
    (void)state;
    struct buffer one;
    buffer_init(&one, 0);
    flood_with_long_messages();
    build_list(&one, "check_many", 60, 200);
    for (int i = 0; i < 10; i++) {
        put(&polite, &one);
        size_t n = 0;
        for (int ticks = 0; n == 0; ticks++) {
            assert_true(ticks < 3);
            server_fixture_tick(&fixture);
            n = n_lists_held_of(1); /* the polite one is the first connection */
            scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
        }
        fixture.engine.clock.mono_us += RESTED_US;
    }
    assert_true(server_counters.requests < N_FLOODS * N_LONG); /* they have work left */
    buffer_fini(&one);
}

/* As soon as it is answered it sends the next one, when `rest_us` have passed. */
static void assert_pipelining_is_not_starved(int64_t rest_us)
{
    enum { CLIENTS = N_FLOODS + 2, ALTERNATING = 20, TICKS = 120 };
    size_t n_of[CLIENTS] = {0};
    struct buffer one;
    buffer_init(&one, 0);
    build_list(&one, "check_many", 60, 200);
    for (int i = ALTERNATING; i < N_FLOODS; i++)
        for (int j = 0; j < 10; j++) put(&floods[i], &one);

    bool is_asking[ALTERNATING] = {false};
    size_t least = SIZE_MAX, most = 0;
    for (int ticks = 0; ticks < TICKS && least != 10; ticks++) {
        for (int i = 0; i < ALTERNATING; i++) {
            if (!is_asking[i]) put(&floods[i], &one);
            is_asking[i] = true;
        }
        server_fixture_tick(&fixture);
        LIST_FOREACH (link, &fixture.engine.scripted.held) {
            const struct op *op = LIST_ITEM(link, struct op, link);
            assert_true(op->client < CLIENTS);
            n_of[op->client] += key_of(link).data[0] == 'a'; /* the first member */
            if (op->client - 2 < ALTERNATING) is_asking[op->client - 2] = false;
        }
        scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
        fixture.engine.clock.mono_us += rest_us;

        least = SIZE_MAX, most = 0;
        for (int i = 0; i < N_FLOODS; i++) {
            if (i < ALTERNATING && n_of[i + 2] > most) most = n_of[i + 2];
            if (i >= ALTERNATING && n_of[i + 2] < least) least = n_of[i + 2];
        }
        assert_true(most <= 2 * least + 4); /* a long message may need two reads, and a turn passes */
    }
    assert_int_equal(least, 10);
    buffer_fini(&one);
}

static void clients_that_ask_one_by_one_do_not_starve_those_that_pipeline(void **state)
{
    (void)state;
    assert_pipelining_is_not_starved(0);
}

static void clients_that_ask_now_and_then_do_not_starve_those_that_pipeline(void **state)
{
    (void)state;
    assert_pipelining_is_not_starved(RESTED_US);
}

/* A check that waits for Redis weighs twice as much as one of the memory store. */
static void each_of_many_connections_has_its_turn_in_every_tick(void **state)
{
    (void)state;
    enum { MANY = TICK_UNITS / (2 * SHARE_MIN) - 2, WEIGHT = 2 };
    struct buffer one;
    size_t of_flood[MANY] = {0};
    for (int i = 0; i < MANY; i++) {
        char key[2] = {(char)('0' + i), '\0'};
        buffer_init(&one, 0);
        for (unsigned j = 0; j < 1000; j++) build_check(&one, j, key);
        put_built(&floods[i], &one);
    }

    server_fixture_ticks(&fixture, 2); /* all of them were read */
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    server_fixture_tick(&fixture);
    LIST_FOREACH (link, &fixture.engine.scripted.held) of_flood[key_of(link).data[0] - '0']++;
    for (int i = 0; i < MANY; i++)
        assert_in_range(of_flood[i], SHARE_MIN / WEIGHT, TICKS_OF_LOOP * TICK_UNITS / MANY / WEIGHT);
}

static void a_check_all_weighs_as_much_as_its_members(void **state)
{
    (void)state;
    enum { MEMBERS = 16, N = 100 };
    struct buffer one, out;
    buffer_init(&one, 0);
    buffer_init(&out, 0);
    build_list(&one, "check_all", MEMBERS, 4);
    for (int i = 0; i < N; i++) buffer_append(&out, buffer_data(&one), buffer_len(&one));
    put_built(&floods[0], &out);

    tick_until_taken(N, TICKS_OF_LOOP * (SHARE_MAX / MEMBERS + 1));
    buffer_fini(&one);
}

static void long_messages_are_taken_by_what_they_cost(void **state)
{
    (void)state;
    enum { MEMBERS = 10, ROUNDS = 3 };
    struct buffer one;
    buffer_init(&one, 0);
    build_list(&one, "check_many", MEMBERS, 600);
    assert_true(buffer_len(&one) > 4096);
    flood(&one, ROUNDS);
    uint64_t each = MEMBERS + buffer_len(&one) / 256;
    int ticks = tick_until_taken(ROUNDS * N_FLOODS, UNITS_MAX / each);
    assert_true(ticks <= 8); /* several in a tick, not one */
    buffer_fini(&one);
}

static void a_message_as_long_as_may_be_takes_a_connections_share(void **state)
{
    (void)state;
    struct buffer one;
    buffer_init(&one, 0);
    build_list(&one, "check_many", 60, 1000);
    for (int i = 0; i < N_FLOODS; i++) put(&floods[i], &one);
    tick_until_taken(N_FLOODS, UNITS_MAX / (60 + 60000 / 256));
    buffer_fini(&one);
}

static void stats_weigh_by_their_work_and_the_length_of_their_answers(void **state)
{
    (void)state;
    client_ask(&polite, 1, "stats", 0, "");
    client_answer(&polite, &heard);
    uint32_t units = (uint32_t)(heard.result.end - heard.result.at) / 256 + 12;
    flood_with(100, "stats");
    tick_until_taken(N_FLOODS * 100, UNITS_MAX / units);
}

static void policies_weigh_by_their_number(void **state)
{
    (void)state;
    enum { N_POLICIES = 4, UNITS_EACH = 4 };
    flood_with(200, "policies");
    tick_until_taken(N_FLOODS * 200, UNITS_MAX / (N_POLICIES * UNITS_EACH));
}

static void explain_weighs_more_than_a_check(void **state)
{
    (void)state;
    struct buffer one;
    buffer_init(&one, 0);
    client_build(&one, 1, "explain", 2, "ss", "api", "k");
    flood(&one, 200);
    tick_until_taken(N_FLOODS * 200, UNITS_MAX / 9);
    buffer_fini(&one);
}

static void checks_that_fail_at_once_weigh_their_answers(void **state)
{
    (void)state;
    struct buffer one;
    buffer_init(&one, 0);
    build_check(&one, 1, "k");
    fixture.engine.scripted.mode = SCRIPTED_REFUSE_DOWN;
    flood(&one, 500);
    tick_until_taken(N_FLOODS * 500, TICKS_OF_LOOP * (TICK_UNITS / 2 + 2 * SHARE_MAX));
    buffer_fini(&one);
}

/* With Redis stopped, more checks came in each tick than were answered in it: a polite client was 20 ms late. */
static void while_answers_are_late_less_is_taken(void **state)
{
    (void)state;
    struct buffer one;
    buffer_init(&one, 0);
    build_check(&one, 1, "k");
    flood(&one, 400);
    while (fixture.engine.scripted.n_held < 4 * ENGINE_EXPIRED_UNITS) server_fixture_tick(&fixture);

    fixture.engine.clock.mono_us += SECOND_US;
    server_fixture_tick(&fixture);
    uint64_t before = server_counters.requests;
    server_fixture_tick(&fixture);
    uint64_t n = server_counters.requests - before;
    assert_in_range(n, 1, TICK_UNITS - ENGINE_EXPIRED_UNITS + SHARE_MAX);
    buffer_fini(&one);
}

/* So many at once that accepting or closing them takes many ticks. */
enum { N_COMING = 200 };
static struct client coming[N_COMING];

static void open_many(void)
{
    struct server_options options = server_fixture_options;
    options.max_connections = 1000;
    server_set_options(fixture.server, &options);
    for (int i = 0; i < N_COMING; i++) client_open(&coming[i], &fixture);
}

static void new_connections_take_their_part_of_a_tick(void **state)
{
    (void)state;
    enum { UNITS = 64 };
    uint64_t before = server_counters.connections_accepted, end = before + N_COMING;
    open_many();
    for (int ticks = 0; before < end; ticks++) {
        assert_true(ticks < 1000);
        server_fixture_tick(&fixture);
        assert_true(server_counters.connections_accepted - before <= UNITS_MAX / UNITS);
        before = server_counters.connections_accepted;
    }

    size_t n_open = server_counters.connections;
    for (int i = 0; i < N_COMING; i++) client_close(&coming[i]);
    for (int ticks = 0; server_counters.connections > N_FLOODS + 1; ticks++) {
        assert_true(ticks < 1000);
        server_fixture_tick(&fixture);
        assert_true(n_open - server_counters.connections <= UNITS_MAX / UNITS);
        n_open = server_counters.connections;
    }
}

/* Those that had left had their turn before it. */
static void a_check_does_not_wait_until_all_who_left_are_closed(void **state)
{
    (void)state;
    open_many();
    while (server_counters.connections < N_FLOODS + 1 + N_COMING) server_fixture_tick(&fixture);
    server_fixture_ticks(&fixture, 2); /* a round has ended since they came */
    for (int i = 0; i < N_COMING; i++) client_close(&coming[i]);
    put_check(&polite, 7, "mine");
    assert_true(ticks_until_held("mine") <= 2);
    assert_true(server_counters.connections > N_FLOODS + 1 + N_COMING / 2); /* most are still to be closed */
}

static void new_connections_are_accepted_while_others_flood(void **state)
{
    (void)state;
    static struct client clients[10];
    flood_with(3000, "ping");
    server_fixture_ticks(&fixture, 3);
    for (int i = 0; i < 10; i++) client_open(&clients[i], &fixture);
    server_fixture_ticks(&fixture, 10); /* the floods have work left */
    assert_true(server_counters.requests < N_FLOODS * 3000);
    assert_int_equal(server_counters.connections, N_FLOODS + 1 + 10);
    for (int i = 0; i < 10; i++) client_close(&clients[i]);
}

static void answers_of_one_tick_count_as_unread_before_it_ends(void **state)
{
    (void)state;
    enum { TOTAL = 1024 * 1024 }; /* beyond it, those with less than an equal share of it may still go up to that */
    flood_with(1000, "stats");    /* and nobody reads */
    for (int i = 0; i < 200; i++) {
        server_fixture_tick(&fixture);
        assert_true(server_counters.unread_bytes <= TOTAL + TOTAL / 2);
    }
    assert_true(server_counters.unread_bytes > TOTAL / 2);
}

#define TEST(name)        cmocka_unit_test_setup_teardown(name, set_up, flood_fixture_close)
#define TEST_MEMORY(name) cmocka_unit_test_setup_teardown(name, set_up_memory, flood_fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(many_connections_that_pipeline_checks_share_the_work_of_a_tick),
        TEST(a_polite_check_waits_for_one_round_of_the_floods_at_most),
        TEST(a_single_check_does_not_wait_for_a_round_of_long_messages),
        TEST(a_single_long_message_does_not_wait_for_a_round_of_others),
        TEST(a_long_message_now_and_then_does_not_wait_for_a_round_each_time),
        TEST(clients_that_ask_one_by_one_do_not_starve_those_that_pipeline),
        TEST(clients_that_ask_now_and_then_do_not_starve_those_that_pipeline),
        TEST(each_of_many_connections_has_its_turn_in_every_tick),
        TEST(a_check_all_weighs_as_much_as_its_members),
        TEST(long_messages_are_taken_by_what_they_cost),
        TEST(a_message_as_long_as_may_be_takes_a_connections_share),
        TEST_MEMORY(stats_weigh_by_their_work_and_the_length_of_their_answers),
        TEST_MEMORY(policies_weigh_by_their_number),
        TEST_MEMORY(explain_weighs_more_than_a_check),
        TEST(checks_that_fail_at_once_weigh_their_answers),
        TEST(while_answers_are_late_less_is_taken),
        TEST(new_connections_take_their_part_of_a_tick),
        TEST(a_check_does_not_wait_until_all_who_left_are_closed),
        TEST(new_connections_are_accepted_while_others_flood),
        TEST_MEMORY(answers_of_one_tick_count_as_unread_before_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
