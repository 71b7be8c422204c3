/* test_redis_store.c: ops through the store to a real redis-server, in fair weather and foul. */
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
#include "base/counters.h"
#include "fakes/real_redis.h"
#include "fakes/store_world.h"
#include "store/turn.h"

static struct real_redis redis;

static void start(const char *const *args)
{
    real_redis_init(&redis, false);
    real_redis_start(&redis, args);
}

static void start_and_open(void)
{
    start(NULL);
    store_world_open_ready(redis.address);
}

static int setup(void **state)
{
    memset(&redis, 0, sizeof(redis));
    return store_world_setup(state);
}

static int teardown(void **state)
{
    int status = store_world_teardown(state);
    if (redis.folder[0] != '\0') real_redis_fini(&redis);
    return status;
}

/* ---- fair weather ---- */

static void a_limit_is_counted_down_and_then_denies(void **state)
{
    (void)state;
    start_and_open();
    store_world->limit = store_world_limit("five", ALGO_FIXED_WINDOW, 5);
    for (int i = 0; i < 7; i++) {
        struct ask *ask = store_world_check("k");
        assert_int_equal(ask->submitted, SUBMIT_PENDING);
        store_world_settle();
        assert_int_equal(ask->outcome, OP_DECIDED);
        assert_int_equal(ask->member.decision.allowed, i < 5);
        assert_int_equal(ask->member.decision.remaining, i < 5 ? 4 - i : 0);
    }
}

static void a_peek_charges_nothing_and_a_reset_forgets(void **state)
{
    (void)state;
    start_and_open();
    store_world->limit = store_world_limit("one", ALGO_FIXED_WINDOW, 1);
    struct ask *peek = store_world_ask("k", OP_PEEK, 1);
    store_world_settle();
    assert_true(peek->member.decision.allowed);
    (void)store_world_check("k");
    struct ask *denied = store_world_check("k");
    store_world_settle();
    assert_false(denied->member.decision.allowed);
    struct ask *reset = store_world_ask("k", OP_RESET, 0);
    struct ask *again = store_world_check("k"); /* in the same loop turn: its place in the order holds */
    store_world_settle();
    assert_true(reset->member.removed);
    assert_true(again->member.decision.allowed);
}

static void a_loop_turn_is_one_call(void **state)
{
    (void)state;
    start_and_open();
    store_world_check_many("k", 64, 64);
    store_world_settle();
    assert_int_equal(counters.redis_batches, 1);
    assert_int_equal(counters.redis_batch_keys, 64);
    store_world_check_many("k", 65, 65);
    store_world_settle();
    assert_int_equal(counters.redis_batches, 3);
    store_world->options.batch_max_keys = 1;
    redis_store_set_options(store_world->redis, &store_world->options);
    store_world_check_many("k", 10, 10);
    store_world_settle();
    assert_int_equal(counters.redis_batches, 13);
    assert_int_equal(store_world->n_allowed, 64 + 65 + 10);
}

static void equal_checks_of_a_turn_are_merged(void **state)
{
    (void)state;
    start_and_open();
    store_world->limit = store_world_limit("five", ALGO_FIXED_WINDOW, 5);
    store_world_check_many("same", 1, 10);
    store_world_settle();
    assert_int_equal(store_world->n_allowed, 5);
    assert_int_equal(counters.redis_merged, 9);
    for (int i = 0; i < 10; i++) assert_int_equal(store_world->asks[i].member.decision.allowed, i < 5);
}

static void checks_allocate_nothing_once_warm(void **state)
{
    (void)state;
    start_and_open();
    for (int i = 0; i < 20; i++) {
        store_world_check_many("k", 200, 200);
        store_world_settle();
    }
    uint64_t before = mem_n_allocs();
    for (int i = 0; i < 20; i++) {
        store_world_check_many("k", 200, 200);
        store_world_settle();
    }
    assert_int_equal(mem_n_allocs(), before);
}

static void ask_again(struct ask *ask)
{
    (void)ask;
    if (store_world->n_asked < 500) (void)store_world_check("chain");
}

