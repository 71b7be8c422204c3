/* test_session.c: bytes in, answers out: the flow of one connection, on a real socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine_counters.h"
#include "fakes/server_fixture.h"
#include "server/server_counters.h"
#include "server/session.h"

static struct server_fixture fixture;
static struct client client;
static struct heard heard;

static int set_up(void **state)
{
    (void)state;
    server_fixture_open_memory(&fixture, &server_fixture_options);
    client_open(&client, &fixture);
    return 0;
}

static int set_up_scripted(void **state)
{
    (void)state;
    server_fixture_open(&fixture, &server_fixture_options);
    client_open(&client, &fixture);
    return 0;
}

/* The scripted store, and a small cap on what may be in flight and unread. */
static int set_up_tight(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    options.max_inflight_per_connection = 8;
    options.max_output = 64 * 1024;
    server_fixture_open(&fixture, &options);
    client_open(&client, &fixture);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    client_close(&client);
    server_fixture_close(&fixture);
    return 0;
}

static void ask_check(uint64_t msgid)
{
    client_ask(&client, msgid, "check", 2, "ss", "api", "k");
}

static void assert_pong(uint64_t msgid)
{
    struct slice text;
    client_answer(&client, &heard);
    assert_int_equal(heard.msgid, msgid);
    assert_int_equal(pull_text(&heard.result, &text), 0);
    assert_true(slice_is(text, "pong"));
}

static void a_check_is_charged_until_the_limit(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        client_ask(&client, (uint64_t)i, "check", 2, "ss", "login", "alice");
        client_answer(&client, &heard);
        struct heard_decision decision = heard_decision(&heard.result);
        assert_int_equal(decision.allowed, i < 5);
        assert_int_equal(decision.remaining, i < 5 ? 4 - i : 0);
        assert_string_equal(decision.source, "memory");
        assert_int_equal(decision.n_fields, 7);
    }
}

static void msgids_are_echoed_as_they_came(void **state)
{
    (void)state;
    static const uint64_t msgids[] = {0, 127, 128, 65536, UINT64_C(1) << 32, UINT64_MAX};
    for (size_t i = 0; i < sizeof msgids / sizeof msgids[0]; i++) {
        client_ask(&client, msgids[i], "ping", 0, "");
        assert_pong(msgids[i]);
    }
}

static void requests_in_one_write_are_all_answered(void **state)
{
    (void)state;
    struct buffer out;
    buffer_init(&out, 0);
    for (unsigned i = 0; i < 2000; i++) client_build(&out, i, "ping", 0, "");
    assert_int_equal(client_send(&client, buffer_data(&out), buffer_len(&out)), buffer_len(&out));
    buffer_fini(&out);
    for (unsigned i = 0; i < 2000; i++) assert_pong(i);
    assert_int_equal(server_counters.requests, 2000);
}

static void a_request_may_come_byte_by_byte(void **state)
{
    (void)state;
    struct buffer out;
    buffer_init(&out, 0);
    client_build(&out, 1, "check", 3, "ssi", "api", "somebody", 3);
    client_build(&out, 2, "ping", 0, "");
    for (size_t i = 0; i < buffer_len(&out); i++) assert_int_equal(client_send(&client, buffer_data(&out) + i, 1), 1);
    buffer_fini(&out);
    client_answer(&client, &heard);
    assert_int_equal(heard_decision(&heard.result).remaining, 1000000 - 3);
    assert_pong(2);
}

static void requests_may_be_cut_anywhere(void **state)
{
    (void)state;
    struct buffer out;
    buffer_init(&out, 0);
    for (unsigned i = 0; i < 3; i++) client_build(&out, i, "check", 3, "sbi", "api", "somebody", 70000);
    for (size_t cut = 1; cut < buffer_len(&out); cut++) {
        client_send(&client, buffer_data(&out), cut);
        client_send(&client, buffer_data(&out) + cut, buffer_len(&out) - cut);
        for (unsigned i = 0; i < 3; i++) {
            client_answer(&client, &heard);
            assert_int_equal(heard.msgid, i);
            assert_string_equal(heard.error, "");
        }
    }
    buffer_fini(&out);
}

static void answers_come_in_the_order_the_store_gives_them(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) ask_check(i);
    assert_int_equal(fixture.engine.scripted.n_held, 3);
    for (unsigned i = 0; i < 3; i++) scripted_end(&fixture.engine.scripted, 2 - i, OP_DECIDED);
    for (unsigned i = 0; i < 3; i++) {
        client_answer(&client, &heard);
        assert_int_equal(heard.msgid, 2 - i);
    }
}

