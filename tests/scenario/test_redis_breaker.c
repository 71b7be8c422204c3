/*
 * test_redis_breaker.c: a Redis that refuses everything, or answers after every deadline, is not asked any more until
 * it has shown that it works.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "fakes/served_store.h"
#include "redis/counters.h"

static void open_with(uint32_t errors, uint32_t late)
{
    store_fixture->options.breaker_errors = errors;
    store_fixture->options.breaker_late = late;
    store_fixture->options.breaker_probe_every_ms = 1;
    served_store_open();
}

static void fill_redis(void)
{
    assert_int_equal(real_redis_command(&redis, "CONFIG SET maxmemory 1"), 1);
}

static void empty_redis(void)
{
    assert_int_equal(real_redis_command(&redis, "CONFIG SET maxmemory 0"), 1);
}

static bool is_closed_again(void *arg)
{
    (void)arg;
    return redis_counters.breaker_open == 0;
}

static struct ask *check_now(const char *key)
{
    struct ask *ask = store_fixture_check(key);
    store_fixture_settle();
    return ask;
}

static void a_full_redis_is_asked_again_only_after_a_write_has_succeeded(void **state)
{
    (void)state;
    open_with(3, 0);
    fill_redis();
    for (int i = 0; i < 3; i++) assert_int_equal(check_now("k")->outcome, OP_STORE_ERROR);
    assert_int_equal(redis_counters.breaker_opens, 1);
    assert_non_null(strstr(redis_store_breaker(store_fixture->redis), "3 batches in a row: OOM"));

    uint64_t n_batches = redis_counters.redis_batches;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(store_fixture_check("k")->submitted, SUBMIT_BREAKER);
        patient_loop_ticks(&store_fixture->patient, 1);
    }
    assert_int_equal(redis_counters.redis_batches, n_batches);
    assert_int_equal(redis_counters.breaker_open, 1);
    store_fixture_status_has("ready");

    empty_redis();
    store_fixture_until(is_closed_again);
    assert_null(redis_store_breaker(store_fixture->redis));
    assert_int_equal(check_now("k")->member.decision.remaining, 999999);
    long long n_keys = real_redis_command(&redis, "DBSIZE"); /* the counter, and for a second the scratch key */
    assert_true(n_keys == 1 || n_keys == 2);
}

static void peeks_of_a_full_redis_do_not_end_its_row_of_refusals(void **state)
{
    (void)state;
    open_with(3, 0);
    fill_redis();
    for (int i = 0; i < 3; i++) {
        struct ask *peek = store_fixture_ask("k", OP_PEEK, 0);
        store_fixture_settle();
        assert_int_equal(peek->outcome, OP_DECIDED);
        assert_int_equal(check_now("k")->outcome, OP_STORE_ERROR);
    }
    assert_int_equal(redis_counters.breaker_opens, 1);
    empty_redis();
}

static void what_waits_when_it_opens_ends_at_once_and_was_not_sent(void **state)
{
    (void)state;
    store_fixture->options.window = 1;
    store_fixture->options.batch_max_keys = 1;
    open_with(3, 0);
    fill_redis();
    store_fixture_check_many("k", 10, 10);
    store_fixture_settle();
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(store_fixture->asks[i].outcome, i < 3 ? OP_STORE_ERROR : OP_BREAKER);
        assert_int_equal(store_fixture->asks[i].op.sent, i < 3);
    }
    empty_redis();
}

static void a_policy_without_a_right_never_opens_it(void **state)
{
    (void)state;
    open_with(2, 2);
    assert_int_equal(real_redis_command(&redis, "ACL SETUSER default resetkeys ~rl:*:other/*"), 1);
    for (int i = 0; i < 10; i++) assert_int_equal(check_now("k")->outcome, OP_STORE_ERROR);
    assert_int_equal(redis_counters.breaker_opens, 0);
}

/* A check whose answer comes when its deadline is over: so long after it was submitted it is sent. On a clock that the
 * test alone moves. */