static void an_answer_may_lead_to_the_next_question(void **state)
{
    (void)state;
    start_and_open();
    store_world->on_done = ask_again;
    (void)store_world_check("chain");
    store_world_settle();
    assert_int_equal(store_world->n_allowed, 500);
}

static void the_first_attempt_is_told_once(void **state)
{
    (void)state;
    start_and_open();
    patient_loop_turns(&store_world->patient, 5);
    assert_int_equal(store_world->n_first_attempts, 1);
    real_redis_kill(&redis);
    store_world_until(store_is_not_ready);
    real_redis_start(&redis, NULL);
    store_world_until(store_is_ready);
    patient_loop_turns(&store_world->patient, 5);
    assert_int_equal(store_world->n_first_attempts, 1);
}

static bool was_told_of_the_first_attempt(void *arg)
{
    return ((struct store_world *)arg)->n_first_attempts > 0;
}

static void the_first_attempt_is_told_when_it_failed(void **state)
{
    (void)state;
    real_redis_init(&redis, false);
    store_world_open(redis.address);
    store_world_until(was_told_of_the_first_attempt);
    assert_false(redis_store_ready(store_world->redis));
    store_world_status_has("No such file or directory");
    assert_int_equal(store_world_check("k")->submitted, SUBMIT_DOWN);
}

/* As redis_store.h has them; the script's own commands are read off the script. */
#define CONNECTION_RIGHTS "-@all +hello +auth +client|setname +select +script|load +evalsha"

static int allow_calls_through(const char *function)
{
    int n = 0;
    for (const char *at = turn_script; (at = strstr(at, function)) != NULL; n++) {
        char command[32];
        at += strlen(function);
        assert_int_equal(sscanf(at, "%31[A-Z]", command), 1);
        assert_int_equal(real_redis_command(&redis, "ACL SETUSER rl +%s", command), 1);
    }
    return n;
}

static void the_rights_in_the_manual_are_enough(void **state)
{
    (void)state;
    start(NULL);
    assert_int_equal(real_redis_command(&redis, "ACL SETUSER rl on >secret resetkeys ~rl:* " CONNECTION_RIGHTS), 1);
    assert_true(allow_calls_through("call('") > 5 && allow_calls_through("try('") > 0);
    store_world->options.username = "rl";
    store_world->options.password = "secret";
    store_world_open_ready(redis.address);
    static const enum algo algos[] = {ALGO_BUCKET, ALGO_FIXED_WINDOW, ALGO_FIRST_HIT, ALGO_SLIDING_LOG};
    for (size_t i = 0; i < sizeof(algos) / sizeof(algos[0]); i++) {
        char name[8];
        snprintf(name, sizeof(name), "p%zu", i);
        store_world->limit = store_world_limit(name, algos[i], 2);
        for (int round = 0; round < 4; round++) {
            (void)store_world_check("k");
            (void)store_world_ask("k", OP_PEEK, 1);
            (void)store_world_ask("k", OP_CHECK, 2);
            store_world_settle();
        }
        (void)store_world_ask("k", OP_RESET, 0);
        store_world_settle();
    }
    assert_int_equal(store_world->n_decided, store_world->n_pending);
    assert_int_equal(counters.redis_errors, 0);
}

/* ---- caps ---- */

static void beyond_max_inflight_is_overload(void **state)
{
    (void)state;
    store_world->options.max_inflight = 2;
    store_world->options.batch_max_keys = 1;
    start_and_open();
    assert_int_equal(store_world_check("a")->submitted, SUBMIT_PENDING);
    assert_int_equal(store_world_check("b")->submitted, SUBMIT_PENDING);
    assert_int_equal(store_world_check("c")->submitted, SUBMIT_OVERLOAD);
    store_world_settle();
    assert_int_equal(store_world_check("c")->submitted, SUBMIT_PENDING);
    store_world_settle();
    assert_int_equal(store_world->n_decided, 3);
}

static void beyond_max_output_is_overload(void **state)
{
    (void)state;
    store_world->options.max_output = 1000;
    store_world->options.batch_max_keys = 1;
    start_and_open();
    store_world_check_many("k", 100, 100);
    assert_int_equal(store_world->asks[0].submitted, SUBMIT_PENDING);
    assert_int_equal(store_world->asks[99].submitted, SUBMIT_OVERLOAD);
    store_world_settle();
    assert_int_equal(store_world->n_decided, store_world->n_pending);
}

