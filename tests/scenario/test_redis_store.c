/* test_redis_store.c: ops through the store to a real redis-server, in fair weather; caps, memory and the end. */
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
#include "redis/batch.h"
#include "redis/counters.h"

/* ---- fair weather ---- */

static void a_limit_is_counted_down_and_then_denies(void **state)
{
    (void)state;
    served_store_open();
    store_fixture->limit = store_fixture_limit("five", ALGO_FIXED_WINDOW, 5);
    for (int i = 0; i < 7; i++) {
        struct ask *ask = store_fixture_check("k");
        assert_int_equal(ask->submitted, SUBMIT_PENDING);
        store_fixture_settle();
        assert_int_equal(ask->outcome, OP_DECIDED);
        assert_int_equal(ask->member.decision.allowed, i < 5);
        assert_int_equal(ask->member.decision.remaining, i < 5 ? 4 - i : 0);
    }
}

static void a_peek_charges_nothing_and_a_reset_forgets(void **state)
{
    (void)state;
    served_store_open();
    store_fixture->limit = store_fixture_limit("one", ALGO_FIXED_WINDOW, 1);
    struct ask *peek = store_fixture_ask("k", OP_PEEK, 1);
    store_fixture_settle();
    assert_true(peek->member.decision.allowed);
    (void)store_fixture_check("k");
    struct ask *denied = store_fixture_check("k");
    store_fixture_settle();
    assert_false(denied->member.decision.allowed);
    struct ask *reset = store_fixture_ask("k", OP_RESET, 0);
    struct ask *again = store_fixture_check("k"); /* in the same tick: its place in the order holds */
    store_fixture_settle();
    assert_true(reset->member.removed);
    assert_true(again->member.decision.allowed);
}

static void a_tick_is_one_call(void **state)
{
    (void)state;
    served_store_open();
    store_fixture_check_many("k", 64, 64);
    store_fixture_settle();
    assert_int_equal(redis_counters.redis_batches, 1);
    assert_int_equal(redis_counters.redis_batch_keys, 64);
    store_fixture_check_many("k", 65, 65);
    store_fixture_settle();
    assert_int_equal(redis_counters.redis_batches, 3);
    store_fixture->options.batch_max_keys = 1;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    store_fixture_check_many("k", 10, 10);
    store_fixture_settle();
    assert_int_equal(redis_counters.redis_batches, 13);
    assert_int_equal(store_fixture->n_allowed, 64 + 65 + 10);
}

/* In calls of their own, plain checks and a refund would cost Redis more. */
static void checks_and_what_gives_back_are_one_call(void **state)
{
    (void)state;
    served_store_open();
    store_fixture_check_many("k", 3, 3);
    struct ask *refund = store_fixture_ask("k1", OP_REFUND, 1), *last = store_fixture_check("k1");
    store_fixture_settle();
    assert_int_equal(redis_counters.redis_batches, 1);
    assert_int_equal(refund->member.refunded, 1);
    assert_int_equal(last->member.decision.remaining, store_fixture->limit->limit - 1);
}

static void equal_checks_of_a_tick_are_merged(void **state)
{
    (void)state;
    served_store_open();
    store_fixture->limit = store_fixture_limit("five", ALGO_FIXED_WINDOW, 5);
    store_fixture_check_many("same", 1, 10);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, 5);
    assert_int_equal(redis_counters.redis_merged, 9);
    for (int i = 0; i < 10; i++) assert_int_equal(store_fixture->asks[i].member.decision.allowed, i < 5);
}

static void checks_allocate_nothing_once_warm(void **state)
{
    (void)state;
    served_store_open();
    for (int i = 0; i < 20; i++) {
        store_fixture_check_many("k", 200, 200);
        store_fixture_settle();
    }
    uint64_t before = mem_n_allocs();
    for (int i = 0; i < 20; i++) {
        store_fixture_check_many("k", 200, 200);
        store_fixture_settle();
    }
    assert_int_equal(mem_n_allocs(), before);
}

static void ask_again(struct ask *ask)
{
    (void)ask;
    if (store_fixture->n_asked < 500) (void)store_fixture_check("chain");
}

static void a_thousand_calls_at_once_are_all_answered(void **state)
{
    (void)state;
    store_fixture->options.batch_max_keys = 1;
    served_store_open();
    store_fixture_check_many("k", 1000, 1000);
    store_fixture_settle();
    store_fixture_check_many("k", 1000, 1000);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, 2000);
    assert_int_equal(redis_counters.redis_batches, 2000);
}

