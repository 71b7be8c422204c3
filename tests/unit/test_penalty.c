/* test_penalty.c: pauses after breaches in the memory store: how they grow, end, are forgotten and reset. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "fakes/memory_fixture.h"
#include "fakes/policies.h"

#define MS     INT64_C(1000)
#define MINUTE (60000 * MS)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)

static struct memory_fixture fixture;
static const struct penalty growing = {.time_ms = 60000, .factor = 5, .max_ms = 86400000, .forget_ms = 86400000};

static int set_up(void **state)
{
    (void)state;
    memory_fixture_open(&fixture, 20000 * DAY, &(struct memory_options){.max_keys = 1000, .sweep = true});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return memory_fixture_close(&fixture);
}

static struct limit *limit_with(const char *name, enum algo algo, int64_t limit, const struct penalty *penalty)
{
    struct policy_spec spec = {.name = name, .limits = {{.algo = algo, .limit = limit, .window_us = HOUR}}};
    struct limit *made = (struct limit *)&policies_add(fixture.set, &spec)->limits[0];
    made->penalty = *penalty;
    return made;
}

static struct op_member ask(enum op_kind kind, const struct limit *limit, int64_t cost)
{
    struct op_member member = {.limit = limit, .key = slice_of("alice"), .cost = cost};
    struct op op = {.kind = kind, .n_members = 1, .members = &member};
    assert_int_equal(store_submit(&fixture.store, &op), SUBMIT_DECIDED);
    return member;
}

static struct decision check(const struct limit *limit, int64_t cost)
{
    return ask(OP_CHECK, limit, cost).decision;
}

static void pass(int64_t us)
{
    memory_fixture_advance(&fixture, us);
}

static void each_pause_is_longer_than_the_one_before(void **state)
{
    (void)state;
    static const int64_t expected_ms[] = {60000, 300000, 1500000, 7500000, 37500000, 86400000, 86400000};
    struct limit *limit = limit_with("p", ALGO_FIXED_WINDOW, 1, &growing);
    for (size_t i = 0; i < N_OF(expected_ms); i++) {
        struct decision admitted = check(limit, 1), breach = check(limit, 1);
        assert_true(admitted.allowed);
        assert_int_equal(admitted.reason, REASON_NONE);
        assert_false(breach.allowed);
        assert_int_equal(breach.reason, REASON_PENALTY);
        assert_int_equal(breach.remaining, 0);
        assert_int_equal(breach.granted, 0);
        /* a window that lasts longer decides how long to wait */
        assert_int_equal(breach.retry_after_ms, expected_ms[i] > 3600000 ? expected_ms[i] : 3600000);
        pass(breach.retry_after_ms * MS);
    }
}

static void a_pause_denies_though_the_window_has_ended(void **state)
{
    (void)state;
    const struct penalty long_one = {.time_ms = 7200000, .factor = 1, .max_ms = 7200000, .forget_ms = 0};
    struct limit *limit = limit_with("p", ALGO_FIXED_WINDOW, 2, &long_one);
    assert_true(check(limit, 2).allowed);
    assert_false(check(limit, 1).allowed);
    pass(HOUR);

    struct decision denied = check(limit, 1), free = check(limit, 0);
    assert_int_equal(denied.reason, REASON_PENALTY);
    assert_int_equal(denied.retry_after_ms, 3600000);
    assert_int_equal(denied.reset_after_ms, 3600000);
    assert_int_equal(check(limit, 3).retry_after_ms, RETRY_NEVER);
    assert_true(free.allowed);
    assert_int_equal(free.remaining, 0);
    assert_int_equal(free.reason, REASON_NONE);

    pass(HOUR - MS);
    assert_false(check(limit, 1).allowed);
    pass(MS);
    assert_int_equal(check(limit, 1).remaining, 1);
}

static void a_cost_above_what_is_left_is_no_breach_while_a_unit_is_left(void **state)
{
    (void)state;
    struct limit *limit = limit_with("p", ALGO_BUCKET, 3, &growing);
    assert_true(check(limit, 2).allowed);
    assert_int_equal(check(limit, 2).reason, REASON_NONE);
    assert_int_equal(check(limit, 4).reason, REASON_NONE);
    assert_true(check(limit, 1).allowed);
    struct decision breach = check(limit, 4); /* more than it ever has */
    assert_int_equal(breach.reason, REASON_PENALTY);
    assert_int_equal(breach.retry_after_ms, RETRY_NEVER);
    assert_int_equal(breach.reset_after_ms, 3600000);
}

