/* test_cut.c: files that were cut off, or are still being written, and that a reload meets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/assert.h"
#include "config/cut.h"
#include "fakes/config_text.h"
#include "proto/method.h"

#define POLICIES                                                                                                       \
    "policies:\n"                                                                                                      \
    "  a: {algorithm: fixed_window, limit: 5, window: 10s}\n"                                                          \
    "  b: {algorithm: fixed_window, limit: 5, window: 10s}\n"                                                          \
    "  c: {algorithm: fixed_window, limit: 5, window: 10s}\n"

enum { OWN = 900 };

/* ---- what a configuration allows ---- */

static bool is_wider(int64_t max, int64_t than)
{
    return than > 0 && (max == 0 || max > than);
}

/* May a user ask something by `rules` that it may not by `whole`? */
static bool opens_for(const struct config *rules, const struct config *whole, uid_t uid)
{
    static const char *const keys[] = {"x", "shop:x", "shop-x", "shop", "1001:x", "1002:x", "1003:x", "12345:x"};
    const struct access_peer peer = {.uid = uid, .gid = uid};
    const struct access_rule *now = access_match(rules->access, &peer, OWN);
    const struct access_rule *was = access_match(whole->access, &peer, OWN);
    char uid_text[ACCESS_USER_TEXT_MAX];
    snprintf(uid_text, sizeof uid_text, "%u", (unsigned)uid);

    if (now->role == ROLE_NONE) return false;
    if (was->role == ROLE_NONE || (now->may & ~was->may) != 0) return true;
    if (is_wider(now->max_connections, was->max_connections) || is_wider(now->max_inflight, was->max_inflight) ||
        is_wider(now->max_slots, was->max_slots))
        return true;
    for (size_t i = 0; i < rules->policies->n; i++) {
        const struct policy *policy = rules->policies->in_order[i];
        const struct policy *same = policy_find(whole->policies, slice_of(policy->name));
        if (same != NULL && access_rule_grants(now, policy) && !access_rule_grants(was, same)) return true;
    }
    for (size_t i = 0; i < N_OF(keys); i++) {
        bool takes = access_rule_takes_key(now, uid_text, slice_of(keys[i]));
        if (takes && !access_rule_takes_key(was, uid_text, slice_of(keys[i]))) return true;
    }
    return false;
}

static bool opens_a_door(const struct config *rules, const struct config *whole)
{
    static const uid_t users[] = {1, 10, 100, 1001, 1002, 1003, 12345};
    for (size_t i = 0; i < N_OF(users); i++)
        if (opens_for(rules, whole, users[i])) return true;
    return false;
}

/* NULL if `text` is refused where `in_force` is. */
static struct config *read_over(const struct config *in_force, const char *text, struct faults *faults)
{
    struct config *next = config_from(text, faults);
    if (next == NULL || !config_is_cut(in_force, next, faults)) return next;
    config_free(next);
    return NULL;
}

/* ---- the tests ---- */

/* reload.watch met a file whose last part, `access`, was still missing, and every user was a client of everything. */
static void no_cut_of_a_file_opens_a_door(void **state)
{
    (void)state;
    static const char *const files[] = {
        POLICIES "access:\n  rules: [{user: 1001, policies: [a]}]\n  default: {role: none}\n",
        POLICIES "access: {rules: [{user: 1001, policies: [a]}, {user: 1002, role: none}]}\n",
        POLICIES "access: {\n  rules: [\n    {user: 1001, policies: [a]},\n    {user: 1002, role: none}],\n"
                 "  default: {policies: [c], deny: [reset]}\n  }\n",
        POLICIES "access:\n  rules:\n    - {user: 1001, policies: [a], key_prefix: \"shop:\"}\n"
                 "    - {user: 1002, deny: [reset, refund]}\n    - {user: 1003, role: none}\n",
        POLICIES "access:\n  rules:\n    - user: 1001\n      policies: [a]\n      deny: [reset, refund]\n"
                 "      key_prefix: shop-\n      max_connections: 4\n      max_inflight: 64\n      max_slots: 8\n"
                 "    - user: 1002\n      role: none\n",
        POLICIES "access:\n  rules:\n  - user: 1001\n    policies:\n    - a\n    deny:\n    - reset\n    - refund\n"
                 "    key_prefix: \"{uid}:\"\n  default:\n    role: client\n    policies: [c]\n    deny: [reset]\n"
                 "    key_prefix: \"{uid}:\"\n    max_inflight: 10\n",
        POLICIES "access:\n  default: {role: none}\n  rules:\n    - {user: 1001, policies: [a]}\n"
                 "    - {user: 1002, deny: [reset]}\n",
        "access:\n  rules:\n    - user: 1001\n      policies: [a]\n  default: {role: none}\n" POLICIES,
        "reload: {watch: 1s}\naccess:\n  default:\n    role: client\n    deny: [reset]\n" POLICIES,
    };
    for (size_t f = 0; f < N_OF(files); f++) {
        struct config *whole = config_of(files[f]);
        char *cut = strdup(files[f]);
        size_t n_taken = 0;
        for (size_t len = strlen(cut); len-- > 0;) {
            struct faults faults;
            cut[len] = '\0';
            struct config *next = read_over(whole, cut, &faults);
            if (next != NULL && opens_a_door(next, whole))
                fail_msg("of file %zu, %zu bytes are taken: %s", f, len, cut);
            n_taken += next != NULL;
            config_free(next);
            faults_fini(&faults);
        }
        assert_true(n_taken >= 1); /* without the last newline it is the same */
        free(cut);
        config_free(whole);
    }
}