static void short_memory_is_overload_and_nothing_worse(void **state)
{
    (void)state;
    start_and_open();
    for (uint64_t n = 1; n < 40; n++) {
        mem_fail_nth(n);
        store_world_check_many("a-key-of-some-length", 3, 3);
        mem_fail_nth(0);
        store_world_settle();
        redis_store_set_options(store_world->redis, &store_world->options);
    }
    assert_int_equal(store_world->n_pending, store_world->n_answered);
    assert_true(store_world->n_decided > 0);
    assert_true(redis_store_ready(store_world->redis));
}

static void a_store_that_memory_does_not_suffice_for_is_not_made(void **state)
{
    (void)state;
    struct redis_store *made = NULL;
    store_world->options.address = "unix:/nowhere";
    uint64_t n = 0;
    while (made == NULL) {
        assert_true(++n < 50);
        mem_fail_nth(n);
        made = redis_store_new(&store_world->patient.loop, &store_world->clock, &store_world->options);
        mem_fail_nth(0);
    }
    assert_true(n > 3);
    store_world->redis = made;
    store_world->store = redis_store_handle(made);
}

/* ---- foul weather ---- */

static void a_server_killed_under_load_loses_each_op_once(void **state)
{
    (void)state;
    start_and_open();
    for (int i = 0; i < 50; i++) {
        store_world_check_many("k", 100, 100);
        patient_loop_turns(&store_world->patient, 1);
        if (i == 25) real_redis_kill(&redis);
    }
    store_world_until(store_is_not_ready);
    store_world_settle();
    assert_int_equal(store_world->n_decided + store_world->n_down, store_world->n_pending);
    assert_int_equal(store_world_check("k")->submitted, SUBMIT_DOWN);
    size_t before = store_world->n_decided;
    real_redis_start(&redis, NULL); /* with an empty script cache */
    store_world_until(store_is_ready);
    store_world_check_many("k", 100, 100);
    store_world_settle();
    assert_int_equal(store_world->n_decided, before + 100);
}

static void a_stopped_server_ends_ops_and_no_late_reply_is_taken_for_another(void **state)
{
    (void)state;
    start_and_open();
    real_redis_signal(&redis, SIGSTOP);
    store_world_check_many("k", 50, 50);
    store_world_until(store_is_not_ready);
    store_world_settle();
    assert_int_equal(store_world->n_down, 50);
    assert_int_equal(counters.redis_stalls, 1);
    store_world_status_has("no reply for");
    real_redis_signal(&redis, SIGCONT);
    store_world_until(store_is_ready);
    store_world->limit = store_world_limit("three", ALGO_FIXED_WINDOW, 3);
    store_world_check_many("fresh", 1, 4);
    store_world_settle();
    assert_int_equal(store_world->n_decided, 4);
    assert_int_equal(store_world->n_allowed, 3);
    assert_int_equal(counters.redis_bad_replies, 0);
}

static void a_flushed_script_is_loaded_again_and_nothing_counted_twice(void **state)
{
    (void)state;
    start_and_open();
    enum { ROUNDS = 60, EACH = 20 };
    store_world->limit = store_world_limit("many", ALGO_FIXED_WINDOW, ROUNDS * EACH);
    store_world->options.merge = false;
    redis_store_set_options(store_world->redis, &store_world->options);
    for (int i = 0; i < ROUNDS; i++) {
        store_world_check_many("k", 1, EACH); /* all on one key, several turns in flight */
        patient_loop_turns(&store_world->patient, 1);
        if (i % 10 == 5) assert_int_equal(real_redis_command(&redis, "SCRIPT FLUSH"), 1);
    }
    store_world_settle();
    assert_int_equal(store_world->n_allowed, ROUNDS * EACH);
    assert_true(counters.redis_script_loads > 0);
    for (int i = 0; i < ROUNDS * EACH; i++) { /* in the order they were asked */
        assert_int_equal(store_world->asks[i].member.decision.remaining, ROUNDS * EACH - 1 - i);
    }
    struct ask *one_more = store_world_check("k0");
    store_world_settle();
    assert_false(one_more->member.decision.allowed);
    assert_int_equal(counters.redis_errors, 0);
    assert_int_equal(counters.redis_disconnects, 0);
}

