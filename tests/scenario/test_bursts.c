/* test_bursts.c: what comes from many connections at once is done a few at a time, a tick after the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "fakes/server_fixture.h"
#include "server/server_counters.h"
#include "server/sessions.h"

enum {
    N_CLIENTS = 500, /* more than a tick reads */
    N_ADMINS = 3,
    ANSWER_BYTES = 5000,

    /* libuv ends the daemon's tick twice, after idle and after poll, and each time some are resumed */
    READS_OF_LOOP = READS_MAX + RESUMED_MAX,
};

static struct server_fixture fixture;
static struct client clients[N_CLIENTS], admins[N_ADMINS];
static struct heard heard;
static uint64_t n_tickets;

static uint64_t ask(void *arg, enum late_kind kind)
{
    (void)arg;
    (void)kind;
    return ++n_tickets;
}

static int set_up(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    options.max_connections = N_CLIENTS;
    options.late = (struct late_source){.ask = ask};
    n_tickets = 0;
    for (int i = 0; i < N_CLIENTS; i++) clients[i] = (struct client){.fd = -1};
    for (int i = 0; i < N_ADMINS; i++) admins[i] = (struct client){.fd = -1};
    server_fixture_open_memory(&fixture, &options);
    server_fixture_open_control(&fixture);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < N_CLIENTS; i++) client_close(&clients[i]);
    for (int i = 0; i < N_ADMINS; i++) client_close(&admins[i]);
    server_fixture_close(&fixture);
    return 0;
}

/* ---- reads ---- */

static void open_clients(void)
{
    for (int i = 0; i < N_CLIENTS; i++) client_open(&clients[i], &fixture);
    while (server_counters.connections < N_CLIENTS) server_fixture_tick(&fixture);
    server_fixture_tick(&fixture);
}

static void put_ping(struct client *client)
{
    struct buffer out;
    buffer_init(&out, 0);
    client_build(&out, 1, "ping", 0, "");
    assert_int_equal(send(client->fd, buffer_data(&out), buffer_len(&out), MSG_NOSIGNAL), buffer_len(&out));
    buffer_fini(&out);
}

/* 2000 connections that were readable in one poll stopped the loop for 36 to 63 ms. */
static void connections_that_are_readable_at_once_are_read_a_few_at_a_time(void **state)
{
    (void)state;
    open_clients();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N_CLIENTS; i++) put_ping(&clients[i]);
        uint64_t before = server_counters.requests, end = before + N_CLIENTS;
        for (int ticks = 0; server_counters.requests < end; ticks++) {
            assert_true(ticks < N_CLIENTS / RESUMED_MAX + 2);
            server_fixture_tick(&fixture);
            assert_true(server_counters.requests - before <= READS_OF_LOOP);
            before = server_counters.requests;
        }
        for (int i = 0; i < N_CLIENTS; i++) client_answer(&clients[i], &heard);
    }
}

