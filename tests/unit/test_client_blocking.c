/*
 * test_client_blocking.c: the blocking client on its own: results, errors, deadlines, fork.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fakes/blocking_fixture.h"

static void a_silent_daemon_costs_no_more_than_the_deadline(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    blocking_fixture_open(&fixture);
    assert_string_equal(ratelimit_error(fixture.client), "no answer by the deadline");
    assert_string_equal(ratelimit_error_code(fixture.client), "");
    blocking_fixture_close(&fixture);
}

static void a_check_and_a_peek_give_the_decision(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision;
    struct rpc_request request;
    blocking_fixture_open(&fixture);
    daemon_answer_allowed(&fixture.daemon, fixture.next_msgid++, 4);
    assert_int_equal(ratelimit_check(fixture.client, "login", "alice", 5, 1, LONG_MS, &decision), RATELIMIT_OK);
    assert_true(decision.allowed);
    assert_int_equal(decision.remaining, 4);
    assert_string_equal(ratelimit_error(fixture.client), "");
    daemon_answer_allowed(&fixture.daemon, fixture.next_msgid++, 3);
    assert_int_equal(ratelimit_peek(fixture.client, "login", "a\0b", 3, 2, LONG_MS, &decision), RATELIMIT_OK);
    assert_int_equal(decision.remaining, 3);
    daemon_expect(&fixture.daemon, "check");
    assert_true(daemon_read(&fixture.daemon, &request));
    struct slice key;
    pull_skip(&request.params);
    assert_int_equal(pull_text(&request.params, &key), 0);
    assert_true(slice_eq(key, (struct slice){(const uint8_t *)"a\0b", 3}));
    blocking_fixture_close(&fixture);
}

static void an_error_of_the_daemon_is_kept_until_the_next_call(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision = {.limit = 4711};
    blocking_fixture_open(&fixture);
    daemon_answer_error(&fixture.daemon, fixture.next_msgid++, ERROR_BAD_KEY, "the key is empty");
    assert_int_equal(ratelimit_check(fixture.client, "login", NULL, 0, 1, LONG_MS, &decision), RATELIMIT_REFUSED);
    assert_string_equal(ratelimit_error(fixture.client), "BAD_KEY: the key is empty");
    assert_string_equal(ratelimit_error_code(fixture.client), "BAD_KEY");
    assert_int_equal(decision.limit, 4711);
    daemon_answer_text(&fixture.daemon, fixture.next_msgid++, "pong");
    assert_int_equal(ratelimit_ping(fixture.client, LONG_MS), RATELIMIT_OK);
    assert_string_equal(ratelimit_error(fixture.client), "");
    assert_string_equal(ratelimit_error_code(fixture.client), "");
    blocking_fixture_close(&fixture);
}

static void answer_decisions(struct blocking_fixture *fixture, uint32_t n)
{
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, fixture->next_msgid++);
    pack_array(&packer, n);
    for (uint32_t i = 0; i < n; i++) daemon_pack_decision(&packer, i % 2 == 0, 4 - i);
    daemon_send(&fixture->daemon, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
}

static void many_checks_get_one_decision_each_or_none_at_all(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decisions[3];
    struct ratelimit_item items[3] = {{"login", "a", 1, 1}, {"login", "b", 1, 2}, {"api", "c", 1, 3}};
    struct rpc_request request;
    uint32_t n;
    blocking_fixture_open(&fixture);
    answer_decisions(&fixture, 3);
    assert_int_equal(ratelimit_check_many(fixture.client, items, 3, LONG_MS, decisions), RATELIMIT_OK);
    assert_true(decisions[0].allowed);
    assert_false(decisions[1].allowed);
    assert_int_equal(decisions[2].remaining, 2);
    assert_true(daemon_read(&fixture.daemon, &request));
    assert_true(slice_is(request.method, "check_many"));
    assert_int_equal(request.n_params, 1);
    assert_int_equal(pull_array(&request.params, &n), 0);
    assert_int_equal(n, 3);
    answer_decisions(&fixture, 2);
    assert_int_equal(ratelimit_check_many(fixture.client, items, 3, LONG_MS, decisions), RATELIMIT_PROTOCOL);
    answer_decisions(&fixture, 0);
    assert_int_equal(ratelimit_check_many(fixture.client, NULL, 0, LONG_MS, NULL), RATELIMIT_OK);
    items[1].policy = NULL;
    assert_int_equal(ratelimit_check_many(fixture.client, items, 3, LONG_MS, decisions), RATELIMIT_BAD_ARGUMENT);
    items[1] = (struct ratelimit_item){"login", "b", SIZE_MAX, 1};
    assert_int_equal(ratelimit_check_many(fixture.client, items, 3, LONG_MS, decisions), RATELIMIT_BAD_ARGUMENT);
    blocking_fixture_close(&fixture);
}

static void answer_removed(struct blocking_fixture *fixture, bool removed)
{
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, fixture->next_msgid++);
    pack_map(&packer, 2);
    pack_text(&packer, "novelty");
    pack_array(&packer, 0);
    pack_text(&packer, "removed");
    pack_bool(&packer, removed);
    daemon_send(&fixture->daemon, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
}

static void a_reset_says_whether_there_was_anything(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    bool removed = false;
    blocking_fixture_open(&fixture);
    answer_removed(&fixture, true);
    assert_int_equal(ratelimit_reset(fixture.client, "login", "alice", 5, LONG_MS, &removed), RATELIMIT_OK);
    assert_true(removed);
    answer_removed(&fixture, false);
    assert_int_equal(ratelimit_reset(fixture.client, "login", "alice", 5, LONG_MS, &removed), RATELIMIT_OK);
    assert_false(removed);
    answer_removed(&fixture, true);
    assert_int_equal(ratelimit_reset(fixture.client, "login", "alice", 5, LONG_MS, NULL), RATELIMIT_OK);
    daemon_answer_text(&fixture.daemon, fixture.next_msgid++, "gone");
    assert_int_equal(ratelimit_reset(fixture.client, "login", "alice", 5, LONG_MS, &removed), RATELIMIT_PROTOCOL);
    blocking_fixture_close(&fixture);
}

static void any_method_gives_its_packed_result(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    const void *result;
    size_t len;
    blocking_fixture_open(&fixture);
    daemon_answer_text(&fixture.daemon, fixture.next_msgid++, "hm");
    assert_int_equal(ratelimit_call(fixture.client, "frob", "\x91\x07", 2, LONG_MS, &result, &len), RATELIMIT_OK);
    assert_int_equal(len, 3);
    assert_memory_equal(result, "\xa2hm", 3);
    assert_int_equal(ratelimit_call(fixture.client, "frob", "\x07", 1, LONG_MS, &result, &len), RATELIMIT_BAD_ARGUMENT);
    assert_string_equal(ratelimit_error(fixture.client),
                        "the method is NULL, or the parameters are not one MessagePack array");
    blocking_fixture_close(&fixture);
}

static void a_lost_connection_is_reported_as_such_and_the_next_call_connects_again(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision;
    blocking_fixture_open(&fixture);
    daemon_send(&fixture.daemon, "\xc1", 1);
    assert_int_equal(ratelimit_check(fixture.client, "login", "alice", 5, 1, LONG_MS, &decision), RATELIMIT_PROTOCOL);
    daemon_hang_up(&fixture.daemon);
    assert_int_equal(ratelimit_check(fixture.client, "login", "alice", 5, 1, SHORT_MS, &decision), RATELIMIT_TIMEOUT);
    daemon_accept(&fixture.daemon);
    daemon_expect(&fixture.daemon, "hello");
    daemon_expect(&fixture.daemon, "check");
    blocking_fixture_close(&fixture);
}

/* {"decision": "array", "describe": true}; an older daemon refuses that, and its decisions come as maps. */
static void descriptions_are_asked_for_once_and_done_without(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision = {.of = "rest", .quota = 4711};
    struct rpc_request request = {0};
    struct slice text = {0};
    uint32_t n;
    bool describes = false;
    daemon_start(&fixture.daemon, 16);
    assert_int_equal(ratelimit_open(fixture.daemon.path, &fixture.client), RATELIMIT_OK);
    ratelimit_describe(fixture.client);
    assert_int_equal(ratelimit_ping(fixture.client, SHORT_MS), RATELIMIT_TIMEOUT);
    daemon_accept(&fixture.daemon);
    assert_true(daemon_read(&fixture.daemon, &request) && slice_is(request.method, "hello"));
    assert_int_equal(pull_map(&request.params, &n), 0);
    assert_int_equal(n, 2);
    assert_true(pull_text(&request.params, &text) == 0 && slice_is(text, "decision"));
    assert_true(pull_text(&request.params, &text) == 0 && slice_is(text, "array"));
    assert_true(pull_text(&request.params, &text) == 0 && slice_is(text, "describe"));
    assert_true(pull_bool(&request.params, &describes) == 0 && describes);
    uint64_t hello = request.msgid, ping = daemon_expect(&fixture.daemon, "ping");

    static const char map[] = "\x82\xa7"
                              "allowed\xc3\xa9"
                              "remaining\x04";
    char answer[64] = "\x94\x01?\xc0";
    answer[2] = (char)((hello > ping ? hello : ping) + 1);
    memcpy(answer + 4, map, sizeof map - 1);
    daemon_answer_error(&fixture.daemon, hello, ERROR_BAD_REQUEST, "there is no option 'describe'");
    daemon_send(&fixture.daemon, answer, 4 + sizeof map - 1);
    assert_int_equal(ratelimit_check(fixture.client, "login", "alice", 5, 1, LONG_MS, &decision), RATELIMIT_OK);
    assert_true(decision.allowed);
    assert_int_equal(decision.remaining, 4);
    assert_string_equal(decision.of, "");
    assert_int_equal(decision.quota, 0);
    blocking_fixture_close(&fixture);
}

