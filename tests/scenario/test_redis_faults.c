/* test_redis_faults.c: what happens to a real redis-server under load, and what becomes of the ops: each ends once. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "base/alloc.h"
#include "fakes/served_store.h"
#include "redis/counters.h"

static void a_server_killed_under_load_loses_each_op_once(void **state)
{
    (void)state;
    served_store_open();
    for (int i = 0; i < 50; i++) {
        store_fixture_check_many("k", 100, 100);
        patient_loop_ticks(&store_fixture->patient, 1);
        if (i == 25) real_redis_kill(&redis);
    }
    store_fixture_until(store_is_not_ready);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided + store_fixture->n_down, store_fixture->n_pending);
    assert_int_equal(store_fixture_check("k")->submitted, SUBMIT_DOWN);
    size_t before = store_fixture->n_decided;
    real_redis_start(&redis, NULL); /* with an empty script cache */
    store_fixture_until(store_is_ready);
    store_fixture_check_many("k", 100, 100);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided, before + 100);
}

static void a_stopped_server_ends_ops_and_no_late_reply_is_taken_for_another(void **state)
{
    (void)state;
    store_fixture->options.stall_ms = 500;
    served_store_open();
    real_redis_signal(&redis, SIGSTOP);
    store_fixture_check_many("k", 50, 50);
    store_fixture_until(store_is_not_ready);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_down, 50);
    assert_int_equal(redis_counters.redis_stalls, 1);
    store_fixture_status_has("no reply for");
    real_redis_signal(&redis, SIGCONT);
    store_fixture_until(store_is_ready);
    store_fixture->limit = store_fixture_limit("three", ALGO_FIXED_WINDOW, 3);
    store_fixture_check_many("fresh", 1, 4);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided, 4);
    assert_int_equal(store_fixture->n_allowed, 3);
    assert_int_equal(redis_counters.redis_bad_replies, 0);
}

static void a_flushed_script_is_loaded_again_and_nothing_counted_twice(void **state)
{
    (void)state;
    served_store_open();
    enum { ROUNDS = 60, EACH = 20 };
    store_fixture->limit = store_fixture_limit("many", ALGO_FIXED_WINDOW, ROUNDS * EACH);
    store_fixture->options.merge = false;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    for (int i = 0; i < ROUNDS; i++) {
        store_fixture_check_many("k", 1, EACH); /* all on one key, several batches in flight */
        patient_loop_ticks(&store_fixture->patient, 1);
        if (i % 10 == 5) assert_int_equal(real_redis_command(&redis, "SCRIPT FLUSH"), 1);
    }
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, ROUNDS * EACH);
    assert_true(redis_counters.redis_script_loads > 0);
    for (int i = 0; i < ROUNDS * EACH; i++) { /* in the order they were asked */
        assert_int_equal(store_fixture->asks[i].member.decision.remaining, ROUNDS * EACH - 1 - i);
    }
    struct ask *one_more = store_fixture_check("k0");
    store_fixture_settle();
    assert_false(one_more->member.decision.allowed);
    assert_int_equal(redis_counters.redis_errors, 0);
    assert_int_equal(redis_counters.redis_disconnects, 0);
}

static void rights_taken_away_are_store_errors_until_they_are_back(void **state)
{
    (void)state;
    served_store_start(NULL);
    real_redis_command(&redis, "ACL SETUSER rl on >secret ~* +@all");
    store_fixture->options.username = "rl";
    store_fixture->options.password = "secret";
    store_fixture_open_ready(redis.address);
    real_redis_command(&redis, "ACL SETUSER rl -evalsha");
    store_fixture_check_many("k", 10, 10);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_failed, 10);
    real_redis_command(&redis, "ACL SETUSER rl +evalsha");
    (void)store_fixture_check("k");
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided, 1);
    assert_int_equal(redis_counters.redis_disconnects, 0);
}

static void a_user_without_evalsha_is_reported_and_retried_slowly(void **state)
{
    (void)state;
    served_store_start(NULL);
    real_redis_command(&redis, "ACL SETUSER rl on >secret ~* +@all -evalsha");
    store_fixture->options.username = "rl";
    store_fixture->options.password = "secret";
    store_fixture_open(redis.address);
    store_fixture_until(had_first_attempt);
    store_fixture_status_has("NOPERM");
    real_redis_command(&redis, "ACL SETUSER rl +evalsha");
    store_fixture_until(store_is_ready);
}

static void a_command_the_script_may_not_use_is_reported(void **state)
{
    (void)state;
    served_store_start(NULL);
    real_redis_command(&redis, "ACL SETUSER rl on >secret ~* +@all -incrby");
    store_fixture->options.username = "rl";
    store_fixture->options.password = "secret";
    store_fixture_open_ready(redis.address);
    (void)store_fixture_check("k");
    store_fixture_settle();
    assert_int_equal(store_fixture->n_failed, 1);
    assert_int_equal(redis_counters.redis_errors, 1);
}