static void check_late_after(int64_t waits_us)
{
    real_redis_signal(&redis, SIGSTOP);
    store_fixture->deadline_us = store_fixture->clock.mono_us + 1000;
    (void)store_fixture_check("k");
    store_fixture->clock.mono_us += waits_us;
    store_flush(&store_fixture->store);
    store_fixture->clock.mono_us += 1000 - waits_us;
    real_redis_signal(&redis, SIGCONT);
    store_fixture_settle();
}

static void check_late(void)
{
    check_late_after(0);
}

/* Next to a flood, checks were sent shortly before their deadlines, and a Redis that answered each in a millisecond was
 * not asked any more. */
static void checks_that_waited_here_until_their_deadline_never_open_it(void **state)
{
    (void)state;
    open_with(0, 3);
    store_fixture->clock.frozen = true;
    for (int i = 0; i < 10; i++) check_late_after(900);
    assert_int_equal(redis_counters.redis_batches, 10);
    assert_int_equal(redis_counters.breaker_opens, 0);
}

static void a_redis_that_is_late_again_and_again_is_asked_again_once_it_answers_in_time(void **state)
{
    (void)state;
    open_with(0, 3);
    store_fixture->clock.frozen = true;
    check_late();
    check_late();
    store_fixture->deadline_us = 0;
    (void)check_now("k"); /* it has no deadline, so it is not late, and ends the row */
    check_late();
    check_late();
    assert_int_equal(redis_counters.breaker_opens, 0);
    check_late();
    assert_int_equal(redis_counters.breaker_opens, 1);
    assert_int_equal(store_fixture_check("k")->submitted, SUBMIT_BREAKER);

    store_fixture_until(is_closed_again);
    store_fixture->deadline_us = 0;
    assert_int_equal(check_now("k")->outcome, OP_DECIDED);
}

/* A client that gives its checks a millisecond, or the rest of a late check_many, which has no more: five batches that
 * took two, and Redis was not asked any more. */
static void checks_that_were_given_less_than_any_policy_gives_never_open_it(void **state)
{
    (void)state;
    store_fixture->options.breaker_late_ms = 20;
    open_with(0, 3);
    store_fixture->clock.frozen = true;
    for (int i = 0; i < 10; i++) check_late();
    assert_int_equal(redis_counters.redis_batches, 10);
    assert_int_equal(redis_counters.breaker_opens, 0);
}

/* As often Redis has run this command. */
static long n_calls(const char *command)
{
    struct redisContext *direct = real_redis_connect(&redis);
    redisReply *info = redisCommand(direct, "INFO commandstats");
    char head[64];
    snprintf(head, sizeof head, "cmdstat_%s:calls=", command);
    const char *at = strstr(info->str, head);
    long n = at != NULL ? strtol(at + strlen(head), NULL, 10) : 0;
    freeReplyObject(info);
    redisFree(direct);
    return n;
}

/* Before the loop can do anything else, such as to send a probe. */
static void stop_redis(struct ask *ask)
{
    (void)ask;
    real_redis_signal(&redis, SIGSTOP);
}

enum { GIVEN_US = 500000 };

/* Redis is stopped, and the check's deadline has passed. */
static void send_a_late_check(void)
{
    store_fixture->clock.frozen = true;
    real_redis_signal(&redis, SIGSTOP);
    store_fixture->deadline_us = store_fixture->clock.mono_us + GIVEN_US;
    (void)store_fixture_check("k");
    store_flush(&store_fixture->store);
    store_fixture->clock.mono_us += GIVEN_US;
}

/* By the late answer; and Redis is stopped again with the probe on its way to it. */
static void open_it_while_redis_is_stopped(void)
{
    send_a_late_check();
    store_fixture->on_done = stop_redis;
    real_redis_signal(&redis, SIGCONT);
    store_fixture_settle();
    assert_int_equal(redis_counters.breaker_opens, 1);
    patient_loop_ticks(&store_fixture->patient, 20); /* the probe is sent */
}

/* A Redis far away, that the policies' deadlines allow for, had to answer within defaults.deadline to be asked again,
 * and never did. */
