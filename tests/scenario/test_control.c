/* test_control.c: the control socket next to the data socket: who is served there while others are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/slots.h"
#include "fakes/server_fixture.h"
#include "server/server_counters.h"

enum { N_CLIENTS = CONTROL_CONNECTIONS + 1 };

static struct server_fixture fixture;
static struct client clients[2], admins[N_CLIENTS];
static struct heard heard;

static int set_up(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    options.max_connections = 1;
    for (int i = 0; i < 2; i++) clients[i] = (struct client){.fd = -1};
    for (int i = 0; i < N_CLIENTS; i++) admins[i] = (struct client){.fd = -1};
    server_fixture_open(&fixture, &options);
    server_fixture_open_control(&fixture);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) client_close(&clients[i]);
    for (int i = 0; i < N_CLIENTS; i++) client_close(&admins[i]);
    server_fixture_close(&fixture);
    return 0;
}

static void assert_refused(struct client *client, const char *code)
{
    client_answer(client, &heard);
    if (strncmp(heard.error, code, strlen(code)) != 0) fail_msg("%s", heard.error);
}

static void it_answers_while_the_data_socket_is_full(void **state)
{
    (void)state;
    client_open(&clients[0], &fixture);
    client_assert_served(&clients[0]);
    client_open(&clients[1], &fixture);
    client_ask(&clients[1], 1, "ping", 0, "");
    assert_int_equal(client_hear(&clients[1], &heard), 0);
    assert_int_equal(server_counters.accept_pauses, 1);

    client_open_control(&admins[0], &fixture);
    client_assert_served(&admins[0]);
    client_ask(&admins[0], 2, "check", 2, "ss", "api", "k"); /* as every method of the data socket */
    server_fixture_ticks(&fixture, 2);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&admins[0], &heard);
    assert_string_equal(heard.error, "");

    client_close(&clients[0]);
    assert_int_equal(client_hear(&clients[1], &heard), 1);
}

static void fill_with_admins(void)
{
    for (int i = 0; i < CONTROL_CONNECTIONS; i++) {
        client_open_control(&admins[i], &fixture);
        client_assert_served(&admins[i]);
    }
}

static void the_17th_connection_waits_and_takes_nobodys_place(void **state)
{
    (void)state;
    fill_with_admins();
    client_open_control(&admins[CONTROL_CONNECTIONS], &fixture);
    client_ask(&admins[CONTROL_CONNECTIONS], 1, "ping", 0, "");
    assert_int_equal(client_hear(&admins[CONTROL_CONNECTIONS], &heard), 0);
    assert_int_equal(control_counters.control_accept_pauses, 1);
    client_open(&clients[0], &fixture); /* the data socket is not full */
    client_assert_served(&clients[0]);
    client_assert_served(&admins[0]);

    client_close(&admins[0]);
    assert_int_equal(client_hear(&admins[CONTROL_CONNECTIONS], &heard), 1);
    assert_int_equal(control_counters.control_connections, CONTROL_CONNECTIONS);
    assert_int_equal(control_counters.control_connections_accepted, CONTROL_CONNECTIONS + 1);
}

static void sixteen_idle_administrators_keep_nobody_out(void **state)
{
    (void)state;
    fill_with_admins();
    fixture.engine.clock.mono_us += 500000;
    client_assert_served(&admins[0]); /* admins[1] is now the longest idle */
    fixture.engine.clock.mono_us += 600000;

    client_open_control(&admins[CONTROL_CONNECTIONS], &fixture);
    client_assert_served(&admins[CONTROL_CONNECTIONS]);
    assert_true(client_is_closed(&admins[1]));
    for (int i = 0; i < N_CLIENTS; i++)
        if (i != 1) client_assert_served(&admins[i]);
    assert_int_equal(control_counters.control_connections, CONTROL_CONNECTIONS);
    assert_int_equal(control_counters.control_connections_closed, 1);
    assert_int_equal(control_counters.control_accept_pauses, 0);
}