static void what_is_answered_now_overtakes_what_waits_for_the_store(void **state)
{
    (void)state;
    ask_check(1);
    client_ask(&client, 2, "ping", 0, "");
    assert_pong(2);
    scripted_end(&fixture.engine.scripted, 0, OP_DECIDED);
    client_answer(&client, &heard);
    assert_int_equal(heard.msgid, 1);
}

static void a_tick_writes_once(void **state)
{
    (void)state;
    uint8_t bytes[4096];
    for (unsigned i = 0; i < 5; i++) ask_check(i);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    assert_int_equal(recv(client.fd, bytes, sizeof bytes, MSG_PEEK), -1); /* nothing before the tick ends */
    server_tick_end(fixture.server);
    ssize_t n = recv(client.fd, bytes, sizeof bytes, 0);
    assert_true(n > 0 && n % 5 == 0);
}

static void equal_msgids_get_an_answer_each(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) client_ask(&client, 9, "ping", 0, "");
    for (unsigned i = 0; i < 3; i++) assert_pong(9);
}

static void a_half_close_is_answered_first(void **state)
{
    (void)state;
    ask_check(1);
    ask_check(2);
    client_half_close(&client);
    server_fixture_ticks(&fixture, 5);
    assert_int_equal(fixture.engine.scripted.n_held, 2);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&client, &heard);
    client_answer(&client, &heard);
    assert_int_equal(heard.msgid, 2);
    assert_true(client_is_closed(&client));
    assert_int_equal(server_counters.connections, 0);
}

static void a_half_close_within_a_message_drops_it(void **state)
{
    (void)state;
    client_ask(&client, 1, "ping", 0, "");
    client_send(&client, "\x94\x00\x02\xa4pi", 6);
    client_half_close(&client);
    assert_pong(1);
    assert_true(client_is_closed(&client));
}

static void a_client_that_leaves_lets_its_checks_go(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) ask_check(i);
    client_close(&client);
    server_fixture_ticks(&fixture, 5);
    assert_int_equal(server_counters.connections, 0);
    assert_int_equal(engine_counters.inflight, 0);
    assert_int_equal(engine_n_live(fixture.engine.engine), 3); /* the store's until it answers */
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    assert_int_equal(engine_n_live(fixture.engine.engine), 0);
}

static void a_client_that_leaves_before_its_answer_is_written_is_no_harm(void **state)
{
    (void)state;
    ask_check(1);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED); /* in the output buffer now */
    client_close(&client);
    server_fixture_ticks(&fixture, 5);
    assert_int_equal(server_counters.connections, 0);
}

static void a_client_may_leave_without_a_word(void **state)
{
    (void)state;
    server_fixture_ticks(&fixture, 3);
    assert_int_equal(server_counters.connections, 1);
    client_close(&client);
    server_fixture_ticks(&fixture, 3);
    assert_int_equal(server_counters.connections, 0);
}

