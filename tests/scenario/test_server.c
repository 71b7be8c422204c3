/* test_server.c: accepting, caps, draining, closing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "fakes/server_fixture.h"
#include "server/server_counters.h"

enum { N_CLIENTS = 8 };

static struct server_fixture fixture;
static struct client clients[N_CLIENTS];
static struct heard heard;

static int set_up(void **state)
{
    (void)state;
    server_fixture_open(&fixture, &server_fixture_options);
    for (int i = 0; i < N_CLIENTS; i++) clients[i].fd = -1;
    return 0;
}

static int set_up_small(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    options.max_connections = 2;
    server_fixture_open(&fixture, &options);
    for (int i = 0; i < N_CLIENTS; i++) clients[i].fd = -1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < N_CLIENTS; i++) client_close(&clients[i]);
    server_fixture_close(&fixture);
    return 0;
}

static void over_max_connections_clients_wait_and_are_served_later(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        client_open(&clients[i], &fixture);
        client_ask(&clients[i], (uint64_t)i, "ping", 0, "");
    }
    assert_int_equal(server_counters.connections, 2);
    assert_int_equal(server_counters.accept_pauses, 1);
    assert_int_equal(client_hear(&clients[0], &heard), 1);
    assert_int_equal(client_hear(&clients[1], &heard), 1);
    assert_int_equal(client_hear(&clients[2], &heard), 0); /* neither served nor closed */
    client_close(&clients[0]);
    assert_int_equal(client_hear(&clients[2], &heard), 1);
    assert_int_equal(heard.msgid, 2);
    assert_int_equal(client_hear(&clients[3], &heard), 0);
    client_close(&clients[1]);
    client_close(&clients[2]);
    assert_int_equal(client_hear(&clients[3], &heard), 1);
    assert_int_equal(client_hear(&clients[4], &heard), 1);
    assert_int_equal(server_counters.connections, 2);
    assert_int_equal(server_counters.connections_accepted, 5);
}

static void the_listener_is_armed_again_after_a_pause(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 4; i++) client_open(&clients[i], &fixture);
        server_fixture_ticks(&fixture, 3);
        assert_int_equal(server_counters.connections, 2);
        for (int i = 0; i < 4; i++) client_close(&clients[i]);
        server_fixture_ticks(&fixture, 8);
        assert_int_equal(server_counters.connections, 0);
        client_open(&clients[0], &fixture);
        client_assert_served(&clients[0]);
        client_close(&clients[0]);
        server_fixture_ticks(&fixture, 3);
    }
}

static void a_client_that_left_while_waiting_is_no_harm(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) client_open(&clients[i], &fixture);
    server_fixture_ticks(&fixture, 3);
    client_close(&clients[2]);
    client_close(&clients[0]);
    server_fixture_ticks(&fixture, 8);
    client_assert_served(&clients[1]);
    client_assert_served(&clients[3]);
}

static void raising_the_cap_lets_those_in_who_wait(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    for (int i = 0; i < 4; i++) client_open(&clients[i], &fixture);
    server_fixture_ticks(&fixture, 3);
    server_set_options(fixture.server, &options);
    for (int i = 0; i < 4; i++) client_assert_served(&clients[i]);
}