static void who_waits_for_an_answer_does_not_give_way(void **state)
{
    (void)state;
    fill_with_admins();
    for (int i = 0; i < CONTROL_CONNECTIONS; i++)
        client_ask(&admins[i], 2, "check", 3, "ss{si", "api", "k", 1, "deadline_ms", 60000);
    server_fixture_ticks(&fixture, 2);
    fixture.engine.clock.mono_us += 2000000;
    client_open_control(&admins[CONTROL_CONNECTIONS], &fixture);
    client_ask(&admins[CONTROL_CONNECTIONS], 1, "ping", 0, "");
    assert_int_equal(client_hear(&admins[CONTROL_CONNECTIONS], &heard), 0);
    assert_int_equal(control_counters.control_accept_pauses, 1);

    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    for (int i = 0; i < CONTROL_CONNECTIONS; i++) client_answer(&admins[i], &heard);
    assert_int_equal(client_hear(&admins[CONTROL_CONNECTIONS], &heard), 1); /* they asked long ago */
    assert_int_equal(control_counters.control_connections, CONTROL_CONNECTIONS);
}

static void half_a_message_keeps_nobody_out(void **state)
{
    (void)state;
    fill_with_admins();
    client_send(&admins[0], "\x94\x00\x01", 3);
    server_fixture_ticks(&fixture, 2);
    fixture.engine.clock.mono_us += 2000000;
    for (int i = 1; i < CONTROL_CONNECTIONS; i++) client_assert_served(&admins[i]);
    client_open_control(&admins[CONTROL_CONNECTIONS], &fixture);
    client_assert_served(&admins[CONTROL_CONNECTIONS]);
    assert_true(client_is_closed(&admins[0]));
}

static void its_connections_are_not_counted_as_clients(void **state)
{
    (void)state;
    client_open_control(&admins[0], &fixture);
    client_assert_served(&admins[0]);
    client_send(&admins[0], "GET / HTTP/1.1\r\n\r\n", 18);
    assert_int_equal(client_hear(&admins[0], &heard), 1); /* the final error */
    assert_int_equal(control_counters.control_connections_closed, 1);
    assert_int_equal(control_counters.control_connections, 1);
    client_close(&admins[0]);
    server_fixture_ticks(&fixture, 3);
    assert_int_equal(control_counters.control_connections, 0);
    assert_int_equal(server_counters.connections_accepted, 0);
    assert_int_equal(server_counters.connections_closed_broken, 0);
    assert_int_equal(server_counters.connections, 0);
}

static void it_is_bounded_as_the_data_socket_is(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    options.idle_timeout_ms = 1000;
    server_set_options(fixture.server, &options);
    client_open_control(&admins[0], &fixture);
    client_assert_served(&admins[0]);
    client_send(&admins[0], "\x94\x00\x01\xa4ping\xdb\x7f\xff\xff\xff", 13); /* a string of 2 GiB begins */
    assert_int_equal(client_hear(&admins[0], &heard), 1);
    assert_int_equal(strncmp(heard.error, "TOO_LARGE: ", 11), 0);
    assert_int_equal(client_hear(&admins[0], &heard), -1);

    client_open_control(&admins[1], &fixture);
    client_assert_served(&admins[1]);
    fixture.engine.clock.mono_us += 2 * 1000000;
    server_sweep(fixture.server);
    assert_true(client_is_closed(&admins[1]));
    assert_int_equal(control_counters.control_connections_closed, 2);
    assert_int_equal(server_counters.connections_closed_idle, 0);
}

static void a_peer_that_does_not_read_is_closed_there_too(void **state)
{
    (void)state;
    client_open_control(&admins[0], &fixture);
    client_assert_served(&admins[0]);
    admins[0].is_reading = false;
    while (server_counters.unread_bytes == 0) {
        client_ask(&admins[0], 1, "stats", 0, "");
        server_fixture_ticks(&fixture, 2);
    }
    fixture.engine.clock.mono_us += (int64_t)server_fixture_options.write_stall_ms * 1000 + 1;
    server_sweep(fixture.server);
    server_fixture_ticks(&fixture, 2);
    assert_int_equal(control_counters.control_connections_closed, 1);
    assert_int_equal(control_counters.control_connections, 0);
    assert_int_equal(server_counters.connections_closed_slow, 0);
}