static void a_redis_far_away_need_not_answer_sooner_than_the_deadlines_that_it_missed(void **state)
{
    (void)state;
    enum { FAR_US = 100000 };
    store_fixture->options.deadline_ms = 20;
    open_with(0, 1);
    long n_before = n_calls("evalsha");
    open_it_while_redis_is_stopped();

    store_fixture->clock.mono_us += FAR_US;
    real_redis_signal(&redis, SIGCONT);
    store_fixture_until(is_closed_again);
    assert_int_equal(n_calls("evalsha"), n_before + 2); /* the check, and one probe */
}

/* Both are the empty batch. The trial's took another nonce, and the probe's answer was taken for something else's: the
 * connection was closed. */
static void a_reload_while_a_probe_is_under_way_leaves_the_connection(void **state)
{
    (void)state;
    open_with(0, 1);
    open_it_while_redis_is_stopped();
    assert_int_equal(redis_counters.breaker_open, 1);

    store_fixture->options.database = 1;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    patient_loop_ticks(&store_fixture->patient, 20); /* so is what proves the trial's connection */
    real_redis_signal(&redis, SIGCONT);
    store_fixture_until(is_closed_again);
    store_fixture_until(store_has_no_trial);
    assert_int_equal(redis_counters.redis_bad_replies, 0);
}

/* Sent so early that Redis finds it too late and does nothing, and answered after its deadline. */
static void check_begun_too_late(void)
{
    const int64_t long_us = 10000000;
    store_fixture->clock.mono_us -= long_us;
    store_fixture->deadline_us = store_fixture->clock.mono_us + 1000;
    struct ask *ask = store_fixture_check("k");
    store_flush(&store_fixture->store);
    store_fixture->clock.mono_us += long_us;
    store_fixture_settle();
    assert_int_equal(ask->outcome, OP_EXPIRED);
}

/* With a long store.redis.stall, a Redis two seconds behind began no batch in time. Each check cost its deadline. */
static void a_redis_so_late_that_it_begins_nothing_in_time_opens_it(void **state)
{
    (void)state;
    store_fixture->options.deadline_ms = 1;
    open_with(0, 1);
    store_fixture->clock.frozen = true;
    check_begun_too_late();
    assert_int_equal(redis_counters.redis_batches_too_late, 1);
    assert_int_equal(redis_counters.breaker_opens, 1);
    store_fixture_until(is_closed_again);
}

/* How many of ten batches are on the wire at once. */
static size_t n_at_once(void)
{
    real_redis_signal(&redis, SIGSTOP);
    store_fixture_check_many("w", 10, 10);
    store_flush(&store_fixture->store);
    size_t n = redis_counters.redis_inflight;
    real_redis_signal(&redis, SIGCONT);
    store_fixture_settle();
    return n;
}

static void the_window_begins_at_one_after_each_return(void **state)
{
    (void)state;
    store_fixture->options.batch_max_keys = 1;
    store_fixture->options.window = 8;
    open_with(1, 0);
    assert_int_equal(n_at_once(), 8);
    fill_redis();
    (void)check_now("k");
    empty_redis();
    store_fixture_until(is_closed_again);
    assert_int_equal(n_at_once(), 1);

    for (int i = 0; i < 10; i++) (void)n_at_once();
    assert_true(n_at_once() > 1);
    real_redis_kill(&redis);
    store_fixture_until(store_is_not_ready);
    real_redis_start(&redis, NULL);
    store_fixture_until(store_is_ready);
    assert_int_equal(n_at_once(), 1);
}

static void a_lost_connection_keeps_it_open_and_the_next_one_begins_with_a_probe(void **state)
{
    (void)state;
    open_with(1, 0);
    fill_redis();
    (void)check_now("k");
    real_redis_kill(&redis);
    store_fixture_until(store_is_not_ready);
    assert_int_equal(store_fixture_check("k")->submitted, SUBMIT_DOWN);
    assert_int_equal(redis_counters.breaker_open, 1);
    real_redis_start(&redis, NULL); /* it is empty, and has memory */
    store_fixture_until(store_is_ready);
    store_fixture_until(is_closed_again);
    assert_int_equal(check_now("k")->outcome, OP_DECIDED);
}

