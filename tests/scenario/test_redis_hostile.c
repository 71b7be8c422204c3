/* test_redis_hostile.c: bytes that no honest server sends: all of them end the connection, never the process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/link_fixture.h"
#include "redis/counters.h"

static const char *reply; /* the fake, to each EVALSHA but the canary; NULL = nothing */
static size_t reply_len;

/* The canary is answered well; what comes after it gets `reply` and, without one, nothing. */
static void misbehave(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    unsigned nonce = fake_nonce(args, n);
    if (nonce == CANARY_NONCE)
        fake_reply(client, "*2\r\n:7\r\n:42\r\n");
    else if (reply != NULL)
        fake_reply_bytes(client, reply, reply_len);
    (void)fake;
}

static void after_ready_the_server_sends(const char *bytes, size_t len)
{
    reply = bytes;
    reply_len = len;
    fake_redis_init(&fixture->fake, &fixture->patient.loop, LINK_FIXTURE_SHA1, misbehave);
    link_fixture_open(fixture->fake.address);
    link_fixture_until(is_ready);
    (void)link_fixture_probe();
    link_fixture_until(is_down);
    link_fixture_until(all_answered);
    reply = NULL;
    link_fixture_until(is_ready); /* and it comes back */
    link_fixture_close();
    fake_redis_close(&fixture->fake);
}

#define AFTER_READY_THE_SERVER_SENDS(text) after_ready_the_server_sends(text, sizeof(text) - 1)

static void a_reply_that_nobody_waits_for_closes_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SENDS("*2\r\n:7\r\n:1000\r\n+EXTRA\r\n");
    assert_true(fixture->probes[0].is_good);
    assert_int_equal(redis_counters.redis_bad_replies, 1);
}

static void extra_replies_of_every_type_close_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SENDS(":1\r\n*0\r\n");
    assert_int_equal(redis_counters.redis_bad_replies, 1);
}

static void an_extra_array_an_extra_error_and_an_extra_nil_close_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SENDS(":1\r\n-ERR extra\r\n$-1\r\n");
}

static void deep_nesting_closes_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SENDS("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n");
    assert_true(fixture->probes[0].is_lost);
    assert_int_equal(redis_counters.redis_bad_replies, 1);
}

static void an_array_of_too_many_closes_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SENDS("*8193\r\n");
}

static void garbage_closes_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SENDS("\x16\x03\x01 this is no Redis\r\n");
}

static void an_http_answer_closes_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SENDS("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
}

static void a_push_and_a_map_close_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SENDS(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n%1\r\n:1\r\n:2\r\n");
    assert_true(fixture->probes[0].is_lost);
}

static void a_double_and_a_boolean_close_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SENDS(",3.14\r\n#t\r\n");
}

static void half_a_reply_is_a_stall(void **state)
{
    (void)state;
    fixture->options.stall_ms = 250;
    AFTER_READY_THE_SERVER_SENDS("*2\r\n:7\r\n:10");
    assert_int_equal(redis_counters.redis_stalls, 1);
}

static void a_huge_bulk_closes_the_connection_before_it_is_buffered(void **state)
{
    (void)state;
    enum { SIZE = 4 * 1024 * 1024 };
    char *bytes = calloc(1, SIZE);
    memcpy(bytes, "$1000000000\r\n", 13);
    after_ready_the_server_sends(bytes, SIZE);
    assert_int_equal(redis_counters.redis_stalls, 0);
    assert_int_equal(redis_counters.redis_bad_replies, 1);
    free(bytes);
}

static void hang_up(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake;
    if (fake_nonce(args, n) == CANARY_NONCE) {
        fake_reply(client, "*2\r\n:7\r\n:42\r\n");
        return;
    }
    fake_reply(client, "*2\r\n:7");
    fake_hang_up(client);
}

static void a_connection_cut_inside_a_reply_loses_the_call_once(void **state)
{
    (void)state;
    fake_redis_init(&fixture->fake, &fixture->patient.loop, LINK_FIXTURE_SHA1, hang_up);
    link_fixture_open(fixture->fake.address);
    link_fixture_until(is_ready);
    (void)link_fixture_probe();
    link_fixture_until(is_down);
    assert_true(fixture->probes[0].is_lost);
    link_fixture_close();
    fake_redis_close(&fixture->fake);
}

static void say_nothing(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)client, (void)args, (void)n;
}

static void a_server_that_accepts_and_hangs_is_given_up_in_time(void **state)
{
    (void)state;
    fake_redis_init(&fixture->fake, &fixture->patient.loop, LINK_FIXTURE_SHA1, say_nothing);
    link_fixture_open(fixture->fake.address);
    link_fixture_until(had_attempt);
    link_fixture_status_has("no answer in time");
    link_fixture_close();
    fake_redis_close(&fixture->fake);
}

static void say_hello_and_leave(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)args, (void)n;
    fake_reply(client, "*4\r\n$5\r\nproto\r\n:2\r\n$4\r\nrole\r\n$6\r\nmaster\r\n");
    fake_hang_up(client);
}

/* The server leaves without having read the script, so the socket has an answer and an error at once. The error was
 * overlooked, and the attempt waited for OPEN_MS. */
static void a_connection_reset_behind_an_answer_of_the_handshake_ends_at_once(void **state)
{
    (void)state;
    enum { SCRIPT_LEN = 100 * 1000 }; /* more than the fake reads at once */
    char *script = malloc(SCRIPT_LEN + 1);
    memset(script, '-', SCRIPT_LEN);
    script[SCRIPT_LEN] = '\0';
    fixture->script.text = slice_of(script);
    fake_redis_init(&fixture->fake, &fixture->patient.loop, LINK_FIXTURE_SHA1, misbehave);
    fixture->fake.on_hello = say_hello_and_leave;
    link_fixture_open(fixture->fake.address);
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("Connection reset by peer");
    link_fixture_close();
    fake_redis_close(&fixture->fake);
    free(script);
}

