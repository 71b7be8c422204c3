/* test_inline.c: a policy written out in a request: who may, and that it lives as long as a check is about it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/server_fixture.h"
#include "policy/inline_policies.h"

static struct server_fixture fixture;
static struct client client;
static struct heard heard;

static struct inline_policies policies;

static void open_fixture(enum inline_access access)
{
    static const struct policy_defaults defaults = {.deadline_ms = 100, .on_failure = ON_FAILURE_ERROR};
    struct server_options options = server_fixture_options;
    inline_policies_init(&policies);
    assert_int_equal(inline_policies_configure(&policies, 10, defaults), 0);
    options.inline_access = access;
    options.inline_policies = &policies;
    server_fixture_open(&fixture, &options);
    client_open(&client, &fixture);
}

static void close_fixture(void)
{
    client_close(&client);
    server_fixture_close(&fixture);
    inline_policies_fini(&policies);
}

/* All of them, as for a reload. */
static void give_up_policies(void)
{
    inline_policies_configure(&policies, 10, policies.defaults);
    assert_int_equal(policies.n, 0);
}

static void ask(uint64_t msgid)
{
    client_ask(&client, msgid, "check", 2, "{sssssis", 3, "algorithm", "fixed_window", "window", "1s", "limit", 5, "k");
}

static void nobody_may_where_it_is_not_allowed(void **state)
{
    (void)state;
    open_fixture(INLINE_NOBODY);
    ask(1);
    client_answer(&client, &heard);
    assert_non_null(strstr(heard.error, "NOT_PERMITTED: policy: "));
    assert_int_equal(policies.n, 0);
    close_fixture();
}

static void ones_own_user_may_where_only_he_may(void **state)
{
    (void)state;
    open_fixture(INLINE_OWN_USER);
    for (uint64_t msgid = 1; msgid <= 2; msgid++) {
        ask(msgid);
        server_fixture_tick(&fixture);
        scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
        client_answer(&client, &heard);
        assert_string_equal(heard.error, "");
    }
    assert_int_equal(policies.n, 1);
    close_fixture();
}

static void a_refusal_is_answered_and_nothing_is_charged(void **state)
{
    (void)state;
    open_fixture(INLINE_EVERYBODY);
    client_ask(&client, 1, "check", 2, "{sssis", 2, "algorithm", "fixed_window", "limit", 5, "k");
    client_answer(&client, &heard);
    assert_non_null(strstr(heard.error, "BAD_REQUEST: policy.window: is missing"));
    client_ask(&client, 2, "check_many", 1, "[[ss[{sssis", 2, 2, "login", "k", 2, 2, "algorithm", "fixed_window",
               "limit", 5, "k");
    client_answer(&client, &heard);
    assert_non_null(strstr(heard.error, "BAD_REQUEST: checks[1]: policy.window: is missing"));
    assert_int_equal(fixture.engine.scripted.n_submitted, 0);
    close_fixture();
}

static void a_policy_that_was_given_up_lives_until_its_check_is_answered(void **state)
{
    (void)state;
    open_fixture(INLINE_EVERYBODY);
    ask(1);
    server_fixture_tick(&fixture);
    assert_int_equal(fixture.engine.scripted.n_held, 1);
    give_up_policies();
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&client, &heard);
    assert_string_equal(heard.error, "");
    close_fixture();
}

/* The leak check of the whole run sees whether anything does. */
static void a_client_that_leaves_holds_nothing(void **state)
{
    (void)state;
    open_fixture(INLINE_EVERYBODY);
    ask(1);
    server_fixture_tick(&fixture);
    client_close(&client);
    server_fixture_ticks(&fixture, 3);
    give_up_policies();
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_open(&client, &fixture);
    close_fixture();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_may_where_it_is_not_allowed),
        cmocka_unit_test(ones_own_user_may_where_only_he_may),
        cmocka_unit_test(a_refusal_is_answered_and_nothing_is_charged),
        cmocka_unit_test(a_policy_that_was_given_up_lives_until_its_check_is_answered),
        cmocka_unit_test(a_client_that_leaves_holds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