/* libuv runs a timer that is armed for now within the same tick: 30 000 ops that had ended were 27 ms of one. */
static void what_ends_together_is_reported_in_several_ticks(void **state)
{
    (void)state;
    enum { N = 3000, PER_TICK = 1024, TICKS_OF_LOOP = 2 };
    served_store_open();
    real_redis_signal(&redis, SIGSTOP);
    store_fixture_check_many("k", N, N);
    store_fixture->deadline_us = 0;
    real_redis_kill(&redis);
    for (size_t before = 0; !store_has_answered(store_fixture); before = store_fixture->n_answered) {
        patient_loop_ticks(&store_fixture->patient, 1);
        assert_true(store_fixture->n_answered - before <= TICKS_OF_LOOP * PER_TICK);
    }
    assert_int_equal(store_fixture->n_down, N);
}

/* Checks of cost 1000 that were not sent in time piled up at 16 a tick, and were `overload` for everybody. */
static void to_end_a_heavy_op_that_nobody_awaits_costs_as_little_as_a_light_one(void **state)
{
    (void)state;
    enum { N = 1000, COST = 1000, TICKS = 8, UNITS = 1 + COST / 64 };
    served_store_open();
    store_fixture->limit = store_fixture_limit("log", ALGO_SLIDING_LOG, COST);
    store_fixture->deadline_us = 1; /* it has passed */
    for (int is_awaited = 0; is_awaited < 2; is_awaited++) {
        size_t before = store_fixture->n_answered;
        for (int i = 0; i < N; i++) store_fixture_ask("k", OP_CHECK, COST)->op.is_awaited = is_awaited;
        patient_loop_ticks(&store_fixture->patient, TICKS);
        if (is_awaited)
            assert_true((store_fixture->n_answered - before) * UNITS <= TICKS * (256 + UNITS));
        else
            assert_int_equal(store_fixture->n_answered - before, N);
    }
    store_fixture_settle();
}

/* Units that one Redis had charged were given back to the one that a reload named. */
static void what_one_server_has_charged_is_not_given_back_to_another(void **state)
{
    (void)state;
    struct real_redis other;
    store_fixture->options.window = 1;
    served_store_open();
    real_redis_init(&other, false);
    real_redis_start(&other, NULL);
    struct ask *charge = store_fixture_ask("k", OP_CHECK, 5);
    store_fixture_settle();
    assert_int_equal(charge->op.server, store_server(&store_fixture->store));

    store_fixture->options.deadline_ms++; /* no other place */
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    assert_int_equal(charge->op.server, store_server(&store_fixture->store));
    struct ask *back = store_fixture_ask("k", OP_REFUND, 2);
    back->op.is_bound = true;
    back->op.server = charge->op.server;
    store_fixture_settle();
    assert_int_equal(back->member.refunded, 2);

    real_redis_signal(&redis, SIGSTOP);
    (void)store_fixture_check("slow"); /* fills the window */
    patient_loop_ticks(&store_fixture->patient, 1);
    struct ask *waits = store_fixture_ask("k", OP_REFUND, 3);
    waits->op.is_bound = true;
    waits->op.server = charge->op.server;
    store_fixture->options.address = other.address;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    store_fixture_until(store_has_no_trial);
    real_redis_signal(&redis, SIGCONT);
    assert_int_not_equal(charge->op.server, store_server(&store_fixture->store));
    store_fixture_settle();
    assert_int_equal(waits->outcome, OP_EXPIRED);
    assert_int_equal(store_submit(&store_fixture->store, &waits->op), SUBMIT_DOWN);

    struct ask *check = store_fixture_check("k");
    store_fixture_settle();
    assert_int_equal(check->op.server, store_server(&store_fixture->store));
    assert_int_equal(check->member.decision.remaining, store_fixture->limit->limit - 1);
    store_fixture_close();
    store_fixture_until(store_is_closed);
    real_redis_fini(&other);
}

static void an_answer_may_lead_to_the_next_question(void **state)
{
    (void)state;
    served_store_open();
    store_fixture->on_done = ask_again;
    (void)store_fixture_check("chain");
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, 500);
}

