/* test_session_framing.c: bytes that are no messages: the last words, and what comes before them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "fakes/server_fixture.h"
#include "server/server_counters.h"

static struct server_fixture fixture;
static struct client client;
static struct heard heard;

/* A good request, then bytes that lose the framing, and the code of the final error. */
static const struct {
    const char *bytes;
    size_t len;
    const char *code;
} losses[] = {
#define LOSS(text, code)                                                                                               \
    {                                                                                                                  \
        text, sizeof text - 1, code                                                                                    \
    }
    LOSS("\x94\x00\x01\xa4ping\x90\xc1", "BAD_REQUEST"),
    LOSS("\x94\x00\x01\xa4ping\x90GET / HTTP/1.1\r\n", "BAD_REQUEST"),
    LOSS("\x94\x00\x01\xa4ping\x90\x93\x00\x01\xa4ping", "BAD_REQUEST"),         /* three of four */
    LOSS("\x94\x00\x01\xa4ping\x90\x95\x00\x01\xa4ping\x90\x90", "BAD_REQUEST"), /* five */
    LOSS("\x94\x00\x01\xa4ping\x90\x94\x01\x01\xc0\xc0", "BAD_REQUEST"),         /* a response */
    LOSS("\x94\x00\x01\xa4ping\x90\x94\x00\xff\xa4ping\x90", "BAD_REQUEST"),     /* msgid -1 */
    LOSS("\x94\x00\x01\xa4ping\x90\x94\x00\x01\x91\x91\x91\x91\x91\x91\x91\x91\x90\x90", "BAD_REQUEST"), /* too deep */
    LOSS("\x94\x00\x01\xa4ping\x90\xdd\xff\xff\xff\xff", "TOO_LARGE"),
    LOSS("\x94\x00\x01\xa4ping\x90\x94\x00\x01\xa4ping\x91\xdb\xff\xff\xff\xff", "TOO_LARGE"),
#undef LOSS
};

enum { N_LOSSES = sizeof losses / sizeof losses[0] };

static void open_memory(void)
{
    server_fixture_open_memory(&fixture, &server_fixture_options);
}

static void close_fixture(void)
{
    client_close(&client);
    server_fixture_close(&fixture);
}

/* The ping's answer, the last words, the end. */
static void assert_lost(size_t i)
{
    client_answer(&client, &heard);
    assert_string_equal(heard.error, "");
    assert_int_equal(client_hear(&client, &heard), 1);
    assert_false(heard.has_msgid);
    if (strncmp(heard.error, losses[i].code, strlen(losses[i].code)) != 0) fail_msg("%zu: %s", i, heard.error);
    assert_true(client_is_closed(&client));
}

static void lost_framing_is_said_last_wherever_the_bytes_are_cut(void **state)
{
    (void)state;
    open_memory();
    for (size_t i = 0; i < N_LOSSES; i++) {
        for (size_t cut = 1; cut <= losses[i].len; cut++) {
            client_open(&client, &fixture);
            client_send(&client, losses[i].bytes, cut);
            client_send(&client, losses[i].bytes + cut, losses[i].len - cut);
            assert_lost(i);
            client_close(&client);
        }
    }
    client_open(&client, &fixture);
    close_fixture();
    assert_int_equal(server_counters.connections, 0);
}

static void lost_framing_is_said_last_when_the_bytes_come_one_by_one(void **state)
{
    (void)state;
    open_memory();
    for (size_t i = 0; i < N_LOSSES; i++) {
        client_open(&client, &fixture);
        for (size_t at = 0; at < losses[i].len; at++) client_send(&client, losses[i].bytes + at, 1);
        assert_lost(i);
        client_close(&client);
    }
    assert_int_equal(server_counters.connections_closed_broken, N_LOSSES);
    close_fixture();
}

static void what_is_in_flight_is_answered_before_the_last_words(void **state)
{
    (void)state;
    server_fixture_open(&fixture, &server_fixture_options);
    client_open(&client, &fixture);
    client_ask(&client, 1, "check", 2, "ss", "api", "k");
    client_ask(&client, 2, "check", 2, "ss", "api", "k");
    client_send(&client, "\xc1", 1);
    assert_int_equal(client_hear(&client, &heard), 0);
    scripted_end(&fixture.engine.scripted, 1, OP_DECIDED);
    client_answer(&client, &heard);
    assert_int_equal(heard.msgid, 2);
    assert_int_equal(client_hear(&client, &heard), 0);
    scripted_end(&fixture.engine.scripted, 0, OP_DECIDED);
    client_answer(&client, &heard);
    assert_int_equal(client_hear(&client, &heard), 1);
    assert_false(heard.has_msgid);
    assert_true(client_is_closed(&client));
    close_fixture();
}

static void nothing_after_the_fault_is_read(void **state)
{
    (void)state;
    server_fixture_open(&fixture, &server_fixture_options);
    client_open(&client, &fixture);
    client_ask(&client, 1, "check", 2, "ss", "api", "k");
    client_send(&client, "\xc1\x94\x00\x02\xa4ping\x90", 10);
    client_ask(&client, 3, "ping", 0, "");
    assert_int_equal(server_counters.requests, 1);
    close_fixture(); /* with the words unsaid */
}

static void a_drain_amid_a_lost_framing_ends_it(void **state)
{
    (void)state;
    server_fixture_open(&fixture, &server_fixture_options);
    client_open(&client, &fixture);
    client_ask(&client, 1, "check", 2, "ss", "api", "k");
    client_send(&client, "\xc1", 1);
    server_fixture_drain(&fixture, 60000);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&client, &heard);
    assert_int_equal(client_hear(&client, &heard), 1);
    assert_true(client_is_closed(&client));
    assert_int_equal(fixture.n_drained, 1);
    close_fixture();
}

/* A method that is not a text, params that are no list: the request is refused, the connection lives. */
static void a_request_of_the_wrong_shape_is_refused_alone(void **state)
{
    (void)state;
    open_memory();
    client_open(&client, &fixture);
    client_send(&client, "\x94\x00\x05\x07\x90", 5);
    client_answer(&client, &heard);
    assert_int_equal(heard.msgid, 5);
    assert_string_equal(heard.error, "BAD_REQUEST: method: must be a str");
    client_send(&client, "\x94\x00\x06\xa4ping\x07", 9);
    client_answer(&client, &heard);
    assert_int_equal(heard.msgid, 6);
    assert_string_equal(heard.error, "BAD_REQUEST: params: must be a list");
    client_ask(&client, 7, "ping", 0, "");
    client_answer(&client, &heard);
    assert_string_equal(heard.error, "");
    close_fixture();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_framing_is_said_last_wherever_the_bytes_are_cut),
        cmocka_unit_test(lost_framing_is_said_last_when_the_bytes_come_one_by_one),
        cmocka_unit_test(what_is_in_flight_is_answered_before_the_last_words),
        cmocka_unit_test(nothing_after_the_fault_is_read),
        cmocka_unit_test(a_drain_amid_a_lost_framing_ends_it),
        cmocka_unit_test(a_request_of_the_wrong_shape_is_refused_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
