/* test_inline.c: a policy written out in a request: who may, and that it lives as long as a check is about it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/policies.h"
#include "fakes/server_world.h"

static struct server_world world;
static struct client client;
static struct heard heard;

/* Whoever makes the policies, here: one that the test can take away. */
static struct policy_set *made;
static enum error_code refusal;
static size_t n_asked, asked_len;

static enum error_code find(void *arg, struct slice map, struct policy_set **ret_set, char *text, size_t size)
{
    assert_ptr_equal(arg, &made);
    n_asked++;
    asked_len = map.len;
    if (refusal != ERROR_NONE) {
        snprintf(text, size, "policy.window: is missing");
        return refusal;
    }
    *ret_set = made;
    return ERROR_NONE;
}

static void open_world(enum inline_access access)
{
    static const struct policy_spec spec = {.name = "inline-1",
                                            .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 5, .window_us = 1000000}}};
    struct server_options options = server_world_options;
    options.inline_access = access;
    options.find_inline = find;
    options.find_inline_arg = &made;
    made = policies_make(&spec, 1);
    n_asked = 0;
    refusal = ERROR_NONE;
    server_world_open(&world, &options);
    client_open(&client, &world);
}

static void close_world(void)
{
    client_close(&client);
    server_world_close(&world);
    policy_set_unref(made);
}

/* check {"limit": 5, "window": "1s"}, "k" */
static void ask(uint64_t msgid)
{
    client_ask(&client, msgid, "check", 2, "{sissb", 2, "limit", 5, "window", "1s", "k");
}

static void nobody_may_where_it_is_not_allowed(void **state)
{
    (void)state;
    open_world(INLINE_NOBODY);
    ask(1);
    client_answer(&client, &heard);
    assert_non_null(strstr(heard.error, "NOT_PERMITTED: policy: "));
    assert_int_equal(n_asked, 0);
    close_world();
}

static void ones_own_user_may_where_only_he_may(void **state)
{
    (void)state;
    open_world(INLINE_OWN_USER);
    for (uint64_t msgid = 1; msgid <= 2; msgid++) {
        ask(msgid);
        server_world_turn(&world);
        scripted_end_all(&world.engine.scripted, OP_DECIDED);
        client_answer(&client, &heard);
        assert_string_equal(heard.error, "");
    }
    assert_int_equal(n_asked, 2);
    assert_int_equal(asked_len, 1 + 6 + 1 + 7 + 3);
    close_world();
}

static void a_refusal_is_answered_and_nothing_is_charged(void **state)
{
    (void)state;
    open_world(INLINE_EVERYBODY);
    refusal = ERROR_BAD_REQUEST;
    ask(1);
    client_answer(&client, &heard);
    assert_string_equal(heard.error, "BAD_REQUEST: policy.window: is missing");
    client_ask(&client, 2, "check_many", 1, "[[ss[{sis", 2, 2, "login", "k", 2, 1, "limit", 5, "k");
    client_answer(&client, &heard);
    assert_string_equal(heard.error, "BAD_REQUEST: checks[1]: policy.window: is missing");
    assert_int_equal(world.engine.scripted.n_submitted, 0);
    close_world();
}

static void a_policy_that_was_given_up_lives_until_its_check_is_answered(void **state)
{
    (void)state;
    open_world(INLINE_EVERYBODY);
    ask(1);
    server_world_turn(&world);
    assert_int_equal(world.engine.scripted.n_held, 1);
    assert_int_equal(made->n_refs, 2);
    policy_set_unref(made);
    made = NULL;
    scripted_end_all(&world.engine.scripted, OP_DECIDED);
    client_answer(&client, &heard);
    assert_string_equal(heard.error, "");
    close_world();
}

static void a_client_that_leaves_holds_nothing(void **state)
{
    (void)state;
    open_world(INLINE_EVERYBODY);
    ask(1);
    server_world_turn(&world);
    client_close(&client);
    server_world_turns(&world, 3);
    scripted_end_all(&world.engine.scripted, OP_DECIDED);
    assert_int_equal(made->n_refs, 1);
    client_open(&client, &world);
    close_world();
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
