/* test_engine_all.c: several checks as one, all or nothing: what becomes of them with the store and without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine_counters.h"
#include "fakes/check_all.h"
#include "fakes/engine_suite.h"

#define SECOND_US INT64_C(1000000)
#define WINDOW(n)                                                                                                      \
    {                                                                                                                  \
        .algo = ALGO_FIXED_WINDOW, .limit = n, .window_us = 10 * SECOND_US                                             \
    }

static const struct policy_spec specs[] = {
    {.name = "allow", .on_failure = ON_FAILURE_ALLOW, .deadline_ms = 30, .limits = {WINDOW(5)}},
    {.name = "deny", .on_failure = ON_FAILURE_DENY, .deadline_ms = 50, .limits = {WINDOW(5)}},
    {.name = "local", .on_failure = ON_FAILURE_LOCAL, .deadline_ms = 40, .limits = {WINDOW(5)}},
    {.name = "error", .on_failure = ON_FAILURE_ERROR, .limits = {WINDOW(5)}},
    {.name = "zero", .on_failure = ON_FAILURE_LOCAL, .limits = {WINDOW(0)}},
    {.name = "several",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.name = "second", .algo = ALGO_BUCKET, .limit = 3, .window_us = SECOND_US},
                {.name = "day", .algo = ALGO_SLIDING_LOG, .limit = 8, .window_us = 60 * SECOND_US},
                {.name = "hour", .algo = ALGO_FIXED_WINDOW, .limit = 9, .window_us = 10 * SECOND_US}}},
    {.name = "half",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.name = "never", .limit = 0, .window_us = SECOND_US},
                {.name = "ever", .algo = ALGO_FIXED_WINDOW, .limit = 9, .window_us = SECOND_US}}},
};
static struct engine_fixture fixture;
static struct check_all all;

#define ASK_ALL(...) CHECK_ALL_ASK(&all, fixture.engine, __VA_ARGS__)

static void start(void)
{
    all = (struct check_all){0};
}

static const struct engine_suite suite = {
    .fixture = &fixture, .specs = specs, .n_specs = sizeof specs / sizeof specs[0], .begin = start};

static void all_are_charged_or_none(void **state)
{
    (void)state;
    ASK_ALL({"local", "a", 3}, {"several", "a", 1}, {"allow", "b", 5});
    assert_true(all.whole.allowed);
    assert_int_equal(all.whole.remaining, 0);
    assert_int_equal(all.whole.limit, 5);
    assert_int_equal(all.whole.granted, 9);
    assert_null(all.whole.bound_by);
    assert_int_equal(all.whole.source, SOURCE_MEMORY);
    assert_int_equal(all.members[0].remaining, 2);
    assert_int_equal(all.members[1].remaining, 2);
    assert_int_equal(all.members[2].granted, 5);
    ASK_ALL({"local", "a", 2}, {"several", "a", 3}, {"allow", "c", 5});
    assert_false(all.whole.allowed);
    assert_string_equal(all.whole.bound_by->name, "second");
    assert_int_equal(all.whole.granted, 0);
    assert_true(all.members[0].allowed && all.members[0].granted == 0 && all.members[0].remaining == 2);
    assert_false(all.members[1].allowed);
    assert_true(all.members[2].allowed && all.members[2].remaining == 5);
    ASK_ALL({"local", "a", 2}, {"allow", "c", 5});
    assert_true(all.whole.allowed);
    assert_int_equal(all.n_done, 3);
}

static void the_whole_is_bound_by_a_policy_where_its_limit_has_no_name(void **state)
{
    (void)state;
    ASK_ALL({"local", "a", 1}, {"allow", "a", 6});
    assert_false(all.whole.allowed);
    assert_int_equal(all.whole.retry_after_ms, RETRY_NEVER);
    assert_string_equal(all.whole.bound_by->policy->name, "allow");
    assert_null(all.members[1].bound_by);
    uint32_t version = all.members[0].policy_version * 31 + all.members[1].policy_version;
    assert_int_equal(all.whole.policy_version, version);
}

static void a_member_of_cost_0_charges_nothing_and_denies_nothing(void **state)
{
    (void)state;
    ASK_ALL({"local", "a", 5});
    ASK_ALL({"local", "a", 0}, {"allow", "a", 2}, {"zero", "a", 0});
    assert_true(all.whole.allowed);
    assert_int_equal(all.whole.granted, 2);
    assert_int_equal(all.members[0].remaining, 0);
    assert_int_equal(all.members[1].remaining, 3);
    assert_true(all.members[2].allowed && all.members[2].limit == 0);
    ASK_ALL({"zero", "a", 0}, {"half", "a", 0});
    assert_true(all.whole.allowed);
}

static void a_limit_of_0_denies_all_and_asks_no_store(void **state)
{
    (void)state;
    ASK_ALL({"local", "a", 1}, {"half", "a", 1}, {"several", "a", 1});
    assert_int_equal(fixture.scripted.n_submitted, 0);
    assert_false(all.whole.allowed);
    assert_int_equal(all.whole.retry_after_ms, RETRY_NEVER);
    assert_int_equal(all.whole.limit, 0);
    assert_string_equal(all.whole.bound_by->name, "never");
    assert_true(all.members[0].allowed && all.members[0].granted == 0 && all.members[0].limit == 5);
    assert_false(all.members[1].allowed);
    assert_true(all.members[2].allowed && all.members[2].limit == 3);
}

static void all_are_one_op_of_the_store(void **state)
{
    (void)state;
    ASK_ALL({"several", "a", 1}, {"local", "b", 2}, {"several", "c", 4});
    assert_int_equal(fixture.scripted.n_submitted, 1);
    const struct op *op = scripted_held(&fixture.scripted, 0);
    assert_int_equal(op->n_members, 7);
    assert_string_equal(op->members[1].limit->name, "day");
    assert_true(slice_is(op->members[3].key, "b") && op->members[3].cost == 2);
    assert_true(slice_is(op->members[6].key, "c") && op->members[6].cost == 4);
    assert_int_equal(engine_n_live(fixture.engine), 3);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(all.n_done, 1);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void the_strictest_failure_answer_is_that_of_all(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    ASK_ALL({"allow", "a", 1}, {"allow", "b", 9});
    assert_true(all.whole.allowed && all.whole.source == SOURCE_ALLOW && all.members[1].granted == 9);
    ASK_ALL({"allow", "a", 1}, {"local", "b", 5}, {"allow", "c", 1});
    assert_true(all.whole.allowed && all.whole.source == SOURCE_LOCAL && all.whole.reason == REASON_DOWN);
    ASK_ALL({"allow", "a", 1}, {"local", "b", 1});
    assert_false(all.whole.allowed);
    assert_string_equal(all.whole.bound_by->policy->name, "local");
    assert_true(all.members[0].source == SOURCE_LOCAL && all.members[0].allowed && all.members[0].granted == 0);
    ASK_ALL({"allow", "a", 1}, {"local", "b", 1}, {"deny", "b", 1}, {"deny", "c", 0});
    assert_true(!all.whole.allowed && all.whole.source == SOURCE_DENY && all.whole.retry_after_ms == 1000);
    assert_null(all.whole.bound_by);
    assert_int_equal(all.whole.reset_after_ms, 0); /* as its members say */
    assert_true(!all.members[0].allowed && all.members[0].source == SOURCE_DENY &&
                all.members[0].reason == REASON_DOWN);
    assert_true(all.members[3].allowed);
    ASK_ALL({"deny", "a", 1}, {"error", "b", 1}, {"allow", "c", 1});
    assert_int_equal(all.error, ERROR_STORE_UNAVAILABLE);
    assert_int_equal(all.n_done, 5);
}

