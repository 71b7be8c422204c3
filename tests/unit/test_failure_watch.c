/* test_failure_watch.c: what is logged while checks get failure answers, second by second, without a daemon. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/failure_watch.h"

static int ends[2], kept;
static struct policy_set policies;
static struct failure_watch watch;
static struct failure_view view;

static int set_up(void **state)
{
    (void)state;
    kept = dup(STDERR_FILENO);
    if (kept < 0 || pipe2(ends, O_NONBLOCK) != 0) return -1;
    dup2(ends[1], STDERR_FILENO);
    policies = (struct policy_set){.n_on_failure = {[ON_FAILURE_ALLOW] = 3, [ON_FAILURE_DENY] = 1}};
    view = (struct failure_view){
        .now_us = 100000000, .status = "ready", .is_ready = true, .refusal = {"", "", 0}, .policies = &policies};
    failure_watch_start(&watch, view.now_us);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(ends[0]);
    return close(ends[1]);
}

/* One second in which n checks got a failure answer, all at once. */
static bool second(enum failure_cause cause, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (view.now_us - view.last_us <= 1000000) view.n_repeated++;
        view.last_us = view.now_us;
        view.n[cause]++;
        view.n_answers[ON_FAILURE_LOCAL]++;
    }
    view.now_us += 1000000;
    return failure_watch_look(&watch, &view);
}

static void refuse(const char *text)
{
    view.refusal = (struct redis_refusal){text, "", view.now_us};
}

/* A second with a failure answer after which the engine says that it is the third in a row. */
static bool third(enum failure_cause cause)
{
    view.n_repeated++;
    return second(cause, 1);
}

static void assert_logged(const char *expected)
{
    char got[2048];
    ssize_t n = read(ends[0], got, sizeof got - 1);
    got[n > 0 ? n : 0] = '\0';
    assert_string_equal(got, expected);
}

static void a_single_failure_answer_is_not_reported(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_false(second(CAUSE_DEADLINE, 1));
        view.now_us += 1000000;
    }
    assert_logged("");
}

static void the_second_within_a_second_is_reported_across_two_looks_too(void **state)
{
    (void)state;
    assert_false(second(CAUSE_DEADLINE, 1));
    assert_true(second(CAUSE_DEADLINE, 1));
    assert_logged("ratelimitd: warning: Redis does not decide: no answer by the deadline; checks get their failure "
                  "answer: 3 policies allow, 1 denies\n");
    assert_string_equal(watch.reason.text, "no answer by the deadline");
}

static void a_redis_that_refuses_every_command_is_reported_in_its_own_words(void **state)
{
    (void)state;
    refuse("OOM command not allowed\nwhen used memory > 'maxmemory'.");
    assert_true(second(CAUSE_STORE_ERROR, 70));
    assert_logged("ratelimitd: warning: Redis does not decide: OOM command not allowed\\x0awhen used memory > "
                  "'maxmemory'.; checks get their failure answer: 3 policies allow, 1 denies\n");
    for (int i = 0; i < 100; i++) {
        refuse("OOM but in other words");
        assert_false(second(CAUSE_STORE_ERROR, 70));
    }
    assert_logged("");
}

/* Redis has run the batch: other keys are decided. */
static void keys_of_another_type_are_reported_as_some_keys(void **state)
{
    (void)state;
    assert_true(second(CAUSE_STORE_ERROR, 2));
    assert_logged("ratelimitd: warning: Redis does not decide: some keys hold a value of another type, or one that "
                  "cannot be read; checks of these keys get their failure answer: 3 policies allow, 1 denies\n");
}

static void another_reason_is_reported_at_most_every_ten_seconds(void **state)
{
    (void)state;
    assert_true(second(CAUSE_OVERLOAD, 2));
    assert_logged("ratelimitd: warning: Redis does not decide: too many checks wait for it; checks get their failure "
                  "answer: 3 policies allow, 1 denies\n");
    for (int i = 0; i < 9; i++) assert_false(second(i % 2 ? CAUSE_OVERLOAD : CAUSE_DEADLINE, 2));
    assert_logged("");
    refuse("READONLY You can't write against a read only replica.");
    assert_true(second(CAUSE_STORE_ERROR, 2));
    assert_logged("ratelimitd: warning: Redis does not decide: READONLY You can't write against a read only replica.; "
                  "checks get their failure answer: 3 policies allow, 1 denies\n");
}

