/*
 * test_client_features.c: what newer daemons list in their answer to hello is used, and only on a connection whose
 * answer has listed it.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "client/exchange.h"
#include "client/names.h"
#include "fakes/blocking_fixture.h"
#include "fakes/sent_text.h"

#define NAMED "{name: search, limit: 5, limits: [{name: day}]}"

enum { TIMEOUT_MS = 1000 };

struct fixture {
    struct scripted_daemon daemon;
    struct ratelimit_async *client;
    enum ratelimit_status status; /* of the last end */
};

static void on_end(const struct ratelimit_answer *answer, void *arg)
{
    struct fixture *fixture = arg;
    fixture->status = answer->status;
}

static void tick(struct fixture *fixture)
{
    ratelimit_async_process(fixture->client, POLLIN | POLLOUT);
}

/* A client whose connection has sent hello and a ping. */
static uint64_t set_up_ungreeted(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){0};
    daemon_start(&fixture.daemon, 16);
    fixture.daemon.lists_features = true;
    assert_int_equal(ratelimit_async_new(fixture.daemon.path, &fixture.client), RATELIMIT_OK);
    fixture.client->clock.frozen = true;
    assert_int_equal(ratelimit_async_call(fixture.client, "ping", NULL, 0, TIMEOUT_MS, on_end, &fixture), RATELIMIT_OK);
    tick(&fixture);
    daemon_accept(&fixture.daemon);
    uint64_t hello = daemon_expect(&fixture.daemon, "hello");
    daemon_answer_text(&fixture.daemon, daemon_expect(&fixture.daemon, "ping"), "pong");
    *state = &fixture;
    return hello;
}

/* The same, and knows the daemon's features. */
static int set_up(void **state)
{
    uint64_t hello = set_up_ungreeted(state);
    struct fixture *fixture = *state;
    daemon_answer_hello(&fixture->daemon, hello);
    tick(fixture);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    ratelimit_async_free(fixture->client);
    daemon_stop(&fixture->daemon);
    return 0;
}

static void expire(struct fixture *fixture)
{
    fixture->client->clock.mono_us += TIMEOUT_MS * 1000;
    tick(fixture);
    assert_int_equal(fixture->status, RATELIMIT_TIMEOUT);
}

static void acquire(struct fixture *fixture, const char *policy)
{
    assert_int_equal(ratelimit_async_acquire(fixture->client, policy, "a", 1, TIMEOUT_MS, on_end, fixture),
                     RATELIMIT_OK);
}

static void check(struct fixture *fixture, const char *policy)
{
    assert_int_equal(ratelimit_async_check(fixture->client, policy, "a", 1, 1, TIMEOUT_MS, on_end, fixture),
                     RATELIMIT_OK);
}

static void expect_abandon_of(struct scripted_daemon *daemon, uint64_t msgid)
{
    char text[64];
    snprintf(text, sizeof text, "abandon %llu", (unsigned long long)msgid);
    assert_string_equal(sent_text(daemon), text);
}

static void assert_nothing_sent(struct scripted_daemon *daemon)
{
    struct rpc_request request;
    assert_false(daemon_read(daemon, &request));
}

/* ---- abandon ---- */

static void a_call_that_timed_out_is_abandoned_before_anything_else_is_sent(void **state)
{
    struct fixture *fixture = *state;
    acquire(fixture, "jobs");
    tick(fixture);
    uint64_t msgid = daemon_expect(&fixture->daemon, "acquire");
    fixture->client->clock.mono_us += TIMEOUT_MS * 1000;
    acquire(fixture, "jobs");
    tick(fixture);
    expect_abandon_of(&fixture->daemon, msgid);
    uint64_t next = daemon_expect(&fixture->daemon, "acquire");

    /* It gives back what it had granted: the late answer, in whatever form, is nobody's. */
    daemon_answer_error(&fixture->daemon, msgid, ERROR_ABANDONED, "given up");
    daemon_answer_text(&fixture->daemon, msgid, "whatever");
    daemon_answer_error(&fixture->daemon, next, ERROR_OVERLOADED, "no");
    tick(fixture);
    assert_int_equal(fixture->status, RATELIMIT_REFUSED);
    assert_nothing_sent(&fixture->daemon);
}

static void a_check_that_timed_out_is_not_abandoned(void **state)
{
    struct fixture *fixture = *state;
    check(fixture, "web");
    tick(fixture);
    daemon_expect(&fixture->daemon, "check");
    expire(fixture);
    assert_nothing_sent(&fixture->daemon);
}

static void an_acquire_that_timed_out_before_the_features_were_known_is_abandoned_then(void **state)
{
    uint64_t hello = set_up_ungreeted(state);
    struct fixture *fixture = *state;
    acquire(fixture, "jobs");
    tick(fixture);
    uint64_t msgid = daemon_expect(&fixture->daemon, "acquire");
    expire(fixture);
    assert_nothing_sent(&fixture->daemon);
    daemon_answer_hello(&fixture->daemon, hello);
    tick(fixture);
    expect_abandon_of(&fixture->daemon, msgid);
}