static void a_peek_begins_nothing(void **state)
{
    (void)state;
    struct limit *limit = limit_with("p", ALGO_SLIDING_LOG, 1, &growing);
    assert_true(check(limit, 1).allowed);
    for (int i = 0; i < 2; i++) {
        struct op_member peek = ask(OP_PEEK, limit, 1);
        assert_int_equal(peek.decision.reason, REASON_PENALTY); /* what a check would get */
        assert_int_equal(peek.pause.level, 0);
    }
    assert_int_equal(check(limit, 0).remaining, 0);
    pass(HOUR);
    assert_true(check(limit, 1).allowed);
}

static void a_breach_after_the_time_to_forget_is_the_first_again(void **state)
{
    (void)state;
    const struct penalty short_memory = {.time_ms = 7200000, .factor = 2, .max_ms = 86400000, .forget_ms = 3600000};
    struct limit *limit = limit_with("p", ALGO_FIXED_WINDOW, 1, &short_memory);
    (void)check(limit, 1);
    assert_int_equal(check(limit, 1).retry_after_ms, 7200000);
    pass(3 * HOUR - MS);
    assert_int_equal(ask(OP_PEEK, limit, 0).pause.level, 1);
    (void)check(limit, 1);
    assert_int_equal(check(limit, 1).retry_after_ms, 14400000);
    pass(5 * HOUR);
    assert_int_equal(ask(OP_PEEK, limit, 0).pause.level, 0);
    (void)check(limit, 1);
    assert_int_equal(check(limit, 1).retry_after_ms, 7200000);
}

static void a_reset_ends_the_pause_and_forgets_its_level(void **state)
{
    (void)state;
    struct limit *limit = limit_with("p", ALGO_FIXED_WINDOW, 1, &growing);
    for (int i = 0; i < 3; i++) {
        (void)check(limit, 1);
        assert_int_equal(check(limit, 1).retry_after_ms, 3600000);
        assert_true(ask(OP_RESET, limit, 0).removed);
        assert_false(ask(OP_RESET, limit, 0).removed);
    }
    (void)check(limit, 1);
    (void)check(limit, 1);
    pass(2 * HOUR); /* the window and the pause are over, and the level is known */
    assert_int_equal(ask(OP_PEEK, limit, 0).pause.level, 1);
    assert_true(ask(OP_RESET, limit, 0).removed);
    assert_int_equal(ask(OP_PEEK, limit, 0).pause.level, 0);
}

static void a_refund_does_not_end_a_pause(void **state)
{
    (void)state;
    struct limit *limit = limit_with("p", ALGO_FIXED_WINDOW, 1, &growing);
    (void)check(limit, 1);
    (void)check(limit, 1);
    struct op_member refund = ask(OP_REFUND, limit, 1);
    assert_int_equal(refund.refunded, 1);
    assert_int_equal(refund.decision.remaining, 0);
    assert_int_equal(check(limit, 1).retry_after_ms, 60000); /* the window is empty now */
    pass(MINUTE);
    assert_true(check(limit, 1).allowed);
}

static void a_clock_that_steps_back_in_a_pause_does_not_make_it_longer(void **state)
{
    (void)state;
    const struct penalty one = {.time_ms = 7200000, .factor = 1, .max_ms = 7200000, .forget_ms = 0};
    struct limit *limit = limit_with("p", ALGO_FIXED_WINDOW, 1, &one);
    (void)check(limit, 1);
    (void)check(limit, 1);
    pass(-10 * DAY);
    assert_int_equal(check(limit, 1).retry_after_ms, 7200000);
    pass(HOUR); /* a denial has written it, else it would be two hours again */
    assert_int_equal(check(limit, 1).retry_after_ms, 3600000);
    pass(HOUR);
    assert_true(check(limit, 1).allowed);
}