static void a_changed_password_is_used_after_a_reload(void **state)
{
    (void)state;
    served_store_start(NULL);
    real_redis_command(&redis, "ACL SETUSER rl on >new ~* +@all");
    store_fixture->options.username = "rl";
    store_fixture->options.password = "old";
    store_fixture_open(redis.address);
    store_fixture_until(had_first_attempt);
    store_fixture_status_has("WRONGPASS");
    store_fixture->options.password = "new";
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    store_fixture_until(store_is_ready);
}

static bool has_taken_the_trial(void *arg)
{
    uint64_t n;
    (void)redis_store_taken(store_fixture->redis, &n);
    return n > 0 && store_is_ready(arg);
}

static void a_reload_moves_to_another_server_without_losing_a_check(void **state)
{
    (void)state;
    served_store_open();
    struct real_redis other;
    real_redis_init(&other, true);
    real_redis_start(&other, NULL);
    for (int i = 0; i < 40; i++) {
        store_fixture_check_many("k", 100, 100);
        if (i == 20) {
            store_fixture->options.address = other.address;
            redis_store_set_options(store_fixture->redis, &store_fixture->options);
        }
        patient_loop_ticks(&store_fixture->patient, 1);
    }
    store_fixture_until(has_taken_the_trial);
    store_fixture_check_many("k", 100, 100);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, 4100);
    assert_int_equal(store_fixture->n_refused, 0);
    assert_true(real_redis_command(&other, "DBSIZE") > 0);
    real_redis_fini(&other);
}

static void a_move_to_nowhere_leaves_the_connection_that_works(void **state)
{
    (void)state;
    served_store_open();
    store_fixture_check_many("a", 10, 10);
    patient_loop_ticks(&store_fixture->patient, 1);
    store_fixture->options.address = "unix:/nowhere";
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    store_fixture_check_many("b", 10, 10);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided, 20);
    assert_int_equal(redis_counters.redis_disconnects, 0);
    store_fixture_status_has("ready");
    assert_non_null(strstr(redis_store_trial(store_fixture->redis), " decides, unix:/nowhere: "));
    store_fixture->options.address = redis.address;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    assert_true(store_has_no_trial(store_fixture));
    assert_int_equal(redis_counters.redis_disconnects, 0);
}

static void short_memory_for_a_second_connection_leaves_the_first_and_is_reported(void **state)
{
    (void)state;
    size_t n_lacks = 0;
    served_store_open();
    for (uint64_t n = 1; n < 40; n++) {
        store_fixture->options.address = "unix:/nowhere";
        mem_fail_nth(n);
        redis_store_set_options(store_fixture->redis, &store_fixture->options);
        mem_fail_nth(0);
        n_lacks += strstr(redis_store_trial(store_fixture->redis), "out of memory") != NULL;
        patient_loop_ticks(&store_fixture->patient, 2);
        store_fixture->options.address = redis.address;
        redis_store_set_options(store_fixture->redis, &store_fixture->options);
        assert_true(store_has_no_trial(store_fixture));
    }
    assert_true(n_lacks > 3);
    assert_true(redis_store_ready(store_fixture->redis));
    assert_int_equal(redis_counters.redis_disconnects, 0);
}

static void a_server_lost_while_moving_away_from_it_is_no_loss_for_what_was_held(void **state)
{
    (void)state;
    served_store_open();
    struct real_redis other;
    real_redis_init(&other, false);
    real_redis_start(&other, NULL);
    real_redis_signal(&redis, SIGSTOP);
    store_fixture_check_many("a", 10, 10);
    patient_loop_ticks(&store_fixture->patient, 1);
    store_fixture->options.address = other.address;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    store_fixture_until(store_has_no_trial);
    store_fixture_check_many("b", 10, 10);
    patient_loop_ticks(&store_fixture->patient, 1);
    real_redis_kill(&redis);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_down, 10);
    assert_int_equal(store_fixture->n_decided, 10);
    real_redis_fini(&other);
}

static void closing_while_moving_is_fine(void **state)
{
    (void)state;
    served_store_open();
    real_redis_signal(&redis, SIGSTOP);
    store_fixture_check_many("a", 10, 10);
    patient_loop_ticks(&store_fixture->patient, 1);
    store_fixture->options.address = "localhost:1";
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    store_fixture_check_many("b", 10, 10);
    patient_loop_ticks(&store_fixture->patient, 1);
    store_fixture_close();
    store_fixture_until(store_is_closed);
    assert_int_equal(store_fixture->n_down, 20);
}

/* Whatever the keys are called, make hashes of them. */
#define MAKE_HASHES                                                                                                    \
    "for _, k in ipairs(redis.call('keys', '*')) do redis.call('del', k) redis.call('hset', k, 'f', 1) end return 1"