static bool is_found_to_be_a_replica(void *arg)
{
    return store_is_not_ready(arg) && strstr(redis_store_status(store_fixture->redis), "replica") != NULL;
}

/* A replica without its master answers MASTERDOWN to a script, and READONLY to the probe. Earlier that closed the
 * breaker, which opened again five checks later, for as long as the master was away. */
static void a_server_that_has_lost_its_master_is_left_by_the_probe(void **state)
{
    (void)state;
    open_with(3, 0);
    (void)check_now("k");
    assert_int_equal(real_redis_command(&redis, "CONFIG SET replica-serve-stale-data no"), 1);
    assert_int_equal(real_redis_command(&redis, "REPLICAOF 127.0.0.1 1"), 1);
    for (int i = 0; i < 3; i++) assert_int_equal(check_now("k")->outcome, OP_STORE_ERROR);
    assert_non_null(strstr(redis_store_breaker(store_fixture->redis), "3 batches in a row: MASTERDOWN"));
    store_fixture_until(is_found_to_be_a_replica);
    assert_int_equal(redis_counters.breaker_opens, 1);
    assert_int_equal(redis_counters.breaker_open, 1);

    assert_int_equal(real_redis_command(&redis, "REPLICAOF NO ONE"), 1);
    store_fixture_until(is_closed_again);
    assert_int_equal(check_now("k")->outcome, OP_DECIDED);
}

static void a_reload_may_switch_it_off_while_it_is_open(void **state)
{
    (void)state;
    open_with(1, 0);
    fill_redis();
    (void)check_now("k");
    assert_int_equal(redis_counters.breaker_open, 1);
    store_fixture->options.breaker_errors = 0;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    assert_int_equal(redis_counters.breaker_open, 0);
    for (int i = 0; i < 10; i++) assert_int_equal(check_now("k")->outcome, OP_STORE_ERROR);
    empty_redis();
    assert_int_equal(check_now("k")->outcome, OP_DECIDED);
}

static void a_late_call_that_is_lost_as_the_store_closes_leaves_it_closed(void **state)
{
    (void)state;
    open_with(0, 1);
    send_a_late_check();
    store_fixture_close();
    store_fixture_until(store_is_closed);
    real_redis_signal(&redis, SIGCONT);
    assert_int_equal(store_fixture->asks[0].outcome, OP_DOWN);
    assert_int_equal(redis_counters.breaker_open, 0);
}

int main(void)
{
    if (real_redis_is_missing()) return 0;
    const struct CMUnitTest tests[] = {
        SERVED_STORE_TEST(a_full_redis_is_asked_again_only_after_a_write_has_succeeded),
        SERVED_STORE_TEST(peeks_of_a_full_redis_do_not_end_its_row_of_refusals),
        SERVED_STORE_TEST(what_waits_when_it_opens_ends_at_once_and_was_not_sent),
        SERVED_STORE_TEST(a_policy_without_a_right_never_opens_it),
        SERVED_STORE_TEST(checks_that_waited_here_until_their_deadline_never_open_it),
        SERVED_STORE_TEST(a_redis_that_is_late_again_and_again_is_asked_again_once_it_answers_in_time),
        SERVED_STORE_TEST(checks_that_were_given_less_than_any_policy_gives_never_open_it),
        SERVED_STORE_TEST(a_redis_far_away_need_not_answer_sooner_than_the_deadlines_that_it_missed),
        SERVED_STORE_TEST(a_redis_so_late_that_it_begins_nothing_in_time_opens_it),
        SERVED_STORE_TEST(the_window_begins_at_one_after_each_return),
        SERVED_STORE_TEST(a_reload_while_a_probe_is_under_way_leaves_the_connection),
        SERVED_STORE_TEST(a_lost_connection_keeps_it_open_and_the_next_one_begins_with_a_probe),
        SERVED_STORE_TEST(a_server_that_has_lost_its_master_is_left_by_the_probe),
        SERVED_STORE_TEST(a_reload_may_switch_it_off_while_it_is_open),
        SERVED_STORE_TEST(a_late_call_that_is_lost_as_the_store_closes_leaves_it_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
