/*
 * test_client_denials.c: a client that remembers denials repeats them by itself, and only what the daemon would still
 * say.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "client/exchange.h"
#include "fakes/sent_text.h"

enum { TIMEOUT_MS = 1000, REMEMBER_MS = 5000, RETRY_MS = 8200 /* of a scripted denial */, LONG_SIZE = 40000 };

struct fixture {
    struct scripted_daemon daemon;
    struct ratelimit_async *client;
    int n_ends;
    enum ratelimit_status status; /* of the last end */
    struct ratelimit_decision decision;
    char message[256];
    bool asks_again; /* in the callback */
};

static void on_end(const struct ratelimit_answer *answer, void *arg)
{
    struct fixture *fixture = arg;
    fixture->n_ends++;
    fixture->status = answer->status;
    if (answer->decision != NULL) fixture->decision = *answer->decision;
    snprintf(fixture->message, sizeof fixture->message, "%s", answer->message);
    if (fixture->asks_again)
        assert_int_equal(ratelimit_async_check(fixture->client, "p", "k", 1, 1, TIMEOUT_MS, on_end, fixture),
                         RATELIMIT_OK);
}

static void tick(struct fixture *fixture)
{
    ratelimit_async_process(fixture->client, POLLIN | POLLOUT);
}

/* A client that remembers, with a connection. */
static int set_up(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){0};
    daemon_start(&fixture.daemon, 16);
    assert_int_equal(ratelimit_async_new(fixture.daemon.path, &fixture.client), RATELIMIT_OK);
    fixture.client->clock.frozen = true;
    assert_int_equal(ratelimit_async_remember_denials(fixture.client, REMEMBER_MS), RATELIMIT_OK);
    assert_int_equal(ratelimit_async_call(fixture.client, "ping", NULL, 0, TIMEOUT_MS, on_end, &fixture), RATELIMIT_OK);
    tick(&fixture);
    daemon_greet(&fixture.daemon);
    daemon_answer_text(&fixture.daemon, daemon_expect(&fixture.daemon, "ping"), "pong");
    tick(&fixture);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    ratelimit_async_free(fixture->client);
    daemon_stop(&fixture->daemon);
    return 0;
}

static void send_decision(struct fixture *fixture, uint64_t msgid, bool allowed)
{
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, msgid);
    daemon_pack_decision(&packer, allowed, 0);
    daemon_send(&fixture->daemon, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
}

static void answer_decision(struct fixture *fixture, uint64_t msgid, bool allowed)
{
    send_decision(fixture, msgid, allowed);
    tick(fixture);
}

static void check(struct fixture *fixture)
{
    assert_int_equal(ratelimit_async_check(fixture->client, "p", "k", 1, 1, TIMEOUT_MS, on_end, fixture), RATELIMIT_OK);
}

/* A check that the daemon denies. */
static void be_denied(struct fixture *fixture)
{
    check(fixture);
    tick(fixture);
    answer_decision(fixture, daemon_expect(&fixture->daemon, "check"), false);
    assert_int_equal(fixture->decision.source, RATELIMIT_SOURCE_MEMORY);
}

static void assert_repeated(struct fixture *fixture)
{
    struct rpc_request request;
    check(fixture);
    tick(fixture);
    assert_false(daemon_read(&fixture->daemon, &request));
    assert_int_equal(fixture->status, RATELIMIT_OK);
    assert_false(fixture->decision.allowed);
    assert_int_equal(fixture->decision.source, RATELIMIT_SOURCE_DENY_CACHE);
}

static void assert_asked(struct fixture *fixture)
{
    check(fixture);
    tick(fixture);
    answer_decision(fixture, daemon_expect(&fixture->daemon, "check"), true);
    assert_true(fixture->decision.allowed);
}

static void a_repeated_denial_is_a_call_like_others(void **state)
{
    struct fixture *fixture = *state;
    be_denied(fixture);
    int n_before = fixture->n_ends;
    check(fixture);
    assert_int_equal(fixture->n_ends, n_before); /* not within the function that makes the call */
    assert_int_equal(ratelimit_async_pending(fixture->client), 1);
    assert_int_equal(ratelimit_async_next_timeout_ms(fixture->client), 0);
    ratelimit_async_process(fixture->client, 0);
    assert_int_equal(fixture->n_ends, n_before + 1);
    assert_int_equal(ratelimit_async_pending(fixture->client), 0);
    assert_int_equal(ratelimit_async_next_timeout_ms(fixture->client), -1);
    assert_int_equal(ratelimit_async_remembered(fixture->client), 1);
}

