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
        .now_us = 100000000, .status = "ready", .is_ready = true, .error = "", .policies = &policies};
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
        if (view.now_us - view.last_us <= 1000000) view.n_close++;
        view.last_us = view.now_us;
        view.n[cause]++;
    }
    view.now_us += 1000000;
    return failure_watch_look(&watch, &view);
}

static void refuse(const char *text)
{
    view.error = text;
    view.error_us = view.now_us;
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
    assert_string_equal(watch.reason, "no answer by the deadline");
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
    view.status = "Connection refused (unix:/run/redis.sock)";
    assert_true(second(CAUSE_DOWN, 2));
    assert_string_equal(watch.reason, view.status);
    assert_false(watch.is_connected);
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
    assert_logged("ratelimitd: info: Redis decides again: 6 failure answers in 1 s (store_error 2, deadline 4)\n");
    assert_string_equal(watch.reason, "");
    assert_false(second(CAUSE_DEADLINE, 1));
    assert_true(second(CAUSE_DEADLINE, 3));
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
