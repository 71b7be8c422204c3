/* test_engine_candidate.c: limits on trial: their decisions are counted, and change no answer and no time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine_counters.h"
#include "fakes/check_all.h"
#include "fakes/engine_suite.h"

#define SECOND_US INT64_C(1000000)
#define WINDOW(n)                                                                                                      \
    {                                                                                                                  \
        .name = "w", .algo = ALGO_FIXED_WINDOW, .limit = n, .window_us = 10 * SECOND_US                                \
    }
#define TRIED                                                                                                          \
    {                                                                                                                  \
        {.name = "bucket", .algo = ALGO_BUCKET, .limit = 4, .window_us = 7 * SECOND_US},                               \
            {.name = "log", .algo = ALGO_SLIDING_LOG, .limit = 6, .window_us = 20 * SECOND_US},                        \
        {                                                                                                              \
            .name = "counter", .algo = ALGO_SLIDING_COUNTER, .limit = 9, .window_us = 30 * SECOND_US                   \
        }                                                                                                              \
    }

static const struct policy_spec specs[] = {
    {.name = "tighter", .on_failure = ON_FAILURE_ALLOW, .limits = {WINDOW(5)}, .candidate = {WINDOW(2)}},
    {.name = "looser", .on_failure = ON_FAILURE_DENY, .limits = {WINDOW(2)}, .candidate = {WINDOW(5)}},
    {.name = "closed", .limits = {WINDOW(0)}, .candidate = {WINDOW(2)}},
    {.name = "never", .limits = {WINDOW(2)}, .candidate = {WINDOW(0)}},
    {.name = "shadow", .shadow = true, .limits = {WINDOW(2)}, .candidate = {WINDOW(5)}},
    {.name = "tried",
     .limits = {{.name = "bucket", .algo = ALGO_BUCKET, .limit = 8, .window_us = 9 * SECOND_US}},
     .candidate = TRIED},
    {.name = "enforced", .limits = TRIED},
    {.name = "plain", .limits = {WINDOW(5)}},
    {.name = "dear",
     .limits = {{.algo = ALGO_BUCKET, .limit = 5000, .window_us = SECOND_US}},
     .candidate = {{.name = "log", .algo = ALGO_SLIDING_LOG, .limit = 5000, .window_us = SECOND_US}}},
};
enum { N_SPECS = sizeof specs / sizeof specs[0] };

static struct engine_fixture fixture;
static struct asked asked;
static struct engine_counters before;

static void remember(void)
{
    asked = (struct asked){0};
    before = engine_counters;
}

static const struct engine_suite suite = {.fixture = &fixture, .specs = specs, .n_specs = N_SPECS, .begin = remember};

static const struct decision *ask(enum op_kind kind, const char *policy, int64_t cost)
{
    assert_true(fixture_ask(&fixture, &asked, kind, policy, "k", cost));
    return &asked.decision;
}

/* As the method does: first the policy, then its candidate in a check of its own. */
static bool reset_both(const char *policy)
{
    ask(OP_RESET, policy, 0);
    bool removed = asked.removed;

    asked = (struct asked){.check = fixture_check_new(&fixture, "k")};
    asked.check->op.kind = OP_RESET;
    asked.check->plan = policies_get(engine_policies(fixture.engine), policy)->plan.candidate;
    assert_int_equal(check_seal(asked.check), 0);
    assert_true(fixture_submit(&fixture, &asked, OP_RESET, policy, 0));
    assert_int_equal(asked.n_done, 1);
    return removed || asked.removed;
}

static const struct policy_counts *counts_of(const char *policy)
{
    return policies_get(engine_policies(fixture.engine), policy)->counts;
}

#define ASSERT_COUNTED(yes, no, only_yes, only_no, none)                                                               \
    do {                                                                                                               \
        assert_int_equal(engine_counters.candidate_allowed - before.candidate_allowed, yes);                           \
        assert_int_equal(engine_counters.candidate_denied - before.candidate_denied, no);                              \
        assert_int_equal(engine_counters.candidate_only_allowed - before.candidate_only_allowed, only_yes);            \
        assert_int_equal(engine_counters.candidate_only_denied - before.candidate_only_denied, only_no);               \
        assert_int_equal(engine_counters.candidate_skipped - before.candidate_skipped, none);                          \
    } while (0)