/* Its deadline came when half of it had left: the rest must follow, and then the notification. */
static void a_half_written_acquire_is_abandoned_when_it_has_left(void **state)
{
    static char policy[60000];
    struct fixture *fixture = *state;
    struct rpc_request request;
    int n_made = 0, n_asked = 0, n_abandoned = 0;
    memset(policy, 'p', sizeof policy - 1);
    while (!(ratelimit_async_events(fixture->client) & POLLOUT)) {
        acquire(fixture, policy);
        ratelimit_async_process(fixture->client, 0);
        assert_true(++n_made < 64);
    }
    expire(fixture);
    for (int i = 0; i < 8; i++) {
        while (daemon_read(&fixture->daemon, &request)) {
            n_asked += slice_is(request.method, "acquire");
            n_abandoned += slice_is(request.method, "abandon");
        }
        tick(fixture);
    }
    assert_in_range(n_made, n_asked, n_asked + 1); /* of the last nothing may have left: then it is not sent */
    assert_int_equal(n_abandoned, n_asked);
    assert_int_equal(fixture->client->n_orphans, 0);
}

/* The slot of an acquire ends with the connection. */
static void a_reserve_on_its_way_is_abandoned_when_the_client_is_freed(void **state)
{
    struct fixture *fixture = *state;
    acquire(fixture, "jobs");
    assert_int_equal(ratelimit_async_reserve(fixture->client, "llm", "a", 1, 5, NULL, TIMEOUT_MS, on_end, fixture),
                     RATELIMIT_OK);
    tick(fixture);
    daemon_expect(&fixture->daemon, "acquire");
    uint64_t msgid = daemon_expect(&fixture->daemon, "reserve");
    ratelimit_async_free(fixture->client);
    fixture->client = NULL;
    assert_int_equal(fixture->status, RATELIMIT_CANCELLED);
    expect_abandon_of(&fixture->daemon, msgid);
    assert_nothing_sent(&fixture->daemon);
}

static void a_blocking_client_that_has_abandoned_a_call_keeps_its_connection(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision;
    blocking_fixture_open_with_features(&fixture);
    daemon_answer_text(&fixture.daemon, fixture.next_msgid++, "pong");
    assert_int_equal(ratelimit_ping(fixture.client, LONG_MS), RATELIMIT_OK);
    assert_int_equal(ratelimit_acquire(fixture.client, "jobs", "a", 1, SHORT_MS, &decision), RATELIMIT_TIMEOUT);
    daemon_expect(&fixture.daemon, "ping");
    expect_abandon_of(&fixture.daemon, daemon_expect(&fixture.daemon, "acquire"));
    fixture.next_msgid++;
    daemon_answer_text(&fixture.daemon, fixture.next_msgid++, "pong");
    assert_int_equal(ratelimit_ping(fixture.client, LONG_MS), RATELIMIT_OK);
    blocking_fixture_close(&fixture);
}

/* ---- Names ---- */

static void a_name_is_sent_to_a_daemon_that_takes_it(void **state)
{
    struct fixture *fixture = *state;
    check(fixture, NAMED);
    tick(fixture);
    assert_string_equal(sent_text(&fixture->daemon),
                        "check {'name': 'search', 'limit': '5', 'limits': [{'name': 'day'}]}, 'a', 1");
}

static void a_name_is_left_out_until_the_connection_has_listed_it(void **state)
{
    set_up_ungreeted(state);
    struct fixture *fixture = *state;
    check(fixture, NAMED);
    tick(fixture);
    assert_string_equal(sent_text(&fixture->daemon), "check {'limit': '5', 'limits': [{'name': 'day'}]}, 'a', 1");
}

/* The next connection may be an older daemon's. */
static void a_call_that_waits_for_the_next_connection_loses_its_names(void **state)
{
    struct fixture *fixture = *state;
    const struct ratelimit_item items[] = {
        {"web", "a", 1, 1}, {NAMED, "b", 1, 2}, {"{limit: 6}", "c", 1, 3}, {"{limit: 7, name: list}", "d", 1, 4}};
    check(fixture, NAMED);
    assert_int_equal(ratelimit_async_check_all(fixture->client, items, 4, NULL, TIMEOUT_MS, on_end, fixture),
                     RATELIMIT_OK);
    daemon_hang_up(&fixture->daemon);
    tick(fixture);
    daemon_greet(&fixture->daemon);
    assert_string_equal(sent_text(&fixture->daemon), "check {'limit': '5', 'limits': [{'name': 'day'}]}, 'a', 1");
    assert_string_equal(sent_text(&fixture->daemon),
                        "check_all [['web', 'a', 1], [{'limit': '5', 'limits': [{'name': 'day'}]}, 'b', 2], "
                        "[{'limit': '6'}, 'c', 3], [{'limit': '7'}, 'd', 4]], {}");
}