static void rights_taken_away_end_in_a_slow_retry_and_heal(void **state)
{
    (void)state;
    start(NULL);
    real_redis_command(&redis, "ACL SETUSER rl on >secret ~* +@all");
    store_world->options.username = "rl";
    store_world->options.password = "secret";
    store_world_open_ready(redis.address);
    real_redis_command(&redis, "ACL SETUSER rl -evalsha");
    store_world_check_many("k", 10, 10);
    store_world_settle();
    assert_int_equal(store_world->n_failed, 10);
    store_world_until(store_is_not_ready);
    store_world_status_has("NOPERM");
    real_redis_command(&redis, "ACL SETUSER rl +evalsha");
    store_world_until(store_is_ready);
    (void)store_world_check("k");
    store_world_settle();
    assert_int_equal(store_world->n_decided, 1);
}

static void a_command_the_script_may_not_use_is_told(void **state)
{
    (void)state;
    start(NULL);
    real_redis_command(&redis, "ACL SETUSER rl on >secret ~* +@all -incrby");
    store_world->options.username = "rl";
    store_world->options.password = "secret";
    store_world_open_ready(redis.address);
    (void)store_world_check("k");
    store_world_settle();
    assert_int_equal(store_world->n_failed, 1);
    assert_int_equal(counters.redis_errors, 1);
}

static void a_changed_password_is_used_after_a_reload(void **state)
{
    (void)state;
    start(NULL);
    real_redis_command(&redis, "ACL SETUSER rl on >new ~* +@all");
    store_world->options.username = "rl";
    store_world->options.password = "old";
    store_world_open(redis.address);
    store_world_until(was_told_of_the_first_attempt);
    store_world_status_has("WRONGPASS");
    store_world->options.password = "new";
    redis_store_set_options(store_world->redis, &store_world->options);
    store_world_until(store_is_ready);
}

static void a_reload_moves_to_another_server_without_losing_a_check(void **state)
{
    (void)state;
    start_and_open();
    struct real_redis other;
    real_redis_init(&other, true);
    real_redis_start(&other, NULL);
    for (int i = 0; i < 40; i++) {
        store_world_check_many("k", 100, 100);
        if (i == 20) {
            store_world->options.address = other.address;
            redis_store_set_options(store_world->redis, &store_world->options);
        }
        patient_loop_turns(&store_world->patient, 1);
    }
    store_world_settle();
    assert_int_equal(store_world->n_allowed, 4000);
    assert_int_equal(store_world->n_refused, 0);
    assert_true(real_redis_command(&other, "DBSIZE") > 0);
    real_redis_fini(&other);
}

static void a_move_to_nowhere_ends_what_waited_for_it(void **state)
{
    (void)state;
    start_and_open();
    store_world_check_many("a", 10, 10);
    patient_loop_turns(&store_world->patient, 1);
    store_world->options.address = "unix:/nowhere";
    redis_store_set_options(store_world->redis, &store_world->options);
    store_world_check_many("b", 10, 10);
    store_world_settle();
    assert_int_equal(store_world->n_decided, 10);
    assert_int_equal(store_world->n_down, 10);
    store_world_status_has("(unix:/nowhere)");
    store_world->options.address = redis.address;
    redis_store_set_options(store_world->redis, &store_world->options);
    store_world_until(store_is_ready);
}

static void a_server_lost_while_moving_away_from_it_is_no_loss_for_what_was_held(void **state)
{
    (void)state;
    start_and_open();
    struct real_redis other;
    real_redis_init(&other, false);
    real_redis_start(&other, NULL);
    real_redis_signal(&redis, SIGSTOP);
    store_world_check_many("a", 10, 10);
    patient_loop_turns(&store_world->patient, 1);
    store_world->options.address = other.address;
    redis_store_set_options(store_world->redis, &store_world->options);
    store_world_check_many("b", 10, 10);
    patient_loop_turns(&store_world->patient, 1);
    real_redis_kill(&redis);
    store_world_settle();
    assert_int_equal(store_world->n_down, 10);
    assert_int_equal(store_world->n_decided, 10);
    real_redis_fini(&other);
}

