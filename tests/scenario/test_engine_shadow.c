/* test_engine_shadow.c: policies in shadow: what they would have denied is allowed, reported and counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine_counters.h"
#include "fakes/engine_suite.h"

#define SECOND_US INT64_C(1000000)
#define WINDOW(n)                                                                                                      \
    {                                                                                                                  \
        .algo = ALGO_FIXED_WINDOW, .limit = n, .window_us = 10 * SECOND_US                                             \
    }

static const struct policy_spec specs[] = {
    {.name = "allow", .on_failure = ON_FAILURE_ALLOW, .shadow = true, .limits = {WINDOW(5)}},
    {.name = "deny", .on_failure = ON_FAILURE_DENY, .shadow = true, .limits = {WINDOW(5)}},
    {.name = "local", .on_failure = ON_FAILURE_LOCAL, .shadow = true, .limits = {WINDOW(5)}},
    {.name = "error", .on_failure = ON_FAILURE_ERROR, .shadow = true, .limits = {WINDOW(5)}},
    {.name = "zero", .shadow = true, .limits = {WINDOW(0)}},
    {.name = "counted",
     .shadow = true,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 2, .window_us = 10 * SECOND_US, .count_denied = true}}},
    {.name = "several",
     .shadow = true,
     .limits = {{.name = "second", .algo = ALGO_BUCKET, .limit = 3, .window_us = SECOND_US},
                {.name = "hour", .algo = ALGO_FIXED_WINDOW, .limit = 9, .window_us = 10 * SECOND_US}}},
    {.name = "enforced", .limits = {WINDOW(5)}},
};

static struct engine_fixture fixture;
static struct asked asked;

static void forget(void)
{
    asked = (struct asked){0};
}

static const struct engine_suite suite = {
    .fixture = &fixture, .specs = specs, .n_specs = sizeof specs / sizeof specs[0], .begin = forget};

static const struct decision *ask(enum op_kind kind, const char *policy, int64_t cost)
{
    assert_true(fixture_ask(&fixture, &asked, kind, policy, "k", cost));
    return &asked.decision;
}

static void assert_shadow_denied(const struct decision *decision)
{
    assert_int_equal(asked.n_done, 1);
    assert_int_equal(asked.error, ERROR_NONE);
    assert_true(decision->allowed && decision->shadow_denied);
    assert_int_equal(decision->retry_after_ms, 0);
    assert_int_equal(decision->granted, 0);
    assert_int_equal(decision->delay_ms, 0);
    assert_null(decision->bound_by);
}

static void what_would_be_denied_is_allowed_and_says_so(void **state)
{
    (void)state;
    const struct decision *decision = ask(OP_CHECK, "local", 4);
    assert_true(decision->allowed && !decision->shadow_denied && decision->granted == 4);
    decision = ask(OP_CHECK, "local", 2);
    assert_shadow_denied(decision);
    assert_int_equal(decision->remaining, 1); /* nothing was charged */
    assert_int_equal(decision->limit, 5);
    assert_int_equal(decision->reset_after_ms, 10000);
    assert_int_equal(decision->source, SOURCE_MEMORY);
    assert_false(ask(OP_CHECK, "local", 1)->shadow_denied);
    assert_shadow_denied(ask(OP_CHECK, "local", 9));
    assert_false(ask(OP_CHECK, "local", 0)->shadow_denied);
}

static void a_peek_says_what_a_check_would(void **state)
{
    (void)state;
    ask(OP_CHECK, "several", 3);
    assert_shadow_denied(ask(OP_PEEK, "several", 1));
    assert_false(ask(OP_PEEK, "several", 0)->shadow_denied);
}

static void denials_that_count_are_charged_as_ever(void **state)
{
    (void)state;
    ask(OP_CHECK, "counted", 1);
    assert_shadow_denied(ask(OP_CHECK, "counted", 2));
    assert_int_equal(asked.decision.remaining, 0);
    assert_shadow_denied(ask(OP_CHECK, "counted", 1));
}

static void a_limit_of_0_denies_nothing_in_shadow(void **state)
{
    (void)state;
    assert_shadow_denied(ask(OP_CHECK, "zero", 1));
    assert_int_equal(asked.decision.limit, 0);
    assert_int_equal(fixture.scripted.n_submitted, 0);
    assert_false(ask(OP_CHECK, "zero", 0)->shadow_denied);
    assert_false(ask(OP_RESET, "zero", 0)->shadow_denied);
}

static void no_failure_answer_denies_or_is_an_error(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    assert_true(ask(OP_CHECK, "allow", 9)->allowed && !asked.decision.shadow_denied);
    assert_shadow_denied(ask(OP_CHECK, "deny", 1));
    assert_true(asked.decision.source == SOURCE_DENY && asked.decision.reason == REASON_DOWN);
    assert_false(ask(OP_CHECK, "deny", 0)->shadow_denied);
    ask(OP_CHECK, "local", 5);
    assert_shadow_denied(ask(OP_CHECK, "local", 1));
    assert_int_equal(asked.decision.source, SOURCE_LOCAL);
    assert_true(ask(OP_CHECK, "error", 1)->allowed && !asked.decision.shadow_denied);
    assert_int_equal(asked.error, ERROR_NONE);
    assert_true(asked.decision.source == SOURCE_ALLOW && asked.decision.reason == REASON_DOWN);
    ask(OP_PEEK, "error", 1);
    assert_int_equal(asked.error, ERROR_STORE_UNAVAILABLE);
}

static void short_memory_denies_nothing(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    struct check *check = fixture_check_new(&fixture, "k");
    asked.check = check;
    mem_fail_nth(2); /* the table of local answers */
    fixture_submit(&fixture, &asked, OP_CHECK, "local", 1);
    mem_fail_nth(0);
    assert_int_equal(asked.error, ERROR_NONE);
    assert_true(asked.decision.allowed && asked.decision.source == SOURCE_ALLOW);
}

static void they_count_as_allowed_and_apart(void **state)
{
    (void)state;
    uint64_t allowed = engine_counters.allowed, denied = engine_counters.denied, shadow = engine_counters.shadow_denied;
    ask(OP_CHECK, "local", 5);
    ask(OP_CHECK, "local", 1);
    ask(OP_PEEK, "local", 1);
    ask(OP_CHECK, "enforced", 6);
    assert_int_equal(engine_counters.allowed - allowed, 2);
    assert_int_equal(engine_counters.denied - denied, 1);
    assert_int_equal(engine_counters.shadow_denied - shadow, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MEMORY_TEST(what_would_be_denied_is_allowed_and_says_so, &suite),
        MEMORY_TEST(a_peek_says_what_a_check_would, &suite),
        MEMORY_TEST(denials_that_count_are_charged_as_ever, &suite),
        SCRIPTED_TEST(a_limit_of_0_denies_nothing_in_shadow, &suite),
        SCRIPTED_TEST(no_failure_answer_denies_or_is_an_error, &suite),
        SCRIPTED_TEST(short_memory_denies_nothing, &suite),
        MEMORY_TEST(they_count_as_allowed_and_apart, &suite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