static void a_reload_that_makes_pauses_shorter_shortens_the_one_that_runs(void **state)
{
    (void)state;
    struct limit *limit = limit_with("p", ALGO_FIRST_HIT, 1, &growing);
    for (int i = 0; i < 4; i++) {
        (void)check(limit, 1);
        pass(check(limit, 1).retry_after_ms * MS);
    }
    (void)check(limit, 1);
    assert_int_equal(check(limit, 1).retry_after_ms, 37500000);
    limit->penalty = (struct penalty){.time_ms = 5400000, .factor = 1, .max_ms = 5400000, .forget_ms = 0};
    assert_int_equal(ask(OP_PEEK, limit, 1).decision.retry_after_ms, 5400000);
    pass(90 * MINUTE);
    assert_true(check(limit, 1).allowed);
}

static void a_hundred_thousand_breaches_with_factor_1000_last_max(void **state)
{
    (void)state;
    const struct penalty steep = {
        .time_ms = 1, .factor = 1000, .max_ms = PENALTY_LONGEST_MS, .forget_ms = PENALTY_LONGEST_MS};
    struct pause pause = {0};
    for (int64_t i = 1; i <= 100000; i++) {
        int64_t now_ms = pause.end_ms + 1;
        assert_false(penalty_view(&steep, &pause, now_ms));
        pause = penalty_next(&steep, &pause, now_ms);
        int64_t length_ms = i <= 4 ? (int64_t[]){1, 1000, 1000000, 1000000000}[i - 1] : PENALTY_LONGEST_MS;
        assert_int_equal(pause.end_ms - now_ms, length_ms);
        assert_int_equal(pause.level, i);
        if (pause.end_ms > INT64_C(1) << 47) pause.end_ms = 1; /* else it would end after the year 6000 */
    }
    pause.level = UINT32_MAX;
    assert_int_equal(penalty_next(&steep, &pause, pause.end_ms).level, UINT32_MAX);
}

static void several_limits_begin_their_pauses_each_by_itself(void **state)
{
    (void)state;
    struct policy_spec spec = {.name = "p",
                               .limits = {{.name = "a", .algo = ALGO_FIXED_WINDOW, .limit = 1, .window_us = HOUR},
                                          {.name = "b", .algo = ALGO_FIXED_WINDOW, .limit = 9, .window_us = HOUR}}};
    struct policy *policy = (struct policy *)policies_add(fixture.set, &spec);
    policy->limits[0].penalty = policy->limits[1].penalty = growing;
    struct op_member members[2];
    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; j < 2; j++)
            members[j] = (struct op_member){.limit = &policy->limits[j], .key = slice_of("alice"), .cost = 1};
        struct op op = {.kind = OP_CHECK, .n_members = 2, .members = members};
        assert_int_equal(store_submit(&fixture.store, &op), SUBMIT_DECIDED);
    }
    struct decision all, both[] = {members[0].decision, members[1].decision};
    decision_combine(&all, both, 2);
    assert_int_equal(all.reason, REASON_PENALTY);
    assert_ptr_equal(all.bound_by, &policy->limits[0]);
    assert_true(members[1].decision.allowed);
    assert_int_equal(members[1].decision.remaining, 8); /* what was denied is not charged */
    assert_int_equal(ask(OP_PEEK, &policy->limits[1], 1).pause.level, 0);
    assert_int_equal(ask(OP_PEEK, &policy->limits[0], 1).pause.level, 1);

    decision_shadow(&all);
    assert_int_equal(all.reason, REASON_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_pause_is_longer_than_the_one_before, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_pause_denies_though_the_window_has_ended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cost_above_what_is_left_is_no_breach_while_a_unit_is_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_peek_begins_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_breach_after_the_time_to_forget_is_the_first_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reset_ends_the_pause_and_forgets_its_level, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refund_does_not_end_a_pause, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_clock_that_steps_back_in_a_pause_does_not_make_it_longer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reload_that_makes_pauses_shorter_shortens_the_one_that_runs, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(several_limits_begin_their_pauses_each_by_itself, set_up, tear_down),
        cmocka_unit_test(a_hundred_thousand_breaches_with_factor_1000_last_max),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