static void closing_while_moving_is_fine(void **state)
{
    (void)state;
    start_and_open();
    real_redis_signal(&redis, SIGSTOP);
    store_world_check_many("a", 10, 10);
    patient_loop_turns(&store_world->patient, 1);
    store_world->options.address = "localhost:1";
    redis_store_set_options(store_world->redis, &store_world->options);
    store_world_check_many("b", 10, 10);
    patient_loop_turns(&store_world->patient, 1);
    store_world_close();
    store_world_until(store_is_closed);
    assert_int_equal(store_world->n_down, 20);
}

/* Whatever the keys are called, make hashes of them. */
#define MAKE_HASHES                                                                                                    \
    "for _, k in ipairs(redis.call('keys', '*')) do redis.call('del', k) redis.call('hset', k, 'f', 1) end return 1"

static void a_key_of_a_foreign_type_hurts_nobody_else(void **state)
{
    (void)state;
    start_and_open();
    (void)store_world_check("victim");
    store_world_settle();
    assert_int_equal(real_redis_command(&redis, "EVAL %s 0", MAKE_HASHES), 1);
    struct ask *victim = store_world_check("victim");
    store_world_check_many("other", 10, 10);
    store_world_settle();
    assert_int_equal(victim->outcome, OP_STORE_ERROR);
    assert_int_equal(store_world->n_allowed, 11);
    assert_int_equal(counters.redis_bad_values, 1);
    assert_true(redis_store_ready(store_world->redis));
}

static void a_full_server_is_a_store_error_and_the_connection_stays(void **state)
{
    (void)state;
    start_and_open();
    assert_int_equal(real_redis_command(&redis, "CONFIG SET maxmemory 1"), 1);
    store_world_check_many("k", 5, 5);
    store_world_settle();
    assert_int_equal(store_world->n_failed, 5);
    assert_true(counters.redis_errors > 0);
    assert_true(redis_store_ready(store_world->redis));
    assert_int_equal(real_redis_command(&redis, "CONFIG SET maxmemory 0"), 1);
    store_world_check_many("k", 5, 5);
    store_world_settle();
    assert_int_equal(store_world->n_decided, 5);
    assert_int_equal(counters.redis_disconnects, 0);
}

static void a_server_that_became_a_replica_is_left(void **state)
{
    (void)state;
    start_and_open();
    assert_int_equal(real_redis_command(&redis, "REPLICAOF 127.0.0.1 1"), 1);
    store_world_check_many("k", 5, 5);
    store_world_settle();
    assert_int_equal(store_world->n_decided, 0);
    store_world_until(store_is_not_ready);
    assert_int_equal(counters.redis_disconnects, 1);
    assert_int_equal(real_redis_command(&redis, "REPLICAOF NO ONE"), 1);
    store_world_until(store_is_ready);
    store_world_check_many("k", 5, 5);
    store_world_settle();
    assert_int_equal(store_world->n_decided, 5);
}

static void a_busy_server_is_a_store_error_and_the_connection_stays(void **state)
{
    (void)state;
    start_and_open();
    store_world->options.stall_ms = 20000;
    redis_store_set_options(store_world->redis, &store_world->options);
    assert_int_equal(real_redis_command(&redis, "CONFIG SET busy-reply-threshold 1"), 1);
    redisContext *hog = real_redis_connect(&redis);
    int done = 0;
    redisAppendCommand(hog, "EVAL %s 0", "while true do end");
    while (!done) assert_int_equal(redisBufferWrite(hog, &done), REDIS_OK);
    do {
        (void)store_world_check("k");
        store_world_settle();
    } while (store_world->n_failed == 0);
    assert_true(redis_store_ready(store_world->redis));
    assert_int_equal(real_redis_command(&redis, "SCRIPT KILL"), 1);
    redisFree(hog);
    size_t before = store_world->n_decided;
    store_world_check_many("k", 5, 5);
    store_world_settle();
    assert_int_equal(store_world->n_decided, before + 5);
    assert_int_equal(counters.redis_disconnects, 0);
}

