/* test_policy.c: policies, their set, and decisions of several limits put together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "fakes/one_limit.h"
#include "policy/policy.h"

static struct policy *sealed(const char *name, int64_t limit)
{
    struct diag diag;
    struct policy *policy = policy_new(name, 1);
    assert_non_null(policy);
    policy->limits[0].algo = ALGO_BUCKET;
    policy->limits[0].limit = limit;
    policy->limits[0].window_us = 1000000;
    assert_int_equal(policy_prepare_limit(&policy->limits[0], NULL, &diag), 0);
    policy_seal(policy);
    return policy;
}

static void add_candidate(struct policy *policy, int64_t limit)
{
    struct diag diag;
    assert_int_equal(policy_add_candidate(policy, 1), 0);
    struct limit *candidate = &policy->candidate->limits[0];
    snprintf(candidate->name, sizeof candidate->name, "day");
    candidate->algo = ALGO_BUCKET;
    candidate->limit = limit;
    candidate->window_us = 1000000;
    assert_int_equal(policy_prepare_limit(candidate, NULL, &diag), 0);
    policy_seal(policy);
}

static void a_set_finds_its_policies_and_frees_them_with_the_last_reference(void **state)
{
    (void)state;
    struct policy_set *set = policy_set_new(100);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        policy_set_add(set, sealed(name, i + 1));
    }
    assert_int_equal(policy_find(set, slice_of("p42"))->limits[0].limit, 43);
    assert_null(policy_find(set, slice_of("p100")));
    assert_int_equal(set->n, 100);
    assert_string_equal(set->in_order[7]->name, "p7");
    policy_set_unref(policy_set_ref(set));
    assert_non_null(policy_find(set, slice_of("p0")));
    policy_set_unref(set);
    policy_set_unref(NULL);
}

static void a_set_survives_short_memory(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        mem_fail_nth(nth);
        assert_null(policy_set_new(16));
        mem_fail_nth(nth);
        assert_null(policy_new("a", 1));
    }
    mem_fail_nth(0);
}

static void the_version_is_the_fingerprint_of_the_settings(void **state)
{
    (void)state;
    struct policy *a = sealed("a", 5), *same = sealed("a", 5), *more = sealed("a", 6), *other = sealed("b", 5);
    assert_int_equal(a->version, same->version);
    assert_int_not_equal(a->version, more->version);
    assert_int_not_equal(a->version, other->version);
    same->on_failure = ON_FAILURE_ERROR;
    policy_seal(same);
    assert_int_not_equal(a->version, same->version);
    uint32_t before = same->version;
    same->shadow = true;
    policy_seal(same);
    assert_int_not_equal(before, same->version);
    before = same->version;
    add_candidate(same, 3);
    assert_int_not_equal(before, same->version);
    before = same->version;
    same->candidate->limits[0].limit = 4;
    policy_seal(same);
    assert_int_not_equal(before, same->version);
    policy_free(a);
    policy_free(same);
    policy_free(more);
    policy_free(other);
}

static void a_key_head_names_algorithm_policy_and_limit(void **state)
{
    (void)state;
    struct diag diag;
    struct policy *policy = policy_new("login", 2);
    for (int i = 0; i < 2; i++) {
        policy->limits[i].algo = ALGO_FIXED_WINDOW;
        policy->limits[i].limit = 1;
        policy->limits[i].window_us = 1000;
    }
    snprintf(policy->limits[1].name, sizeof policy->limits[1].name, "day");
    assert_int_equal(policy_prepare_limit(&policy->limits[0], NULL, &diag), 0);
    assert_int_equal(policy_prepare_limit(&policy->limits[1], NULL, &diag), 0);
    assert_string_equal(policy->limits[0].key_head, "fw1:login:");
    assert_string_equal(policy->limits[1].key_head, "fw1:login/day:");
    assert_int_equal(policy->limits[1].key_head_len, 14);
    policy_free(policy);
}

static void a_candidate_has_keys_of_its_own(void **state)
{
    (void)state;
    struct policy *policy = sealed("login", 1);
    add_candidate(policy, 2);
    assert_string_equal(policy->candidate->name, "login");
    assert_string_equal(policy->candidate->limits[0].key_head, "tb1:login+candidate/day:");
    assert_ptr_equal(policy->candidate->limits[0].policy, policy->candidate);
    assert_ptr_equal(policy->candidate->counts, policy->counts);
    policy_free(policy);
}

static void counts_go_on_by_name(void **state)
{
    (void)state;
    struct policy_set *first = policy_set_new(16), *second = policy_set_new(16), *third = policy_set_new(16);
    struct policy *a = sealed("a", 1), *a_again = sealed("a", 2), *b = sealed("b", 1), *a_new = sealed("a", 3);
    add_candidate(a_again, 5);
    policy_set_add(first, a);
    policy_set_add(second, a_again);
    policy_set_add(second, b);
    policy_set_add(third, a_new);
    uint64_t *allowed = &a->counts->all.decisions[SOURCE_MEMORY][true];
    *allowed = 7;
    policy_set_share_counts(second, first);
    assert_int_equal(policy_counts_allowed(a_again->counts), 7);
    assert_int_equal(policy_counts_allowed(b->counts), 0);
    ++*allowed; /* a check of the first set is decided after the reload */
    policy_set_unref(first);
    assert_int_equal(policy_counts_allowed(a_again->candidate->counts), 8);
    policy_set_share_counts(third, second);
    policy_set_unref(second);
    assert_int_equal(policy_counts_allowed(a_new->counts), 8);
    policy_set_unref(third);
}