/* Those that wait for their read are not kept out by those that come. */
static void a_connection_that_waits_for_its_read_is_read_although_others_ask_all_the_time(void **state)
{
    (void)state;
    open_clients();
    static bool is_heard[N_CLIENTS];
    for (int i = 0; i < N_CLIENTS; i++) put_ping(&clients[i]);
    size_t n_left = N_CLIENTS;
    for (int ticks = 0; n_left > 0; ticks++) {
        assert_true(ticks < 4 * N_CLIENTS / RESUMED_MAX);
        server_fixture_tick(&fixture);
        for (int i = 0; i < N_CLIENTS; i++) {
            uint8_t bytes[256];
            if (recv(clients[i].fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) continue;
            n_left -= !is_heard[i];
            is_heard[i] = true;
            if (n_left > 0) put_ping(&clients[i]);
        }
    }
}

static void connections_that_wait_for_their_read_can_close_and_drain(void **state)
{
    (void)state;
    open_clients();
    for (int i = 0; i < N_CLIENTS; i++) put_ping(&clients[i]);
    for (int i = 0; i < N_CLIENTS; i += 2) client_close(&clients[i]);
    server_fixture_tick(&fixture);
    server_fixture_drain(&fixture, 1000);
    for (int i = 0; fixture.n_drained == 0; i++) {
        assert_true(i < 100);
        server_fixture_tick(&fixture);
    }
}

/* ---- answers that are made in a thread ---- */

static void end_ticket(uint64_t ticket, size_t n_bytes)
{
    static uint8_t bytes[ANSWER_BYTES];
    struct buffer result;
    buffer_init(&result, 0);
    struct packer packer = packer_of(&result);
    pack_str(&packer, (struct slice){bytes, n_bytes});
    assert_false(packer.failed);
    if (n_bytes == 0) buffer_fini(&result);
    server_answer_late(fixture.server, ticket, &result);
    buffer_fini(&result);
}

static size_t n_bytes_of(struct client *client)
{
    static uint8_t bytes[1 << 20];
    ssize_t n = recv(client->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    return n > 0 ? (size_t)n : 0;
}

static void ask_for_config(size_t n_each)
{
    for (int i = 0; i < N_ADMINS; i++) {
        client_open_control(&admins[i], &fixture);
        for (size_t k = 0; k < n_each; k++) client_ask(&admins[i], k + 1, "config", 0, "");
    }
    while (n_tickets < N_ADMINS * n_each) server_fixture_tick(&fixture);
}

/* Four connections that pipelined `config` had the loop copy and write up to 16 MiB in a tick. */
static void of_long_answers_one_is_written_in_a_tick_over_all_connections(void **state)
{
    (void)state;
    enum { EACH = 2 };
    ask_for_config(EACH);
    for (uint64_t ticket = 1; ticket <= N_ADMINS * EACH; ticket++) end_ticket(ticket, ANSWER_BYTES);
    size_t n_answers = 0;
    for (int ticks = 0; n_answers < N_ADMINS * EACH; ticks++) {
        assert_true(ticks < 20);
        server_fixture_tick(&fixture);
        size_t n_bytes = 0;
        for (int i = 0; i < N_ADMINS; i++) n_bytes += n_bytes_of(&admins[i]);
        assert_true(n_bytes < ANSWER_BYTES * 2);
        n_answers += n_bytes / ANSWER_BYTES;
    }
}

static void an_answer_is_freed_with_the_last_connection_that_waits_for_it(void **state)
{
    (void)state;
    ask_for_config(1);
    for (uint64_t ticket = 1; ticket <= N_ADMINS; ticket++) end_ticket(ticket, ANSWER_BYTES);
    for (int i = 0; i < N_ADMINS; i++) client_close(&admins[i]);
    server_fixture_ticks(&fixture, 5);
    end_ticket(1, ANSWER_BYTES); /* nobody waits for it any more */
}

static void what_waits_for_its_tick_is_refused_by_a_drain(void **state)
{
    (void)state;
    ask_for_config(2);
    for (uint64_t ticket = 1; ticket <= N_ADMINS; ticket++) end_ticket(ticket, ANSWER_BYTES);
    server_fixture_drain(&fixture, 1000);
    for (int i = 0; i < N_ADMINS; i++) {
        client_answer(&admins[i], &heard);
        assert_string_equal(heard.error, "SHUTTING_DOWN: the daemon is stopping; the file is not read any more");
    }
}

static void an_answer_without_memory_is_an_error_at_once(void **state)
{
    (void)state;
    ask_for_config(1);
    end_ticket(1, 0);
    struct buffer result;
    buffer_init(&result, 0);
    assert_int_equal(buffer_append(&result, "\xc0", 1), 0);
    mem_fail_nth(1);
    server_answer_late(fixture.server, 2, &result);
    mem_fail_nth(0);
    buffer_fini(&result);
    server_fixture_ticks(&fixture, 2);
    size_t n = 0;
    for (int i = 0; i < N_ADMINS; i++) n += n_bytes_of(&admins[i]) > 0;
    assert_int_equal(n, 2);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(connections_that_are_readable_at_once_are_read_a_few_at_a_time),
        CASE(a_connection_that_waits_for_its_read_is_read_although_others_ask_all_the_time),
        CASE(connections_that_wait_for_their_read_can_close_and_drain),
        CASE(of_long_answers_one_is_written_in_a_tick_over_all_connections),
        CASE(an_answer_is_freed_with_the_last_connection_that_waits_for_it),
        CASE(what_waits_for_its_tick_is_refused_by_a_drain),
        CASE(an_answer_without_memory_is_an_error_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
