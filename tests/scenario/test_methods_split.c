/* test_methods_split.c: a check_all over several places of the store, over the wire. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine_counters.h"
#include "fakes/server_fixture.h"

static struct server_fixture fixture;
static struct client client;
static struct heard heard;

static int set_up(void **state)
{
    (void)state;
    scripted_has_places = true;
    server_fixture_open(&fixture, &server_fixture_options);
    client_open(&client, &fixture);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    client_close(&client);
    server_fixture_close(&fixture);
    scripted_has_places = false;
    return 0;
}

static void a_failure_answer_says_so(void **state)
{
    (void)state;
    client_ask(&client, 1, "check_all", 1, "[[ss[ss", 2, 2, "login", "a", 2, "strict", "b");
    scripted_end(&fixture.engine.scripted, 1, OP_DOWN);
    scripted_end(&fixture.engine.scripted, 0, OP_DECIDED);
    client_answer(&client, &heard);
    if (strncmp(heard.error, "STORE_UNAVAILABLE: ", 19) != 0) fail_msg("%s", heard.error);
    assert_int_equal(scripted_held(&fixture.engine.scripted, 0)->kind, OP_REFUND);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    assert_int_equal(engine_n_live(fixture.engine.engine), 0);
}

static void a_request_id_needs_one_place(void **state)
{
    (void)state;
    client_ask(&client, 1, "check_all", 2, "[[ss[ss{ss", 2, 2, "login", "a", 2, "api", "b", 1, "request_id", "x");
    client_answer(&client, &heard);
    assert_int_equal(strncmp(heard.error, "UNSUPPORTED: request_id: ", 25), 0);
    assert_non_null(strstr(heard.error, "put their limits into one policy"));
    assert_int_equal(fixture.engine.scripted.n_submitted, 0);
    assert_int_equal(engine_n_live(fixture.engine.engine), 0);

    client_ask(&client, 2, "check_all", 2, "[[ss[ss{ss", 2, 2, "login", "a", 2, "api", "a", 1, "request_id", "x");
    assert_int_equal(fixture.engine.scripted.n_held, 1);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&client, &heard);
    assert_string_equal(heard.error, "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_failure_answer_says_so),
        TEST(a_request_id_needs_one_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