static void the_shortest_deadline_is_that_of_all(void **state)
{
    (void)state;
    ASK_ALL({"deny", "a", 1}, {"allow", "b", 1}, {"local", "c", 1});
    fixture_advance_ms(&fixture, 29);
    assert_int_equal(all.n_done, 0);
    fixture_advance_ms(&fixture, 1);
    assert_int_equal(all.n_done, 1);
    assert_true(!all.whole.allowed && all.whole.reason == REASON_DEADLINE);
    assert_int_equal(engine_n_live(fixture.engine), 3);
    assert_int_equal(fixture_n_inflight(&fixture), 0);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.late_replies, 1);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void an_owner_may_leave_before_the_reply(void **state)
{
    (void)state;
    ASK_ALL({"several", "a", 1}, {"local", "b", 1});
    check_all_release(&all);
    assert_int_equal(engine_n_live(fixture.engine), 2);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(all.n_done, 0);
    assert_int_equal(engine_n_live(fixture.engine), 0);
    ASK_ALL({"several", "a", 1}, {"local", "b", 1});
    check_all_release(&all); /* and the engine may be closed with its reply still to come */
}

static void each_member_is_counted(void **state)
{
    (void)state;
    uint64_t checks = engine_counters.checks, allowed = engine_counters.allowed, denied = engine_counters.denied;
    ASK_ALL({"local", "a", 5}, {"allow", "a", 1}, {"several", "a", 1});
    ASK_ALL({"local", "a", 1}, {"allow", "a", 1});
    assert_int_equal(engine_counters.checks - checks, 5);
    assert_int_equal(engine_counters.allowed - allowed, 3);
    assert_int_equal(engine_counters.denied - denied, 2);
}