static void it_denies_nothing_and_counts_what_it_would(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) assert_true(ask(OP_CHECK, "tighter", 1)->allowed);
    assert_int_equal(asked.decision.remaining, 1);
    assert_int_equal(asked.decision.limit, 5);
    ASSERT_COUNTED(2, 2, 0, 2, 0);
    assert_int_equal(counts_of("tighter")->candidate_denied, 2);
    assert_int_equal(counts_of("tighter")->candidate_only_denied, 2);
    assert_int_equal(policy_counts_allowed(counts_of("tighter")), 4);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void it_is_charged_by_its_own_verdict(void **state)
{
    (void)state;
    for (int i = 0; i < 7; i++) ask(OP_CHECK, "looser", 1);
    assert_false(asked.decision.allowed);
    ASSERT_COUNTED(5, 2, 3, 0, 0);
    assert_int_equal(policy_counts_denied(counts_of("looser")), 5);
    assert_int_equal(counts_of("looser")->candidate_only_allowed, 3);
}

static void it_decides_checks_that_a_limit_of_0_denies_and_may_be_0_itself(void **state)
{
    (void)state;
    assert_false(ask(OP_CHECK, "closed", 1)->allowed);
    ASSERT_COUNTED(1, 0, 1, 0, 0);
    assert_true(ask(OP_CHECK, "never", 1)->allowed);
    ASSERT_COUNTED(1, 1, 1, 1, 0);
}

static void it_is_compared_with_what_a_shadow_policy_would_say(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) assert_true(ask(OP_CHECK, "shadow", 1)->allowed);
    ASSERT_COUNTED(4, 0, 2, 0, 0);
}

static void peeks_and_costs_of_0_leave_it_alone_and_a_reset_forgets_it(void **state)
{
    (void)state;
    ask(OP_PEEK, "tighter", 1);
    ask(OP_CHECK, "tighter", 0);
    ASSERT_COUNTED(0, 0, 0, 0, 0);
    for (int i = 0; i < 3; i++) ask(OP_CHECK, "tighter", 1);
    ASSERT_COUNTED(2, 1, 0, 1, 0);
    assert_true(reset_both("tighter"));
    ask(OP_CHECK, "tighter", 1);
    ASSERT_COUNTED(3, 1, 0, 1, 0);
    for (int i = 0; i < 2; i++) ask(OP_CHECK, "closed", 1);
    assert_true(reset_both("closed"));
    assert_false(reset_both("closed"));
}

static void a_cost_it_cannot_charge_is_skipped(void **state)
{
    (void)state;
    assert_true(ask(OP_CHECK, "dear", 1500)->allowed);
    ASSERT_COUNTED(0, 0, 0, 0, 1);
}

/* On the same schedule, the candidate decides like a policy that enforces the same limits. */
static void it_is_charged_as_a_policy_that_enforces_the_same_limits(void **state)
{
    (void)state;
    uint32_t seed = 12345;
    for (int i = 0; i < 4000; i++) {
        seed = seed * 1664525 + 1013904223;
        int64_t cost = 1 + seed % 3;
        uint64_t denied = engine_counters.candidate_denied, allowed = engine_counters.candidate_allowed;
        ask(OP_CHECK, "tried", cost);
        bool tried = engine_counters.candidate_allowed > allowed;
        assert_int_equal(engine_counters.candidate_allowed - allowed + engine_counters.candidate_denied - denied, 1);
        assert_int_equal(ask(OP_CHECK, "enforced", cost)->allowed, tried);
        fixture_advance_ms(&fixture, seed / 1024 % 2500);
        if (seed / 4096 % 200 == 0) {
            reset_both("tried");
            ask(OP_RESET, "enforced", 0);
        }
    }
    assert_true(engine_counters.candidate_denied - before.candidate_denied > 500);
    assert_true(engine_counters.candidate_allowed - before.candidate_allowed > 500);
}

