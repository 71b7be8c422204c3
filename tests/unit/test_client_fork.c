/*
 * test_client_fork.c: a callback that forks: the child comes back into the middle of its parent's tick, and must leave
 * the parent's connection and calls alone from there on.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/ratelimit.h"
#include "fakes/scripted_daemon.h"

enum { N_CALLS = 3, LONG_MS = 10000 };

struct fixture {
    struct scripted_daemon daemon;
    struct ratelimit_async *client;
    bool calls_before;       /* the callback that forks makes a call first: the parent's */
    bool calls_after;        /* the child makes one there */
    pid_t child;             /* -1: not yet; 0: this is it */
    int n_ends;              /* of the calls made before */
    int n_others;            /* of those made in the callback */
    bool answer_was_changed; /* under the eyes of the callback */
};

static void on_other(const struct ratelimit_answer *answer, void *arg)
{
    struct fixture *fixture = arg;
    (void)answer;
    fixture->n_others++;
}

static enum ratelimit_status check(struct fixture *fixture, ratelimit_answer_fn *callback)
{
    return ratelimit_async_check(fixture->client, "login", "alice", 5, 1, LONG_MS, callback, fixture);
}

static void on_end(const struct ratelimit_answer *answer, void *arg)
{
    struct fixture *fixture = arg;
    uint8_t result[64];
    if (++fixture->n_ends > 1) return;
    if (fixture->calls_before) check(fixture, on_other);
    fixture->child = fork();
    if (fixture->child != 0 || !fixture->calls_after || answer->result_len > sizeof result) return;
    memcpy(result, answer->result, answer->result_len);
    check(fixture, on_other);
    fixture->answer_was_changed = memcmp(result, answer->result, answer->result_len) != 0;
}

static void tick(struct fixture *fixture)
{
    ratelimit_async_process(fixture->client, POLLIN | POLLOUT);
}

/* Three calls whose answers come at once; the first one's callback forks. In the child this ends the process, with 0
 * where it is left with `n_pending` calls and has heard of no other. */
static void fork_at_the_first_answer(struct fixture *fixture, size_t n_pending)
{
    uint64_t msgids[N_CALLS];
    fixture->child = -1;
    daemon_start(&fixture->daemon, 16);
    assert_int_equal(ratelimit_async_new(fixture->daemon.path, &fixture->client), RATELIMIT_OK);
    for (int i = 0; i < N_CALLS; i++) assert_int_equal(check(fixture, on_end), RATELIMIT_OK);
    tick(fixture);
    daemon_greet(&fixture->daemon);
    for (int i = 0; i < N_CALLS; i++) msgids[i] = daemon_expect(&fixture->daemon, "check");
    for (int i = 0; i < N_CALLS; i++) daemon_answer_allowed(&fixture->daemon, msgids[i], 4 - i);
    tick(fixture);
    if (fixture->child == 0) {
        bool good = fixture->n_ends == 1 && fixture->n_others == 0 && !fixture->answer_was_changed &&
                    ratelimit_async_pending(fixture->client) == n_pending;
        ratelimit_async_free(fixture->client);
        _exit(good ? 0 : 1);
    }
}

static void assert_child_is_well(const struct fixture *fixture)
{
    int status;
    assert_int_equal(waitpid(fixture->child, &status, 0), fixture->child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void finish(struct fixture *fixture)
{
    struct rpc_request request;
    assert_int_equal(fixture->n_ends, N_CALLS);
    assert_false(daemon_read(&fixture->daemon, &request)); /* nothing of the child's */
    ratelimit_async_free(fixture->client);
    daemon_stop(&fixture->daemon);
}

static void a_child_forked_by_a_callback_hears_of_no_other_call(void **state)
{
    (void)state;
    struct fixture fixture = {0};
    fork_at_the_first_answer(&fixture, 0);
    assert_child_is_well(&fixture);
    finish(&fixture);
}

static void a_child_forked_by_a_callback_does_not_send_what_its_parent_waits_to_send(void **state)
{
    (void)state;
    struct fixture fixture = {.calls_before = true};
    fork_at_the_first_answer(&fixture, 0);
    assert_child_is_well(&fixture);
    daemon_expect(&fixture.daemon, "check"); /* once, by the parent */
    finish(&fixture);
    assert_int_equal(fixture.n_others, 1); /* cancelled */
}

static void a_call_made_by_the_child_in_that_callback_goes_over_a_connection_of_its_own(void **state)
{
    (void)state;
    struct fixture fixture = {.calls_after = true};
    fork_at_the_first_answer(&fixture, 1);
    assert_child_is_well(&fixture);
    finish(&fixture);
    assert_int_equal(fixture.n_others, 0);
}

static void the_childs_own_call_is_all_that_comes_over_its_connection(void **state)
{
    (void)state;
    struct fixture fixture = {.calls_before = true, .calls_after = true};
    fork_at_the_first_answer(&fixture, 1);
    assert_child_is_well(&fixture);
    daemon_expect(&fixture.daemon, "check");
    daemon_hang_up(&fixture.daemon);
    tick(&fixture);
    assert_int_equal(fixture.n_others, 1); /* lost */
    daemon_accept(&fixture.daemon);
    daemon_expect(&fixture.daemon, "hello");
    daemon_expect(&fixture.daemon, "check");
    finish(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_forked_by_a_callback_hears_of_no_other_call),
        cmocka_unit_test(a_child_forked_by_a_callback_does_not_send_what_its_parent_waits_to_send),
        cmocka_unit_test(a_call_made_by_the_child_in_that_callback_goes_over_a_connection_of_its_own),
        cmocka_unit_test(the_childs_own_call_is_all_that_comes_over_its_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
