/* test_inline_policies.c: policies written out in messages: equal settings are one policy, bounded in number and size.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "client/flow.h"
#include "config/config.h"
#include "policy/inline_policies.h"
#include "policy/tree.h"
#include "proto/pack.h"

enum { TEXT_SIZE = 256 };

struct fixture {
    struct inline_policies policies;
    struct buffer map; /* what is asked for next */
    struct policy_set *set;
    char text[TEXT_SIZE];
};

static void configure(struct fixture *fixture, const char *text)
{
    struct faults faults;
    faults_init(&faults);
    struct config *config = config_parse(text, strlen(text), CONFIG_START, &faults);
    assert_non_null(config);
    assert_int_equal(inline_policies_configure(&fixture->policies, (size_t)config->inline_max_policies,
                                               config_policy_defaults(config)),
                     0);
    config_free(config);
    faults_fini(&faults);
}

static void begin(struct fixture *fixture, const char *config)
{
    *fixture = (struct fixture){0};
    inline_counters.inline_evicted = 0;
    inline_policies_init(&fixture->policies);
    configure(fixture, config);
}

static void finish(struct fixture *fixture)
{
    inline_policies_fini(&fixture->policies);
    assert_int_equal(inline_counters.inline_policies, 0);
    buffer_fini(&fixture->map);
}

static struct packer pack_anew(struct fixture *fixture)
{
    buffer_truncate(&fixture->map, 0);
    return packer_of(&fixture->map);
}

static enum error_code find_packed(struct fixture *fixture)
{
    const struct slice map = {buffer_data(&fixture->map), buffer_len(&fixture->map)};
    fixture->text[0] = '\0';
    return inline_policies_find(&fixture->policies, map, &fixture->set, fixture->text, sizeof fixture->text);
}

/* `settings` in braces. */
static enum error_code find(struct fixture *fixture, const char *settings)
{
    const char *at;
    struct packer packer = pack_anew(fixture);
    assert_null(flow_pack(&packer, settings, NULL, &at));
    return find_packed(fixture);
}

static const struct policy *found(struct fixture *fixture, const char *settings)
{
    assert_int_equal(find(fixture, settings), ERROR_NONE);
    return fixture->set->in_order[0];
}

#define FIXED(limit) "{algorithm: fixed_window, window: 10s, limit: " limit "}"

static void settings_make_a_policy_as_the_file_does(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture, "defaults: {deadline: 33ms, on_failure: deny}\n");
    const struct policy *policy = found(&fixture, FIXED("7"));
    assert_int_equal(strncmp(policy->name, "inline-", 7), 0);
    assert_int_equal(strlen(policy->name), 7 + 16);
    assert_int_equal(policy->limits[0].limit, 7);
    assert_int_equal(policy->limits[0].window_us, 10000000);
    assert_int_equal(policy->deadline_ms, 33);
    assert_int_equal(policy->on_failure, ON_FAILURE_DENY);
    policy = found(&fixture, "{limits: [{name: a, algorithm: gcra, limit: 5, window: 1s}, "
                             "{name: b, algorithm: sliding_log, limit: 9, window: 1d}], on_failure: error}");
    assert_int_equal(policy->n_limits, 2);
    assert_int_equal(policy->on_failure, ON_FAILURE_ERROR);
    assert_int_equal(inline_counters.inline_policies, 2);
    finish(&fixture);
}

static void the_name_is_the_settings_and_nothing_else(void **state)
{
    (void)state;
    struct fixture fixture, other;
    char name[NAME_MAX_LEN + 1];
    begin(&fixture, "{}");
    begin(&other, "defaults: {deadline: 1s}\n");
    snprintf(name, sizeof name, "%s", found(&fixture, FIXED("7"))->name);
    assert_string_equal(name, found(&other, FIXED("7"))->name);
    assert_string_equal(name, "inline-bafbd1350d602d7f");
    assert_string_not_equal(name, found(&other, FIXED("8"))->name);
    finish(&other);
    finish(&fixture);
}

static void pack_fixed(struct packer *packer, const char *window)
{
    pack_text(packer, "window");
    pack_text(packer, window);
    pack_text(packer, "algorithm");
    pack_bin(packer, slice_of("fixed_window"));
}

