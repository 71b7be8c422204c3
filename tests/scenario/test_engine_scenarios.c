/* test_engine_scenarios.c: the ways of a check, one after another, on a scripted store and a frozen clock. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine_counters.h"
#include "engine/failure.h"
#include "fakes/engine_suite.h"
#include "store/memory_counters.h"

#define SECOND_US INT64_C(1000000)

static const struct policy_spec specs[] = {
    {.name = "allow", .on_failure = ON_FAILURE_ALLOW, .limits = {{.limit = 5, .window_us = SECOND_US}}},
    {.name = "deny", .on_failure = ON_FAILURE_DENY, .limits = {{.limit = 5, .window_us = SECOND_US}}},
    {.name = "error", .on_failure = ON_FAILURE_ERROR, .limits = {{.limit = 5, .window_us = SECOND_US}}},
    {.name = "local",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 2, .window_us = 60 * SECOND_US}}},
    {.name = "hour",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 10, .window_us = 3600 * SECOND_US}}},
    {.name = "log",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_SLIDING_LOG, .limit = 10000, .window_us = 3600 * SECOND_US}}},
    {.name = "nothing", .limits = {{.limit = 0, .window_us = SECOND_US}}},
    {.name = "several",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.name = "second", .algo = ALGO_BUCKET, .limit = 2, .window_us = SECOND_US},
                {.name = "minute", .algo = ALGO_FIXED_WINDOW, .limit = 3, .window_us = 60 * SECOND_US},
                {.name = "hour", .algo = ALGO_FIXED_WINDOW, .limit = 9, .window_us = 3600 * SECOND_US}}},
    {.name = "partly-nothing",
     .limits = {{.name = "some", .limit = 2, .window_us = SECOND_US},
                {.name = "none", .algo = ALGO_FIXED_WINDOW, .limit = 0, .window_us = SECOND_US}}},
};

static struct engine_fixture fixture;
static const struct engine_suite suite = {
    .fixture = &fixture, .specs = specs, .n_specs = sizeof specs / sizeof specs[0]};

static struct asked ask(enum op_kind kind, const char *policy, const char *key, int64_t cost)
{
    return engine_suite_ask(&suite, kind, policy, key, cost);
}

static void a_reply_answers_the_check(void **state)
{
    (void)state;
    struct asked asked = {0};
    fixture_ask(&fixture, &asked, OP_CHECK, "allow", "alice", 1);
    assert_int_equal(asked.n_done, 0);
    assert_int_equal(fixture_n_inflight(&fixture), 1);
    fixture.scripted.decision.remaining = 4;
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(asked.n_done, 1);
    assert_int_equal(asked.error, ERROR_NONE);
    assert_true(asked.decision.allowed);
    assert_int_equal(asked.decision.remaining, 4);
    assert_int_equal(asked.decision.source, SOURCE_REDIS);
    assert_int_equal(asked.decision.reason, REASON_NONE);
    assert_int_equal(asked.decision.policy_version, policies_get(engine_policies(fixture.engine), "allow")->version);
    assert_int_equal(engine_n_live(fixture.engine), 0);
    assert_int_equal(fixture_n_inflight(&fixture), 0);
    assert_int_equal(engine_counters.checks, 1);
    assert_int_equal(engine_counters.allowed, 1);
}

/* What the store decides without Redis says nothing about whether Redis is there. */
static void a_denial_that_redis_was_not_asked_for_says_so(void **state)
{
    (void)state;
    const struct failure *failure = engine_failure(fixture.engine);
    fixture.scripted.mode = SCRIPTED_DECIDE;
    fixture.scripted.decision = (struct decision){.source = SOURCE_DENY_CACHE, .limit = 5, .retry_after_ms = 70};
    struct asked asked = ask(OP_CHECK, "allow", "alice", 1);
    assert_false(asked.decision.allowed);
    assert_int_equal(asked.decision.source, SOURCE_DENY_CACHE);
    assert_int_equal(asked.decision.retry_after_ms, 70);
    assert_int_equal(engine_counters.denied, 1);
    assert_int_equal(failure->decided_us, 0);

    fixture.scripted.decision.source = SOURCE_REDIS;
    assert_int_equal(ask(OP_CHECK, "allow", "alice", 1).decision.source, SOURCE_REDIS);
    assert_int_equal(failure->decided_us, fixture.clock.mono_us);
}

