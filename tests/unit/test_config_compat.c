/* test_config_compat.c: policies that share the keys of a limiter already in place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/config_text.h"

#define REDIS "store: {type: redis, redis: {addresses: [\"h:1\"]}}\n"

static const struct {
    const char *text;
    enum algo algo;
    const char *prefix;
} presets[] = {
    {"compat: window-start-millis", ALGO_COMPAT_WINDOW_START, "ratelimiter:"},
    {"compat: rlaas-fixed", ALGO_COMPAT_RLAAS_FIXED, "rlaas:rate_limit:"},
    {"compat: rlaas-sliding", ALGO_COMPAT_RLAAS_SLIDING, "rlaas:rate_limit:"},
    {"compat: first-hit", ALGO_COMPAT_FIRST_HIT, "rate_limit:"},
    {"compat: endpoint-window", ALGO_COMPAT_ENDPOINT_WINDOW, "rate_limit:"},
    {"compat: endpoint-log", ALGO_COMPAT_ENDPOINT_LOG, "rate_limit:"},
    {"algorithm: fixed-window-algo", ALGO_COMPAT_RLAAS_FIXED, "rlaas:rate_limit:"},
    {"algorithm: sliding-window-algo", ALGO_COMPAT_RLAAS_SLIDING, "rlaas:rate_limit:"},
};

static void each_preset_has_its_name_and_its_prefix(void **state)
{
    (void)state;
    char text[256];
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        snprintf(text, sizeof text, "policies:\n  p: {%s, limit: 5, window: 10s}\n" REDIS, presets[i].text);
        struct config *config = config_of(text);
        assert_int_equal(config_limit(config, "p")->algo, presets[i].algo);
        assert_string_equal(config_limit(config, "p")->key_head, presets[i].prefix);
        config_free(config);
        snprintf(text, sizeof text, "policies:\n  p: {%s, key_prefix: 'my:own', limit: 5, window: 10s}\n" REDIS,
                 presets[i].text);
        config = config_of(text);
        assert_string_equal(config_limit(config, "p")->key_head, "my:own:");
        config_free(config);
    }
}

static void presets_print_as_what_makes_them_again(void **state)
{
    (void)state;
    char text[256];
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        snprintf(text, sizeof text, "policies:\n  p: {%s, limit: 5, window: 10s}\n" REDIS, presets[i].text);
        struct config *first = config_of(text);
        char *once = text_of(first);
        struct config *second = config_of(once);
        char *twice = text_of(second);
        assert_string_equal(once, twice);
        assert_int_equal(config_limit(first, "p")->policy->version, config_limit(second, "p")->policy->version);
        free(once);
        free(twice);
        config_free(first);
        config_free(second);
    }
}

static const struct {
    const char *text;
    uint32_t line;
    const char *says;
} refused[] = {
    {"  p: {compat: rlaas, limit: 1, window: 1s}\n", 2, "policies.p.compat: 'rlaas' is not known; "},
    {"  p: {compat: first-hti, limit: 1, window: 1s}\n", 2, "did you mean first-hit?"},
    {"  p: {compat: fixed_window, limit: 1, window: 1s}\n", 2, "policies.p.compat: 'fixed_window' is not known; "},
    {"  p: {algorithm: first-hit, limit: 1, window: 1s}\n", 2, "policies.p.algorithm: 'first-hit' is not known; "},
    {"  p:\n    algorithm: fixed_window\n    compat: first-hit\n    limit: 1\n    window: 1s\n", 4,
     "policies.p.compat: does not go with algorithm; keep one of the two"},
    {"  p:\n    compat: first-hit\n    limit: 1\n    window: 1500ms\n", 5, "policies.p.window: must be whole seconds"},
    {"  p:\n    compat: window-start-millis\n    limit: 1\n    window: 1500us\n", 5,
     "policies.p.window: must be whole milliseconds"},
    {"  p:\n    compat: first-hit\n    limit: 1\n    window: 1s\n    burst: 2\n", 6,
     "policies.p.burst: is not a setting of first-hit; leave it out (it belongs to token_bucket, gcra and "
     "leaky_bucket)"},
    {"  p:\n    compat: first-hit\n    limit: 1\n    window: 1s\n    count_denied: true\n", 6,
     "policies.p.count_denied: is not a setting of first-hit"},
    {"  p:\n    compat: first-hit\n    limit: 1\n    window: 1s\n    key_prefix: ''\n", 6, "is 0 bytes long"},
    {"  p:\n    compat: first-hit\n    limit: 1\n    window: 1s\n    key_prefix: 'a:'\n", 6, "ends in a colon"},
    {"  a: {compat: first-hit, limit: 1, window: 1s}\n  b: {compat: endpoint-log, limit: 1, window: 1s}\n", 3,
     "policies.b: shares the prefix rate_limit: with policy a"},
    {"  a: {compat: rlaas-sliding, limit: 1, window: 1s}\n"
     "  b: {compat: window-start-millis, key_prefix: 'rlaas:rate_limit', limit: 1, window: 1s}\n",
     3, "policies.b: shares the prefix rlaas:rate_limit: with policy a"},
    {"  a: {compat: endpoint-log, key_prefix: 'rlaas:rate_limit', limit: 1, window: 1s}\n"
     "  b: {compat: rlaas-fixed, limit: 1, window: 1s}\n",
     3, "policies.b: shares the prefix rlaas:rate_limit: with policy a"},
    {"  a: {compat: first-hit, key_prefix: p, limit: 1, window: 1s}\n" /* not next to c */
     "  b: {compat: rlaas-fixed, key_prefix: p, limit: 1, window: 1s}\n"
     "  c: {compat: rlaas-sliding, key_prefix: p, limit: 1, window: 1s}\n",
     4, "policies.c: shares the prefix p: with policy a"},
    {"  a: {compat: first-hit, limit: 1, window: 1s}\n"
     "  b: {compat: rlaas-sliding, key_prefix: rate_limit, limit: 1, window: 1s}\n",
     3, "policies.b: shares the prefix rate_limit: with policy a"},
};