static void order_and_encoding_do_not_matter(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture, "{}");
    const struct policy *policy = found(&fixture, FIXED("7"));
    struct packer packer = pack_anew(&fixture);
    pack_map(&packer, 3);
    pack_fixed(&packer, "10s");
    pack_text(&packer, "limit");
    pack_int(&packer, 7);
    assert_int_equal(find_packed(&fixture), ERROR_NONE);
    assert_ptr_equal(fixture.set->in_order[0], policy);
    static const uint8_t seven_as_float[] = {0xcb, 0x40, 0x1c, 0, 0, 0, 0, 0, 0};
    packer = pack_anew(&fixture);
    pack_map(&packer, 3);
    pack_fixed(&packer, "10s");
    pack_text(&packer, "limit");
    buffer_append(&fixture.map, seven_as_float, sizeof seven_as_float);
    assert_int_equal(find_packed(&fixture), ERROR_NONE);
    assert_ptr_equal(fixture.set->in_order[0], policy);
    assert_int_equal(inline_counters.inline_policies, 1);
    finish(&fixture);
}

static void a_form_seen_before_is_found_without_allocation(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture, "{}");
    const struct policy *policy = found(&fixture, FIXED("7"));
    uint64_t n = mem_n_allocs();
    assert_int_equal(find_packed(&fixture), ERROR_NONE);
    assert_int_equal(mem_n_allocs(), n);
    assert_ptr_equal(fixture.set->in_order[0], policy);
    finish(&fixture);
}

static void many_forms_of_one_policy_are_all_found(void **state)
{
    (void)state;
    struct fixture fixture;
    char settings[TEXT_SIZE];
    begin(&fixture, "{}");
    const struct policy *policy = found(&fixture, "{algorithm: gcra, window: 1s, limit: 5, burst: 5}");
    static const char *const forms[] = {
        "{limit: 5, algorithm: gcra, window: 1s, burst: 5}", "{limit: 5, algorithm: gcra, burst: 5, window: 1s}",
        "{limit: 5, burst: 5, algorithm: gcra, window: 1s}", "{burst: 5, limit: 5, algorithm: gcra, window: 1s}",
        "{burst: 5, limit: 5, window: 1s, algorithm: gcra}", "{burst: 5, window: 1s, limit: 5, algorithm: gcra}",
    };
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
            snprintf(settings, sizeof settings, "%s", forms[i]);
            assert_ptr_equal(found(&fixture, settings), policy);
        }
    }
    assert_int_equal(inline_counters.inline_policies, 1);
    finish(&fixture);
}

#define ASSERT_REFUSED(fixture, code, part)                                                                            \
    do {                                                                                                               \
        assert_int_equal(code, ERROR_BAD_REQUEST);                                                                     \
        if (strstr((fixture)->text, part) == NULL) fail_msg("'%s' is not in '%s'", part, (fixture)->text);             \
    } while (0)

static void what_is_wrong_is_said_as_for_the_file(void **state)
{
    (void)state;
    struct fixture fixture;
    static const char *const pairs[][2] = {
        {"{}", "policy.algorithm: is missing; write algorithm: and one of "},
        {"{algorithm: fixed_window, limit: 5}", "policy.window: is missing; write "},
        {"{algorithm: fixed_window, limit: 5, window: soon}", "policy.window: 'soon' is "},
        {"{algorithm: fixed_widnow, limit: 5, window: 1s}",
         "policy.algorithm: 'fixed_widnow' is not known; did you mean"},
        {"{algorithm: fixed_window, limit: 5, window: 1s, brst: 5}",
         "policy.brst: no such setting; did you mean burst?"},
        {"{algorithm: fixed_window, limit: 5, window: 1s, burst: 5}", "policy.burst: is not a setting of fixed_window"},
        {"{algorithm: fixed_window, limit: [5], window: 1s}", "policy.limit: a list where one value is expected"},
        {"{algorithm: fixed_window, limit: null, window: 1s}", "policy.limit: has no value"},
        {"{limits: [{name: a, algorithm: gcra, limit: 1, window: 1s}, {name: a, algorithm: gcra, limit: 2, window: "
         "1s}]}",
         "policy.limits[1].name: 'a' is the name of limits[0] already"},
        {"{limits: []}", "policy.limits: has 0 entries; write 1 to 16"},
        {"{algorithm: gcra, limit: 5, window: 1s, limit: 6}", "policy.limit: is written twice; keep one of them"},
    };
    begin(&fixture, "{}");
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        ASSERT_REFUSED(&fixture, find(&fixture, pairs[i][0]), pairs[i][1]);
    assert_int_equal(inline_counters.inline_policies, 0);
    finish(&fixture);
}