static void reading_pauses_at_the_cap_in_flight_and_goes_on_at_half(void **state)
{
    (void)state;
    struct buffer out;
    buffer_init(&out, 0);
    for (unsigned i = 0; i < 20; i++) client_build(&out, i, "check", 2, "ss", "api", "k");
    client_send(&client, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
    server_fixture_ticks(&fixture, 5);
    assert_int_equal(fixture.engine.scripted.n_held, 8);
    assert_int_equal(server_counters.read_pauses, 1);
    for (int i = 0; i < 3; i++) scripted_end(&fixture.engine.scripted, 0, OP_DECIDED);
    server_fixture_ticks(&fixture, 5);
    assert_int_equal(fixture.engine.scripted.n_held, 5); /* not yet half */
    scripted_end(&fixture.engine.scripted, 0, OP_DECIDED);
    server_fixture_ticks(&fixture, 5);
    assert_int_equal(fixture.engine.scripted.n_held, 8); /* four, and four more */
    for (int i = 0; i < 20; i++) {
        scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
        server_fixture_ticks(&fixture, 2);
    }
    for (unsigned i = 0; i < 20; i++) {
        client_answer(&client, &heard);
        assert_int_equal(heard.msgid, i);
    }
}

static void a_list_beyond_the_cap_is_taken_whole(void **state)
{
    (void)state;
    struct buffer out;
    uint32_t n;
    buffer_init(&out, 0);
    struct packer packer = packer_of(&out);
    rpc_pack_request(&packer, 1, "check_many", 1);
    pack_array(&packer, 50);
    for (int i = 0; i < 50; i++) {
        pack_array(&packer, 2);
        pack_text(&packer, "api");
        pack_text(&packer, "k");
    }
    client_send(&client, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
    client_ask(&client, 2, "ping", 0, "");
    server_fixture_ticks(&fixture, 5);
    assert_int_equal(fixture.engine.scripted.n_held, 50);
    assert_int_equal(client_hear(&client, &heard), 0); /* the ping waits: reading has paused */
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&client, &heard);
    assert_int_equal(pull_array(&heard.result, &n), 0);
    assert_int_equal(n, 50);
    assert_pong(2);
}

/* Fill the socket's buffers with answers that the client does not read. */
static void flood_unread(unsigned n)
{
    struct buffer out;
    buffer_init(&out, 0);
    client.is_reading = false;
    for (unsigned i = 0; i < n; i++) client_build(&out, i, "stats", 0, "");
    client_send(&client, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
    server_fixture_ticks(&fixture, 200);
}

static void a_client_that_does_not_read_is_not_read_from(void **state)
{
    (void)state;
    flood_unread(5000);
    uint64_t answered = server_counters.requests;
    assert_true(answered < 1000); /* as many as the kernel and half of max_output hold */
    server_fixture_ticks(&fixture, 50);
    assert_int_equal(server_counters.requests, answered);
    assert_int_equal(server_counters.connections, 1);
    client.is_reading = true;
    for (unsigned i = 0; i < 5000; i++) {
        client_answer(&client, &heard);
        assert_int_equal(heard.msgid, i);
    }
}

static void a_client_that_never_reads_is_closed_in_time(void **state)
{
    (void)state;
    flood_unread(5000);
    server_sweep(fixture.server);
    fixture.engine.clock.mono_us += 4999000;
    server_sweep(fixture.server);
    server_fixture_ticks(&fixture, 2);
    assert_int_equal(server_counters.connections, 1);
    fixture.engine.clock.mono_us += 1000;
    server_sweep(fixture.server);
    server_fixture_ticks(&fixture, 2);
    assert_int_equal(server_counters.connections, 0);
    assert_int_equal(server_counters.connections_closed_slow, 1);
}

static void a_client_that_reads_now_and_then_is_not_closed(void **state)
{
    (void)state;
    uint8_t bytes[4096];
    flood_unread(5000);
    for (int i = 0; i < 10; i++) {
        fixture.engine.clock.mono_us += 3000000;
        assert_true(recv(client.fd, bytes, sizeof bytes, 0) > 0);
        while (recv(client.fd, bytes, sizeof bytes, 0) > 0) continue;
        server_fixture_ticks(&fixture, 20);
        server_sweep(fixture.server);
    }
    server_fixture_ticks(&fixture, 2);
    assert_int_equal(server_counters.connections, 1);
    assert_int_equal(server_counters.connections_closed_slow, 0);
}

/* Checks in flight and a socket that is full: each tick adds answers to what is unread already. */
static void a_client_that_reads_is_not_closed_while_a_large_answer_is_written(void **state)
{
    (void)state;
    enum { N = 9000 };
    struct buffer out;
    struct server_options options = server_fixture_options;
    options.max_output = 16 * 1024;
    options.max_inflight_per_connection = 10000;
    server_set_options(fixture.server, &options);

    buffer_init(&out, 0);
    for (unsigned i = 0; i < N; i++) client_build(&out, i, "check", 2, "ss", "api", "k");
    client.is_reading = false;
    client_send(&client, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
    server_fixture_ticks(&fixture, 100);
    assert_int_equal(fixture.engine.scripted.n_held, N);

    while (fixture.engine.scripted.n_held > 0) {
        for (int i = 0; i < 100 && fixture.engine.scripted.n_held > 0; i++)
            scripted_end(&fixture.engine.scripted, 0, OP_DECIDED);
        server_fixture_ticks(&fixture, 2);
    }
    assert_int_equal(send(client.fd, "\x94\x00\x01\xa4ping\x90", 9, MSG_NOSIGNAL), 9);
    server_fixture_ticks(&fixture, 5);
    assert_int_equal(server_counters.requests, N); /* nothing more is read from it */
    assert_int_equal(server_counters.connections_closed_slow, 0);

    client.is_reading = true;
    for (unsigned i = 0; i < N; i++) {
        client_answer(&client, &heard);
        assert_int_equal(heard.msgid, i);
    }
    assert_pong(1);
}

static void a_flood_does_not_starve_another_client(void **state)
{
    (void)state;
    struct client other;
    struct buffer out;
    client_open(&other, &fixture);
    server_fixture_ticks(&fixture, 2);
    buffer_init(&out, 0);
    for (unsigned i = 0; i < 4000; i++) client_build(&out, i, "ping", 0, "");
    ssize_t n = send(client.fd, buffer_data(&out), buffer_len(&out), 0); /* all at once, no tick in between */
    assert_int_equal(n, buffer_len(&out));
    buffer_fini(&out);
    assert_int_equal(send(other.fd, "\x94\x00\x01\xa4ping\x90", 9, 0), 9);
    server_fixture_ticks(&fixture, 2);
    assert_true(server_counters.requests <= 2 * 256 + 256 + 1);
    assert_int_equal(recv(other.fd, heard.bytes, sizeof heard.bytes, 0), 9); /* answered within two ticks */
    for (unsigned i = 0; i < 4000; i++) assert_pong(i);
    client_close(&other);
}

static void an_idle_connection_is_closed_after_the_timeout(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    options.idle_timeout_ms = 1000;
    server_set_options(fixture.server, &options);
    client_ask(&client, 1, "ping", 0, "");
    assert_pong(1);
    fixture.engine.clock.mono_us += 999000;
    server_sweep(fixture.server);
    client_ask(&client, 2, "ping", 0, ""); /* begins the time again */
    assert_pong(2);
    fixture.engine.clock.mono_us += 999000;
    server_sweep(fixture.server);
    assert_int_equal(server_counters.connections_closed_idle, 0);
    client_send(&client, "\x94", 1); /* part of a message asks nothing */
    fixture.engine.clock.mono_us += 1000;
    server_sweep(fixture.server);
    assert_true(client_is_closed(&client));
    assert_int_equal(server_counters.connections_closed_idle, 1);
}

static void a_connection_that_waits_for_the_store_is_not_idle(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    options.idle_timeout_ms = 1000;
    server_set_options(fixture.server, &options);
    ask_check(1);
    fixture.engine.clock.mono_us += 5000000;
    server_sweep(fixture.server);
    server_fixture_ticks(&fixture, 2);
    assert_int_equal(server_counters.connections, 1);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&client, &heard);
}

static void descriptors_that_a_client_attaches_do_not_arrive(void **state)
{
    (void)state;
    char control[CMSG_SPACE(sizeof(int) * 16)] = {0};
    uint8_t ping[] = "\x94\x00\x01\xa4ping\x90";
    struct iovec iov = {.iov_base = ping, .iov_len = 9};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * 16);
    for (size_t i = 0; i < 16; i++) memcpy(CMSG_DATA(header) + i * sizeof(int), &client.fd, sizeof(int));
    server_fixture_ticks(&fixture, 2);
    int before = dup(0);
    assert_int_equal(sendmsg(client.fd, &message, 0), 9);
    assert_pong(1);
    int after = dup(0);
    assert_int_equal(after, before + 1); /* only `before` is open since */
    close(before);
    close(after);
}

static void an_idle_connection_holds_less_than_two_kilobytes(void **state)
{
    (void)state;
    assert_true(sizeof(struct session) < 2048);
}

#define TEST(name)          cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_SCRIPTED(name) cmocka_unit_test_setup_teardown(name, set_up_scripted, tear_down)
#define TEST_TIGHT(name)    cmocka_unit_test_setup_teardown(name, set_up_tight, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_check_is_charged_until_the_limit),
        TEST(msgids_are_echoed_as_they_came),
        TEST(requests_in_one_write_are_all_answered),
        TEST(a_request_may_come_byte_by_byte),
        TEST(requests_may_be_cut_anywhere),
        TEST_SCRIPTED(answers_come_in_the_order_the_store_gives_them),
        TEST_SCRIPTED(what_is_answered_now_overtakes_what_waits_for_the_store),
        TEST_SCRIPTED(a_tick_writes_once),
        TEST(equal_msgids_get_an_answer_each),
        TEST_SCRIPTED(a_half_close_is_answered_first),
        TEST(a_half_close_within_a_message_drops_it),
        TEST_SCRIPTED(a_client_that_leaves_lets_its_checks_go),
        TEST_SCRIPTED(a_client_that_leaves_before_its_answer_is_written_is_no_harm),
        TEST(a_client_may_leave_without_a_word),
        TEST_TIGHT(reading_pauses_at_the_cap_in_flight_and_goes_on_at_half),
        TEST_TIGHT(a_list_beyond_the_cap_is_taken_whole),
        TEST_TIGHT(a_client_that_does_not_read_is_not_read_from),
        TEST_TIGHT(a_client_that_never_reads_is_closed_in_time),
        TEST_TIGHT(a_client_that_reads_now_and_then_is_not_closed),
        TEST_SCRIPTED(a_client_that_reads_is_not_closed_while_a_large_answer_is_written),
        TEST(a_flood_does_not_starve_another_client),
        TEST(an_idle_connection_is_closed_after_the_timeout),
        TEST_SCRIPTED(a_connection_that_waits_for_the_store_is_not_idle),
        TEST(descriptors_that_a_client_attaches_do_not_arrive),
        TEST(an_idle_connection_holds_less_than_two_kilobytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
