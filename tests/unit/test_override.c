/* test_override.c: which of a policy's variants counts for a key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "policy/policy.h"

static struct policy *base_policy(void)
{
    struct diag diag;
    struct policy *policy = policy_new("p", 1);
    policy->limits[0] = (struct limit){.policy = policy, .algo = ALGO_FIXED_WINDOW, .limit = 1, .window_us = 1000};
    assert_int_equal(policy_prepare_limit(&policy->limits[0], NULL, &diag), 0);
    policy->overrides = overrides_new(8);
    return policy;
}

static void add(struct policy *policy, const char *text, enum override_kind kind, int64_t limit)
{
    struct diag diag;
    struct policy *variant = policy_variant(policy, limit < 0);
    if (limit >= 0) {
        variant->limits[0].limit = limit;
        assert_int_equal(policy_prepare_limit(&variant->limits[0], NULL, &diag), 0);
    }
    assert_int_equal(overrides_add(policy->overrides, text, kind, 0, variant), 0);
}

static void the_most_specific_override_counts(void **state)
{
    (void)state;
    struct policy *policy = base_policy();
    add(policy, "*", OVERRIDE_OF_PATTERN, 10);
    add(policy, "user:*", OVERRIDE_OF_PATTERN, 20);
    add(policy, "*:4*2", OVERRIDE_OF_PATTERN, 30);
    add(policy, "user:42", OVERRIDE_OF_KEY, 40);
    add(policy, "user:4*", OVERRIDE_OF_PATTERN, 50);
    add(policy, "*:free", OVERRIDE_OF_PATTERN, -1);
    add(policy, "us*:free", OVERRIDE_OF_PATTERN, 60);
    policy_seal(policy);
    static const struct {
        const char *key;
        int64_t limit;
    } cases[] = {
        {"user:42", 40}, {"user:412", 50}, {"user:5", 20}, {"admin:42", 30}, {"other", 10}, {"user:free", 60},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(policy_for_key(policy, slice_of(cases[i].key))->limits[0].limit, cases[i].limit);
    const struct policy *free = policy_for_key(policy, slice_of("guest:free"));
    assert_true(free->unlimited);
    assert_string_equal(free->override->text, "*:free");
    assert_ptr_equal(free->base, policy);
    assert_string_equal(free->name, "p");
    assert_int_equal(plan_capacity(&free->plan), UNLIMITED);
    policy_free(policy);
}

static void of_two_patterns_alike_the_earlier_one_counts(void **state)
{
    (void)state;
    struct policy *policy = base_policy();
    add(policy, "a*", OVERRIDE_OF_PATTERN, 2);
    add(policy, "*b", OVERRIDE_OF_PATTERN, 3);
    policy_seal(policy);
    assert_int_equal(policy_for_key(policy, slice_of("ab"))->limits[0].limit, 2);
    assert_int_equal(policy_for_key(policy, slice_of("cb"))->limits[0].limit, 3);
    assert_ptr_equal(policy_for_key(policy, slice_of("c")), policy);
    policy_free(policy);
}

static void a_variant_has_the_policys_keys_and_version(void **state)
{
    (void)state;
    struct policy *policy = base_policy(), *plain = base_policy(), *other = base_policy();
    add(policy, "k", OVERRIDE_OF_KEY, 7);
    add(other, "k", OVERRIDE_OF_PATTERN, 7);
    policy_seal(policy);
    policy_seal(plain);
    policy_seal(other);
    const struct policy *variant = policy_for_key(policy, slice_of("k"));
    assert_int_equal(variant->version, policy->version);
    assert_string_equal(variant->limits[0].key_head, policy->limits[0].key_head);
    assert_ptr_equal(variant->limits[0].policy, variant);
    assert_int_equal(variant->name_hash, policy->name_hash);
    assert_int_not_equal(plain->version, policy->version);
    assert_int_not_equal(other->version, policy->version);
    policy_free(policy);
    policy_free(plain);
    policy_free(other);
}

static void an_override_may_count_a_shared_limit_by_other_numbers(void **state)
{
    (void)state;
    struct policy *policy = policy_new("p", 2), *stranger = policy_new("q", 2);
    policy->format = mem_zalloc(sizeof *policy->format);
    assert_null(key_format_parse(policy->format, "{tenant}:{user}"));
    policy->limits[0].limit = policy->limits[1].limit = 5;
    policy->limits[1].shared = true;
    policy->limits[1].parts = 1;
    for (uint16_t i = 0; i < 2; i++) {
        snprintf(policy->limits[i].name, sizeof policy->limits[i].name, "%u", (unsigned)i);
        policy_name_keys(&policy->limits[i]);
    }
    struct policy *other = policy_variant(policy, false), *same = policy_variant(policy, false);
    policy->overrides = overrides_new(2);
    other->limits[1].limit = 7;
    same->limits[0].limit = 7;
    assert_int_equal(overrides_add(policy->overrides, "acme:2", OVERRIDE_OF_KEY, 0, other), 0);
    assert_int_equal(overrides_add(policy->overrides, "acme:3", OVERRIDE_OF_KEY, 0, same), 0);
    policy_seal(policy);
    assert_true(policy->plan.shares);
    assert_int_equal(policy->plan.shard_parts, 1);
    struct slice one = slice_of("acme:1"), two = slice_of("acme:2"), three = slice_of("acme:3");
    struct slice apart = slice_of("other:2");
    assert_null(policy_conflict(policy, one, policy, one));
    assert_ptr_equal(policy_conflict(policy, one, other, two), &policy->limits[1]);
    assert_null(policy_conflict(policy, one, other, apart));
    assert_null(policy_conflict(policy, one, same, three)); /* only its own limit has another number */
    assert_null(policy_conflict(policy, one, stranger, one));
    policy_free(policy);
    policy_free(stranger);
}

static void an_override_survives_short_memory(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 5; nth++) {
        mem_fail_nth(nth);
        assert_null(overrides_new(3));
        mem_fail_nth(0);
    }
    struct policy *policy = base_policy(), *variant = policy_variant(policy, true);
    mem_fail_nth(1);
    assert_int_equal(overrides_add(policy->overrides, "k", OVERRIDE_OF_KEY, 0, variant), -1);
    mem_fail_nth(1);
    assert_null(policy_variant(policy, false));
    mem_fail_nth(0);
    policy_free(variant);
    policy_free(policy);
    overrides_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_specific_override_counts),
        cmocka_unit_test(of_two_patterns_alike_the_earlier_one_counts),
        cmocka_unit_test(a_variant_has_the_policys_keys_and_version),
        cmocka_unit_test(an_override_may_count_a_shared_limit_by_other_numbers),
        cmocka_unit_test(an_override_survives_short_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
