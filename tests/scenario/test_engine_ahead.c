/* test_engine_ahead.c: checks whose keys are prefetched, and which are decided a little later (engine.c, `ahead`). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/engine_counters.h"
#include "fakes/engine_fixture.h"

enum { N = 8 };

static struct engine_fixture fixture;
static struct asked asked[N];
static int order[N], n_done;

static void note_order(struct asked *done)
{
    order[n_done++] = (int)(done - asked);
}

static int set_up(void **state)
{
    (void)state;
    static const struct policy_spec specs[] = {
        {.name = "five", .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 5, .window_us = 3600000000}}},
        {.name = "shadow", .shadow = true, .limits = {{.algo = ALGO_BUCKET, .limit = 5, .window_us = 3600000000}}},
    };
    struct engine_options options = fixture_options;
    options.max_inflight = 2;
    fixture_open_prefetching(&fixture, specs, 2, &options);
    engine_counters.late_replies = engine_counters.overloaded = 0;
    n_done = 0;
    for (int i = 0; i < N; i++) asked[i] = (struct asked){.then = note_order};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (!fixture.closed) fixture_close(&fixture);
    return 0;
}

static void check(int i, const char *policy)
{
    assert_true(fixture_ask(&fixture, &asked[i], OP_CHECK, policy, "key", 1));
}

static void they_are_decided_in_their_order_within_the_tick(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) check(i, "five");
    assert_int_equal(n_done, N - 2);
    engine_flush(fixture.engine);
    assert_int_equal(n_done, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(order[i], i);
        assert_int_equal(asked[i].decision.allowed, i < 5);
        assert_int_equal(asked[i].decision.remaining, i < 5 ? 4 - i : 0);
    }
    assert_int_equal(engine_counters.overloaded, 0); /* none of them has waited */
}

static void a_single_one_is_decided_at_the_ticks_end(void **state)
{
    (void)state;
    check(0, "five");
    assert_int_equal(n_done, 0);
    assert_int_equal(fixture_n_inflight(&fixture), 0);
    engine_flush(fixture.engine);
    assert_int_equal(n_done, 1);
    assert_true(asked[0].decision.allowed);
}

static void one_that_is_not_prefetched_comes_behind_them(void **state)
{
    (void)state;
    check(0, "five");
    check(1, "shadow");
    assert_int_equal(n_done, 2);
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 1);
}

static void one_whose_owner_leaves_takes_effect_without_an_answer(void **state)
{
    (void)state;
    check(0, "five");
    fixture_leave(&asked[0]);
    check(1, "five");
    engine_flush(fixture.engine);
    assert_int_equal(asked[0].n_done, 0);
    assert_int_equal(asked[1].decision.remaining, 3);
    assert_int_equal(engine_n_live(fixture.engine), 0);
    assert_int_equal(engine_counters.late_replies, 0);
}

static void leave_the_next(struct asked *done)
{
    note_order(done);
    fixture_leave(&asked[1]);
}

static void one_may_leave_while_another_is_answered(void **state)
{
    (void)state;
    asked[0].then = leave_the_next;
    check(0, "five");
    check(1, "five");
    engine_flush(fixture.engine);
    assert_int_equal(n_done, 1);
    check(2, "five");
    engine_flush(fixture.engine);
    assert_int_equal(asked[2].decision.remaining, 2);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void ask_once_more(struct asked *done)
{
    note_order(done);
    check((int)(done - asked) + 1, "five");
}

static void one_may_be_asked_while_another_is_answered(void **state)
{
    (void)state;
    asked[0].then = ask_once_more;
    check(0, "five");
    engine_flush(fixture.engine);
    assert_int_equal(n_done, 2);
    assert_int_equal(asked[1].decision.remaining, 3);
}

static void closing_decides_them(void **state)
{
    (void)state;
    check(0, "five");
    check(1, "five");
    fixture_close(&fixture);
    assert_int_equal(n_done, 2);
    assert_true(asked[1].decision.allowed && asked[1].decision.source == SOURCE_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(they_are_decided_in_their_order_within_the_tick, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_single_one_is_decided_at_the_ticks_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_is_not_prefetched_comes_behind_them, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_whose_owner_leaves_takes_effect_without_an_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_may_leave_while_another_is_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_may_be_asked_while_another_is_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(closing_decides_them, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