/* The server learns of a limit of open files, which does not hold for the test itself. */
static void allow_open_files(rlim_t n)
{
    struct rlimit old, low;
    struct server_options options = server_fixture_options;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    options.max_connections = 10000 + (uint32_t)n; /* a change, so that it looks */
    server_set_options(fixture.server, &options);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

/* With 64 for the daemon itself, clients had none, and each was accepted and reset. */
static void a_low_limit_of_open_files_leaves_some_for_clients(void **state)
{
    (void)state;
    static const struct {
        rlim_t limit;
        unsigned allowed;
    } cases[] = {{20, 1}, {25, 1}, {28, 4}, {31, 7}, {32, N_CLIENTS}, {127, N_CLIENTS}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        allow_open_files(cases[i].limit);
        for (unsigned n = 0; n < N_CLIENTS; n++) client_open(&clients[n], &fixture);
        server_fixture_ticks(&fixture, N_CLIENTS + 1); /* libuv may accept one a tick */
        assert_int_equal(server_counters.connections, cases[i].allowed);
        client_assert_served(&clients[0]);

        for (unsigned n = 0; n < N_CLIENTS; n++) client_close(&clients[n]);
        server_fixture_ticks(&fixture, 3 * N_CLIENTS);
        assert_int_equal(server_counters.connections, 0);
    }
}

static void many_connections_come_in_over_several_ticks(void **state)
{
    (void)state;
    enum { MANY = 300 };
    struct server_options options = server_fixture_options;
    static int fds[MANY];
    options.max_connections = 1000;
    server_set_options(fixture.server, &options);
    client_close(&clients[0]);
    server_fixture_ticks(&fixture, 1);
    for (int i = 0; i < MANY; i++) {
        if (i % 100 == 99) server_fixture_ticks(&fixture, 100); /* the test's socket has a backlog of its own */
        struct client client;
        client_open(&client, &fixture);
        fds[i] = client.fd;
    }
    server_fixture_ticks(&fixture, MANY); /* libuv may accept one a tick */
    assert_int_equal(server_counters.connections, MANY);
    for (int i = 0; i < MANY; i++) close(fds[i]);
    server_fixture_ticks(&fixture, MANY / 10);
    assert_int_equal(server_counters.connections, 0);
}

static void a_drain_without_clients_ends_in_a_later_tick(void **state)
{
    (void)state;
    server_fixture_drain(&fixture, 1000);
    server_fixture_ticks(&fixture, 3);
    assert_int_equal(fixture.n_drained, 1);
}

static void a_drain_answers_what_is_in_flight(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) client_open(&clients[i], &fixture);
    client_ask(&clients[0], 1, "check", 2, "ss", "api", "k");
    client_assert_served(&clients[1]);
    server_fixture_drain(&fixture, 1000);
    assert_true(client_is_closed(&clients[1])); /* it waited for nothing */
    assert_int_equal(fixture.n_drained, 0);
    client_send(&clients[0], "\x94\x00\x02\xa4ping\x90", 9); /* never read */
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&clients[0], &heard);
    assert_int_equal(heard.msgid, 1);
    assert_true(client_is_closed(&clients[0]));
    server_fixture_ticks(&fixture, 2);
    assert_int_equal(fixture.n_drained, 1);
}

static void a_drain_refuses_what_has_been_read_already(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    struct buffer out;
    options.max_inflight_per_connection = 2;
    server_set_options(fixture.server, &options);
    buffer_init(&out, 0);
    for (unsigned i = 0; i < 5; i++) client_build(&out, i, "check", 2, "ss", "api", "k");
    client_open(&clients[0], &fixture);
    client_send(&clients[0], buffer_data(&out), buffer_len(&out) - 3); /* and part of one */
    buffer_fini(&out);
    assert_int_equal(fixture.engine.scripted.n_held, 2);
    server_fixture_drain(&fixture, 1000);
    for (unsigned i = 2; i < 4; i++) {
        client_answer(&clients[0], &heard);
        assert_int_equal(heard.msgid, i);
        assert_int_equal(strncmp(heard.error, "SHUTTING_DOWN: ", 15), 0);
    }
    assert_int_equal(fixture.n_drained, 0);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    for (unsigned i = 0; i < 2; i++) {
        client_answer(&clients[0], &heard);
        assert_int_equal(heard.msgid, i);
        assert_string_equal(heard.error, "");
    }
    assert_true(client_is_closed(&clients[0]));
    assert_int_equal(fixture.n_drained, 1);
}

/* What it sent and the daemon never read made the kernel reset the connection. */
static void a_drain_ends_a_connection_without_a_reset(void **state)
{
    (void)state;
    uint8_t bytes[256];
    client_open(&clients[0], &fixture);
    client_ask(&clients[0], 1, "check", 2, "ss", "api", "k");
    server_fixture_drain(&fixture, 1000);
    client_send(&clients[0], "\x94\x00\x02\xa4ping\x90", 9);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    server_fixture_ticks(&fixture, 3);
    assert_int_equal(server_counters.connections, 0);
    assert_true(recv(clients[0].fd, bytes, sizeof bytes, 0) > 0);
    assert_int_equal(recv(clients[0].fd, bytes, sizeof bytes, 0), 0);
}