static void the_first_attempt_is_reported_once(void **state)
{
    (void)state;
    served_store_open();
    patient_loop_ticks(&store_fixture->patient, 5);
    assert_int_equal(store_fixture->n_first_attempts, 1);
    real_redis_kill(&redis);
    store_fixture_until(store_is_not_ready);
    real_redis_start(&redis, NULL);
    store_fixture_until(store_is_ready);
    patient_loop_ticks(&store_fixture->patient, 5);
    assert_int_equal(store_fixture->n_first_attempts, 1);
}

static void the_first_attempt_is_reported_when_it_failed(void **state)
{
    (void)state;
    real_redis_init(&redis, false);
    store_fixture_open(redis.address);
    store_fixture_until(had_first_attempt);
    assert_false(redis_store_ready(store_fixture->redis));
    store_fixture_status_has("No such file or directory");
    assert_int_equal(store_fixture_check("k")->submitted, SUBMIT_DOWN);
}

/* As redis/store.h has them; the script's own commands are read off the script. */
#define CONNECTION_RIGHTS "-@all +hello +auth +client|setname +select +script|load +evalsha"

static int allow_calls_through(const char *function)
{
    int n = 0;
    for (const char *at = batch_script; (at = strstr(at, function)) != NULL; n++) {
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
    served_store_start(NULL);
    assert_int_equal(real_redis_command(&redis, "ACL SETUSER rl on >secret resetkeys ~rl:* " CONNECTION_RIGHTS), 1);
    assert_true(allow_calls_through("call('") > 5 && allow_calls_through("try('") > 0);
    store_fixture->options.username = "rl";
    store_fixture->options.password = "secret";
    store_fixture_open_ready(redis.address);
    static const enum algo algos[] = {ALGO_BUCKET, ALGO_FIXED_WINDOW, ALGO_FIRST_HIT, ALGO_SLIDING_LOG};
    for (size_t i = 0; i < sizeof(algos) / sizeof(algos[0]); i++) {
        char name[8];
        snprintf(name, sizeof(name), "p%zu", i);
        store_fixture->limit = store_fixture_limit(name, algos[i], 2);
        for (int round = 0; round < 4; round++) {
            (void)store_fixture_check("k");
            (void)store_fixture_ask("k", OP_PEEK, 1);
            (void)store_fixture_ask("k", OP_CHECK, 2);
            store_fixture_settle();
        }
        (void)store_fixture_ask("k", OP_RESET, 0);
        store_fixture_settle();
    }
    assert_int_equal(store_fixture->n_decided, store_fixture->n_pending);
    assert_int_equal(redis_counters.redis_errors, 0);
}

/* ---- caps ---- */

/* What waited already ended with them, although there was time until its deadline. */
static void beyond_max_inflight_new_checks_are_refused_and_those_that_wait_are_sent_later(void **state)
{
    (void)state;
    store_fixture->options.max_inflight = 2;
    store_fixture->options.batch_max_keys = 1;
    served_store_open();
    (void)store_fixture_check("a");
    (void)store_fixture_check("b");
    struct ask *third = store_fixture_check("c");
    store_flush(&store_fixture->store);
    assert_int_equal(store_fixture_check("d")->submitted, SUBMIT_OVERLOAD);
    store_fixture_settle();
    assert_int_equal(third->outcome, OP_DECIDED);
    (void)store_fixture_check("c");
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided, 4);
}

static void beyond_max_output_new_checks_are_refused_and_those_that_wait_are_sent_later(void **state)
{
    (void)state;
    store_fixture->options.max_output = 1000;
    store_fixture->options.batch_max_keys = 1;
    served_store_open();
    store_fixture_check_many("k", 100, 100);
    store_fixture->deadline_us = store_fixture->clock.mono_us - 1;
    struct ask *late = store_fixture_check("late");
    store_fixture->deadline_us = 0;
    store_fixture_settle();
    for (size_t i = 0; i < 100; i++) assert_int_equal(store_fixture->asks[i].outcome, OP_DECIDED);
    assert_int_equal(late->outcome, OP_EXPIRED);
}

static void short_memory_is_overload_and_nothing_worse(void **state)
{
    (void)state;
    served_store_open();
    for (uint64_t n = 1; n < 40; n++) {
        mem_fail_nth(n);
        store_fixture_check_many("a-key-of-some-length", 3, 3);
        mem_fail_nth(0);
        store_fixture_settle();
        redis_store_set_options(store_fixture->redis, &store_fixture->options);
    }
    assert_int_equal(store_fixture->n_pending, store_fixture->n_answered);
    assert_true(store_fixture->n_decided > 0);
    assert_true(redis_store_ready(store_fixture->redis));
}