static void a_lost_connection_is_reported_as_such(void **state)
{
    (void)state;
    view.is_ready = false;
    view.status = "Connection refused by \\x0a (unix:/run/redis.sock)"; /* it was escaped once more */
    assert_true(second(CAUSE_DOWN, 2));
    assert_string_equal(watch.reason.text, view.status);
    assert_int_equal(watch.reason.cause, CAUSE_DOWN);
}

static void the_end_is_reported_once_redis_has_decided_for_ten_seconds(void **state)
{
    (void)state;
    assert_true(second(CAUSE_DEADLINE, 4));
    assert_false(second(CAUSE_STORE_ERROR, 2));
    assert_true(read(ends[0], (char[1024]){0}, 1024) > 0);
    for (int i = 0; i < 30; i++) assert_false(second(CAUSE_DOWN, 0)); /* nobody asks */
    assert_logged("");
    view.decided_us = view.now_us;
    assert_true(second(CAUSE_DOWN, 0));
    assert_logged("ratelimitd: info: Redis decides again after 1 s, 6 answers were local\n");
    assert_string_equal(watch.reason.text, "");
    assert_false(second(CAUSE_DEADLINE, 1));
    assert_true(second(CAUSE_DEADLINE, 3));
}

/* Earlier only two within a second counted: a policy checked every two seconds was denied for ever in silence. */
static void an_open_breaker_is_reported_at_once_and_its_end_without_any_traffic(void **state)
{
    (void)state;
    refuse("OOM command not allowed");
    assert_true(second(CAUSE_STORE_ERROR, 5));
    view.breaker = "it refused 5 batches in a row: OOM command not allowed";
    assert_true(second(CAUSE_BREAKER, 100));
    assert_logged(
        "ratelimitd: warning: Redis does not decide: OOM command not allowed; checks get their failure answer: "
        "3 policies allow, 1 denies\n"
        "ratelimitd: warning: Redis does not decide: the breaker is open: it refused 5 batches in a row: OOM "
        "command not allowed; checks get their failure answer: 3 policies allow, 1 denies\n");
    for (int i = 0; i < 30; i++) assert_false(second(CAUSE_BREAKER, 0)); /* nobody asks, and it is open */

    view.breaker = NULL;
    view.proven_us = view.now_us;
    assert_true(second(CAUSE_BREAKER, 0));
    assert_logged("ratelimitd: info: Redis decides again after 1 s, 105 answers were local\n");
}

static void a_connection_made_again_ends_an_episode_without_traffic_unless_redis_refused(void **state)
{
    (void)state;
    view.is_ready = false;
    view.status = "connection refused";
    assert_true(second(CAUSE_DOWN, 4));
    for (int i = 0; i < 20; i++) assert_false(second(CAUSE_DOWN, 0));
    view.is_ready = true;
    view.proven_us = view.now_us;
    assert_true(second(CAUSE_DOWN, 0));
    assert_false(watch.is_episode);

    refuse("OOM command not allowed");
    assert_true(second(CAUSE_STORE_ERROR, 5));
    view.proven_us = view.now_us;
    for (int i = 0; i < 20; i++) assert_false(second(CAUSE_STORE_ERROR, 0));
    assert_true(watch.is_episode);
}

static void the_third_failure_answer_in_a_row_is_reported_however_slow_they_come(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_false(second(CAUSE_DEADLINE, 1));
        view.now_us += 3600 * INT64_C(1000000);
    }
    assert_true(third(CAUSE_DEADLINE));
    assert_logged("ratelimitd: warning: Redis does not decide: no answer by the deadline; checks get their failure "
                  "answer: 3 policies allow, 1 denies\n");
}

/* The set of a configuration, with two policies that Redis may refuse. */
static struct policy *login, *search;