static void values_that_no_file_could_hold_are_refused(void **state)
{
    (void)state;
    struct fixture fixture;
    static const struct {
        uint8_t bytes[10];
        size_t len;
        const char *part;
    } values[] = {
        {{0xcb, 0x40, 0x0c, 0, 0, 0, 0, 0, 0}, 9, "policy.limit: is not a value of a setting"}, /* 3.5 */
        {{0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 9, "policy.limit: is not a value of a setting"},
        {{0xd4, 1, 2}, 3, "policy.limit: is not a value of a setting"}, /* ext */
        {{0xa2, '5', 0}, 3, "policy.limit: a text with a NUL byte"},
    };
    begin(&fixture, "{}");
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct packer packer = pack_anew(&fixture);
        pack_map(&packer, 3);
        pack_fixed(&packer, "1s");
        pack_text(&packer, "limit");
        buffer_append(&fixture.map, values[i].bytes, values[i].len);
        ASSERT_REFUSED(&fixture, find_packed(&fixture), values[i].part);
    }
    struct packer packer = pack_anew(&fixture);
    pack_map(&packer, 1);
    pack_text(&packer, "limits");
    for (int i = 0; i < TREE_DEPTH_MAX; i++) pack_array(&packer, 1);
    pack_int(&packer, 5);
    ASSERT_REFUSED(&fixture, find_packed(&fixture), "policy.limits[0][0][0][0][0][0][0]: is nested too deeply");
    packer = pack_anew(&fixture);
    pack_map(&packer, 1);
    pack_int(&packer, 5);
    pack_int(&packer, 5);
    ASSERT_REFUSED(&fixture, find_packed(&fixture), "policy: has a setting whose name is not a text");
    finish(&fixture);
}

static void what_is_too_long_is_not_read(void **state)
{
    (void)state;
    struct fixture fixture;
    char longest[INLINE_BYTES_MAX + 1];
    begin(&fixture, "{}");
    memset(longest, 'x', sizeof longest);
    struct packer packer = pack_anew(&fixture);
    pack_map(&packer, 1);
    pack_text(&packer, "algorithm");
    pack_str(&packer, (struct slice){(const uint8_t *)longest, sizeof longest});
    ASSERT_REFUSED(&fixture, find_packed(&fixture), "policy: has 4111 bytes; at most 4096 are allowed");
    finish(&fixture);
}

static void keys_of_other_systems_are_not_shared(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture, "{}");
    assert_int_equal(find(&fixture, "{compat: first-hit, limit: 5, window: 1s}"), ERROR_NOT_PERMITTED);
    assert_non_null(strstr(fixture.text, "policy.compat: "));
    assert_int_equal(find(&fixture, "{algorithm: fixed-window-algo, limit: 5, window: 1s}"), ERROR_NOT_PERMITTED);
    finish(&fixture);
}

static void the_one_unused_longest_goes_for_another(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture, "inline: {max_policies: 2}\n");
    const struct policy *one = found(&fixture, FIXED("1")), *two = found(&fixture, FIXED("2"));
    struct policy_set *held = policy_set_ref(fixture.set);
    assert_ptr_equal(found(&fixture, FIXED("1")), one);
    found(&fixture, FIXED("3")); /* 2 is held, so 1 goes although it was used later */
    assert_int_equal(inline_counters.inline_evicted, 1);
    assert_int_equal(inline_counters.inline_policies, 2);
    assert_ptr_equal(found(&fixture, FIXED("2")), two);
    struct policy_set *other = policy_set_ref(fixture.set);
    found(&fixture, FIXED("3"));
    struct policy_set *third = policy_set_ref(fixture.set);
    assert_int_equal(find(&fixture, FIXED("4")), ERROR_OVERLOADED);
    assert_string_equal(fixture.text,
                        "policy: 2 inline policies (inline.max_policies) are in use; try again later, or raise it");
    policy_set_unref(third);
    found(&fixture, FIXED("4"));
    policy_set_unref(other);
    policy_set_unref(held);
    finish(&fixture);
}

/* Earlier the table had 2048 places, whatever the setting. */
static void many_thousands_are_found_in_short_chains(void **state)
{
    (void)state;
    enum { N = 20000, LONGEST = 16 };
    struct fixture fixture;
    begin(&fixture, "inline: {max_policies: 20000}\n");
    for (int i = 1; i <= N; i++) {
        char settings[64];
        snprintf(settings, sizeof settings, FIXED("%d"), i);
        found(&fixture, settings);
    }
    assert_int_equal(inline_counters.inline_policies, N);
    assert_int_equal(inline_counters.inline_evicted, 0);

    const struct map *map = &fixture.policies.by_spelling;
    for (size_t i = 0; i < map->n_slots; i++) {
        size_t n = 0;
        for (const struct map_node *node = map->slots[i]; node != NULL; node = node->next) n++;
        assert_true(n <= LONGEST);
    }
    finish(&fixture);
}