static void its_times_are_shorter_by_what_has_passed(void **state)
{
    struct fixture *fixture = *state;
    be_denied(fixture);
    int64_t reset_ms = fixture->decision.reset_after_ms;
    assert_int_equal(fixture->decision.retry_after_ms, RETRY_MS);
    fixture->client->clock.mono_us += 1200999;
    assert_repeated(fixture);
    assert_int_equal(fixture->decision.retry_after_ms, RETRY_MS - 1200);
    assert_int_equal(fixture->decision.reset_after_ms, reset_ms > 1200 ? reset_ms - 1200 : 0);
    fixture->client->clock.mono_us += (REMEMBER_MS - 1201) * 1000;
    assert_repeated(fixture);
    fixture->client->clock.mono_us += 1001;
    assert_asked(fixture);
}

static void a_cost_is_the_same_as_a_parameter_and_as_an_option(void **state)
{
    struct fixture *fixture = *state;
    struct ratelimit_options options = RATELIMIT_OPTIONS;
    options.deadline_ms = 5;
    be_denied(fixture);
    assert_int_equal(ratelimit_async_check_with(fixture->client, "p", "k", 1, &options, TIMEOUT_MS, on_end, fixture),
                     RATELIMIT_OK);
    tick(fixture);
    assert_int_equal(ratelimit_async_remembered(fixture->client), 1);
}

static void a_key_too_long_to_be_sent_is_remembered_and_forgotten_too(void **state)
{
    static char key[LONG_SIZE];
    struct fixture *fixture = *state;
    struct rpc_request request;
    memset(key, 'k', sizeof key);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ratelimit_async_check(fixture->client, "p", key, sizeof key, 1, TIMEOUT_MS, on_end, fixture),
                         RATELIMIT_OK);
        tick(fixture);
        answer_decision(fixture, daemon_expect(&fixture->daemon, "check"), false);
        assert_int_equal(ratelimit_async_check(fixture->client, "p", key, sizeof key, 1, TIMEOUT_MS, on_end, fixture),
                         RATELIMIT_OK);
        tick(fixture);
        assert_false(daemon_read(&fixture->daemon, &request));
        assert_int_equal(ratelimit_async_reset(fixture->client, "p/day", key, sizeof key, TIMEOUT_MS, on_end, fixture),
                         RATELIMIT_OK);
        tick(fixture);
        daemon_expect(&fixture->daemon, "reset");
    }
}

static void what_was_asked_before_a_reset_is_not_remembered_after_it(void **state)
{
    struct fixture *fixture = *state;
    check(fixture);
    assert_int_equal(ratelimit_async_reset(fixture->client, "p", "k", 1, TIMEOUT_MS, on_end, fixture), RATELIMIT_OK);
    tick(fixture);
    uint64_t msgid = daemon_expect(&fixture->daemon, "check");
    daemon_expect(&fixture->daemon, "reset");
    answer_decision(fixture, msgid, false);
    assert_false(fixture->decision.allowed);
    assert_asked(fixture);
}

static void a_packed_reset_forgets_too(void **state)
{
    static const char params[] = "\x92\xa1p\xc4\x01k"; /* the key as bin */
    struct fixture *fixture = *state;
    be_denied(fixture);
    assert_int_equal(
        ratelimit_async_call(fixture->client, "reset", params, sizeof params - 1, TIMEOUT_MS, on_end, fixture),
        RATELIMIT_OK);
    tick(fixture);
    daemon_expect(&fixture->daemon, "reset");
    assert_asked(fixture);
}

/* It may name them in three ways, and the daemon's own name for them is not known here. */
static void a_reset_of_a_key_forgets_its_inline_policies(void **state)
{
    static const char *const names[] = {"{limit: 5}", "search", "inline-0123456789abcdef/second", "other"};
    struct fixture *fixture = *state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(ratelimit_async_check(fixture->client, "{limit: 5}", "k", 1, 1, TIMEOUT_MS, on_end, fixture),
                         RATELIMIT_OK);
        tick(fixture);
        answer_decision(fixture, daemon_expect(&fixture->daemon, "check"), false);
        assert_int_equal(ratelimit_async_reset(fixture->client, names[i], "k", 1, TIMEOUT_MS, on_end, fixture),
                         RATELIMIT_OK);
        tick(fixture);
        daemon_expect(&fixture->daemon, "reset");
    }
}