static struct policy_set *two_policies(void)
{
    struct policy_set *set = policy_set_new(2);
    login = policy_new("login", 1);
    search = policy_new("search", 1);
    login->on_failure = ON_FAILURE_DENY;
    policy_seal(login);
    policy_seal(search);
    policy_set_add(set, login);
    policy_set_add(set, search);
    view.policies = set;
    return set;
}

static const char no_right[] = "NOPERM No permissions to access a key";

static bool refuse_policy(const char *policy)
{
    view.refusal = (struct redis_refusal){no_right, policy, view.now_us};
    view.decided_us = view.now_us; /* other policies are fine */
    return third(CAUSE_STORE_ERROR);
}

static void a_policy_that_redis_refuses_is_named_until_redis_decides_it_again(void **state)
{
    (void)state;
    struct policy_set *set = two_policies();
    assert_true(refuse_policy("login"));
    assert_logged("ratelimitd: warning: Redis does not decide policy login: NOPERM No permissions to access a key; its "
                  "checks get their failure answer: deny\n");

    for (int i = 0; i < 4; i++) assert_false(second(CAUSE_DOWN, 0));
    assert_false(refuse_policy("login"));
    for (int i = 0; i < 30; i++) {
        view.decided_us = view.now_us;
        assert_false(second(CAUSE_DOWN, 0));
    }
    assert_logged("");
    login->counts->all.decisions[SOURCE_REDIS][true]++;
    assert_true(second(CAUSE_DOWN, 0));
    assert_logged("ratelimitd: info: Redis decides policy login again after 5 s, 2 answers were local\n");
    policy_set_unref(set);
}

static void several_refused_policies_are_one_episode(void **state)
{
    (void)state;
    struct policy_set *set = two_policies();
    assert_true(refuse_policy("login"));
    assert_true(read(ends[0], (char[1024]){0}, 1024) > 0);
    for (int i = 0; i < 9; i++) assert_false(refuse_policy("search"));
    assert_true(refuse_policy("search"));
    assert_logged(
        "ratelimitd: warning: Redis does not decide: NOPERM No permissions to access a key; checks of several "
        "policies get their failure answer: 1 policy allows, 1 denies\n");
    for (int i = 0; i < 50; i++) assert_false(refuse_policy(i % 2 ? "login" : "search"));
    policy_set_unref(set);
}

static void the_end_counts_what_the_answers_were(void **state)
{
    (void)state;
    assert_true(second(CAUSE_DEADLINE, 340));
    view.n_answers[ON_FAILURE_ALLOW] += 2;
    view.n_answers[ON_FAILURE_DENY]++;
    view.n_answers[ON_FAILURE_ERROR]++;
    for (int i = 0; i < 11; i++) assert_false(second(CAUSE_DEADLINE, 1));
    assert_true(read(ends[0], (char[1024]){0}, 1024) > 0);
    for (int i = 0; i < 9; i++) second(CAUSE_DOWN, 0);
    view.decided_us = view.now_us;
    assert_true(second(CAUSE_DOWN, 0));
    assert_logged("ratelimitd: info: Redis decides again after 11 s, 2 answers were allowed, 1 denied, 351 local, 1 "
                  "errors\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_single_failure_answer_is_not_reported),
        TEST(the_second_within_a_second_is_reported_across_two_looks_too),
        TEST(a_redis_that_refuses_every_command_is_reported_in_its_own_words),
        TEST(keys_of_another_type_are_reported_as_some_keys),
        TEST(another_reason_is_reported_at_most_every_ten_seconds),
        TEST(a_lost_connection_is_reported_as_such),
        TEST(the_end_is_reported_once_redis_has_decided_for_ten_seconds),
        TEST(an_open_breaker_is_reported_at_once_and_its_end_without_any_traffic),
        TEST(a_connection_made_again_ends_an_episode_without_traffic_unless_redis_refused),
        TEST(the_third_failure_answer_in_a_row_is_reported_however_slow_they_come),
        TEST(a_policy_that_redis_refuses_is_named_until_redis_decides_it_again),
        TEST(several_refused_policies_are_one_episode),
        TEST(the_end_counts_what_the_answers_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