static void its_question_is_an_op_of_its_own_behind_the_enforced_one(void **state)
{
    (void)state;
    ask(OP_CHECK, "tried", 2);
    assert_int_equal(fixture.scripted.n_submitted, 2);
    assert_int_equal(scripted_held(&fixture.scripted, 0)->n_members, 1);
    assert_int_equal(scripted_held(&fixture.scripted, 1)->n_members, 3);
    assert_true(slice_is(scripted_held(&fixture.scripted, 1)->members[2].key, "k") &&
                scripted_held(&fixture.scripted, 1)->members[2].cost == 2);
    assert_string_equal(scripted_held(&fixture.scripted, 1)->members[0].limit->key_head, "tb1:tried+candidate/bucket:");
    assert_string_equal(scripted_held(&fixture.scripted, 0)->members[0].limit->key_head, "tb1:tried/bucket:");
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(asked.n_done, 1);
}

static void a_late_answer_is_waited_for_by_nobody_and_counted(void **state)
{
    (void)state;
    ask(OP_CHECK, "tighter", 1);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(asked.n_done, 1);
    assert_int_equal(fixture_n_inflight(&fixture), 0);
    assert_int_equal(engine_n_live(fixture.engine), 1);
    assert_int_equal(engine_next_deadline(fixture.engine), INT64_MAX);
    fixture_advance_ms(&fixture, 100000);
    ASSERT_COUNTED(0, 0, 0, 0, 0);
    fixture.scripted.decision.allowed = false;
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    ASSERT_COUNTED(0, 1, 0, 1, 0);
    assert_int_equal(engine_counters.late_replies, before.late_replies);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void an_early_answer_waits_for_the_enforced_one(void **state)
{
    (void)state;
    ask(OP_CHECK, "tighter", 1);
    scripted_end(&fixture.scripted, 1, OP_DECIDED);
    assert_int_equal(asked.n_done, 0);
    ASSERT_COUNTED(1, 0, 0, 0, 0);
    fixture.scripted.decision.allowed = false;
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    ASSERT_COUNTED(1, 0, 1, 0, 0);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void a_failure_answer_is_not_compared(void **state)
{
    (void)state;
    ask(OP_CHECK, "looser", 1);
    fixture_advance_ms(&fixture, 20);
    assert_true(!asked.decision.allowed && asked.decision.source == SOURCE_DENY);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    ASSERT_COUNTED(1, 0, 0, 0, 0);
}

static void a_lost_or_refused_question_is_skipped(void **state)
{
    (void)state;
    ask(OP_CHECK, "tighter", 1);
    scripted_end(&fixture.scripted, 1, OP_DOWN);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_true(asked.decision.allowed && asked.decision.source == SOURCE_REDIS);
    ASSERT_COUNTED(0, 0, 0, 0, 1);
    ask(OP_CHECK, "tighter", 1);
    scripted_end_all(&fixture.scripted, OP_STORE_ERROR);
    ASSERT_COUNTED(0, 0, 0, 0, 2);
    fixture.scripted.mode = SCRIPTED_REFUSE_OVERLOAD;
    ask(OP_CHECK, "tighter", 1);
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    ask(OP_CHECK, "tighter", 1);
    ASSERT_COUNTED(0, 0, 0, 0, 4);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void a_client_that_left_is_counted_all_the_same(void **state)
{
    (void)state;
    ask(OP_CHECK, "tighter", 1);
    fixture_leave(&asked);
    scripted_end(&fixture.scripted, 1, OP_DECIDED);
    ASSERT_COUNTED(1, 0, 0, 0, 0);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(engine_n_live(fixture.engine), 0);
    ask(OP_CHECK, "tighter", 1);
    fixture_leave(&asked); /* and the engine closes with both still held */
}

static void stuck_ones_are_bounded_and_take_nothing_from_the_checks(void **state)
{
    (void)state;
    struct engine_options options = {.max_inflight = 5, .local_max_keys = 10};
    engine_set_options(fixture.engine, &options);
    for (size_t i = 0; i < 20; i++) {
        ask(OP_CHECK, "tighter", 1);
        scripted_end(&fixture.scripted, i < 5 ? i : 5, OP_DECIDED);
        assert_int_equal(asked.n_done, 1);
        assert_int_equal(asked.decision.source, SOURCE_REDIS);
    }
    assert_int_equal(engine_n_live(fixture.engine), 5);
    ASSERT_COUNTED(0, 0, 0, 0, 15);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    ASSERT_COUNTED(5, 0, 0, 0, 15);
}

static void each_member_of_a_check_all_has_its_own(void **state)
{
    (void)state;
    struct check_all all = {0};
    assert_true(CHECK_ALL_ASK(&all, fixture.engine, {"tighter", "k", 3}, {"plain", "k", 3}, {"looser", "k", 3}));
    ASSERT_COUNTED(1, 1, 1, 1, 0);
    assert_int_equal(counts_of("tighter")->candidate_only_denied, 1);
    assert_int_equal(counts_of("looser")->candidate_only_allowed, 1);
    assert_int_equal(policy_counts_denied(counts_of("tighter")), 1);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void close_within(struct asked *of)
{
    (void)of;
    engine_close(fixture.engine, fixture_mark_closed, &fixture);
}

static void the_engine_may_close_within_the_answer_before_it_is_asked(void **state)
{
    (void)state;
    engine_suite_open_memory(&suite);
    asked.then = close_within;
    ask(OP_CHECK, "tighter", 1);
    assert_true(fixture.closed);
    ASSERT_COUNTED(0, 0, 0, 0, 1);
}

static void counts_go_on_through_a_reload(void **state)
{
    (void)state;
    ask(OP_CHECK, "tighter", 1);
    engine_set_policies(fixture.engine, policies_make(specs, N_SPECS));
    assert_int_equal(policy_counts_allowed(counts_of("tighter")), 0);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(policy_counts_allowed(counts_of("tighter")), 1);
    assert_int_equal(counts_of("tighter")->candidate_allowed, 1);
}

static void ask_both(int i)
{
    (void)i;
    ask(OP_CHECK, "tried", 1);
    ask(OP_CHECK, "tighter", 1);
}

static void warm_ones_allocate_nothing(void **state)
{
    (void)state;
    engine_suite_allocates_nothing(&suite, ask_both);
}

static void any_failed_allocation_is_answered(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 20; n++) {
        engine_suite_open_memory(&suite);
        mem_fail_nth(n);
        bool made = fixture_ask(&fixture, &asked, OP_CHECK, "tried", "k", 1);
        mem_fail_nth(0);
        assert_int_equal(asked.n_done, made);
        assert_int_equal(engine_n_live(fixture.engine), 0);
        fixture_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MEMORY_TEST(it_denies_nothing_and_counts_what_it_would, &suite),
        MEMORY_TEST(it_is_charged_by_its_own_verdict, &suite),
        MEMORY_TEST(it_decides_checks_that_a_limit_of_0_denies_and_may_be_0_itself, &suite),
        MEMORY_TEST(it_is_compared_with_what_a_shadow_policy_would_say, &suite),
        MEMORY_TEST(peeks_and_costs_of_0_leave_it_alone_and_a_reset_forgets_it, &suite),
        MEMORY_TEST(a_cost_it_cannot_charge_is_skipped, &suite),
        MEMORY_TEST(it_is_charged_as_a_policy_that_enforces_the_same_limits, &suite),
        SCRIPTED_TEST(its_question_is_an_op_of_its_own_behind_the_enforced_one, &suite),
        SCRIPTED_TEST(a_late_answer_is_waited_for_by_nobody_and_counted, &suite),
        SCRIPTED_TEST(an_early_answer_waits_for_the_enforced_one, &suite),
        SCRIPTED_TEST(a_failure_answer_is_not_compared, &suite),
        SCRIPTED_TEST(a_lost_or_refused_question_is_skipped, &suite),
        SCRIPTED_TEST(a_client_that_left_is_counted_all_the_same, &suite),
        SCRIPTED_TEST(stuck_ones_are_bounded_and_take_nothing_from_the_checks, &suite),
        MEMORY_TEST(each_member_of_a_check_all_has_its_own, &suite),
        cmocka_unit_test(the_engine_may_close_within_the_answer_before_it_is_asked),
        SCRIPTED_TEST(counts_go_on_through_a_reload, &suite),
        MEMORY_TEST(warm_ones_allocate_nothing, &suite),
        cmocka_unit_test(any_failed_allocation_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