static void the_deadline_answers_and_the_late_reply_is_dropped(void **state)
{
    (void)state;
    struct asked asked = {0};
    fixture_ask(&fixture, &asked, OP_CHECK, "allow", "alice", 1);
    assert_int_equal(engine_next_deadline(fixture.engine), fixture.clock.mono_us + 20000);
    fixture_advance_ms(&fixture, 19);
    assert_int_equal(asked.n_done, 0);
    fixture_advance_ms(&fixture, 1);
    assert_int_equal(asked.n_done, 1);
    assert_true(asked.decision.allowed);
    assert_int_equal(asked.decision.source, SOURCE_ALLOW);
    assert_int_equal(asked.decision.reason, REASON_DEADLINE);
    assert_int_equal(asked.decision.limit, 5);
    assert_int_equal(asked.decision.remaining, 0);
    assert_int_equal(engine_next_deadline(fixture.engine), INT64_MAX);
    assert_int_equal(engine_n_live(fixture.engine), 1);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(asked.n_done, 1);
    assert_int_equal(engine_counters.late_replies, 1);
    assert_int_equal(engine_counters.failure_deadline, 1);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void the_request_may_set_its_own_deadline(void **state)
{
    (void)state;
    struct asked asked = {0};
    fixture.deadline_ms = 3;
    fixture_ask(&fixture, &asked, OP_CHECK, "allow", "alice", 1);
    fixture_advance_ms(&fixture, 2);
    assert_int_equal(asked.n_done, 0);
    fixture_advance_ms(&fixture, 1);
    assert_int_equal(asked.n_done, 1);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
}

/* Calls of one connection take effect in the order sent, also those that time out together. */
static void checks_that_expire_together_are_answered_in_their_order(void **state)
{
    (void)state;
    struct asked asked[20] = {0};
    for (size_t i = 0; i < 20; i++) fixture_ask(&fixture, &asked[i], OP_CHECK, "local", "alice", 1);
    fixture_advance_ms(&fixture, 20);
    for (size_t i = 0; i < 20; i++) assert_int_equal(asked[i].decision.allowed, i < 2);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

/* Thousands at once kept the loop from everybody else's bytes. */
static void a_tick_answers_some_expired_checks_and_the_next_goes_on(void **state)
{
    (void)state;
    enum { N = 2 * ENGINE_EXPIRED_UNITS };
    static struct asked asked[N];
    engine_set_options(fixture.engine, &(struct engine_options){.max_inflight = N, .local_max_keys = 10});
    memset(asked, 0, sizeof asked);
    for (size_t i = 0; i < N; i++) assert_true(fixture_ask(&fixture, &asked[i], OP_CHECK, "local", "alice", 1));
    fixture_advance_ms(&fixture, 20);
    for (size_t i = 0; i < N; i++) assert_int_equal(asked[i].n_done, i < ENGINE_EXPIRED_UNITS);
    assert_true(engine_next_deadline(fixture.engine) <= fixture.clock.mono_us);
    engine_expire(fixture.engine);
    for (size_t i = 0; i < N; i++) assert_int_equal(asked[i].decision.allowed, i < 2);
    assert_int_equal(engine_counters.failure_deadline, N);
    assert_int_equal(engine_next_deadline(fixture.engine), INT64_MAX);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

/* A tick of 256 expired checks, each of 1000 units of a log, took 3 ms; of 2500 it took 60. */
static void expired_checks_weigh_by_their_units_of_a_log(void **state)
{
    (void)state;
    enum { N = 200, COST = 1000, UNITS = 1 + COST / 64, PER_TICK = (ENGINE_EXPIRED_UNITS + UNITS - 1) / UNITS };
    static struct asked asked[N];
    engine_set_options(fixture.engine, &(struct engine_options){.max_inflight = N, .local_max_keys = 10});
    memset(asked, 0, sizeof asked);
    for (size_t i = 0; i < N; i++) assert_true(fixture_ask(&fixture, &asked[i], OP_CHECK, "log", "alice", COST));
    (void)engine_take_work(fixture.engine);
    fixture_advance_ms(&fixture, 20);
    for (size_t i = 0; i < N; i++) assert_int_equal(asked[i].n_done, i < PER_TICK);
    assert_int_equal(engine_take_work(fixture.engine), PER_TICK * UNITS); /* the next tick takes less in for it */
    assert_int_equal(engine_take_work(fixture.engine), 0);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

/* Whoever closes is not asked to come again. */
static void closing_answers_more_than_a_tick_would(void **state)
{
    (void)state;
    enum { N = 600 };
    static struct asked asked[N];
    engine_set_options(fixture.engine, &(struct engine_options){.max_inflight = N, .local_max_keys = 10});
    memset(asked, 0, sizeof asked);
    for (size_t i = 0; i < N; i++) assert_true(fixture_ask(&fixture, &asked[i], OP_CHECK, "deny", "alice", 1));
    fixture_close(&fixture);
    for (size_t i = 0; i < N; i++) assert_int_equal(asked[i].n_done, 1);
}

static void a_client_that_left_is_not_answered(void **state)
{
    (void)state;
    struct asked asked = {0};
    fixture_ask(&fixture, &asked, OP_CHECK, "allow", "alice", 1);
    fixture_leave(&asked);
    assert_int_equal(fixture_n_inflight(&fixture), 0);
    assert_int_equal(engine_next_deadline(fixture.engine), INT64_MAX);
    fixture_advance_ms(&fixture, 100);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(asked.n_done, 0);
    assert_int_equal(engine_counters.late_replies, 0);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void a_client_may_keep_its_answer_beyond_done(void **state)
{
    (void)state;
    struct asked asked = {.keep = true};
    fixture_ask(&fixture, &asked, OP_CHECK, "deny", "alice", 1);
    fixture_advance_ms(&fixture, 20);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(engine_n_live(fixture.engine), 1);
    assert_int_equal(asked.check->decision.source, SOURCE_DENY);
    fixture_leave(&asked);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void a_check_never_submitted_goes_back(void **state)
{
    (void)state;
    struct check *check = fixture_check_new(&fixture, "alice");
    assert_int_equal(engine_n_live(fixture.engine), 1);
    check_release(check);
    assert_int_equal(engine_n_live(fixture.engine), 0);
    assert_int_equal(engine_counters.checks, 0);
}

static void a_lost_store_gives_each_policys_failure_answer(void **state)
{
    (void)state;
    struct asked allow = {0}, deny = {0}, error = {0}, local = {0};
    fixture_ask(&fixture, &allow, OP_CHECK, "allow", "alice", 3);
    fixture_ask(&fixture, &deny, OP_CHECK, "deny", "alice", 3);
    fixture_ask(&fixture, &error, OP_CHECK, "error", "alice", 3);
    fixture_ask(&fixture, &local, OP_CHECK, "local", "alice", 1);
    scripted_end_all(&fixture.scripted, OP_DOWN);
    assert_true(allow.decision.allowed);
    assert_int_equal(allow.decision.granted, 3);
    assert_int_equal(allow.decision.reason, REASON_DOWN);
    assert_false(deny.decision.allowed);
    assert_int_equal(deny.decision.source, SOURCE_DENY);
    assert_int_equal(deny.decision.retry_after_ms, 1000);
    assert_int_equal(deny.decision.granted, 0);
    assert_int_equal(error.error, ERROR_STORE_UNAVAILABLE);
    assert_string_equal(error.error_message, "the connection to the store was lost; it may be done");
    assert_true(local.decision.allowed);
    assert_int_equal(local.decision.source, SOURCE_LOCAL);
    assert_int_equal(local.decision.reason, REASON_DOWN);
    assert_int_equal(local.decision.remaining, 1);
    assert_int_equal(engine_counters.failure_down, 4);
    assert_int_equal(engine_counters.failure_allow, 1);
    assert_int_equal(engine_counters.failure_deny, 1);
    assert_int_equal(engine_counters.failure_error, 1);
    assert_int_equal(engine_counters.failure_local, 1);
    assert_int_equal(engine_counters.allowed, 2);
    assert_int_equal(engine_counters.denied, 1);
}

static void a_failure_answer_allows_a_cost_of_zero(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    struct asked asked = ask(OP_CHECK, "deny", "alice", 0);
    assert_true(asked.decision.allowed);
    assert_int_equal(asked.decision.retry_after_ms, 0);
}

static void a_store_error_has_its_reason(void **state)
{
    (void)state;
    struct asked asked = {0};
    fixture_ask(&fixture, &asked, OP_CHECK, "deny", "alice", 1);
    scripted_end(&fixture.scripted, 0, OP_STORE_ERROR);
    assert_int_equal(asked.decision.reason, REASON_STORE_ERROR);
    assert_int_equal(engine_counters.failure_store_error, 1);
}

/* Ends a check of `policy`, ten seconds after the one before. Returns the failure answers that were worth a warning. */
static uint64_t end_slowly(const char *policy, enum op_outcome outcome)
{
    struct asked asked = {0};
    fixture.clock.mono_us += 10000000;
    fixture_ask(&fixture, &asked, OP_CHECK, policy, "alice", 1);
    scripted_end(&fixture.scripted, 0, outcome);
    return engine_failure(fixture.engine)->n_repeated;
}

/* Earlier such a policy failed for ever, and only two failure answers within a second were ever reported. */
static void the_third_failure_of_a_policy_in_a_row_counts_however_slow_they_come(void **state)
{
    (void)state;
    assert_int_equal(end_slowly("deny", OP_STORE_ERROR), 0);
    assert_int_equal(end_slowly("allow", OP_DECIDED), 0); /* another policy is fine */
    assert_int_equal(end_slowly("deny", OP_STORE_ERROR), 0);
    assert_int_equal(end_slowly("allow", OP_DECIDED), 0);
    assert_int_equal(end_slowly("deny", OP_STORE_ERROR), 1);
    assert_int_equal(end_slowly("deny", OP_DECIDED), 1);
    for (int i = 0; i < 2; i++) assert_int_equal(end_slowly("error", OP_STORE_ERROR), 1);
    assert_int_equal(end_slowly("deny", OP_STORE_ERROR), 1);
    assert_int_equal(end_slowly("error", OP_STORE_ERROR), 2);
}

static void a_refusal_is_answered_at_once(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    assert_int_equal(ask(OP_CHECK, "allow", "alice", 1).decision.reason, REASON_DOWN);
    fixture.scripted.mode = SCRIPTED_REFUSE_OVERLOAD;
    assert_int_equal(ask(OP_CHECK, "allow", "alice", 1).decision.reason, REASON_OVERLOAD);
    fixture.scripted.mode = SCRIPTED_REFUSE_BREAKER;
    assert_int_equal(ask(OP_CHECK, "allow", "alice", 1).decision.reason, REASON_BREAKER);
    assert_int_equal(engine_counters.failure_breaker, 1);
    assert_int_equal(engine_counters.failure_overload, 1);
    assert_int_equal(engine_n_live(fixture.engine), 0);
    assert_int_equal(engine_next_deadline(fixture.engine), INT64_MAX);
}

static void peeks_and_resets_are_errors_without_the_store(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    const char *const policies[] = {"allow", "deny", "error"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ask(OP_PEEK, policies[i], "alice", 1).error, ERROR_STORE_UNAVAILABLE);
        assert_int_equal(ask(OP_RESET, policies[i], "alice", 0).error, ERROR_STORE_UNAVAILABLE);
    }
    assert_int_equal(engine_counters.failure_error, 6);
    assert_int_equal(engine_counters.checks, 0);
}

static void peeks_and_resets_of_local_are_answered_by_the_table(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    int64_t whole = ask(OP_PEEK, "local", "alice", 0).decision.remaining;
    assert_int_equal(ask(OP_CHECK, "local", "alice", 1).decision.source, SOURCE_LOCAL);
    assert_int_equal(ask(OP_PEEK, "local", "alice", 0).decision.remaining, whole - 1);
    assert_int_equal(ask(OP_RESET, "local", "alice", 0).error, ERROR_NONE);
    struct decision freed = ask(OP_PEEK, "local", "alice", 0).decision;
    assert_int_equal(freed.remaining, whole);
    assert_int_equal(freed.reason, REASON_DOWN);

    /* what the store has refused is an error, which names the reason */
    fixture.scripted.mode = SCRIPTED_REFUSE_OVERLOAD;
    assert_int_equal(ask(OP_PEEK, "local", "alice", 1).error, ERROR_STORE_UNAVAILABLE);
    assert_int_equal(ask(OP_RESET, "local", "alice", 0).error, ERROR_STORE_UNAVAILABLE);
}

static void a_reset_says_what_the_store_said(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_DECIDE;
    assert_true(ask(OP_RESET, "several", "alice", 0).removed);
    fixture.scripted.removed = false;
    assert_false(ask(OP_RESET, "several", "alice", 0).removed);
}

static void too_many_checks_are_refused(void **state)
{
    (void)state;
    struct asked asked[101] = {0};
    for (size_t i = 0; i < 100; i++) assert_true(fixture_ask(&fixture, &asked[i], OP_CHECK, "allow", "alice", 1));
    assert_false(fixture_ask(&fixture, &asked[100], OP_CHECK, "allow", "alice", 1));
    assert_int_equal(engine_counters.overloaded, 1);
    scripted_end(&fixture.scripted, 50, OP_DECIDED);
    assert_true(fixture_ask(&fixture, &asked[100], OP_CHECK, "allow", "alice", 1));
    engine_set_options(fixture.engine, &(struct engine_options){.max_inflight = 50, .local_max_keys = 10});
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

/* A store that is stalled must not turn failure answers into OVERLOADED errors. */
static void checks_nobody_waits_for_do_not_count_against_the_cap(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        struct asked asked[100] = {0};
        for (size_t i = 0; i < 100; i++) assert_true(fixture_ask(&fixture, &asked[i], OP_CHECK, "allow", "alice", 1));
        fixture_advance_ms(&fixture, 20);
        for (size_t i = 0; i < 100; i++) {
            assert_int_equal(asked[i].n_done, 1);
            assert_int_equal(asked[i].decision.reason, round == 0 ? REASON_DEADLINE : REASON_OVERLOAD);
        }
    }
    assert_int_equal(fixture.scripted.n_submitted, 100);
    assert_int_equal(engine_n_live(fixture.engine), 100);
    assert_int_equal(engine_counters.overloaded, 0);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.late_replies, 100);
}

static void a_limit_of_zero_is_denied_without_the_store(void **state)
{
    (void)state;
    struct asked denied = ask(OP_CHECK, "nothing", "alice", 1);
    assert_false(denied.decision.allowed);
    assert_int_equal(denied.decision.retry_after_ms, RETRY_NEVER);
    assert_int_equal(denied.decision.limit, 0);
    assert_int_equal(denied.decision.source, SOURCE_REDIS);
    assert_null(denied.decision.bound_by);
    assert_true(ask(OP_CHECK, "nothing", "alice", 0).decision.allowed);
    assert_false(ask(OP_PEEK, "nothing", "alice", 1).decision.allowed);
    struct asked bound = ask(OP_CHECK, "partly-nothing", "alice", 1);
    assert_string_equal(bound.decision.bound_by->name, "none");
    assert_int_equal(fixture.scripted.n_submitted, 0);
    fixture.scripted.mode = SCRIPTED_DECIDE; /* what was counted before the limit was 0 is forgotten */
    assert_true(ask(OP_RESET, "nothing", "alice", 0).removed);
    assert_true(ask(OP_RESET, "partly-nothing", "alice", 0).removed);
    assert_int_equal(fixture.scripted.n_submitted, 2);
}

static void a_cost_above_the_capacity_is_the_stores_to_deny(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_DECIDE;
    fixture.scripted.decision = (struct decision){.limit = 5, .remaining = 5, .retry_after_ms = RETRY_NEVER};
    assert_int_equal(ask(OP_CHECK, "allow", "alice", 6).decision.retry_after_ms, RETRY_NEVER);
    assert_int_equal(fixture.scripted.n_submitted, 1);
}

static void a_reload_leaves_checks_in_flight_their_policy(void **state)
{
    (void)state;
    static const struct policy_spec reloaded[] = {
        {.name = "deny", .on_failure = ON_FAILURE_ALLOW, .limits = {{.limit = 7, .window_us = SECOND_US}}}};
    struct asked before = {.keep = true}, after = {0};
    fixture_ask(&fixture, &before, OP_CHECK, "deny", "alice", 1);
    engine_set_policies(fixture.engine, policies_make(reloaded, 1));
    fixture_ask(&fixture, &after, OP_CHECK, "deny", "alice", 1);
    fixture_advance_ms(&fixture, 20);
    assert_int_equal(before.decision.source, SOURCE_DENY);
    assert_int_equal(before.decision.limit, 5);
    assert_int_equal(after.decision.source, SOURCE_ALLOW);
    assert_int_equal(after.decision.limit, 7);
    assert_int_not_equal(before.decision.policy_version, after.decision.policy_version);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_string_equal(before.check->plan->policy->name, "deny");
    fixture_leave(&before);
}

static void closing_answers_everything_first(void **state)
{
    (void)state;
    struct asked waiting = {0}, late = {0}, gone = {0}, kept = {.keep = true};
    fixture_ask(&fixture, &late, OP_CHECK, "deny", "alice", 1);
    fixture_advance_ms(&fixture, 20);
    fixture_ask(&fixture, &waiting, OP_CHECK, "deny", "alice", 1);
    fixture_ask(&fixture, &gone, OP_CHECK, "deny", "alice", 1);
    fixture_ask(&fixture, &kept, OP_CHECK, "local", "alice", 1);
    fixture_leave(&gone);
    fixture.scripted.holds_close = true;
    engine_close(fixture.engine, fixture_mark_closed, &fixture);
    assert_int_equal(waiting.n_done, 1);
    assert_int_equal(waiting.decision.reason, REASON_DOWN);
    assert_int_equal(kept.decision.source, SOURCE_LOCAL);
    assert_null(fixture_check_new(&fixture, "alice"));
    assert_false(fixture.closed);
    scripted_finish_close(&fixture.scripted);
    assert_false(fixture.closed);
    fixture_leave(&kept);
    assert_true(fixture.closed);
    assert_int_equal(late.n_done, 1);
    assert_int_equal(gone.n_done, 0);
    assert_int_equal(engine_counters.inflight, 0);
}

static void a_check_submitted_while_closing_is_answered(void **state)
{
    (void)state;
    struct check *check = fixture_check_new(&fixture, "alice");
    struct asked asked = {.check = check};
    fixture.scripted.holds_close = true;
    engine_close(fixture.engine, fixture_mark_closed, &fixture);
    engine_flush(fixture.engine);
    assert_int_equal(fixture.scripted.n_flushed, 0);
    fixture_submit(&fixture, &asked, OP_CHECK, "allow", 1);
    assert_int_equal(asked.decision.reason, REASON_DOWN);
    assert_int_equal(fixture.scripted.n_submitted, 0);
    scripted_finish_close(&fixture.scripted);
    assert_true(fixture.closed);
}

static struct asked ask_down(const char *policy, const char *key)
{
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    return ask(OP_CHECK, policy, key, 1);
}

static struct asked ask_up(const char *policy, const char *key)
{
    fixture.scripted.mode = SCRIPTED_DECIDE;
    return ask(OP_CHECK, policy, key, 1);
}

static void local_decides_until_the_store_is_back_for_10_s_and_then_forgets(void **state)
{
    (void)state;
    assert_true(ask_down("local", "alice").decision.allowed);
    assert_true(ask_down("local", "alice").decision.allowed);
    struct asked denied = ask_down("local", "alice");
    assert_false(denied.decision.allowed);
    assert_int_equal(denied.decision.source, SOURCE_LOCAL);
    assert_in_range(denied.decision.retry_after_ms, 1, 60000);
    assert_true(ask_down("local", "bob").decision.allowed);
    assert_int_equal(ask_up("local", "alice").decision.source, SOURCE_REDIS);
    fixture_advance_ms(&fixture, 9999);
    ask_up("local", "alice");
    assert_false(ask_down("local", "alice").decision.allowed);
    fixture_advance_ms(&fixture, 10000);
    ask_up("local", "alice");
    assert_int_equal(ask_down("local", "alice").decision.remaining, 1);
    assert_int_equal(memory_counters.memory_keys, 0);
}

/* Ten an hour became 233 in 12 s. */
static void a_connection_cut_every_half_second_does_not_renew_the_limit(void **state)
{
    (void)state;
    size_t n_allowed = 0;
    for (int i = 0; i < 24; i++) {
        n_allowed += ask_down("hour", "alice").decision.allowed;
        n_allowed += ask_down("hour", "alice").decision.allowed;
        assert_int_equal(ask_up("hour", "alice").decision.source, SOURCE_REDIS);
        fixture_advance_ms(&fixture, 500);
    }
    assert_int_equal(n_allowed, 10);
}

/* Quiet for 10 s between two outages, again and again. */
static void local_begins_anew_at_most_once_a_minute(void **state)
{
    (void)state;
    size_t n_allowed = 0;
    for (int ms = 0; ms < 120000; ms += 10000) {
        for (int i = 0; i < 20; i++) n_allowed += ask_down("hour", "alice").decision.allowed;
        fixture_advance_ms(&fixture, 10000);
        ask_up("hour", "alice");
    }
    assert_int_equal(n_allowed, 30); /* from the start, from 10 s, from 70 s */
}

/* Else every answer between two late ones would hand out the whole limit again. */
static void local_is_not_forgotten_while_the_store_is_only_slow(void **state)
{
    (void)state;
    size_t n_allowed = 0;
    for (int i = 0; i < 10; i++) {
        struct asked asked = {0};
        fixture.scripted.mode = SCRIPTED_HOLD;
        fixture_ask(&fixture, &asked, OP_CHECK, "local", "alice", 1);
        fixture_advance_ms(&fixture, 20);
        n_allowed += asked.decision.allowed;
        ask_up("local", "alice");
    }
    assert_int_equal(n_allowed, 2);
    fixture_advance_ms(&fixture, 10000);
    ask_up("local", "alice");
    assert_true(ask_down("local", "alice").decision.allowed);
    fixture.scripted.mode = SCRIPTED_HOLD;
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void local_time_does_not_step_with_the_host(void **state)
{
    (void)state;
    ask_down("local", "alice");
    ask_down("local", "alice");
    fixture.clock.wall_us += 3600 * SECOND_US;
    assert_false(ask_down("local", "alice").decision.allowed);
    fixture.clock.wall_us -= 7200 * SECOND_US;
    fixture.clock.mono_us += 60 * SECOND_US;
    assert_true(ask_down("local", "alice").decision.allowed);
}

static void several_limits_are_one_answer_that_names_the_binding_one(void **state)
{
    (void)state;
    assert_true(ask(OP_CHECK, "several", "alice", 1).decision.allowed);
    struct asked second = ask(OP_CHECK, "several", "alice", 2);
    assert_false(second.decision.allowed);
    assert_string_equal(second.decision.bound_by->name, "second");
    assert_int_equal(ask(OP_CHECK, "several", "alice", 1).decision.remaining, 0);
    fixture_advance_ms(&fixture, 1000);
    struct asked minute = ask(OP_CHECK, "several", "alice", 2);
    assert_string_equal(minute.decision.bound_by->name, "minute");
    assert_int_equal(minute.decision.source, SOURCE_MEMORY);
    assert_int_equal(ask(OP_CHECK, "several", "alice", 1).decision.remaining, 0);
    assert_true(ask(OP_RESET, "several", "alice", 0).removed);
    assert_int_equal(ask(OP_PEEK, "several", "alice", 0).decision.remaining, 2);
    assert_int_equal(memory_counters.memory_keys, 0);
}

static void several_limits_fall_back_as_one(void **state)
{
    (void)state;
    struct asked asked = {0};
    fixture_ask(&fixture, &asked, OP_CHECK, "several", "alice", 1);
    fixture_advance_ms(&fixture, 20);
    assert_true(asked.decision.allowed);
    assert_int_equal(asked.decision.source, SOURCE_LOCAL);
    assert_int_equal(asked.decision.remaining, 1);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.late_replies, 1);
}

static void keys_of_any_length_and_bytes_keep_apart(void **state)
{
    (void)state;
    char key[5001];
    memset(key, 'k', sizeof key);
    for (size_t len = 1; len <= 5000; len += 7) {
        key[len] = '\0';
        assert_int_equal(ask(OP_CHECK, "several", key, 1).decision.remaining, 1);
        key[len] = 'k';
    }
}

static void a_cost_the_policy_cannot_charge_has_a_message(void **state)
{
    (void)state;
    const struct policy *policy = policies_get(engine_policies(fixture.engine), "allow");
    assert_null(policy_cost_fault(policy, 0));
    assert_null(policy_cost_fault(policy, 5));
    assert_null(policy_cost_fault(policy, 6));
    assert_null(policy_cost_fault(policy, (INT64_C(1) << 53) - 1));
    assert_non_null(policy_cost_fault(policy, INT64_C(1) << 53));
    assert_non_null(policy_cost_fault(policy, -1));
    struct policy *capped = policy_new("capped", 1);
    capped->limits[0] = (struct limit){.policy = capped, .limit = 10, .full = 10, .max_cost = 4};
    assert_null(policy_cost_fault(capped, 4));
    assert_non_null(policy_cost_fault(capped, 5));
    assert_non_null(policy_cost_fault(capped, 10));
    assert_null(policy_cost_fault(capped, 11));
    policy_free(capped);
    for (int algo = 0; algo < N_ALGOS; algo++) {
        struct policy *compat = policy_new("compat", 1);
        compat->limits[0] =
            (struct limit){.policy = compat, .algo = (enum algo)algo, .limit = 10, .full = 10, .max_cost = 10};
        assert_null(policy_cost_fault(compat, 1));
        assert_int_equal(policy_cost_fault(compat, 2) != NULL, limit_ops(&compat->limits[0])->is_compat);
        policy_free(compat);
    }
}

static void a_store_that_replies_twice_is_caught(void **state)
{
    (void)state;
    struct asked asked = {0};
    fixture_ask(&fixture, &asked, OP_CHECK, "allow", "alice", 1);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGABRT, SIG_DFL);
        fclose(stderr);
        scripted_reply_twice(&fixture.scripted);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void flushing_reaches_the_store(void **state)
{
    (void)state;
    engine_flush(fixture.engine);
    ask_down("local", "alice");
    engine_flush(fixture.engine);
    assert_int_equal(fixture.scripted.n_flushed, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(a_reply_answers_the_check, &suite),
        SCRIPTED_TEST(a_denial_that_redis_was_not_asked_for_says_so, &suite),
        SCRIPTED_TEST(the_deadline_answers_and_the_late_reply_is_dropped, &suite),
        SCRIPTED_TEST(the_request_may_set_its_own_deadline, &suite),
        SCRIPTED_TEST(checks_that_expire_together_are_answered_in_their_order, &suite),
        SCRIPTED_TEST(a_tick_answers_some_expired_checks_and_the_next_goes_on, &suite),
        SCRIPTED_TEST(expired_checks_weigh_by_their_units_of_a_log, &suite),
        SCRIPTED_TEST(closing_answers_more_than_a_tick_would, &suite),
        SCRIPTED_TEST(a_client_that_left_is_not_answered, &suite),
        SCRIPTED_TEST(a_client_may_keep_its_answer_beyond_done, &suite),
        SCRIPTED_TEST(a_check_never_submitted_goes_back, &suite),
        SCRIPTED_TEST(a_lost_store_gives_each_policys_failure_answer, &suite),
        SCRIPTED_TEST(a_failure_answer_allows_a_cost_of_zero, &suite),
        SCRIPTED_TEST(a_store_error_has_its_reason, &suite),
        SCRIPTED_TEST(the_third_failure_of_a_policy_in_a_row_counts_however_slow_they_come, &suite),
        SCRIPTED_TEST(a_refusal_is_answered_at_once, &suite),
        SCRIPTED_TEST(peeks_and_resets_are_errors_without_the_store, &suite),
        SCRIPTED_TEST(peeks_and_resets_of_local_are_answered_by_the_table, &suite),
        SCRIPTED_TEST(a_reset_says_what_the_store_said, &suite),
        SCRIPTED_TEST(too_many_checks_are_refused, &suite),
        SCRIPTED_TEST(checks_nobody_waits_for_do_not_count_against_the_cap, &suite),
        SCRIPTED_TEST(a_limit_of_zero_is_denied_without_the_store, &suite),
        SCRIPTED_TEST(a_cost_above_the_capacity_is_the_stores_to_deny, &suite),
        SCRIPTED_TEST(a_reload_leaves_checks_in_flight_their_policy, &suite),
        SCRIPTED_TEST(closing_answers_everything_first, &suite),
        SCRIPTED_TEST(a_check_submitted_while_closing_is_answered, &suite),
        SCRIPTED_TEST(local_decides_until_the_store_is_back_for_10_s_and_then_forgets, &suite),
        SCRIPTED_TEST(a_connection_cut_every_half_second_does_not_renew_the_limit, &suite),
        SCRIPTED_TEST(local_begins_anew_at_most_once_a_minute, &suite),
        SCRIPTED_TEST(local_is_not_forgotten_while_the_store_is_only_slow, &suite),
        SCRIPTED_TEST(local_time_does_not_step_with_the_host, &suite),
        MEMORY_TEST(several_limits_are_one_answer_that_names_the_binding_one, &suite),
        SCRIPTED_TEST(several_limits_fall_back_as_one, &suite),
        MEMORY_TEST(keys_of_any_length_and_bytes_keep_apart, &suite),
        SCRIPTED_TEST(a_cost_the_policy_cannot_charge_has_a_message, &suite),
        SCRIPTED_TEST(a_store_that_replies_twice_is_caught, &suite),
        SCRIPTED_TEST(flushing_reaches_the_store, &suite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