static void say_wrong_digest(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)args, (void)n;
    fake_reply(client, "$40\r\n0000000000000000000000000000000000000000\r\n");
}

static void a_digest_that_is_not_ours_is_refused(void **state)
{
    (void)state;
    fake_redis_init(&fixture->fake, &fixture->patient.loop, LINK_FIXTURE_SHA1, misbehave);
    fixture->fake.on_load = say_wrong_digest;
    link_fixture_open(fixture->fake.address);
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("another digest");
    assert_int_equal(fixture->n_ready, 0);
    link_fixture_close();
    fake_redis_close(&fixture->fake);
}

static void say_busy(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)args, (void)n;
    fake_reply(client, "-BUSY Redis is busy running a script.\r\n");
}

static void a_server_whose_hello_is_fine_but_whose_scripts_are_not_is_not_ready(void **state)
{
    (void)state;
    fake_redis_init(&fixture->fake, &fixture->patient.loop, LINK_FIXTURE_SHA1, say_busy);
    link_fixture_open(fixture->fake.address);
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("BUSY");
    assert_int_equal(fixture->n_ready, 0);
    link_fixture_close();
    fake_redis_close(&fixture->fake);
}

static void hello_is_unknown(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)n;
    if (slice_is(args[0], "HELLO"))
        fake_reply(client, "-ERR unknown command 'HELLO'\r\n");
    else
        fake_reply(client, "+OK\r\n");
}

static void a_server_without_hello_is_asked_the_old_way(void **state)
{
    (void)state;
    fixture->options.password = "secret";
    fake_redis_init(&fixture->fake, &fixture->patient.loop, LINK_FIXTURE_SHA1, misbehave);
    fixture->fake.on_hello = hello_is_unknown;
    link_fixture_open(fixture->fake.address);
    link_fixture_until(is_ready);
    assert_int_equal(fixture->n_attempts, 2);
    link_fixture_close();
    fake_redis_close(&fixture->fake);
}

/* What Redis says of an unknown command are its arguments. */
static void neither_is_known(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)n;
    fake_reply(client, "-ERR unknown command '%.*s', with args beginning with: '2' 'AUTH' 'default' 'secret' \r\n",
               (int)args[0].len, (const char *)args[0].data);
}

static void an_unknown_command_does_not_show_the_password(void **state)
{
    (void)state;
    fixture->options.password = "secret";
    fake_redis_init(&fixture->fake, &fixture->patient.loop, LINK_FIXTURE_SHA1, misbehave);
    fixture->fake.on_hello = neither_is_known;
    link_fixture_open(fixture->fake.address);
    link_fixture_until(had_attempt);
    link_fixture_status_has("HELLO: unknown command");
    assert_null(strstr(redis_link_status(fixture->link), "secret"));
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("AUTH: unknown command");
    assert_null(strstr(redis_link_status(fixture->link), "secret"));
    link_fixture_close();
    fake_redis_close(&fixture->fake);
}

static void say_modules(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)args, (void)n;
    fake_reply(client, "*6\r\n$5\r\nproto\r\n:2\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n"
                       "*1\r\n*4\r\n$4\r\nname\r\n$2\r\nbf\r\n$4\r\nargs\r\n*1\r\n$1\r\nx\r\n");
}

static void a_server_with_modules_is_fine(void **state)
{
    (void)state;
    fake_redis_init(&fixture->fake, &fixture->patient.loop, LINK_FIXTURE_SHA1, misbehave);
    fixture->fake.on_hello = say_modules;
    link_fixture_open(fixture->fake.address);
    link_fixture_until(is_ready);
    link_fixture_close();
    fake_redis_close(&fixture->fake);
}

static void say_http(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)args, (void)n;
    fake_reply(client, "HTTP/1.1 400 Bad Request\r\n\r\n");
}

static void a_web_server_is_no_redis(void **state)
{
    (void)state;
    fake_redis_init(&fixture->fake, &fixture->patient.loop, LINK_FIXTURE_SHA1, misbehave);
    fixture->fake.on_hello = say_http;
    link_fixture_open(fixture->fake.address);
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("Protocol error");
    link_fixture_close();
    fake_redis_close(&fixture->fake);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, link_fixture_setup, link_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_reply_that_nobody_waits_for_closes_the_connection),
        TEST(extra_replies_of_every_type_close_the_connection),
        TEST(an_extra_array_an_extra_error_and_an_extra_nil_close_the_connection),
        TEST(deep_nesting_closes_the_connection),
        TEST(an_array_of_too_many_closes_the_connection),
        TEST(garbage_closes_the_connection),
        TEST(an_http_answer_closes_the_connection),
        TEST(a_push_and_a_map_close_the_connection),
        TEST(a_double_and_a_boolean_close_the_connection),
        TEST(half_a_reply_is_a_stall),
        TEST(a_huge_bulk_closes_the_connection_before_it_is_buffered),
        TEST(a_connection_cut_inside_a_reply_loses_the_call_once),
        TEST(a_server_that_accepts_and_hangs_is_given_up_in_time),
        TEST(a_connection_reset_behind_an_answer_of_the_handshake_ends_at_once),
        TEST(a_digest_that_is_not_ours_is_refused),
        TEST(a_server_whose_hello_is_fine_but_whose_scripts_are_not_is_not_ready),
        TEST(a_server_without_hello_is_asked_the_old_way),
        TEST(an_unknown_command_does_not_show_the_password),
        TEST(a_server_with_modules_is_fine),
        TEST(a_web_server_is_no_redis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