static void a_drain_accepts_nobody(void **state)
{
    (void)state;
    client_open(&clients[0], &fixture);
    client_ask(&clients[0], 1, "check", 2, "ss", "api", "k");
    server_fixture_drain(&fixture, 1000);
    server_fixture_ticks(&fixture, 2);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    close(fd);
    assert_int_equal(server_counters.connections_accepted, 1);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
}

static void a_drain_that_times_out_closes_the_rest(void **state)
{
    (void)state;
    client_open(&clients[0], &fixture);
    client_ask(&clients[0], 1, "check", 2, "ss", "api", "k");
    server_fixture_drain(&fixture, 1);
    while (fixture.n_drained == 0) uv_run(&fixture.loop, UV_RUN_ONCE); /* the drain's timer is the loop's */
    assert_true(client_is_closed(&clients[0]));
    assert_int_equal(server_counters.connections, 0);
    assert_int_equal(engine_n_live(fixture.engine.engine), 1); /* the store's */
}

static void closing_amid_everything_leaves_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) client_open(&clients[i], &fixture);
    for (unsigned i = 0; i < 10; i++) client_ask(&clients[0], i, "check", 2, "ss", "api", "k");
    client_ask(&clients[1], 1, "check_many", 1, "[[ss[ss", 2, 2, "api", "a", 2, "api", "b");
    client_send(&clients[2], "\x94\x00", 2);
    client_send(&clients[3], "\xc1", 1);
    for (int i = 0; i < 5; i++) scripted_end(&fixture.engine.scripted, 0, OP_DECIDED); /* written at no tick's end */
    server_fixture_close_server(&fixture);
    assert_int_equal(server_counters.connections, 0);
    assert_true(client_is_closed(&clients[0]));
}

static void closing_during_a_drain_is_the_end_of_both(void **state)
{
    (void)state;
    client_open(&clients[0], &fixture);
    client_ask(&clients[0], 1, "check", 2, "ss", "api", "k");
    server_fixture_drain(&fixture, 60000);
    server_fixture_ticks(&fixture, 2);
    server_fixture_close_server(&fixture);
    assert_int_equal(fixture.n_drained, 0);
}

static void clients_that_come_and_go_leave_nothing(void **state)
{
    (void)state;
    int before = dup(0);
    close(before);
    for (int i = 0; i < 2000; i++) {
        client_open(&clients[0], &fixture);
        if (i % 3 == 1) client_send(&clients[0], "\x94\x00", 2);
        if (i % 3 == 2) client_ask(&clients[0], 1, "check", 2, "ss", "api", "k");
        client_close(&clients[0]);
        if (i % 7 == 0) server_fixture_ticks(&fixture, 2);
        scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    }
    server_fixture_ticks(&fixture, 5);
    assert_int_equal(server_counters.connections, 0);
    int after = dup(0);
    close(after);
    assert_int_equal(after, before);
}

#define TEST(name)       cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_SMALL(name) cmocka_unit_test_setup_teardown(name, set_up_small, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_SMALL(over_max_connections_clients_wait_and_are_served_later),
        TEST_SMALL(the_listener_is_armed_again_after_a_pause),
        TEST_SMALL(a_client_that_left_while_waiting_is_no_harm),
        TEST_SMALL(raising_the_cap_lets_those_in_who_wait),
        TEST(a_low_limit_of_open_files_leaves_some_for_clients),
        TEST(many_connections_come_in_over_several_ticks),
        TEST(a_drain_without_clients_ends_in_a_later_tick),
        TEST(a_drain_answers_what_is_in_flight),
        TEST(a_drain_refuses_what_has_been_read_already),
        TEST(a_drain_ends_a_connection_without_a_reset),
        TEST(a_drain_accepts_nobody),
        TEST(a_drain_that_times_out_closes_the_rest),
        TEST(closing_amid_everything_leaves_nothing),
        TEST(closing_during_a_drain_is_the_end_of_both),
        TEST(clients_that_come_and_go_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