static size_t n_replaced(const struct fixture *fixture)
{
    size_t n = 0;
    LIST_FOREACH (link, &fixture->policies.replaced) n++;
    return n;
}

static void a_reload_frees_what_was_kept_bit_by_bit(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture, "{}");
    for (int i = 1; i <= 100; i++) {
        char settings[64];
        snprintf(settings, sizeof settings, FIXED("%d"), i);
        found(&fixture, settings);
    }
    configure(&fixture, "inline: {max_policies: 1000000}\n");
    assert_int_equal(inline_counters.inline_policies, 0);
    assert_int_equal(n_replaced(&fixture), 100);
    inline_policies_free_replaced(&fixture.policies, 30);
    assert_int_equal(n_replaced(&fixture), 70);
    found(&fixture, FIXED("1"));
    assert_int_equal(n_replaced(&fixture), 68);
    assert_int_equal(inline_counters.inline_policies, 1);
    finish(&fixture);
}

static void a_reload_without_memory_keeps_the_table(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture, "{}");
    found(&fixture, FIXED("1"));
    mem_fail_nth(1);
    assert_int_equal(inline_policies_configure(&fixture.policies, 7, fixture.policies.defaults), 0);
    mem_fail_nth(0);
    assert_int_equal(inline_counters.inline_policies, 0);
    found(&fixture, FIXED("1"));
    assert_int_equal(inline_counters.inline_policies, 1);
    finish(&fixture);
}

static void new_defaults_make_new_policies_of_the_same_name(void **state)
{
    (void)state;
    struct fixture fixture;
    char name[NAME_MAX_LEN + 1];
    begin(&fixture, "{}");
    const struct policy *policy = found(&fixture, FIXED("1"));
    struct policy_set *held = policy_set_ref(fixture.set);
    snprintf(name, sizeof name, "%s", policy->name);
    configure(&fixture, "defaults: {deadline: 44ms}\n");
    assert_int_equal(inline_counters.inline_policies, 0);
    assert_int_equal(found(&fixture, FIXED("1"))->deadline_ms, 44);
    assert_string_equal(fixture.set->in_order[0]->name, name);
    assert_int_equal(policy->deadline_ms, 20); /* its holders keep the old policy */
    policy_set_unref(held);
    finish(&fixture);
}

static void memory_may_fail_anywhere(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture, "{}");
    find(&fixture, "{}");
    enum error_code code = ERROR_OVERLOADED;
    for (uint64_t nth = 1; nth < 200 && code == ERROR_OVERLOADED; nth++) {
        const char *at;
        struct packer packer = pack_anew(&fixture);
        assert_null(flow_pack(&packer, "{limits: [{name: a, algorithm: gcra, limit: 5, window: 1s}], deadline: 1s}",
                              NULL, &at));
        mem_fail_nth(nth);
        code = find_packed(&fixture);
        mem_fail_nth(0);
        assert_true(code == ERROR_NONE || code == ERROR_OVERLOADED);
    }
    assert_int_equal(code, ERROR_NONE);
    finish(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_make_a_policy_as_the_file_does),
        cmocka_unit_test(the_name_is_the_settings_and_nothing_else),
        cmocka_unit_test(order_and_encoding_do_not_matter),
        cmocka_unit_test(a_form_seen_before_is_found_without_allocation),
        cmocka_unit_test(many_forms_of_one_policy_are_all_found),
        cmocka_unit_test(what_is_wrong_is_said_as_for_the_file),
        cmocka_unit_test(values_that_no_file_could_hold_are_refused),
        cmocka_unit_test(what_is_too_long_is_not_read),
        cmocka_unit_test(keys_of_other_systems_are_not_shared),
        cmocka_unit_test(the_one_unused_longest_goes_for_another),
        cmocka_unit_test(many_thousands_are_found_in_short_chains),
        cmocka_unit_test(a_reload_frees_what_was_kept_bit_by_bit),
        cmocka_unit_test(a_reload_without_memory_keeps_the_table),
        cmocka_unit_test(new_defaults_make_new_policies_of_the_same_name),
        cmocka_unit_test(memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