static void it_answers_while_the_daemon_drains(void **state)
{
    (void)state;
    client_open_control(&admins[0], &fixture);
    client_assert_served(&admins[0]);
    client_open(&clients[0], &fixture);
    client_ask(&clients[0], 1, "check", 2, "ss", "api", "k");
    server_fixture_ticks(&fixture, 2);
    server_fixture_drain(&fixture, 1000);

    client_assert_served(&admins[0]);
    client_open_control(&admins[1], &fixture); /* new ones are, too */
    client_assert_served(&admins[1]);
    static const char *const answered[] = {"stats", "version", "policies", "hello"};
    for (size_t i = 0; i < sizeof answered / sizeof answered[0]; i++) {
        client_ask(&admins[1], 1, answered[i], 0, "");
        client_answer(&admins[1], &heard);
        assert_string_equal(heard.error, "");
    }
    assert_int_equal(fixture.n_drained, 0);

    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&clients[0], &heard);
    assert_true(client_is_closed(&clients[0]));
    assert_int_equal(fixture.n_drained, 1);
    client_assert_served(&admins[0]); /* until the server closes */
}

/* The store closes behind the drain, so what came later would get no answer. */
static void in_a_drain_nothing_is_decided_for_it(void **state)
{
    (void)state;
    client_open_control(&admins[0], &fixture);
    client_assert_served(&admins[0]);
    client_open(&clients[0], &fixture);
    client_ask(&clients[0], 1, "check", 2, "ss", "api", "k");
    server_fixture_ticks(&fixture, 2);
    server_fixture_drain(&fixture, 1000);

    client_ask(&admins[0], 1, "check", 2, "ss", "api", "k");
    assert_refused(&admins[0], "SHUTTING_DOWN: ");
    client_ask(&admins[0], 2, "check_many", 1, "[[ss", 1, 2, "api", "k");
    assert_refused(&admins[0], "SHUTTING_DOWN: ");
    client_ask(&admins[0], 3, "check_all", 1, "[[ss", 1, 2, "api", "k");
    assert_refused(&admins[0], "SHUTTING_DOWN: ");
    client_ask(&admins[0], 4, "reset", 2, "ss", "api", "k");
    assert_refused(&admins[0], "SHUTTING_DOWN: ");
    assert_int_equal(fixture.engine.scripted.n_held, 1);
    client_assert_served(&admins[0]);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
}

/* As every connection: what was asked before the drain is answered, and then it ends. */
static void a_drain_waits_for_its_checks(void **state)
{
    (void)state;
    client_open_control(&admins[0], &fixture);
    client_ask(&admins[0], 1, "check", 2, "ss", "api", "k");
    server_fixture_ticks(&fixture, 2);
    server_fixture_drain(&fixture, 1000);
    server_fixture_ticks(&fixture, 3);
    assert_int_equal(fixture.n_drained, 0);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&admins[0], &heard);
    assert_string_equal(heard.error, "");
    assert_true(client_is_closed(&admins[0]));
    assert_int_equal(fixture.n_drained, 1);
}

static void a_drain_with_admins_alone_ends_at_once(void **state)
{
    (void)state;
    client_open_control(&admins[0], &fixture);
    client_assert_served(&admins[0]);
    server_fixture_drain(&fixture, 1000000);
    server_fixture_ticks(&fixture, 3);
    assert_int_equal(fixture.n_drained, 1);
    client_assert_served(&admins[0]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(it_answers_while_the_data_socket_is_full),
        TEST(the_17th_connection_waits_and_takes_nobodys_place),
        TEST(sixteen_idle_administrators_keep_nobody_out),
        TEST(who_waits_for_an_answer_does_not_give_way),
        TEST(half_a_message_keeps_nobody_out),
        TEST(its_connections_are_not_counted_as_clients),
        TEST(it_is_bounded_as_the_data_socket_is),
        TEST(a_peer_that_does_not_read_is_closed_there_too),
        TEST(it_answers_while_the_daemon_drains),
        TEST(in_a_drain_nothing_is_decided_for_it),
        TEST(a_drain_waits_for_its_checks),
        TEST(a_drain_with_admins_alone_ends_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
