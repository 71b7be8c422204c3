/* test_engine_share.c: a local answer is by this daemon's share of the limit, one of as many as share the store; and
 * each policy's part of the table begins anew by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/engine_counters.h"
#include "engine/failure.h"
#include "engine/slots.h"
#include "fakes/engine_suite.h"

#define SECOND_US INT64_C(1000000)
#define DAY_US    (86400 * SECOND_US)

static const struct policy_spec specs[] = {
    {.name = "window",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 100, .window_us = DAY_US}}},
    {.name = "bucket",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_BUCKET, .limit = 100, .burst = 10, .window_us = SECOND_US}}},
    {.name = "several",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.name = "day", .algo = ALGO_SLIDING_LOG, .limit = 30, .window_us = DAY_US},
                {.name = "hour", .algo = ALGO_FIXED_WINDOW, .limit = 9, .window_us = 3600 * SECOND_US}}},
    {.name = "slots",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_CONCURRENCY, .limit = 5, .window_us = 30 * SECOND_US}}},
    {.name = "thirds",
     .on_failure = ON_FAILURE_LOCAL,
     .local_share = 3,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 100, .window_us = DAY_US}}},
    {.name = "deny",
     .on_failure = ON_FAILURE_DENY,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 100, .window_us = DAY_US}}},
};

static struct engine_fixture fixture;
static const struct engine_suite suite = {
    .fixture = &fixture, .specs = specs, .n_specs = sizeof specs / sizeof specs[0]};

static struct asked ask(enum op_kind kind, const char *policy, const char *key, int64_t cost)
{
    return engine_suite_ask(&suite, kind, policy, key, cost);
}

static struct asked ask_down(const char *policy, const char *key, int64_t cost)
{
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    return ask(OP_CHECK, policy, key, cost);
}

static int64_t limit_of(const char *policy)
{
    return ask_down(policy, "probe", 0).decision.limit;
}

static void daemons_admit_the_limit_together(void **state)
{
    (void)state;
    int n_allowed = 0;
    engine_set_n_daemons(fixture.engine, 4);
    assert_int_equal(engine_counters.live_daemons, 4);
    for (int i = 0; i < 40; i++) n_allowed += ask_down("window", "alice", 1).decision.allowed;
    assert_int_equal(n_allowed, 25);
    struct asked denied = ask_down("window", "alice", 1);
    assert_int_equal(denied.decision.limit, 25);
    assert_int_equal(denied.decision.source, SOURCE_LOCAL);
    assert_ptr_equal(denied.decision.of, policies_get(engine_policies(fixture.engine), "window")->limits);
}

static void a_share_is_rounded_up_for_every_algorithm(void **state)
{
    (void)state;
    assert_int_equal(limit_of("window"), 100); /* the number was never seen */
    engine_set_n_daemons(fixture.engine, 3);
    assert_int_equal(limit_of("window"), 34);
    assert_int_equal(limit_of("bucket"), 4);
    assert_int_equal(limit_of("several"), 3);
    assert_int_equal(limit_of("slots"), 2);
    engine_set_n_daemons(fixture.engine, 1000);
    assert_int_equal(limit_of("window"), 1);
    assert_int_equal(limit_of("slots"), 1);
    engine_set_n_daemons(fixture.engine, 0);
    assert_int_equal(limit_of("window"), 100);
}

static void a_written_share_counts_whatever_number_is_seen(void **state)
{
    (void)state;
    assert_int_equal(limit_of("thirds"), 34);
    engine_set_n_daemons(fixture.engine, 10);
    assert_int_equal(limit_of("thirds"), 34);
    assert_int_equal(ask_down("deny", "alice", 1).decision.limit, 100); /* only local has shares */
}

static void the_refill_of_a_bucket_is_shared_too(void **state)
{
    (void)state;
    int n_allowed = 0;
    engine_set_n_daemons(fixture.engine, 10);
    for (int ms = 0; ms < 10000; ms += 10, fixture_advance_ms(&fixture, 10))
        n_allowed += ask_down("bucket", "alice", 1).decision.allowed;
    assert_int_equal(n_allowed, 100); /* 10 a second; its burst of 1 is refilled as it is used */
}

static void a_cost_above_the_share_may_pass_once_the_store_is_back(void **state)
{
    (void)state;
    engine_set_n_daemons(fixture.engine, 4);
    struct asked above = ask_down("window", "alice", 26), never = ask_down("window", "alice", 101);
    assert_false(above.decision.allowed);
    assert_int_equal(above.decision.retry_after_ms, 1000);
    assert_int_equal(never.decision.retry_after_ms, RETRY_NEVER);
    assert_true(ask_down("window", "alice", 25).decision.allowed);
}

static void the_limit_that_denies_is_named_as_it_is_configured(void **state)
{
    (void)state;
    engine_set_n_daemons(fixture.engine, 3);
    for (int i = 0; i < 3; i++) assert_true(ask_down("several", "alice", 1).decision.allowed);
    struct asked denied = ask_down("several", "alice", 1);
    const struct policy *policy = policies_get(engine_policies(fixture.engine), "several");
    assert_false(denied.decision.allowed);
    assert_ptr_equal(denied.decision.bound_by, &policy->limits[1]);
    assert_ptr_equal(denied.decision.of, &policy->limits[1]);
}