static void assert_refused(const struct config *in_force, const char *text, const char *says)
{
    struct faults faults;
    struct config *next = read_over(in_force, text, &faults);
    if (next != NULL) fail_msg("taken: %s", text);
    if (strstr(faults.items[0].text, says) == NULL) fail_msg("%s", faults.items[0].text);
    faults_fini(&faults);
}

static void assert_taken(const struct config *in_force, const char *text)
{
    struct faults faults;
    struct config *next = read_over(in_force, text, &faults);
    if (next == NULL) fail_msg("%s: %s", text, faults.items[0].text);
    assert_int_equal(faults.n, 0);
    faults_fini(&faults);
    config_free(next);
}

static void rules_go_only_if_that_is_written(void **state)
{
    (void)state;
    struct config *rules = config_of("access: {rules: [{user: 1001, policies: [a]}]}\n" POLICIES);
    assert_refused(rules, POLICIES,
                   "access: is missing in this file, and rules are in force (1); write the whole file "
                   "and reload again. To remove them, write access: {rules: []}");
    assert_refused(rules, POLICIES "access:\n", "access: is missing");
    assert_refused(rules, POLICIES "access:\n  rules:\n", "access.rules: is not a list");
    assert_refused(rules, POLICIES "access: {}\n", "access: is missing");
    assert_refused(rules, POLICIES "access:\n  default: {role: none}\n", "access.rules: is missing");
    assert_taken(rules, POLICIES "access: {default: {role: none}}\n");
    assert_taken(rules, "access:\n  default: {role: none}\n" POLICIES);
    assert_taken(rules, "access: {rules: []}\n" POLICIES);
    assert_taken(rules, POLICIES "access: {rules: []}\n");
    assert_taken(rules, POLICIES "access:\n  rules: []\n");
    assert_taken(rules, POLICIES "access: {rules: [{user: 1002}]}\n");
    config_free(rules);
}

static void a_default_goes_only_if_that_is_written(void **state)
{
    (void)state;
    struct config *both = config_of("access: {rules: [{user: 1001}], default: {role: none}}\n" POLICIES);
    assert_refused(both, POLICIES, "write access: {rules: [], default: {role: client}}");
    assert_refused(both, "access: {rules: []}\n" POLICIES,
                   "access.default: is missing in this file, and one is in force; write the whole file and reload "
                   "again. To remove it, write default: {role: client}");
    assert_refused(both, "access: {rules: [{user: 1001}]}\n" POLICIES, "access.default: is missing");
    assert_refused(both, POLICIES "access:\n  rules: []\n  default:\n", "access.default: ");
    assert_taken(both, "access: {rules: [], default: {role: client}}\n" POLICIES);
    assert_taken(both, POLICIES "access:\n  rules: []\n  default: {role: client}\n");
    config_free(both);

    struct config *only = config_of("access: {default: {role: none}}\n" POLICIES);
    assert_refused(only, POLICIES, "access.default: is missing");
    assert_taken(only, "access: {default: {role: client}}\n" POLICIES);
    config_free(only);
}

static void where_no_rule_is_in_force_none_is_missed(void **state)
{
    (void)state;
    static const char *const before[] = {
        POLICIES,
        "access: {rules: []}\n" POLICIES,
        "access: {rules: [], default: {role: client}}\n" POLICIES,
    };
    for (size_t i = 0; i < N_OF(before); i++) {
        struct config *config = config_of(before[i]);
        assert_taken(config, POLICIES);
        assert_taken(config, "access:\n" POLICIES);
        config_free(config);
    }
}

static void less_at_the_end_of_a_file_may_be_a_cut_and_elsewhere_is_a_change(void **state)
{
    (void)state;
#define FIRST  "access:\n  rules:\n    - {user: 1001, policies: [a]}\n"
#define SECOND "    - {user: 1002, role: none}\n"
    struct config *rules = config_of(POLICIES FIRST SECOND);
    assert_refused(rules, POLICIES FIRST, "access: ends this file and has less than what is in force");
    assert_taken(rules, FIRST POLICIES);
    assert_taken(rules, POLICIES FIRST SECOND);
    assert_taken(rules, POLICIES FIRST "    - {user: 1003, role: none}\n");
    assert_taken(rules, POLICIES "access: {rules: [{user: 1001, policies: [a]}]}\n");
    assert_taken(rules, POLICIES FIRST "  default: {role: client}\n");
    config_free(rules);
}

static void fewer_than_half_of_the_policies_is_a_warning_with_both_numbers(void **state)
{
    (void)state;
    struct config *three = config_of(POLICIES);
    struct faults faults;
    struct config *one = read_over(three, "policies: {a: {unlimited: true}}\n", &faults);
    assert_non_null(one);
    assert_int_equal(faults.n, 1);
    assert_int_equal(faults.n_errors, 0);
    assert_non_null(strstr(faults.items[0].text, "policies: there are 1 in this file, and 3 are in force"));
    faults_fini(&faults);

    assert_taken(three, "policies: {a: {unlimited: true}, b: {unlimited: true}}\n");
    assert_refused(three, "log: {level: info}\n", "policies: there are none in this file, and 3 are in force");
    struct config *two = config_of("policies: {a: {unlimited: true}, b: {unlimited: true}}\n");
    assert_taken(two, "policies: {a: {unlimited: true}}\n");
    config_free(two);
    config_free(one);
    config_free(three);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_cut_of_a_file_opens_a_door),
        cmocka_unit_test(rules_go_only_if_that_is_written),
        cmocka_unit_test(a_default_goes_only_if_that_is_written),
        cmocka_unit_test(where_no_rule_is_in_force_none_is_missed),
        cmocka_unit_test(less_at_the_end_of_a_file_may_be_a_cut_and_elsewhere_is_a_change),
        cmocka_unit_test(fewer_than_half_of_the_policies_is_a_warning_with_both_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
