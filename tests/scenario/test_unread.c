/* test_unread.c: answers that clients leave unread, of all connections together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "fakes/server_fixture.h"
#include "server/server_counters.h"

enum {
    N_DEAF = 8,
    MAX_TOTAL = 300 * 1024,
    SHARE = 128 * 1024, /* what one connection leaves unread before it is not read from by itself */
};

static struct server_fixture fixture;
static struct client reader, deaf[N_DEAF];
static struct heard heard;

static int set_up(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    options.max_output = 2 * SHARE;
    options.max_output_total = MAX_TOTAL;
    server_fixture_open_memory(&fixture, &options);
    client_open(&reader, &fixture);
    for (int i = 0; i < N_DEAF; i++) client_open(&deaf[i], &fixture);
    server_fixture_ticks(&fixture, N_DEAF + 2);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    client_close(&reader);
    for (int i = 0; i < N_DEAF; i++) client_close(&deaf[i]);
    server_fixture_close(&fixture);
    return 0;
}

/* Asks for far more than it may leave unread, and reads nothing. */
static void go_deaf(struct client *client)
{
    struct buffer out;
    buffer_init(&out, 0);
    client->is_reading = false;
    for (unsigned i = 0; i < 5000; i++) client_build(&out, i, "stats", 0, "");
    client_send(client, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
    server_fixture_ticks(&fixture, 100);
}

static size_t take_all(struct client *client)
{
    static uint8_t bytes[65536];
    size_t taken = 0;
    for (ssize_t n; (n = recv(client->fd, bytes, sizeof bytes, 0)) > 0;) taken += (size_t)n;
    return taken;
}

static void unread_answers_of_all_connections_are_bounded_together(void **state)
{
    (void)state;
    enum { ONE_ROUND = 64 * 1024 }; /* what a connection may add before it is seen to have too much */
    for (int i = 0; i < N_DEAF; i++) go_deaf(&deaf[i]);
    assert_true(server_counters.unread_bytes > MAX_TOTAL / 2);
    assert_true(server_counters.unread_bytes <= MAX_TOTAL + 2 * SHARE + N_DEAF * ONE_ROUND);
    uint64_t unread = server_counters.unread_bytes;
    client_assert_served(&reader);
    server_fixture_ticks(&fixture, 100);
    assert_int_equal(server_counters.unread_bytes, unread);
}

static void beyond_the_total_the_longest_stalled_is_closed(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        go_deaf(&deaf[i]);
        fixture.engine.clock.mono_us += 40000;
    }
    assert_true(server_counters.unread_bytes > MAX_TOTAL);
    assert_int_equal(server_counters.connections_closed_unread, 0); /* the first took nothing for less than 100 ms */

    fixture.engine.clock.mono_us += 20000;
    server_fixture_ticks(&fixture, 2);
    assert_int_equal(server_counters.connections_closed_unread, 1);
    assert_true(server_counters.unread_bytes <= MAX_TOTAL);
    take_all(&deaf[0]);
    assert_true(client_is_closed(&deaf[0]));
    client_assert_served(&reader);

    fixture.engine.clock.mono_us += 1000000; /* below the total only write_stall closes */
    server_fixture_ticks(&fixture, 2);
    assert_int_equal(server_counters.connections_closed_unread, 1);
    assert_int_equal(server_counters.connections, N_DEAF);
}

static void a_client_that_takes_some_is_not_the_longest_stalled(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) go_deaf(&deaf[i]);
    fixture.engine.clock.mono_us += 90000;
    assert_true(take_all(&deaf[0]) > 0);
    server_fixture_ticks(&fixture, 20);
    go_deaf(&deaf[3]); /* so that it is still too much */
    assert_true(server_counters.unread_bytes > MAX_TOTAL);
    fixture.engine.clock.mono_us += 20000;
    server_fixture_ticks(&fixture, 2);
    assert_true(server_counters.connections_closed_unread > 0);
    take_all(&deaf[0]);
    server_fixture_ticks(&fixture, 2);
    assert_int_equal(send(deaf[0].fd, "\xc0", 0, MSG_NOSIGNAL), 0);
    take_all(&deaf[1]);
    assert_true(client_is_closed(&deaf[1]));
}

static void a_connection_that_was_held_back_goes_on_once_it_reads(void **state)
{
    (void)state;
    enum { N = 5000 };
    for (int i = 0; i < N_DEAF; i++) go_deaf(&deaf[i]);
    for (int i = 0; i < N_DEAF; i++) deaf[i].is_reading = true;
    for (int i = 0; i < N_DEAF; i++) {
        for (unsigned msgid = 0; msgid < N; msgid++) {
            int rc = client_hear(&deaf[i], &heard);
            if (rc == 0) break; /* the rest of its requests was never sent */
            assert_int_equal(rc, 1);
            assert_int_equal(heard.msgid, msgid);
        }
    }
    assert_int_equal(server_counters.unread_bytes, 0);
    assert_int_equal(server_counters.connections_closed_unread, 0);
    for (int i = 0; i < N_DEAF; i++) assert_int_equal(server_counters.connections, N_DEAF + 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(unread_answers_of_all_connections_are_bounded_together),
        TEST(beyond_the_total_the_longest_stalled_is_closed),
        TEST(a_client_that_takes_some_is_not_the_longest_stalled),
        TEST(a_connection_that_was_held_back_goes_on_once_it_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