static void each_part_counts_towards_the_cap(void **state)
{
    (void)state;
    struct engine_options options = {.max_inflight = 5, .local_max_keys = 10};
    engine_set_options(fixture.engine, &options);
    ASK_ALL({"local", "a", 1}, {"local", "b", 1}, {"local", "c", 1});
    assert_int_equal(engine_n_available(fixture.engine), 2);
    assert_int_equal(fixture_n_inflight(&fixture), 3);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_n_available(fixture.engine), 5);
}

static void ask_mixed(int i)
{
    static const char *const long_key =
        "a key that is longer than the space in a check itself, so that it needs storage of its own, kept later";
    ASK_ALL({"several", i % 2 ? long_key : "a", 1}, {"several", "b", 1}, {"several", "c", 2}, {"local", "d", 1});
}

static void warm_ones_allocate_nothing(void **state)
{
    (void)state;
    engine_suite_allocates_nothing(&suite, ask_mixed);
}

enum { BURST = 20000 };

/* The memory in use with as many checks as there may be, each n_all of them joined; then they are released. */
static uint64_t in_use_by_burst(size_t n_all)
{
    static struct check *checks[BURST];
    for (size_t i = 0; i < BURST; i++) {
        checks[i] = engine_check_new(fixture.engine, OP_CHECK, 0);
        assert_non_null(checks[i]);
        checks[i]->plan = &policies_get(engine_policies(fixture.engine), "local")->plan;
        checks[i]->key = slice_of("k");
        if (i % n_all > 0) check_join(checks[i - i % n_all], checks[i]);
        if (i % n_all == n_all - 1) assert_int_equal(check_seal(checks[i - i % n_all]), 0);
    }

    uint64_t bytes = mem_in_use();
    for (size_t i = 0; i < BURST; i++) check_release(checks[i]);
    return bytes;
}

static void a_burst_of_large_checks_gives_its_memory_back(void **state)
{
    (void)state;
    struct engine_options options = fixture_options;
    options.max_inflight = BURST;
    fixture_open(&fixture, specs, suite.n_specs, &options);
    (void)in_use_by_burst(1);
    uint64_t with_small = mem_in_use();
    uint64_t at_most = in_use_by_burst(4);
    uint64_t with_large = mem_in_use();
    assert_true(at_most > with_small);
    assert_in_range(with_large - with_small, 0, (at_most - with_small) / 4);
    fixture_close(&fixture);
}

static void any_failed_allocation_is_answered(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 20; n++) {
        engine_suite_open_memory(&suite);
        mem_fail_nth(n);
        bool made = ASK_ALL({"several", "a", 1}, {"several", "b", 1});
        mem_fail_nth(0);
        assert_int_equal(all.n_done, made);
        assert_int_equal(engine_n_live(fixture.engine), 0);
        fixture_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MEMORY_TEST(all_are_charged_or_none, &suite),
        MEMORY_TEST(the_whole_is_bound_by_a_policy_where_its_limit_has_no_name, &suite),
        MEMORY_TEST(a_member_of_cost_0_charges_nothing_and_denies_nothing, &suite),
        SCRIPTED_TEST(a_limit_of_0_denies_all_and_asks_no_store, &suite),
        SCRIPTED_TEST(all_are_one_op_of_the_store, &suite),
        SCRIPTED_TEST(the_strictest_failure_answer_is_that_of_all, &suite),
        SCRIPTED_TEST(the_shortest_deadline_is_that_of_all, &suite),
        SCRIPTED_TEST(an_owner_may_leave_before_the_reply, &suite),
        MEMORY_TEST(each_member_is_counted, &suite),
        SCRIPTED_TEST(each_part_counts_towards_the_cap, &suite),
        MEMORY_TEST(warm_ones_allocate_nothing, &suite),
        cmocka_unit_test(a_burst_of_large_checks_gives_its_memory_back),
        cmocka_unit_test(any_failed_allocation_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