static void without_a_daemon_the_answer_comes_at_once(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    daemon_start(&fixture.daemon, 16);
    daemon_stop(&fixture.daemon);
    assert_int_equal(ratelimit_open(fixture.daemon.path, &fixture.client), RATELIMIT_OK);
    assert_int_equal(ratelimit_ping(fixture.client, LONG_MS), RATELIMIT_UNREACHABLE);
    assert_non_null(strstr(ratelimit_error(fixture.client), fixture.daemon.path));
    ratelimit_close(fixture.client);
}

static void the_environment_names_the_socket(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    daemon_start(&fixture.daemon, 16);
    assert_int_equal(setenv("RATELIMIT_SOCKET", fixture.daemon.path, 1), 0);
    assert_int_equal(ratelimit_open(NULL, &fixture.client), RATELIMIT_OK);
    assert_int_equal(unsetenv("RATELIMIT_SOCKET"), 0);
    assert_int_equal(ratelimit_ping(fixture.client, SHORT_MS), RATELIMIT_TIMEOUT);
    daemon_accept(&fixture.daemon);
    blocking_fixture_close(&fixture);
}

/* It was a bad argument, though a shell's VAR= is how people unset it for one command. */
static void an_empty_environment_is_the_same_as_none(void **state)
{
    (void)state;
    struct ratelimit *client;
    assert_int_equal(setenv("RATELIMIT_SOCKET", "", 1), 0);
    assert_int_equal(ratelimit_open(NULL, &client), RATELIMIT_OK);
    assert_int_equal(unsetenv("RATELIMIT_SOCKET"), 0);
    ratelimit_close(client);
    assert_int_equal(ratelimit_open("", &client), RATELIMIT_BAD_ARGUMENT);
}