static void a_check_of_huge_settings_is_not_remembered(void **state)
{
    static char policy[LONG_SIZE];
    struct fixture *fixture = *state;
    size_t len = 0;
    len += (size_t)sprintf(policy, "{");
    while (len < sizeof policy - 16) len += (size_t)sprintf(policy + len, "a: b, ");
    sprintf(policy + len, "}");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ratelimit_async_check(fixture->client, policy, "k", 1, 1, TIMEOUT_MS, on_end, fixture), 0);
        tick(fixture);
        answer_decision(fixture, daemon_expect(&fixture->daemon, "check"), false);
    }
}

/* A program that asks again at once must not keep its loop in one tick. */
static void a_repeated_denial_asked_for_in_a_callback_comes_in_the_next_tick(void **state)
{
    struct fixture *fixture = *state;
    be_denied(fixture);
    int n_before = fixture->n_ends;
    fixture->asks_again = true;
    check(fixture);
    for (int i = 1; i <= 3; i++) {
        ratelimit_async_process(fixture->client, 0);
        assert_int_equal(fixture->n_ends, n_before + i);
    }
    fixture->asks_again = false;
}

static void a_repeated_denial_says_nothing_about_the_daemon(void **state)
{
    struct fixture *fixture = *state;
    be_denied(fixture);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ratelimit_async_peek(fixture->client, "p", "k", 1, 1, TIMEOUT_MS, on_end, fixture),
                         RATELIMIT_OK);
    tick(fixture);
    for (int i = 0; i < 3; i++) daemon_expect(&fixture->daemon, "peek");
    fixture->client->clock.mono_us += TIMEOUT_MS * 1000;
    tick(fixture);
    assert_int_equal(fixture->status, RATELIMIT_TIMEOUT);
    assert_repeated(fixture);
    assert_int_equal(ratelimit_async_peek(fixture->client, "p", "k", 1, 1, TIMEOUT_MS, on_end, fixture),
                     RATELIMIT_BREAKER);
}

static void a_client_that_is_freed_cancels_what_it_has_not_repeated(void **state)
{
    struct fixture *fixture = *state;
    be_denied(fixture);
    check(fixture);
    ratelimit_async_free(fixture->client);
    fixture->client = NULL;
    assert_int_equal(fixture->status, RATELIMIT_CANCELLED);
}

static void setting_the_duration_forgets_all(void **state)
{
    struct fixture *fixture = *state;
    be_denied(fixture);
    assert_int_equal(ratelimit_async_remember_denials(fixture->client, INT64_MAX), RATELIMIT_OK);
    be_denied(fixture);
    assert_repeated(fixture);
    assert_int_equal(ratelimit_async_remember_denials(fixture->client, -1), RATELIMIT_BAD_ARGUMENT);
    assert_repeated(fixture);

    /* It is switched off while the answer is on its way. */
    fixture->client->clock.mono_us += (int64_t)RETRY_MS * 1000;
    check(fixture);
    tick(fixture);
    assert_int_equal(ratelimit_async_remember_denials(fixture->client, 0), RATELIMIT_OK);
    answer_decision(fixture, daemon_expect(&fixture->daemon, "check"), false);
    assert_asked(fixture);
}

/* Once it has asked and repeated for the first time. */
static void repeating_allocates_nothing(void **state)
{
    struct fixture *fixture = *state;
    be_denied(fixture);
    assert_repeated(fixture);
    mem_fail_nth(1);
    assert_repeated(fixture);
    mem_fail_nth(0);
    assert_int_equal(ratelimit_async_remembered(fixture->client), 2);
}

/* Then the daemon is asked, and answers the next check too. */
static void without_memory_a_denial_is_not_remembered(void **state)
{
    struct fixture *fixture = *state;
    uint64_t n_repeated = 0;
    for (uint64_t nth = 1; n_repeated == 0; nth++) {
        assert_true(nth < 20);
        assert_int_equal(ratelimit_async_remember_denials(fixture->client, REMEMBER_MS), RATELIMIT_OK);
        check(fixture);
        tick(fixture);
        send_decision(fixture, daemon_expect(&fixture->daemon, "check"), false);
        mem_fail_nth(nth);
        tick(fixture);
        mem_fail_nth(0);
        assert_false(fixture->decision.allowed);

        check(fixture);
        tick(fixture);
        n_repeated = ratelimit_async_remembered(fixture->client);
        if (n_repeated == 0) answer_decision(fixture, daemon_expect(&fixture->daemon, "check"), true);
        assert_int_equal(fixture->decision.allowed, n_repeated == 0);
    }
}