static void name_policies(struct policy_set *set, size_t n_named)
{
    policy_set_name(set, n_named);
    policy_set_move_counts(set);
}

/* Three decisions, of which one is a denial by its limit, as engine/ counts them. */
static void decide_thrice(struct policy *policy)
{
    struct policy_counts *all[] = {policy->counts, policy->counts->sum};
    for (int i = 0; i < 2 && all[i] != NULL; i++) {
        all[i]->all.decisions[SOURCE_MEMORY][true] += 2;
        all[i]->all.decisions[SOURCE_MEMORY][false]++;
        all[i]->all.granted += 2;
    }
    ++*policy->limits[0].n_denied;
}

static void a_policy_that_moves_between_its_name_and_the_others_is_counted_once(void **state)
{
    (void)state;
    struct policy_set *set = policy_set_new(16);
    struct policy *a = sealed("a", 1), *b = sealed("b", 1);
    policy_set_add(set, a);
    policy_set_add(set, b);
    policy_counts_other = (struct policy_counts){0};

    name_policies(set, 1); /* b is one of the others */
    decide_thrice(b);
    assert_int_equal(policy_counts_other.all.granted, 2);
    name_policies(set, 2);
    assert_int_equal(policy_counts_of_name(b->counts).decisions[SOURCE_MEMORY][true], 0);
    assert_int_equal(policy_counts_allowed(b->counts), 2);
    decide_thrice(b);
    decide_thrice(a);
    name_policies(set, 0);
    decide_thrice(b);
    decide_thrice(a);
    assert_int_equal(policy_counts_other.all.granted, 6);
    name_policies(set, 2); /* under its name b goes on where it was */
    assert_int_equal(policy_counts_of_name(b->counts).granted, 2);
    assert_int_equal(policy_counts_of_name(b->counts).decisions[SOURCE_MEMORY][false], 1);
    assert_int_equal(policy_limit_denied_of_name(&b->limits[0]), 1);
    assert_int_equal(policy_limit_denied_of_name(&a->limits[0]), 1);
    assert_int_equal(policy_counts_allowed(b->counts), 6);
    assert_int_equal(policy_counts_other.all.granted, 6);
    policy_set_unref(set);
}

static void policies_survive_short_memory(void **state)
{
    (void)state;
    struct policy *policy = sealed("a", 1);
    for (uint64_t n = 1; n <= 2; n++) {
        mem_fail_nth(n);
        assert_null(policy_new("b", 1));
        mem_fail_nth(n);
        assert_int_equal(policy_add_candidate(policy, 3), -1);
        mem_fail_nth(0);
        assert_null(policy->candidate);
    }
    policy_free(policy);
}

static void both_names_of_the_bucket_are_one_algorithm(void **state)
{
    (void)state;
    assert_int_equal(algo_of_name("gcra"), ALGO_BUCKET);
    assert_int_equal(algo_of_name("token_bucket"), ALGO_BUCKET);
    assert_int_equal(algo_of_name("fixed_window"), ALGO_FIXED_WINDOW);
    assert_int_equal(algo_of_name("nonsense"), -1);
    assert_int_equal(compat_of_name("fixed_window"), -1);
}

