/* test_policy_settings.c: what a row of policy_settings.def promises holds for each of them: the setting is read from a
 * file and from a request, counts for the fingerprint, is printed and answered, and overrides may change it or not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "client/flow.h"
#include "fakes/config_text.h"
#include "policy/inline_policies.h"
#include "policy/policy_setting.h"
#include "server/policies.h"

#define WINDOW   "algorithm: fixed_window, limit: 64, window: 1s"
#define BUCKET   "algorithm: gcra, limit: 64, window: 1s"
#define LEAKY    "algorithm: leaky_bucket, limit: 5, window: 1s"
#define SLOTS    "algorithm: concurrency, limit: 5"
#define WEEK     "algorithm: calendar_window, limit: 5, window: week"
#define MONTH    "algorithm: calendar_window, limit: 5, window: month"
#define PARTS    "key_format: '{t}:{u}', " WINDOW
#define FOREIGN  "compat: first-hit, limit: 5, window: 1s"
#define LIST(it) "limits: [{" it ", " BUCKET "}]"

/* The same policy without the setting, or with another value of it, and with it. */
static const struct {
    const char *before, *setting, *after;
} examples[N_POLICY_FIELDS] = {
    [FIELD_NAME] = {LIST("name: a"), "name: b", LIST("name: b")},
    [FIELD_BY] = {PARTS, "by: [t]", PARTS ", by: [t]"},
    [FIELD_ALGORITHM] = {WINDOW, "algorithm: gcra", BUCKET},
    [FIELD_COMPAT] = {WINDOW, "compat: first-hit", FOREIGN},
    [FIELD_KEY_PREFIX] = {FOREIGN, "key_prefix: mine", FOREIGN ", key_prefix: mine"},
    [FIELD_LIMIT] = {WINDOW, "limit: 7", "algorithm: fixed_window, limit: 7, window: 1s"},
    [FIELD_WINDOW] = {WINDOW, "window: 7s", "algorithm: fixed_window, limit: 5, window: 7s"},
    [FIELD_TIMEZONE] = {WEEK, "timezone: Europe/Berlin", WEEK ", timezone: Europe/Berlin"},
    [FIELD_WEEK_START] = {WEEK, "week_start: sunday", WEEK ", week_start: sunday"},
    [FIELD_SLOT_TTL] = {SLOTS, "slot_ttl: 7s", SLOTS ", slot_ttl: 7s"},
    [FIELD_BURST] = {BUCKET, "burst: 7", BUCKET ", burst: 7"},
    [FIELD_MAX_WAIT] = {LEAKY, "max_wait: 7s", LEAKY ", max_wait: 7s"},
    [FIELD_START] = {WINDOW, "start: first_hit", WINDOW ", start: first_hit"},
    [FIELD_COUNT_DENIED] = {WINDOW, "count_denied: true", WINDOW ", count_denied: true"},
    [FIELD_LEASE] = {WINDOW, "lease: 7s", WINDOW ", lease: 7s"},
    [FIELD_COUNTS] = {WINDOW, "counts: checks", WINDOW ", counts: checks"},
    [FIELD_ANCHOR] = {MONTH, "anchor: 2026-01-31", MONTH ", anchor: 2026-01-31"},
    [FIELD_PENALTY] = {WINDOW, "penalty: {time: 7s}", WINDOW ", penalty: {time: 7s, factor: 2, max: 1d, forget: 0}"},
    [FIELD_PHASE] = {WINDOW, "phase: true", WINDOW ", phase: true"},
    [FIELD_ON_FAILURE] = {WINDOW, "on_failure: deny", WINDOW ", on_failure: deny"},
    [FIELD_DEADLINE] = {WINDOW, "deadline: 7s", WINDOW ", deadline: 7s"},
    [FIELD_IDEMPOTENCY_WINDOW] = {WINDOW, "idempotency_window: 7s", WINDOW ", idempotency_window: 7s"},
    [FIELD_DEBT] = {WINDOW, "debt: true", WINDOW ", debt: true"},
    [FIELD_SHADOW] = {WINDOW, "shadow: true", WINDOW ", shadow: true"},
    [FIELD_LOCAL_SHARE] = {WINDOW, "local_share: 7", WINDOW ", local_share: 7"},
    [FIELD_MERGE_BACK] = {WINDOW, "merge_back: true", WINDOW ", merge_back: true"},
    [FIELD_ON_CHANGE] = {WINDOW, "on_change: reset", WINDOW ", on_change: reset"},
    [FIELD_UNLIMITED] = {WINDOW, "unlimited: true", "unlimited: true"},
    [FIELD_KEY_FORMAT] = {WINDOW, "key_format: '{t}:{u}'", WINDOW ", key_format: '{t}:{u}'"},
    [FIELD_LIMITS] = {BUCKET, LIST("name: a"), LIST("name: a")},
    [FIELD_CANDIDATE] = {WINDOW, "candidate: []", WINDOW ", candidate: [{name: a, " BUCKET "}]"},
    [FIELD_WARN_AT] = {WINDOW, "warn_at: 7%", WINDOW ", warn_at: 7%"},
    [FIELD_OVERRIDES] = {WINDOW, "overrides: []", WINDOW ", overrides: [{key: k, limit: 7}]"},
};

static struct config *config_with(const char *settings)
{
    char text[512];
    snprintf(text, sizeof text, "store: {type: redis, redis: {addresses: [\"h:1\"]}}\npolicies:\n  p: {%s}\n",
             settings);
    return config_of(text);
}