/* The child of a prefork server: what it says must not mix with what its parent says. */
static void a_child_speaks_over_a_connection_of_its_own(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct rpc_request request;
    blocking_fixture_open(&fixture);
    pid_t child = fork();
    if (child == 0) {
        bool silent = ratelimit_ping(fixture.client, SHORT_MS) == RATELIMIT_TIMEOUT;
        ratelimit_close(fixture.client);
        _exit(silent ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_false(daemon_read(&fixture.daemon, &request)); /* nothing on the parent's, and it is still open: */
    daemon_answer_text(&fixture.daemon, fixture.next_msgid++, "pong");
    assert_int_equal(ratelimit_ping(fixture.client, LONG_MS), RATELIMIT_OK);
    daemon_expect(&fixture.daemon, "ping");
    daemon_hang_up(&fixture.daemon);
    daemon_accept(&fixture.daemon);
    daemon_expect(&fixture.daemon, "hello");
    daemon_expect(&fixture.daemon, "ping");
    blocking_fixture_close(&fixture);
}

static void every_status_has_its_words(void **state)
{
    (void)state;
    for (int status = RATELIMIT_OK; status <= RATELIMIT_CANCELLED; status++) {
        assert_string_not_equal(ratelimit_status_text((enum ratelimit_status)status), "unknown status");
    }
    assert_string_equal(ratelimit_status_text((enum ratelimit_status)99), "unknown status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_daemon_costs_no_more_than_the_deadline),
        cmocka_unit_test(a_check_and_a_peek_give_the_decision),
        cmocka_unit_test(an_error_of_the_daemon_is_kept_until_the_next_call),
        cmocka_unit_test(many_checks_get_one_decision_each_or_none_at_all),
        cmocka_unit_test(a_reset_says_whether_there_was_anything),
        cmocka_unit_test(any_method_gives_its_packed_result),
        cmocka_unit_test(a_lost_connection_is_reported_as_such_and_the_next_call_connects_again),
        cmocka_unit_test(descriptions_are_asked_for_once_and_done_without),
        cmocka_unit_test(without_a_daemon_the_answer_comes_at_once),
        cmocka_unit_test(the_environment_names_the_socket),
        cmocka_unit_test(an_empty_environment_is_the_same_as_none),
        cmocka_unit_test(a_child_speaks_over_a_connection_of_its_own),
        cmocka_unit_test(every_status_has_its_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
