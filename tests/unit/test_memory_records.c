/* test_memory_notes.c: remembered requests in the memory store: how many there may be, and which are forgotten first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/memory_fixture.h"
#include "fakes/policies.h"
#include "store/memory_counters.h"

#define SECOND_US INT64_C(1000000)

enum { MAX_KEYS = 1000, LIMIT = 1000000 };

static struct memory_fixture fixture;
static const struct policy *policy;

static int set_up(void **state)
{
    (void)state;
    const struct memory_options options = {.max_keys = MAX_KEYS, .sweep = true, .counted = true};
    const struct policy_spec spec = {
        .name = "p", .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = LIMIT, .window_us = 86400 * SECOND_US}}};
    memory_fixture_open(&fixture, 86400 * 10000 * SECOND_US, &options);
    policy = policies_add(fixture.set, &spec);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return memory_fixture_close(&fixture);
}

/* One unit of key "a", once for this number. Returns what is left. */
static int64_t check_once(int number, uint32_t record_ms)
{
    char name[32];
    snprintf(name, sizeof name, "note1:p:1:a:%06d", number);
    struct op_member member = {.limit = &policy->limits[0], .key = slice_of("a"), .cost = 1};
    struct op op = {
        .kind = OP_CHECK, .n_members = 1, .members = &member, .record = slice_of(name), .record_ms = record_ms};
    assert_int_equal(store_submit(&fixture.store, &op), SUBMIT_DECIDED);
    return member.decision.remaining;
}

static void they_are_as_many_as_keys_and_the_soonest_to_end_go_first(void **state)
{
    (void)state;
    for (int i = 0; i < MAX_KEYS; i++) check_once(i, i % 2 == 0 ? 60000 : 3600000);
    assert_int_equal(memory_counters.memory_evicted, 0);
    for (int i = 0; i < 100; i++) check_once(MAX_KEYS + i, 3600000);
    assert_int_equal(memory_counters.memory_evicted, 100);
    assert_int_equal(check_once(MAX_KEYS + 99, 3600000), LIMIT - MAX_KEYS - 100); /* as then */
    int n_forgotten = 0;
    for (int i = 1; i < 400; i += 2) n_forgotten += check_once(i, 3600000) < LIMIT - MAX_KEYS - 100;
    assert_true(n_forgotten < 20); /* of a sample of eight hardly ever none ends soon */
}

static void their_bytes_are_bounded_too(void **state)
{
    (void)state;
    uint64_t before = 0;
    for (int i = 0; i < 20 * MAX_KEYS; i++) {
        check_once(i, 60000);
        if (i == MAX_KEYS) before = memory_counters.memory_bytes;
    }
    assert_true(memory_counters.memory_bytes <= before + 1024);
}

static void a_lowered_bound_lets_some_go_in_every_tick(void **state)
{
    (void)state;
    for (int i = 0; i < MAX_KEYS; i++) check_once(i, 3600000);
    memory_store_set_max_keys(fixture.memory, 10);
    check_once(MAX_KEYS, 3600000);
    assert_in_range(memory_counters.memory_evicted, 1, 100); /* not all at once: others wait */
    for (int i = 0; i < 30; i++) store_flush(&fixture.store);
    assert_int_equal(memory_counters.memory_evicted, MAX_KEYS + 1 - 10);
}

static void what_is_over_is_swept(void **state)
{
    (void)state;
    for (int i = 0; i < MAX_KEYS; i++) check_once(i, 1000);
    uint64_t full = memory_counters.memory_bytes;
    memory_fixture_advance(&fixture, 2 * SECOND_US);
    for (int i = 0; i < 20; i++) store_flush(&fixture.store);
    assert_true(memory_counters.memory_bytes < full / 10);
    assert_int_equal(check_once(0, 1000), LIMIT - MAX_KEYS - 1);
}

static void ask_for_two(struct op_member *members)
{
    static const char *const keys[] = {"one", "two"};
    for (int i = 0; i < 2; i++)
        members[i] = (struct op_member){.limit = &policy->limits[0], .key = slice_of(keys[i]), .cost = 2 + i};
    struct op op = {
        .kind = OP_CHECK, .n_members = 2, .members = members, .record = slice_of("notes1:2"), .record_ms = 60000};
    assert_int_equal(store_submit(&fixture.store, &op), SUBMIT_DECIDED);
}

static void an_op_of_two_counters_is_answered_again_as_it_was(void **state)
{
    (void)state;
    struct op_member first[2], again[2];
    ask_for_two(first);
    check_once(1, 60000);
    ask_for_two(again);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(first[i].decision.remaining, LIMIT - 2 - i);
        assert_memory_equal(&first[i].decision, &again[i].decision, sizeof first[i].decision);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_op_of_two_counters_is_answered_again_as_it_was, set_up, tear_down),
        cmocka_unit_test_setup_teardown(they_are_as_many_as_keys_and_the_soonest_to_end_go_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(their_bytes_are_bounded_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lowered_bound_lets_some_go_in_every_tick, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_over_is_swept, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
