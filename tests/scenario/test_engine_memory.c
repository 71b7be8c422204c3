/* test_engine_memory.c: what checks cost in allocations, and what happens when one fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine_counters.h"
#include "fakes/engine_fixture.h"

#define SECOND_US INT64_C(1000000)

static const struct policy_spec specs[] = {
    {.name = "bucket", .on_failure = ON_FAILURE_LOCAL, .limits = {{.limit = 50, .window_us = SECOND_US}}},
    {.name = "window",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 50, .window_us = SECOND_US}}},
    {.name = "log",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_SLIDING_LOG, .limit = 5, .window_us = 10 * SECOND_US}}},
    {.name = "several",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.name = "a", .algo = ALGO_BUCKET, .limit = 20, .window_us = SECOND_US},
                {.name = "b", .algo = ALGO_SLIDING_LOG, .limit = 3, .window_us = SECOND_US},
                {.name = "c", .algo = ALGO_SLIDING_LOG, .limit = 9, .window_us = SECOND_US}}},
};
enum { N_SPECS = sizeof specs / sizeof specs[0], N_ASKED = 100, N_KEYS = 40 };

static struct engine_fixture fixture;
static struct asked asked[N_ASKED];

/* A key of its own per number, some longer than a check holds inline. */
static const char *key_of(size_t i)
{
    static char key[256];
    memset(key, 'k', sizeof key);
    key[i % 3 == 0 ? 200 : 20] = '\0';
    snprintf(key, 8, "%07zu", i % N_KEYS);
    key[7] = '-';
    return key;
}

/* Of more durations than there are lanes for. */
static bool ask(size_t i)
{
    fixture.deadline_ms = (uint32_t)(10 + i % (2 * DEADLINE_LANES));
    return fixture_ask(&fixture, &asked[i], OP_CHECK, specs[i % N_SPECS].name, key_of(i), 1);
}

static void ask_all(size_t n_rounds)
{
    for (size_t round = 0; round < n_rounds; round++) {
        for (size_t i = 0; i < N_ASKED; i++) ask(i);
        scripted_end_all(&fixture.scripted, OP_DECIDED);
        engine_flush(fixture.engine);
        fixture_advance_ms(&fixture, 7);
    }
}

static void warm_checks_allocate_nothing(void)
{
    ask_all(30);
    uint64_t n_before = mem_n_allocs(), n_checks_before = engine_counters.checks;
    ask_all(100);
    assert_int_equal(engine_counters.checks - n_checks_before, 10000);
    assert_int_equal(mem_n_allocs(), n_before);
    fixture_close(&fixture);
}

static void ten_thousand_checks_of_the_memory_store_allocate_nothing(void **state)
{
    (void)state;
    fixture_open_memory(&fixture, specs, N_SPECS, &fixture_options);
    warm_checks_allocate_nothing();
}

static void ten_thousand_checks_of_a_slow_store_allocate_nothing(void **state)
{
    (void)state;
    fixture_open(&fixture, specs, N_SPECS, &fixture_options);
    warm_checks_allocate_nothing();
}

static void ten_thousand_local_answers_allocate_nothing(void **state)
{
    (void)state;
    fixture_open(&fixture, specs, N_SPECS, &fixture_options);
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    warm_checks_allocate_nothing();
}

/* One check of several limits among a hundred others, each round another one of them. */
static void ask_rounds_with_one_large(size_t n_rounds)
{
    for (size_t round = 0; round < n_rounds; round++) {
        for (size_t i = 0; i < N_ASKED; i++)
            fixture_ask(&fixture, &asked[i], OP_CHECK, i == round * 7 % N_ASKED ? "several" : "bucket", "key", 1);
        scripted_end_all(&fixture.scripted, OP_DECIDED);
        engine_flush(fixture.engine);
    }
}

/* Each check of the pool kept the space that it once had for several limits. So a daemon grew for hours, until all had
 * some: by megabytes in hundreds of kills of Redis. */
static void only_as_many_checks_have_space_for_several_limits_as_had_them_at_once(void **state)
{
    (void)state;
    fixture_open(&fixture, specs, N_SPECS, &fixture_options);
    ask_rounds_with_one_large(2);
    uint64_t before = mem_in_use();
    ask_rounds_with_one_large(5 * N_ASKED);
    assert_true(mem_in_use() <= before);
    fixture_close(&fixture);
}

/* Each check of a round is refused, or answered once; with the n-th allocation failing. */
static void expect_every_answer_despite_failure(uint64_t n)
{
    mem_fail_nth(n);
    for (size_t i = 0; i < N_ASKED; i++) {
        bool made = ask(i);
        assert_true(made || asked[i].check == NULL);
    }
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    engine_flush(fixture.engine);
    mem_fail_nth(0);
    size_t n_refused = 0;
    for (size_t i = 0; i < N_ASKED; i++) {
        assert_null(asked[i].check);
        n_refused += asked[i].n_done == 0;
        if (asked[i].n_done == 1 && asked[i].error != ERROR_NONE) assert_int_equal(asked[i].error, ERROR_OVERLOADED);
    }
    assert_true(n_refused <= 1);
    assert_int_equal(engine_n_live(fixture.engine), 0);
    fixture_close(&fixture);
}

static void open_memory(void)
{
    fixture_open_memory(&fixture, specs, N_SPECS, &fixture_options);
}

static void open_slow(void)
{
    fixture_open(&fixture, specs, N_SPECS, &fixture_options);
}

static void open_down(void)
{
    fixture_open(&fixture, specs, N_SPECS, &fixture_options);
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
}

static void sweep(void (*open)(void))
{
    memset(asked, 0, sizeof asked);
    open();
    uint64_t n_before = mem_n_allocs();
    expect_every_answer_despite_failure(0);
    uint64_t n_allocs = mem_n_allocs() - n_before;
    assert_true(n_allocs > 5);
    for (uint64_t n = 1; n <= n_allocs; n++) {
        open();
        expect_every_answer_despite_failure(n);
    }
}

static void any_failed_allocation_is_answered_with_the_memory_store(void **state)
{
    (void)state;
    sweep(open_memory);
}

static void any_failed_allocation_is_answered_with_a_slow_store(void **state)
{
    (void)state;
    sweep(open_slow);
}

static void any_failed_allocation_is_answered_while_deciding_locally(void **state)
{
    (void)state;
    sweep(open_down);
}

static void a_failed_allocation_makes_no_engine(void **state)
{
    (void)state;
    struct scripted_store scripted;
    struct clock clock = {.frozen = true};
    struct policy_set *set = policies_make(specs, N_SPECS);
    scripted_init(&scripted);
    mem_fail_nth(1);
    assert_null(engine_new(&clock, scripted_handle(&scripted), set, &fixture_options));
    mem_fail_nth(0);
    policy_set_unref(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_checks_of_the_memory_store_allocate_nothing),
        cmocka_unit_test(ten_thousand_checks_of_a_slow_store_allocate_nothing),
        cmocka_unit_test(ten_thousand_local_answers_allocate_nothing),
        cmocka_unit_test(only_as_many_checks_have_space_for_several_limits_as_had_them_at_once),
        cmocka_unit_test(any_failed_allocation_is_answered_with_the_memory_store),
        cmocka_unit_test(any_failed_allocation_is_answered_with_a_slow_store),
        cmocka_unit_test(any_failed_allocation_is_answered_while_deciding_locally),
        cmocka_unit_test(a_failed_allocation_makes_no_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