static void a_key_of_a_foreign_type_hurts_nobody_else(void **state)
{
    (void)state;
    served_store_open();
    (void)store_fixture_check("victim");
    store_fixture_settle();
    assert_int_equal(real_redis_command(&redis, "EVAL %s 0", MAKE_HASHES), 1);
    struct ask *victim = store_fixture_check("victim");
    store_fixture_check_many("other", 10, 10);
    store_fixture_settle();
    assert_int_equal(victim->outcome, OP_STORE_ERROR);
    assert_int_equal(store_fixture->n_allowed, 11);
    assert_int_equal(redis_counters.redis_bad_values, 1);
    assert_true(redis_store_ready(store_fixture->redis));
}

static void a_full_server_is_a_store_error_and_the_connection_stays(void **state)
{
    (void)state;
    served_store_open();
    assert_int_equal(real_redis_command(&redis, "CONFIG SET maxmemory 1"), 1);
    store_fixture_check_many("k", 5, 5);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_failed, 5);
    assert_true(redis_counters.redis_errors > 0);
    assert_true(redis_store_ready(store_fixture->redis));
    assert_int_equal(real_redis_command(&redis, "CONFIG SET maxmemory 0"), 1);
    store_fixture_check_many("k", 5, 5);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided, 5);
    assert_int_equal(redis_counters.redis_disconnects, 0);
}

static void a_server_that_became_a_replica_is_left(void **state)
{
    (void)state;
    served_store_open();
    assert_int_equal(real_redis_command(&redis, "REPLICAOF 127.0.0.1 1"), 1);
    store_fixture_check_many("k", 5, 5);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided, 0);
    store_fixture_until(store_is_not_ready);
    assert_int_equal(redis_counters.redis_disconnects, 1);
    assert_int_equal(real_redis_command(&redis, "REPLICAOF NO ONE"), 1);
    store_fixture_until(store_is_ready);
    store_fixture_check_many("k", 5, 5);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided, 5);
}

static void a_busy_server_is_a_store_error_and_the_connection_stays(void **state)
{
    (void)state;
    served_store_open();
    store_fixture->options.stall_ms = 20000;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    assert_int_equal(real_redis_command(&redis, "CONFIG SET busy-reply-threshold 1"), 1);
    redisContext *hog = real_redis_connect(&redis);
    int done = 0;
    redisAppendCommand(hog, "EVAL %s 0", "while true do end");
    while (!done) assert_int_equal(redisBufferWrite(hog, &done), REDIS_OK);
    do {
        (void)store_fixture_check("k");
        store_fixture_settle();
    } while (store_fixture->n_failed == 0);
    assert_true(redis_store_ready(store_fixture->redis));
    assert_int_equal(real_redis_command(&redis, "SCRIPT KILL"), 1);
    redisFree(hog);
    size_t before = store_fixture->n_decided;
    do { /* the kill takes effect when the script is looked at next */
        (void)store_fixture_check("k");
        store_fixture_settle();
    } while (store_fixture->n_decided == before);
    assert_int_equal(redis_counters.redis_disconnects, 0);
}

int main(void)
{
    if (real_redis_is_missing()) return 0;
    const struct CMUnitTest tests[] = {
        SERVED_STORE_TEST(a_server_killed_under_load_loses_each_op_once),
        SERVED_STORE_TEST(a_stopped_server_ends_ops_and_no_late_reply_is_taken_for_another),
        SERVED_STORE_TEST(a_flushed_script_is_loaded_again_and_nothing_counted_twice),
        SERVED_STORE_TEST(rights_taken_away_are_store_errors_until_they_are_back),
        SERVED_STORE_TEST(a_user_without_evalsha_is_reported_and_retried_slowly),
        SERVED_STORE_TEST(a_command_the_script_may_not_use_is_reported),
        SERVED_STORE_TEST(a_changed_password_is_used_after_a_reload),
        SERVED_STORE_TEST(a_reload_moves_to_another_server_without_losing_a_check),
        SERVED_STORE_TEST(short_memory_for_a_second_connection_leaves_the_first_and_is_reported),
        SERVED_STORE_TEST(a_move_to_nowhere_leaves_the_connection_that_works),
        SERVED_STORE_TEST(a_server_lost_while_moving_away_from_it_is_no_loss_for_what_was_held),
        SERVED_STORE_TEST(closing_while_moving_is_fine),
        SERVED_STORE_TEST(a_key_of_a_foreign_type_hurts_nobody_else),
        SERVED_STORE_TEST(a_full_server_is_a_store_error_and_the_connection_stays),
        SERVED_STORE_TEST(a_server_that_became_a_replica_is_left),
        SERVED_STORE_TEST(a_busy_server_is_a_store_error_and_the_connection_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