static void a_number_that_grows_in_an_outage_keeps_what_was_charged(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) assert_true(ask_down("window", "alice", 1).decision.allowed);
    engine_set_n_daemons(fixture.engine, 4);
    assert_false(ask_down("window", "alice", 1).decision.allowed);
    engine_set_n_daemons(fixture.engine, 3);
    assert_int_equal(ask_down("window", "alice", 4).decision.remaining, 0);
}

static void what_was_reserved_of_the_share_comes_back_to_it(void **state)
{
    (void)state;
    engine_set_n_daemons(fixture.engine, 4);
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    struct asked reserved = {.reservation = {.ttl_ms = 60000}}, settled = {0};
    assert_true(fixture_ask(&fixture, &reserved, OP_RESERVE, "window", "alice", 20));
    assert_true(reserved.decision.allowed && reserved.reservation.held);
    assert_false(ask_down("window", "alice", 6).decision.allowed);
    settled.reservation = reserved.reservation;
    settled.reservation.actual = 5;
    settled.local_reason = reserved.decision.reason;
    assert_true(fixture_ask(&fixture, &settled, OP_SETTLE, "window", "alice", 0));
    assert_int_equal(settled.reservation.refunded, 15);
    assert_true(ask_down("window", "alice", 20).decision.allowed);
}

static void ask_up(const char *policy)
{
    fixture.scripted.mode = SCRIPTED_DECIDE;
    assert_int_equal(ask(OP_CHECK, policy, "alice", 1).decision.source, SOURCE_REDIS);
}

static int n_of_nine(void)
{
    int n_allowed = 0;
    for (int i = 0; i < 20; i++) n_allowed += ask_down("several", "alice", 1).decision.allowed;
    return n_allowed;
}

/* A policy without a right in Redis fails for ever. Earlier no other policy's share ever began anew then. */
static void one_policy_that_always_fails_does_not_keep_what_others_were_charged(void **state)
{
    (void)state;
    int n_allowed[13];
    for (int i = 0; i < 13; i++) { /* each time the store has decided it for 10 s before */
        n_allowed[i] = n_of_nine();
        ask_up("several");
        for (int s = 0; s < 10; s++) {
            fixture_advance_ms(&fixture, 1000);
            assert_int_equal(ask_down("window", "bob", 0).decision.source, SOURCE_LOCAL);
        }
        ask_up("several");
    }
    for (int i = 0; i < 13; i++) assert_int_equal(n_allowed[i], i % 6 == 1 || i == 0 ? 9 : 0); /* once a minute */
    assert_false(ask_down("window", "bob", 101).decision.allowed);
}

static void what_fails_now_and_then_keeps_its_own_charges(void **state)
{
    (void)state;
    assert_int_equal(n_of_nine(), 9);
    for (int i = 0; i < 30; i++) { /* never 10 s without a failure answer */
        ask_up("several");
        fixture_advance_ms(&fixture, 9999);
        ask_up("several");
        assert_false(ask_down("several", "alice", 1).decision.allowed);
    }
}

static void what_was_reserved_in_an_earlier_part_gives_nothing_back_to_the_next(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    struct asked reserved = {.reservation = {.ttl_ms = 3600000}}, settled = {0};
    assert_true(fixture_ask(&fixture, &reserved, OP_RESERVE, "window", "alice", 60));
    ask_up("window");
    for (int s = 0; s < 10; s++) {
        fixture_advance_ms(&fixture, 1000);
        (void)ask_down("several", "bob", 0);
    }
    ask_up("window");
    assert_true(ask_down("window", "alice", 100).decision.allowed); /* anew */
    settled.reservation = reserved.reservation;
    settled.reservation.actual = 0;
    settled.local_reason = reserved.decision.reason;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    assert_true(fixture_ask(&fixture, &settled, OP_SETTLE, "window", "alice", 0));
    assert_true(settled.reservation.ended);
    assert_int_equal(settled.reservation.refunded, 0);
    assert_false(ask_down("window", "alice", 1).decision.allowed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(daemons_admit_the_limit_together, &suite),
        SCRIPTED_TEST(a_share_is_rounded_up_for_every_algorithm, &suite),
        SCRIPTED_TEST(a_written_share_counts_whatever_number_is_seen, &suite),
        SCRIPTED_TEST(the_refill_of_a_bucket_is_shared_too, &suite),
        SCRIPTED_TEST(a_cost_above_the_share_may_pass_once_the_store_is_back, &suite),
        SCRIPTED_TEST(the_limit_that_denies_is_named_as_it_is_configured, &suite),
        SCRIPTED_TEST(a_number_that_grows_in_an_outage_keeps_what_was_charged, &suite),
        SCRIPTED_TEST(what_was_reserved_of_the_share_comes_back_to_it, &suite),
        SCRIPTED_TEST(one_policy_that_always_fails_does_not_keep_what_others_were_charged, &suite),
        SCRIPTED_TEST(what_fails_now_and_then_keeps_its_own_charges, &suite),
        SCRIPTED_TEST(what_was_reserved_in_an_earlier_part_gives_nothing_back_to_the_next, &suite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