static void a_name_that_no_daemon_takes_is_refused(void **state)
{
    static const char *const wrong[] = {
        "{name: }",         "{name: ''}",
        "{name: a b}",      "{name: 7}",
        "{name: null}",     "{name: [a]}",
        "{name: inline-7}", "{name: 12345678901234567890123456789012345678901234567890123456789012345}",
    };
    struct fixture *fixture = *state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(ratelimit_async_check(fixture->client, wrong[i], "a", 1, 1, TIMEOUT_MS, on_end, fixture),
                         RATELIMIT_BAD_ARGUMENT);
        assert_memory_equal(fixture->client->fault, "the policy's settings: ", strlen("the policy's settings: "));
    }
    check(fixture, "{name: '7'}");
}

static void what_the_daemon_calls_a_named_policy_gets_its_name(void **state)
{
    static const char *const pairs[][2] = {
        {"inline-0123456789abcdef", "search"},
        {"inline-0123456789abcdef/second", "search/second"},
        {"inline-0123456789abcde", "inline-0123456789abcde"},
        {"inline-0123456789abcdef0", "inline-0123456789abcdef0"},
        {"web/inline-0123456789abcdef", "web/inline-0123456789abcdef"},
        {"", ""},
    };
    (void)state;
    struct buffer names = {0};
    size_t n = 0;
    struct ratelimit_decision decision = {0};
    names_put(&names, &decision);
    assert_int_equal(names_note(&names, &n, 0, "search"), 0);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        snprintf(decision.of, sizeof decision.of, "%s", pairs[i][0]);
        snprintf(decision.bound_by, sizeof decision.bound_by, "%s", pairs[i][0]);
        names_put(&names, &decision);
        assert_string_equal(decision.of, pairs[i][1]);
        assert_string_equal(decision.bound_by, pairs[i][1]);
    }
    buffer_fini(&names);
}

/* From a daemon, the two parts fit. What else answers must not write behind the field. */
static void a_name_that_does_not_fit_is_cut(void **state)
{
    (void)state;
    char name[65], of[RATELIMIT_BOUND_BY_SIZE];
    struct buffer names = {0};
    size_t n = 0;
    struct ratelimit_decision decision = {0};
    memset(name, 'n', sizeof name);
    name[64] = '\0';
    memset(of, 'x', sizeof of);
    memcpy(of, "inline-0123456789abcdef/", 24);
    of[sizeof of - 1] = '\0';
    memcpy(decision.of, of, sizeof of);
    assert_int_equal(names_note(&names, &n, 0, name), 0);
    names_put(&names, &decision);
    assert_int_equal(strlen(decision.of), sizeof of - 1);
    assert_memory_equal(decision.of, name, 64);
    buffer_fini(&names);
}

static void of_several_policies_each_gets_its_own_name(void **state)
{
    (void)state;
    struct buffer names = {0};
    size_t n = 0;
    struct ratelimit_decision whole = {.of = "inline-0000000000000002/day", .bound_by = "inline-0000000000000009"};
    struct ratelimit_decision members[] = {
        {.of = "inline-0000000000000001"}, {.of = "inline-0000000000000002"}, {.of = "inline-0000000000000003"}};
    assert_int_equal(names_note(&names, &n, 1, "second"), 0);
    names_put_members(&names, members, 3, &whole);
    assert_string_equal(members[0].of, "inline-0000000000000001");
    assert_string_equal(members[1].of, "second");
    assert_string_equal(members[2].of, "inline-0000000000000003");
    assert_string_equal(whole.of, "second/day");
    assert_string_equal(whole.bound_by, "inline-0000000000000009");
    names_put_members(&names, members, 3, NULL);
    buffer_fini(&names);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_call_that_timed_out_is_abandoned_before_anything_else_is_sent),
        TEST(a_check_that_timed_out_is_not_abandoned),
        cmocka_unit_test_teardown(an_acquire_that_timed_out_before_the_features_were_known_is_abandoned_then,
                                  tear_down),
        TEST(a_half_written_acquire_is_abandoned_when_it_has_left),
        TEST(a_reserve_on_its_way_is_abandoned_when_the_client_is_freed),
        cmocka_unit_test(a_blocking_client_that_has_abandoned_a_call_keeps_its_connection),
        TEST(a_name_is_sent_to_a_daemon_that_takes_it),
        cmocka_unit_test_teardown(a_name_is_left_out_until_the_connection_has_listed_it, tear_down),
        TEST(a_call_that_waits_for_the_next_connection_loses_its_names),
        TEST(a_name_that_no_daemon_takes_is_refused),
        cmocka_unit_test(what_the_daemon_calls_a_named_policy_gets_its_name),
        cmocka_unit_test(a_name_that_does_not_fit_is_cut),
        cmocka_unit_test(of_several_policies_each_gets_its_own_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
