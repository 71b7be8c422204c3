/*
 * test_client_late.c: a yes to an acquire or reserve that comes after its deadline leaves nothing behind with the
 * daemon, whichever client asked.
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
#include "fakes/blocking_fixture.h"

enum { TIMEOUT_MS = 1000 };

struct fixture {
    struct scripted_daemon daemon;
    struct ratelimit_async *client;
    int n_ends;
    enum ratelimit_status status; /* of the last end */
};

static void on_end(const struct ratelimit_answer *answer, void *arg)
{
    struct fixture *fixture = arg;
    fixture->n_ends++;
    fixture->status = answer->status;
}

static void tick(struct fixture *fixture)
{
    ratelimit_async_process(fixture->client, POLLIN | POLLOUT);
}

/* A client with a connection. */
static int set_up(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){0};
    daemon_start(&fixture.daemon, 16);
    assert_int_equal(ratelimit_async_new(fixture.daemon.path, &fixture.client), RATELIMIT_OK);
    fixture.client->clock.frozen = true;
    assert_int_equal(ratelimit_async_call(fixture.client, "ping", NULL, 0, TIMEOUT_MS, on_end, &fixture), RATELIMIT_OK);
    tick(&fixture);
    daemon_greet(&fixture.daemon);
    daemon_answer_text(&fixture.daemon, daemon_expect(&fixture.daemon, "ping"), "pong");
    tick(&fixture);
    assert_int_equal(fixture.n_ends, 1);
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

static void acquire(struct fixture *fixture)
{
    assert_int_equal(ratelimit_async_acquire(fixture->client, "jobs", "a", 1, TIMEOUT_MS, on_end, fixture),
                     RATELIMIT_OK);
}

static void check(struct fixture *fixture)
{
    assert_int_equal(ratelimit_async_check(fixture->client, "p", "a", 1, 1, TIMEOUT_MS, on_end, fixture), RATELIMIT_OK);
}

static void expire(struct fixture *fixture)
{
    int n_before = fixture->n_ends;
    fixture->client->clock.mono_us += TIMEOUT_MS * 1000;
    tick(fixture);
    assert_true(fixture->n_ends > n_before);
    assert_int_equal(fixture->status, RATELIMIT_TIMEOUT);
    assert_int_equal(ratelimit_async_pending(fixture->client), 0);
}