static void several_limits_answer_as_one(void **state)
{
    (void)state;
    struct policy *policy = policy_new("p", 3);
    const struct limit *limits[] = {&policy->limits[0], &policy->limits[1], &policy->limits[2]};
    struct decision members[] = {
        {.allowed = true, .limit = 10, .remaining = 4, .reset_after_ms = 100, .granted = 0},
        {.allowed = false, .limit = 5, .remaining = 2, .retry_after_ms = 700, .reset_after_ms = 900},
        {.allowed = false, .limit = 20, .remaining = 3, .retry_after_ms = 300, .reset_after_ms = 50},
    };
    for (int i = 0; i < 3; i++) {
        members[i].of = limits[i];
        members[i].window_ms = 1000 + i;
        members[i].of_reset_ms = members[i].reset_after_ms;
    }
    struct decision all;
    decision_combine(&all, members, 3);
    assert_false(all.allowed);
    assert_int_equal(all.limit, 5);
    assert_int_equal(all.remaining, 2);
    assert_int_equal(all.retry_after_ms, 700);
    assert_int_equal(all.reset_after_ms, 900);
    assert_int_equal(all.granted, 0);
    assert_ptr_equal(all.bound_by, limits[1]);
    assert_ptr_equal(all.of, limits[1]);
    assert_int_equal(all.window_ms, 1001);
    assert_int_equal(all.of_reset_ms, 900);

    members[2].retry_after_ms = RETRY_NEVER;
    decision_combine(&all, members, 3);
    assert_int_equal(all.retry_after_ms, RETRY_NEVER);
    assert_ptr_equal(all.bound_by, limits[2]);
    assert_int_equal(all.reset_after_ms, 50);
    assert_int_equal(all.of_reset_ms, 50);

    members[1].allowed = members[2].allowed = true;
    decision_combine(&all, members, 3);
    assert_true(all.allowed);
    assert_ptr_equal(all.of, limits[1]);
    assert_int_equal(all.reset_after_ms, 900); /* of all */
    assert_int_equal(all.of_reset_ms, 900);

    members[1].remaining = 5;
    decision_combine(&all, members, 3);
    assert_ptr_equal(all.of, limits[2]);
    assert_int_equal(all.window_ms, 1002);
    assert_int_equal(all.reset_after_ms, 900);
    assert_int_equal(all.of_reset_ms, 50);

    decision_combine(&all, members, 1);
    assert_true(all.allowed);
    assert_null(all.bound_by);
    policy_free(policy);
}

static void limits_that_count_checks_say_nothing_about_the_units_that_remain_until_they_are_used_up(void **state)
{
    (void)state;
    struct policy *policy = policy_new("p", 3);
    policy->limits[0].counts_checks = true;
    policy->limits[1].algo = ALGO_CONCURRENCY;
    struct decision all, members[] = {
                             {.allowed = true, .limit = 60, .remaining = 59, .reset_after_ms = 100},
                             {.allowed = true, .limit = 5, .remaining = 4, .reset_after_ms = 10},
                             {.allowed = true, .limit = 100000, .remaining = 90000, .reset_after_ms = 50},
                         };
    for (int i = 0; i < 3; i++) members[i].of = &policy->limits[i];
    decision_combine_units(&all, members, 3);
    assert_int_equal(all.remaining, 90000);
    assert_int_equal(all.limit, 100000);
    assert_ptr_equal(all.of, &policy->limits[2]);
    assert_int_equal(all.reset_after_ms, 100);

    members[1].remaining = 0;
    decision_combine_units(&all, members, 3);
    assert_int_equal(all.remaining, 0);
    assert_ptr_equal(all.of, &policy->limits[1]);

    members[2].allowed = false;
    members[1].remaining = 1;
    decision_combine_units(&all, members, 3);
    assert_int_equal(all.remaining, 90000);
    assert_ptr_equal(all.bound_by, &policy->limits[2]);

    decision_combine_units(&all, members, 2);
    assert_int_equal(all.remaining, 1); /* none counts units: the smallest of all */
    policy_free(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_finds_its_policies_and_frees_them_with_the_last_reference),
        cmocka_unit_test(a_set_survives_short_memory),
        cmocka_unit_test(the_version_is_the_fingerprint_of_the_settings),
        cmocka_unit_test(a_key_head_names_algorithm_policy_and_limit),
        cmocka_unit_test(a_candidate_has_keys_of_its_own),
        cmocka_unit_test(counts_go_on_by_name),
        cmocka_unit_test(a_policy_that_moves_between_its_name_and_the_others_is_counted_once),
        cmocka_unit_test(policies_survive_short_memory),
        cmocka_unit_test(both_names_of_the_bucket_are_one_algorithm),
        cmocka_unit_test(several_limits_answer_as_one),
        cmocka_unit_test(limits_that_count_checks_say_nothing_about_the_units_that_remain_until_they_are_used_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