static const struct policy *only(const struct config *config)
{
    return config->policies->in_order[0];
}

static void each_setting_has_an_example_that_changes_the_fingerprint(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        if (examples[i].after == NULL) fail_msg("no example of %s", policy_settings[i].name);
        struct config *before = config_with(examples[i].before), *after = config_with(examples[i].after);
        if (only(before)->version == only(after)->version) fail_msg("%s", policy_settings[i].name);
        config_free(before);
        config_free(after);
    }
}

static void each_setting_is_printed_and_read_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        char name[64];
        struct config *first = config_with(examples[i].after);
        char *text = text_of(first);
        struct config *second = config_of(text);
        snprintf(name, sizeof name, " %s:", policy_settings[i].name);
        if (strstr(strstr(text, "policies:"), name) == NULL || only(first)->version != only(second)->version)
            fail_msg("%s is not in %s", name, text);
        free(text);
        config_free(first);
        config_free(second);
    }
}

static void each_setting_that_is_answered_is_in_the_answer(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        const char *name = policy_settings[i].name;
        struct config *config = config_with(examples[i].after);
        struct buffer bytes;
        buffer_init(&bytes, 0);
        struct packer packer = packer_of(&bytes);
        struct policies_pieces pieces;
        policies_begin(&pieces, config->policies, &(struct policies_page){0});
        while (policies_next(&pieces, &packer) > 0) {
        }
        bool is_there = memmem(buffer_data(&bytes), buffer_len(&bytes), name, strlen(name)) != NULL;
        if (!is_there && policy_settings[i].uses & (USE_ANSWER | USE_ANSWER_SET)) fail_msg("%s", name);
        buffer_fini(&bytes);
        config_free(config);
    }
}

static void each_setting_may_come_with_a_request_but_those_of_foreign_keys(void **state)
{
    (void)state;
    struct inline_policies policies;
    struct config *config = config_with(WEEK ", timezone: Europe/Berlin"); /* whose zone is open */
    inline_policies_init(&policies);
    assert_int_equal(inline_policies_configure(&policies, N_POLICY_FIELDS, config_policy_defaults(config)), 0);
    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        char settings[512], text[256] = "";
        const char *at;
        struct policy_set *set;
        struct buffer map;
        snprintf(settings, sizeof settings, "{%s}", examples[i].after);
        buffer_init(&map, 0);
        struct packer packer = packer_of(&map);
        assert_null(flow_pack(&packer, settings, NULL, &at));
        const struct slice bytes = {buffer_data(&map), buffer_len(&map)};
        enum error_code code = inline_policies_find(&policies, bytes, &set, text, sizeof text);
        bool is_foreign = i == FIELD_COMPAT || i == FIELD_KEY_PREFIX;
        if (code != (is_foreign ? ERROR_NOT_PERMITTED : ERROR_NONE)) fail_msg("%s: %s", settings, text);
        buffer_fini(&map);
    }
    inline_policies_fini(&policies);
    config_free(config);
}

static void overrides_change_what_their_column_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        char text[512], same[128];
        struct faults faults;
        const bool may = policy_settings[i].uses & USE_OVERRIDE || i == FIELD_UNLIMITED;
        snprintf(text, sizeof text, "policies:\n  p: {%s, overrides: [{key: k, %s}]}\n",
                 i == FIELD_MAX_WAIT ? LEAKY
                 : i == FIELD_ANCHOR ? MONTH
                                     : BUCKET,
                 examples[i].setting);
        struct config *config = config_from(text, &faults);
        snprintf(same, sizeof same, "policies.p.overrides[0].%s: is the same for every key", policy_settings[i].name);
        if (may != (config != NULL)) fail_msg("%s", text);
        if (!may && strstr(faults.items[0].text, same) == NULL) fail_msg("%s: %s", text, faults.items[0].text);
        if (may) assert_ptr_not_equal(policy_for_key(only(config), slice_of("k")), only(config));
        config_free(config);
        faults_fini(&faults);
    }
}

static void every_kind_of_failure_answer_can_be_written_in_both_settings(void **state)
{
    (void)state;
    static const char *const words[] = {
#define ON_FAILURE(ID, word, ...) [ON_FAILURE_##ID] = #word,
#include "policy/on_failure.def"
#undef ON_FAILURE
    };
    char all[256] = "";
    for (size_t i = 0; i < N_ON_FAILURE; i++) {
        size_t at = strlen(all);
        snprintf(all + at, sizeof all - at, "%s%s", at > 0 ? " " : "", words[i]);
    }
    assert_string_equal(policy_settings[FIELD_ON_FAILURE].type.choices, all);

    size_t i = 0;
    while (i < N_SETTINGS && strcmp(daemon_settings[i].name, "defaults.on_failure") != 0) i++;
    assert_true(i < N_SETTINGS);
    assert_string_equal(daemon_settings[i].type.choices, all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_setting_has_an_example_that_changes_the_fingerprint),
        cmocka_unit_test(each_setting_is_printed_and_read_back),
        cmocka_unit_test(each_setting_that_is_answered_is_in_the_answer),
        cmocka_unit_test(each_setting_may_come_with_a_request_but_those_of_foreign_keys),
        cmocka_unit_test(overrides_change_what_their_column_says),
        cmocka_unit_test(every_kind_of_failure_answer_can_be_written_in_both_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