/* A decision in array form, with `field` behind it where it is not NULL. */
static void answer(struct scripted_daemon *daemon, uint64_t msgid, bool allowed, const char *field, const char *id)
{
    enum { ARRAY = 4 }; /* the response's header, type, msgid and nil: the decision's own header follows */
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    assert_true(msgid < 128);
    rpc_pack_result(&packer, msgid);
    daemon_pack_decision(&packer, allowed, 4);
    if (field != NULL) {
        buffer_data(&out)[ARRAY]++;
        pack_map(&packer, 1);
        pack_text(&packer, field);
        pack_text(&packer, id);
    }
    daemon_send(daemon, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
}

/* The next request is `method` with this one parameter. */
static uint64_t expect(struct scripted_daemon *daemon, const char *method, const char *id)
{
    struct rpc_request request;
    struct slice text;
    assert_true(daemon_read(daemon, &request));
    assert_true(slice_is(request.method, method));
    assert_int_equal(request.n_params, 1);
    assert_int_equal(pull_text(&request.params, &text), 0);
    assert_true(slice_is(text, id));
    return request.msgid;
}

static void assert_nothing_sent(struct scripted_daemon *daemon)
{
    struct rpc_request request;
    assert_false(daemon_read(daemon, &request));
}

/* An acquire whose deadline passes before the daemon answers. Returns its msgid. */
static uint64_t acquire_without_answer(struct fixture *fixture)
{
    acquire(fixture);
    tick(fixture);
    uint64_t msgid = daemon_expect(&fixture->daemon, "acquire");
    expire(fixture);
    return msgid;
}

static void a_slot_given_too_late_is_released(void **state)
{
    struct fixture *fixture = *state;
    uint64_t msgid = acquire_without_answer(fixture);
    answer(&fixture->daemon, msgid, true, "slot", "s1");
    tick(fixture);
    uint64_t release = expect(&fixture->daemon, "release", "s1");
    assert_int_equal(fixture->n_ends, 2);
    assert_int_equal(ratelimit_async_pending(fixture->client), 0);
    daemon_answer_text(&fixture->daemon, release, "whatever");
    tick(fixture);
    check(fixture);
    tick(fixture);
    daemon_answer_allowed(&fixture->daemon, daemon_expect(&fixture->daemon, "check"), 3);
    tick(fixture);
    assert_int_equal(fixture->status, RATELIMIT_OK);
}

static void a_reservation_made_too_late_is_cancelled(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(ratelimit_async_reserve(fixture->client, "llm", "a", 1, 500, NULL, TIMEOUT_MS, on_end, fixture),
                     0);
    tick(fixture);
    uint64_t msgid = daemon_expect(&fixture->daemon, "reserve");
    expire(fixture);
    answer(&fixture->daemon, msgid, true, "reservation", "r1-abc");
    tick(fixture);
    expect(&fixture->daemon, "cancel", "r1-abc");
}

static void a_slot_that_a_packed_call_asked_for_is_released_too(void **state)
{
    struct fixture *fixture = *state;
    static const char params[] = "\x92\xa4jobs\xa1"
                                 "a";
    assert_int_equal(
        ratelimit_async_call(fixture->client, "acquire", params, sizeof params - 1, TIMEOUT_MS, on_end, fixture),
        RATELIMIT_OK);
    tick(fixture);
    uint64_t msgid = daemon_expect(&fixture->daemon, "acquire");
    expire(fixture);
    answer(&fixture->daemon, msgid, true, "slot", "s1");
    tick(fixture);
    expect(&fixture->daemon, "release", "s1");
}

static void a_late_no_or_error_takes_nothing_back(void **state)
{
    struct fixture *fixture = *state;
    uint64_t msgids[3];
    for (int i = 0; i < 3; i++) acquire(fixture);
    tick(fixture);
    for (int i = 0; i < 3; i++) msgids[i] = daemon_expect(&fixture->daemon, "acquire");
    expire(fixture);
    answer(&fixture->daemon, msgids[0], false, NULL, NULL);
    daemon_answer_error(&fixture->daemon, msgids[1], ERROR_OVERLOADED, "no");
    daemon_answer_text(&fixture->daemon, msgids[2], "nonsense");
    tick(fixture);
    assert_nothing_sent(&fixture->daemon);
    assert_true(ratelimit_async_fd(fixture->client) >= 0);
}

/* Of a limit of one slot the second try was denied for the first one's sake. */
static void the_late_slot_is_free_before_it_is_asked_for_again(void **state)
{
    struct fixture *fixture = *state;
    uint64_t msgid = acquire_without_answer(fixture);
    answer(&fixture->daemon, msgid, true, "slot", "s1");
    acquire(fixture);
    ratelimit_async_process(fixture->client, 0);
    expect(&fixture->daemon, "release", "s1");
    daemon_expect(&fixture->daemon, "acquire");
}

/* Its deadline came when half of it had left. */
static void a_slot_of_a_half_written_acquire_is_released_too(void **state)
{
    static char policy[60000];
    struct fixture *fixture = *state;
    struct rpc_request request;
    int n_made = 0, n_asked = 0, n_released = 0;
    memset(policy, 'p', sizeof policy - 1);
    while (!(ratelimit_async_events(fixture->client) & POLLOUT)) {
        assert_int_equal(ratelimit_async_acquire(fixture->client, policy, "a", 1, TIMEOUT_MS, on_end, fixture), 0);
        ratelimit_async_process(fixture->client, 0);
        assert_true(++n_made < 64);
    }
    expire(fixture);
    for (int i = 0; i < 4; i++) {
        while (daemon_read(&fixture->daemon, &request)) {
            bool is_acquire = slice_is(request.method, "acquire");
            n_asked += is_acquire;
            n_released += slice_is(request.method, "release");
            if (is_acquire) answer(&fixture->daemon, request.msgid, true, "slot", "s1");
        }
        tick(fixture);
    }
    assert_in_range(n_made, n_asked, n_asked + 1); /* of the last nothing may have left: then it is not sent */
    assert_int_equal(n_released, n_asked);
}

static void what_may_come_late_ends_with_its_connection(void **state)
{
    struct fixture *fixture = *state;
    uint64_t msgid = acquire_without_answer(fixture);
    daemon_hang_up(&fixture->daemon);
    tick(fixture);
    check(fixture);
    tick(fixture);
    daemon_greet(&fixture->daemon);
    uint64_t next = daemon_expect(&fixture->daemon, "check");
    answer(&fixture->daemon, msgid, true, "slot", "s1"); /* of another connection: nobody's */
    daemon_answer_allowed(&fixture->daemon, next, 3);
    tick(fixture);
    assert_int_equal(fixture->status, RATELIMIT_OK);
    assert_nothing_sent(&fixture->daemon);
}

static void a_release_that_did_not_leave_ends_with_its_connection(void **state)
{
    struct fixture *fixture = *state;
    uint64_t msgid = acquire_without_answer(fixture);
    answer(&fixture->daemon, msgid, true, "slot", "s1");
    daemon_hang_up(&fixture->daemon);
    tick(fixture);
    check(fixture);
    tick(fixture);
    daemon_greet(&fixture->daemon);
    daemon_expect(&fixture->daemon, "check");
    assert_nothing_sent(&fixture->daemon);
}

/* The daemon takes 4096 calls of a connection. A peer that answers none of so many is not a daemon, and memory is
 * bounded. */
static void a_connection_that_answers_nothing_is_left(void **state)
{
    enum { N = 4097 };
    struct fixture *fixture = *state;
    for (int i = 0; i < N; i++) {
        acquire(fixture);
        tick(fixture);
        daemon_expect(&fixture->daemon, "acquire");
    }
    expire(fixture);
    assert_int_equal(ratelimit_async_fd(fixture->client), -1);
}

/* ---- The blocking client ---- */

static bool has_hung_up(struct scripted_daemon *daemon)
{
    char byte;
    return recv(daemon->fd, &byte, 1, MSG_PEEK) == 0;
}

/* A client that asks once and then stays quiet would keep the slot for ever. */
static void a_blocking_client_without_slots_leaves_with_the_late_one(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision;
    blocking_fixture_open(&fixture);
    assert_int_equal(ratelimit_acquire(fixture.client, "jobs", "a", 1, SHORT_MS, &decision), RATELIMIT_TIMEOUT);
    assert_string_equal(ratelimit_error(fixture.client), "no answer by the deadline");
    daemon_expect(&fixture.daemon, "acquire");
    assert_true(has_hung_up(&fixture.daemon));
    daemon_hang_up(&fixture.daemon);
    assert_int_equal(ratelimit_ping(fixture.client, SHORT_MS), RATELIMIT_TIMEOUT);
    daemon_greet(&fixture.daemon);
    daemon_expect(&fixture.daemon, "ping");
    blocking_fixture_close(&fixture);
}

static void a_blocking_client_with_a_slot_releases_the_late_one_first_thing(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision;
    blocking_fixture_open(&fixture);
    answer(&fixture.daemon, fixture.next_msgid++, true, "slot", "s1");
    assert_int_equal(ratelimit_acquire(fixture.client, "jobs", "a", 1, LONG_MS, &decision), RATELIMIT_OK);
    daemon_expect(&fixture.daemon, "acquire");
    assert_int_equal(ratelimit_acquire(fixture.client, "jobs", "a", 1, SHORT_MS, &decision), RATELIMIT_TIMEOUT);
    daemon_expect(&fixture.daemon, "acquire");
    answer(&fixture.daemon, fixture.next_msgid++, true, "slot", "s2");
    assert_int_equal(ratelimit_check(fixture.client, "p", "a", 1, 1, SHORT_MS, &decision), RATELIMIT_TIMEOUT);
    expect(&fixture.daemon, "release", "s2");
    daemon_expect(&fixture.daemon, "check");
    assert_false(has_hung_up(&fixture.daemon));
    blocking_fixture_close(&fixture);
}

static void a_blocking_client_that_released_its_slot_leaves_with_the_late_one(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision;
    blocking_fixture_open(&fixture);
    answer(&fixture.daemon, fixture.next_msgid++, true, "slot", "s1");
    assert_int_equal(ratelimit_acquire(fixture.client, "jobs", "a", 1, LONG_MS, &decision), RATELIMIT_OK);
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, fixture.next_msgid++);
    pack_map(&packer, 1);
    pack_text(&packer, "released");
    pack_bool(&packer, true);
    daemon_send(&fixture.daemon, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
    assert_int_equal(ratelimit_release(fixture.client, "s1", LONG_MS, NULL), RATELIMIT_OK);
    assert_int_equal(ratelimit_reserve(fixture.client, "llm", "a", 1, 5, NULL, SHORT_MS, &decision), RATELIMIT_TIMEOUT);
    daemon_expect(&fixture.daemon, "acquire");
    daemon_expect(&fixture.daemon, "release");
    daemon_expect(&fixture.daemon, "reserve");
    assert_true(has_hung_up(&fixture.daemon));
    blocking_fixture_close(&fixture);
}

#define ASYNC_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ASYNC_TEST(a_slot_given_too_late_is_released),
        ASYNC_TEST(a_reservation_made_too_late_is_cancelled),
        ASYNC_TEST(a_slot_that_a_packed_call_asked_for_is_released_too),
        ASYNC_TEST(a_late_no_or_error_takes_nothing_back),
        ASYNC_TEST(the_late_slot_is_free_before_it_is_asked_for_again),
        ASYNC_TEST(a_slot_of_a_half_written_acquire_is_released_too),
        ASYNC_TEST(what_may_come_late_ends_with_its_connection),
        ASYNC_TEST(a_release_that_did_not_leave_ends_with_its_connection),
        ASYNC_TEST(a_connection_that_answers_nothing_is_left),
        cmocka_unit_test(a_blocking_client_without_slots_leaves_with_the_late_one),
        cmocka_unit_test(a_blocking_client_with_a_slot_releases_the_late_one_first_thing),
        cmocka_unit_test(a_blocking_client_that_released_its_slot_leaves_with_the_late_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