static void a_store_that_memory_does_not_suffice_for_is_not_made(void **state)
{
    (void)state;
    struct redis_store *made = NULL;
    store_fixture->options.address = "unix:/nowhere";
    uint64_t n = 0;
    while (made == NULL) {
        assert_true(++n < 50);
        mem_fail_nth(n);
        made = redis_store_new(&store_fixture->patient.loop, &store_fixture->clock, &store_fixture->options);
        mem_fail_nth(0);
    }
    assert_true(n > 3);
    store_fixture->redis = made;
    store_fixture->store = redis_store_handle(made);
}

/* ---- the end ---- */

static void closing_ends_what_was_gathered_and_what_is_in_flight(void **state)
{
    (void)state;
    served_store_open();
    real_redis_signal(&redis, SIGSTOP);
    store_fixture_check_many("k", 100, 100);
    patient_loop_ticks(&store_fixture->patient, 2);
    store_fixture_check_many("late", 10, 10);
    store_fixture_close();
    assert_int_equal(store_fixture_check("later")->submitted, SUBMIT_DOWN);
    store_fixture_until(store_is_closed);
    assert_int_equal(store_fixture->n_down, 110);
}

static void close_now(struct ask *ask)
{
    (void)ask;
    if (!store_fixture->is_closing) store_fixture_close();
}

static void closing_from_within_an_answer_is_fine(void **state)
{
    (void)state;
    served_store_open();
    store_fixture->options.batch_max_keys = 1;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    store_fixture_check_many("k", 20, 20);
    store_fixture->on_done = close_now;
    store_fixture_until(store_is_closed);
    assert_int_equal(store_fixture->n_answered, 20);
}

static void closing_from_within_a_loss_is_fine(void **state)
{
    (void)state;
    served_store_open();
    real_redis_signal(&redis, SIGSTOP);
    store_fixture_check_many("k", 20, 20);
    patient_loop_ticks(&store_fixture->patient, 2);
    store_fixture->on_done = close_now;
    real_redis_kill(&redis);
    store_fixture_until(store_is_closed);
    assert_int_equal(store_fixture->n_down, 20);
}

static void closing_right_after_opening_is_fine(void **state)
{
    (void)state;
    served_store_start(NULL);
    store_fixture_open(redis.address);
    store_fixture_close();
    store_fixture_until(store_is_closed);
}

int main(void)
{
    if (real_redis_is_missing()) return 0;
    const struct CMUnitTest tests[] = {
        SERVED_STORE_TEST(a_limit_is_counted_down_and_then_denies),
        SERVED_STORE_TEST(a_peek_charges_nothing_and_a_reset_forgets),
        SERVED_STORE_TEST(a_tick_is_one_call),
        SERVED_STORE_TEST(checks_and_what_gives_back_are_one_call),
        SERVED_STORE_TEST(equal_checks_of_a_tick_are_merged),
        SERVED_STORE_TEST(checks_allocate_nothing_once_warm),
        SERVED_STORE_TEST(a_thousand_calls_at_once_are_all_answered),
        SERVED_STORE_TEST(what_ends_together_is_reported_in_several_ticks),
        SERVED_STORE_TEST(to_end_a_heavy_op_that_nobody_awaits_costs_as_little_as_a_light_one),
        SERVED_STORE_TEST(what_one_server_has_charged_is_not_given_back_to_another),
        SERVED_STORE_TEST(an_answer_may_lead_to_the_next_question),
        SERVED_STORE_TEST(the_first_attempt_is_reported_once),
        SERVED_STORE_TEST(the_first_attempt_is_reported_when_it_failed),
        SERVED_STORE_TEST(the_rights_in_the_manual_are_enough),
        SERVED_STORE_TEST(beyond_max_inflight_new_checks_are_refused_and_those_that_wait_are_sent_later),
        SERVED_STORE_TEST(beyond_max_output_new_checks_are_refused_and_those_that_wait_are_sent_later),
        SERVED_STORE_TEST(short_memory_is_overload_and_nothing_worse),
        SERVED_STORE_TEST(a_store_that_memory_does_not_suffice_for_is_not_made),
        SERVED_STORE_TEST(closing_ends_what_was_gathered_and_what_is_in_flight),
        SERVED_STORE_TEST(closing_from_within_an_answer_is_fine),
        SERVED_STORE_TEST(closing_from_within_a_loss_is_fine),
        SERVED_STORE_TEST(closing_right_after_opening_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
