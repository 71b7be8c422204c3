/* test_session.c: bytes in, answers out: the flow of one connection, on a real socket. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/counters.h"
#include "fakes/server_world.h"

static struct server_world world;
static struct client client;
static struct heard heard;

static int set_up(void **state)
{
    (void)state;
    server_world_open_memory(&world, &server_world_options);
    client_open(&client, &world);
    return 0;
}

static int set_up_scripted(void **state)
{
    (void)state;
    server_world_open(&world, &server_world_options);
    client_open(&client, &world);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    client_close(&client);
    server_world_close(&world);
    return 0;
}

static void ping_is_answered(void **state)
{
    (void)state;
    struct slice text;
    client_ask(&client, 7, "ping", 0, "");
    client_answer(&client, &heard);
    assert_true(heard.has_msgid && heard.msgid == 7);
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

static void answers_come_in_the_order_the_store_gives_them(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) client_ask(&client, i, "check", 2, "ss", "api", "k");
    assert_int_equal(world.engine.scripted.n_held, 3);
    for (unsigned i = 0; i < 3; i++) scripted_end(&world.engine.scripted, 2 - i, OP_DECIDED);
    for (unsigned i = 0; i < 3; i++) {
        client_answer(&client, &heard);
        assert_int_equal(heard.msgid, 2 - i);
    }
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ping_is_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_check_is_charged_until_the_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(answers_come_in_the_order_the_store_gives_them, set_up_scripted, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