static void what_would_not_fit_the_other_system_is_refused(void **state)
{
    (void)state;
    char text[512], line[512];
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct faults faults;
        snprintf(text, sizeof text, "policies:\n%s" REDIS, refused[i].text);
        assert_null(config_from(text, &faults));
        faults_line(line, sizeof line, "F", &faults.items[0]);
        if (faults.n != 1 || faults.items[0].line != refused[i].line || strstr(line, refused[i].says) == NULL)
            fail_msg("%s: %zu faults: %s", text, faults.n, line);
        faults_fini(&faults);
    }
}

static void policies_may_share_a_prefix_of_one_type(void **state)
{
    (void)state;
    config_free(config_of("policies:\n  a: {compat: first-hit, limit: 1, window: 1s}\n"
                          "  b: {compat: endpoint-window, limit: 9, window: 9s}\n"
                          "  c: {compat: endpoint-log, key_prefix: other, limit: 1, window: 1s}\n" REDIS));
}

static void both_presets_of_one_original_may_share_its_prefix(void **state)
{
    (void)state;
    config_free(config_of("policies:\n  a: {compat: rlaas-fixed, limit: 1, window: 1s}\n"
                          "  b: {compat: rlaas-sliding, limit: 1, window: 1s}\n"
                          "  c: {compat: rlaas-sliding, key_prefix: other, limit: 1, window: 1s}\n"
                          "  d: {compat: rlaas-fixed, key_prefix: other, limit: 1, window: 1s}\n"
                          "  e: {compat: endpoint-log, limit: 1, window: 1s}\n" REDIS));
}

static void in_memory_a_preset_shares_nothing_and_that_is_a_warning(void **state)
{
    (void)state;
    struct faults faults;
    struct config *config = config_from("policies:\n  a: {algorithm: gcra, limit: 1, window: 1s}\n"
                                        "  b: {compat: endpoint-window, limit: 9, window: 9s}\n"
                                        "  c: {compat: first-hit, limit: 9, window: 9s}\n",
                                        &faults);
    assert_non_null(config);
    assert_int_equal(faults.n, 1);
    assert_int_equal(faults.items[0].code, FAULT_WARNING);
    assert_int_equal(faults.items[0].line, 3);
    assert_non_null(strstr(faults.items[0].text,
                           "store.type: is memory, so policy b and other compat policies share no "
                           "counter with the limiter in place; write type: redis"));
    config_free(config);
    faults_fini(&faults);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_preset_has_its_name_and_its_prefix),
        cmocka_unit_test(presets_print_as_what_makes_them_again),
        cmocka_unit_test(what_would_not_fit_the_other_system_is_refused),
        cmocka_unit_test(policies_may_share_a_prefix_of_one_type),
        cmocka_unit_test(both_presets_of_one_original_may_share_its_prefix),
        cmocka_unit_test(in_memory_a_preset_shares_nothing_and_that_is_a_warning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