/* It is as it was before. */
static void without_memory_nothing_is_switched_on(void **state)
{
    struct fixture *fixture = *state;
    be_denied(fixture);
    for (uint64_t nth = 1; nth < 3; nth++) {
        mem_fail_nth(nth);
        assert_int_equal(ratelimit_async_remember_denials(fixture->client, REMEMBER_MS), RATELIMIT_NO_MEMORY);
        mem_fail_nth(0);
        assert_repeated(fixture);
    }
}

/* ---- Policies that do not fit ---- */

/* [{name: a, limits: LIMITS}, {name: b, limits: [{count_denied: true}]}], in an answer. */
static void answer_policies(struct fixture *fixture, const char *limits, size_t len)
{
    static const char b[] = "\x82\xa4name\xa1"
                            "b\xa6limits\x91\x81\xac"
                            "count_denied\xc3";
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, daemon_expect(&fixture->daemon, "policies"));
    pack_array(&packer, 2);
    pack_map(&packer, 3);
    pack_text_field(&packer, "name", "a");
    pack_int(&packer, 7); /* not the name of a field */
    pack_nil(&packer);
    pack_text(&packer, "limits");
    buffer_append(&out, limits, len);
    buffer_append(&out, b, sizeof b - 1);
    daemon_send(&fixture->daemon, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
    tick(fixture);
}

static void verify(struct fixture *fixture, const char *const *policies, size_t n)
{
    assert_int_equal(ratelimit_async_verify(fixture->client, policies, n, TIMEOUT_MS, on_end, fixture), RATELIMIT_OK);
    tick(fixture);
}

static void policies_that_count_denied_checks_are_named_only_with_remembered_denials(void **state)
{
    static const char *const policies[] = {"a", "b", "{limit: 5}"};
    struct fixture *fixture = *state;
    verify(fixture, policies, 3);
    answer_policies(fixture, "\x90", 1);
    assert_int_equal(fixture->status, RATELIMIT_OK);
    assert_string_equal(fixture->message, "remembered denials are not counted by policies with count_denied: b");
    verify(fixture, policies, 1);
    answer_policies(fixture,
                    "\x91\x81\xac"
                    "count_denied\xc2",
                    16);
    assert_string_equal(fixture->message, "");
    assert_int_equal(ratelimit_async_remember_denials(fixture->client, 0), RATELIMIT_OK);
    verify(fixture, policies, 2);
    answer_policies(fixture, "\x90", 1);
    assert_int_equal(fixture->status, RATELIMIT_OK);
    assert_string_equal(fixture->message, "");
}

static void policies_that_are_missing_are_named(void **state)
{
    static const char *const policies[] = {"c", "a", "d"};
    struct fixture *fixture = *state;
    verify(fixture, policies, 3);
    answer_policies(fixture, "\xc0", 1);
    assert_int_equal(fixture->status, RATELIMIT_REFUSED);
    assert_string_equal(fixture->message, "the daemon's configuration has no c, d");
    assert_int_equal(ratelimit_async_verify(fixture->client, NULL, 1, TIMEOUT_MS, on_end, fixture),
                     RATELIMIT_BAD_ARGUMENT);
}

static void what_is_no_list_of_policies_is_no_answer(void **state)
{
    static const char *const policies[] = {"a"};
    struct fixture *fixture = *state;
    verify(fixture, policies, 1);
    daemon_answer_text(&fixture->daemon, daemon_expect(&fixture->daemon, "policies"), "a");
    tick(fixture);
    assert_int_equal(fixture->status, RATELIMIT_PROTOCOL);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_repeated_denial_is_a_call_like_others),
        TEST(its_times_are_shorter_by_what_has_passed),
        TEST(a_cost_is_the_same_as_a_parameter_and_as_an_option),
        TEST(a_key_too_long_to_be_sent_is_remembered_and_forgotten_too),
        TEST(what_was_asked_before_a_reset_is_not_remembered_after_it),
        TEST(a_packed_reset_forgets_too),
        TEST(a_reset_of_a_key_forgets_its_inline_policies),
        TEST(a_check_of_huge_settings_is_not_remembered),
        TEST(a_repeated_denial_asked_for_in_a_callback_comes_in_the_next_tick),
        TEST(a_repeated_denial_says_nothing_about_the_daemon),
        TEST(a_client_that_is_freed_cancels_what_it_has_not_repeated),
        TEST(setting_the_duration_forgets_all),
        TEST(repeating_allocates_nothing),
        TEST(without_memory_a_denial_is_not_remembered),
        TEST(without_memory_nothing_is_switched_on),
        TEST(policies_that_count_denied_checks_are_named_only_with_remembered_denials),
        TEST(policies_that_are_missing_are_named),
        TEST(what_is_no_list_of_policies_is_no_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
