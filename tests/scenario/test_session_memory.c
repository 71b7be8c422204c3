/* test_session_memory.c: what a busy server allocates (nothing), and what it does where memory is short (answer or
 * close). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "fakes/server_fixture.h"
#include "server/server_counters.h"

static struct server_fixture fixture;
static struct client client;
static struct heard heard;

/* n checks of keys that repeat, and a check_many, as one write. */
static void build_round(struct buffer *out, unsigned n)
{
    char key[32];
    for (unsigned i = 0; i < n; i++) {
        snprintf(key, sizeof key, "key-%u", i % 50);
        client_build(out, i, "check", 2, "ss", "api", key);
    }
    client_build(out, n, "check_many", 1, "[[ss[ss[ss", 3, 2, "api", "key-0", 2, "api", "key-1", 2, "api", "key-2");
}

static void play_round(const struct buffer *round, unsigned n_answers)
{
    assert_int_equal(client_send(&client, buffer_data(round), buffer_len(round)), buffer_len(round));
    for (unsigned i = 0; i < n_answers; i++) client_answer(&client, &heard);
    buffer_consume(&client.in, buffer_len(&client.in));
}

static void ten_thousand_checks_allocate_nothing(void **state)
{
    (void)state;
    enum { PER_ROUND = 1000, ROUNDS = 10 };
    struct buffer round;
    server_fixture_open_memory(&fixture, &server_fixture_options);
    client_open(&client, &fixture);
    buffer_init(&round, 0);
    build_round(&round, PER_ROUND);
    for (int i = 0; i < 3; i++) play_round(&round, PER_ROUND + 1);
    uint64_t before = mem_n_allocs();
    for (int i = 0; i < ROUNDS; i++) play_round(&round, PER_ROUND + 1);
    assert_int_equal(mem_n_allocs() - before, 0);
    buffer_fini(&round);
    client_close(&client);
    server_fixture_close(&fixture);
}

/* Whole requests, a long key, a list, an error, a long answer, and one that comes in two pieces. */
static void build_a_bit_of_everything(struct buffer *out)
{
    char key[400];
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    client_build(out, 1, "check", 2, "ss", "login", "a");
    client_build(out, 2, "check", 2, "ss", "api", key);
    client_build(out, 3, "check_many", 1, "[[ss[ss", 2, 2, "api", "a", 2, "login", "b");
    client_build(out, 4, "check", 2, "ss", "nope", "a");
    client_build(out, 5, "stats", 0, "");
    client_build(out, 6, "reset", 2, "ss", "login", "a");

    struct packer packer = packer_of(out); /* done in pieces */
    rpc_pack_request(&packer, 7, "check_many", 1);
    pack_array(&packer, 100);
    for (int i = 0; i < 100; i++) {
        pack_array(&packer, 2);
        pack_text(&packer, "api");
        pack_text(&packer, "a");
    }
    client_build(out, 8, "ping", 0, "");
}

enum { N_REQUESTS = 8, CUT = 9 };

/* From accepting to answering, with the n-th allocation failing (0 = none). Returns how many succeeded. */
static uint64_t play_with_failure(const struct buffer *out, uint64_t n)
{
    size_t len = buffer_len(out) - CUT;
    client_open(&client, &fixture);
    uint64_t before = mem_n_allocs();
    mem_fail_nth(n);
    server_fixture_ticks(&fixture, 2);
    if (send(client.fd, buffer_data(out), len, MSG_NOSIGNAL) == (ssize_t)len) {
        server_fixture_ticks(&fixture, 4);
        send(client.fd, buffer_data(out) + len, CUT, MSG_NOSIGNAL);
    }
    for (int i = 0; i < 10; i++) {
        server_fixture_ticks(&fixture, 4);
        scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    }
    mem_fail_nth(0);
    return mem_n_allocs() - before;
}

/* Every answer at most once, and all of them unless the connection was closed. */
static void assert_answered_or_closed(void)
{
    int seen[N_REQUESTS + 1] = {0}, rc;
    while ((rc = client_hear(&client, &heard)) == 1) {
        assert_true(heard.has_msgid && heard.msgid >= 1 && heard.msgid <= N_REQUESTS);
        assert_int_equal(seen[heard.msgid]++, 0);
    }
    for (int i = 1; i <= N_REQUESTS && rc == 0; i++) assert_int_equal(seen[i], 1);
}

/* Somebody else is served afterwards, and nothing was left behind. */
static void assert_recovered(void)
{
    client_close(&client);
    server_fixture_ticks(&fixture, 3);
    client_open(&client, &fixture);
    client_ask(&client, 1, "check", 2, "ss", "api", "k");
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&client, &heard);
    assert_string_equal(heard.error, "");
    client_close(&client);
    server_fixture_ticks(&fixture, 3);
    assert_int_equal(server_counters.connections, 0);
    assert_int_equal(engine_n_live(fixture.engine.engine), 0);
}

static void sweep_failures(void (*open)(struct server_fixture *fixture, const struct server_options *options))
{
    struct buffer out;
    buffer_init(&out, 0);
    build_a_bit_of_everything(&out);
    uint64_t n_allocs = 1;
    for (uint64_t n = 0; n <= n_allocs; n++) {
        open(&fixture, &server_fixture_options);
        uint64_t succeeded = play_with_failure(&out, n);
        if (n == 0) n_allocs = succeeded;
        assert_answered_or_closed();
        assert_recovered();
        server_fixture_close(&fixture);
    }
    assert_true(n_allocs > 5);
    buffer_fini(&out);
}

static void every_failing_allocation_is_answered_or_closes_over_the_memory_store(void **state)
{
    (void)state;
    sweep_failures(server_fixture_open_memory);
}

static void every_failing_allocation_is_answered_or_closes_over_a_slow_store(void **state)
{
    (void)state;
    sweep_failures(server_fixture_open);
}

static void a_server_that_cannot_be_made_leaves_nothing(void **state)
{
    (void)state;
    server_fixture_open(&fixture, &server_fixture_options);
    for (uint64_t n = 1; n <= 2; n++) {
        mem_fail_nth(n);
        assert_null(server_new(&fixture.loop, &fixture.engine.clock, fixture.engine.engine, &server_fixture_options));
    }
    server_fixture_close(&fixture);
}

/* One client after the other, idle after a burst: what the burst needed goes back to the buffer pool. */
static void idle_connections_keep_no_buffers(void **state)
{
    (void)state;
    enum { N = 50 };
    static struct client clients[N];
    struct buffer round;
    server_fixture_open_memory(&fixture, &server_fixture_options);
    buffer_init(&round, 0);
    build_round(&round, 20);
    uint64_t first = 0;
    for (int i = 0; i < N; i++) {
        client_open(&client, &fixture);
        buffer_reserve(&client.in, 65536); /* the test's own, before the counting */
        server_fixture_ticks(&fixture, 2);
        uint64_t before = mem_n_allocs();
        play_round(&round, 21);
        if (i == 0)
            first = mem_n_allocs() - before;
        else
            assert_int_equal(mem_n_allocs() - before, 0); /* the same few buffers for all of them */
        clients[i] = client;
    }
    assert_true(first > 0);
    for (int i = 0; i < N; i++) client_close(&clients[i]);
    buffer_fini(&round);
    server_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_checks_allocate_nothing),
        cmocka_unit_test(idle_connections_keep_no_buffers),
        cmocka_unit_test(every_failing_allocation_is_answered_or_closes_over_the_memory_store),
        cmocka_unit_test(every_failing_allocation_is_answered_or_closes_over_a_slow_store),
        cmocka_unit_test(a_server_that_cannot_be_made_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