/* ---- the end ---- */

static void closing_ends_what_was_gathered_and_what_is_in_flight(void **state)
{
    (void)state;
    start_and_open();
    real_redis_signal(&redis, SIGSTOP);
    store_world_check_many("k", 100, 100);
    patient_loop_turns(&store_world->patient, 2);
    store_world_check_many("late", 10, 10);
    store_world_close();
    assert_int_equal(store_world_check("later")->submitted, SUBMIT_DOWN);
    store_world_until(store_is_closed);
    assert_int_equal(store_world->n_down, 110);
}

static void close_now(struct ask *ask)
{
    (void)ask;
    if (!store_world->is_closing) store_world_close();
}

static void closing_from_within_an_answer_is_fine(void **state)
{
    (void)state;
    start_and_open();
    store_world->options.batch_max_keys = 1;
    redis_store_set_options(store_world->redis, &store_world->options);
    store_world_check_many("k", 20, 20);
    store_world->on_done = close_now;
    store_world_until(store_is_closed);
    assert_int_equal(store_world->n_answered, 20);
}

static void closing_from_within_a_loss_is_fine(void **state)
{
    (void)state;
    start_and_open();
    real_redis_signal(&redis, SIGSTOP);
    store_world_check_many("k", 20, 20);
    patient_loop_turns(&store_world->patient, 2);
    store_world->on_done = close_now;
    real_redis_kill(&redis);
    store_world_until(store_is_closed);
    assert_int_equal(store_world->n_down, 20);
}

static void closing_right_after_opening_is_fine(void **state)
{
    (void)state;
    start(NULL);
    store_world_open(redis.address);
    store_world_close();
    store_world_until(store_is_closed);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    if (!real_redis_is_installed()) {
        puts("skipped: redis-server is not installed");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        TEST(a_limit_is_counted_down_and_then_denies),
        TEST(a_peek_charges_nothing_and_a_reset_forgets),
        TEST(a_loop_turn_is_one_call),
        TEST(equal_checks_of_a_turn_are_merged),
        TEST(checks_allocate_nothing_once_warm),
        TEST(an_answer_may_lead_to_the_next_question),
        TEST(the_first_attempt_is_told_once),
        TEST(the_first_attempt_is_told_when_it_failed),
        TEST(the_rights_in_the_manual_are_enough),
        TEST(beyond_max_inflight_is_overload),
        TEST(beyond_max_output_is_overload),
        TEST(short_memory_is_overload_and_nothing_worse),
        TEST(a_store_that_memory_does_not_suffice_for_is_not_made),
        TEST(a_server_killed_under_load_loses_each_op_once),
        TEST(a_stopped_server_ends_ops_and_no_late_reply_is_taken_for_another),
        TEST(a_flushed_script_is_loaded_again_and_nothing_counted_twice),
        TEST(rights_taken_away_end_in_a_slow_retry_and_heal),
        TEST(a_command_the_script_may_not_use_is_told),
        TEST(a_changed_password_is_used_after_a_reload),
        TEST(a_key_of_a_foreign_type_hurts_nobody_else),
        TEST(a_full_server_is_a_store_error_and_the_connection_stays),
        TEST(a_server_that_became_a_replica_is_left),
        TEST(a_busy_server_is_a_store_error_and_the_connection_stays),
        TEST(a_reload_moves_to_another_server_without_losing_a_check),
        TEST(a_move_to_nowhere_ends_what_waited_for_it),
        TEST(a_server_lost_while_moving_away_from_it_is_no_loss_for_what_was_held),
        TEST(closing_while_moving_is_fine),
        TEST(closing_ends_what_was_gathered_and_what_is_in_flight),
        TEST(closing_from_within_an_answer_is_fine),
        TEST(closing_from_within_a_loss_is_fine),
        TEST(closing_right_after_opening_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
