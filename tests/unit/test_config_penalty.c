/* test_config_penalty.c: what is refused of `penalty`, with its line, its key and the way out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/config_text.h"

#define POLICY(settings) "policies:\n  p:\n" settings
#define VALID            "    limit: 1\n    window: 1s\n"
#define LIMITS(limits)   POLICY("    limits:\n      - " limits "\n")
#define LIMIT_A          "{name: a, algorithm: gcra, limit: 1, window: 1s}"
#define PENALTY(text)    POLICY("    algorithm: fixed_window\n    penalty: " text "\n" VALID)

/* Each file has this fault on this line, and no other. */
static const struct {
    const char *text;
    uint32_t line;
    const char *says;
} refused[] = {
    {PENALTY("1m"), 4, "policies.p.penalty: is not a map; write e.g. {time: 1m, factor: 5, max: 1d}"},
    {PENALTY("{factor: 5, max: 1d}"), 4,
     "policies.p.penalty: has no time; write how long the first pause lasts, e.g. time: 1m"},
    {PENALTY("{time: 1m, factor: 5}"), 4, "policies.p.penalty: has a factor and no max; write up to which"},
    {PENALTY("{time: 1m, max: 1s}"), 4, "policies.p.penalty: has a max shorter than its time; write a longer max"},
    {PENALTY("{time: 1m, tme: 1m}"), 4,
     "policies.p.penalty.tme: no such setting; a penalty has time, factor, max and forget"},
    {PENALTY("{time: 1us}"), 4, "policies.p.penalty.time: '1us' is finer than a millisecond"},
    {PENALTY("{time: 0}"), 4, "policies.p.penalty.time: '0' is too small; write 1ms to 365d"},
    {PENALTY("{time: 366d}"), 4, "policies.p.penalty.time: '366d' is too large; write 1ms to 365d"},
    {PENALTY("{time: 1m, factor: 0}"), 4, "policies.p.penalty.factor: '0' is too small; write 1 to 1000"},
    {PENALTY("{time: 1m, factor: 1001, max: 1d}"), 4, "policies.p.penalty.factor: '1001' is too large"},
    {PENALTY("{time: 1m, factor: 5, max: 366d}"), 4, "policies.p.penalty.max: '366d' is too large"},
    {PENALTY("{time: 1m, forget: 366d}"), 4, "policies.p.penalty.forget: '366d' is too large; write 0 to 365d"},
    {POLICY("    algorithm: fixed_window\n    limit: 0\n    window: 1s\n    penalty: {time: 1m}\n"), 6,
     "policies.p.penalty: means nothing with limit: 0, which denies always; leave it out"},
    {POLICY("    algorithm: concurrency\n    limit: 1\n    penalty: {time: 1m}\n"), 5,
     "policies.p.penalty: is not a setting of concurrency; leave it out (it belongs to fixed_window, calendar_window"},
    {POLICY("    algorithm: leaky_bucket\n    penalty: {time: 1m}\n" VALID), 4,
     "policies.p.penalty: is not a setting of leaky_bucket"},
    {POLICY("    compat: first-hit\n    penalty: {time: 1m}\n" VALID), 4,
     "policies.p.penalty: is not a setting of first-hit"},
    {POLICY("    algorithm: gcra\n    lease: 1s\n    penalty: {time: 1m}\n" VALID), 4,
     "policies.p.lease: is not for limits with a penalty"},
    {POLICY("    algorithm: gcra\n    penalty: {time: 1m}\n    overrides: [{key: a, lease: 1s}]\n" VALID), 5,
     "policies.p.overrides[0].lease: is not for limits with a penalty"},
    {POLICY("    algorithm: fixed_window\n    count_denied: true\n    penalty: {time: 1m}\n" VALID), 5,
     "policies.p.penalty: does not go with count_denied in one policy, where each denial of a pause would be "
     "counted; "},
    {LIMITS("{name: a, algorithm: fixed_window, limit: 1, window: 1s, count_denied: true}\n"
            "      - {name: b, algorithm: gcra, limit: 1, window: 1s, penalty: {time: 1m}}"),
     5, "policies.p.limits[1].penalty: does not go with count_denied in one policy"},
    {LIMITS("{name: b, algorithm: gcra, limit: 1, window: 1s, penalty: {time: 1m}}\n"
            "      - {name: a, algorithm: fixed_window, limit: 1, window: 1s, count_denied: true}"),
     5, "policies.p.limits[1].count_denied: does not go with penalty in one policy"},
    {POLICY("    algorithm: gcra\n    overrides: [{key: a, limit: 5, penalty: {time: 1m}}]\n" VALID), 4,
     "policies.p.overrides[0].penalty: is the same for every key"},
    {POLICY("    key_format: \"{t}:{u}\"\n    algorithm: fixed_window\n    by: [t]\n    penalty: {time: 1m}\n"
            "    overrides: [{match: \"a:*\", limit: 5}]\n" VALID),
     7, "policies.p.overrides[0].limit: would differ for keys that share one fixed_window (by); leave it out"},
    {LIMITS(LIMIT_A) "    penalty: {time: 1m}\n", 5, "policies.p.penalty: does not go with limits"},
};

static void each_fault_is_reported_with_its_line_and_its_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct faults faults;
        char line[512];
        assert_null(config_from(refused[i].text, &faults));
        assert_true(faults.n > 0);
        faults_line(line, sizeof line, "F", &faults.items[0]);
        if (faults.n != 1 || faults.items[0].line != refused[i].line || strstr(line, refused[i].says) == NULL)
            fail_msg("%s: %zu faults: %s", refused[i].text, faults.n, line);
        faults_fini(&faults);
    }
}

static void what_is_not_written_has_the_default_of_the_manual(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct penalty is;
    } written[] = {
        {PENALTY("{time: 1m}"), {60000, 1, 60000, 60000}},
        {PENALTY("{time: 1m, max: 1h}"), {60000, 1, 3600000, 3600000}},
        {PENALTY("{time: 1ms, factor: 1000, max: 365d, forget: 0}"), {1, 1000, PENALTY_LONGEST_MS, 0}},
    };
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
        struct config *config = config_of(written[i].text);
        assert_true(penalty_same(&config_limit(config, "p")->penalty, &written[i].is));
        config_free(config);
    }
}

static void an_override_may_set_a_limit_with_a_penalty_to_0(void **state)
{
    (void)state;
    struct config *config =
        config_of("policies:\n  p: {key_format: \"{t}:{u}\", by: [t], algorithm: fixed_window, limit: 5, window: 1s,\n"
                  "    penalty: {time: 1m}, overrides: [{match: \"a:*\", limit: 0}]}\n");
    config_free(config);
}

static void only_a_policy_with_a_penalty_has_another_version(void **state)
{
    (void)state;
    static const char *const texts[] = {"{time: 1m}", "{time: 2m}", "{time: 1m, max: 2m}", "{time: 1m, forget: 2m}",
                                        "{time: 1m, factor: 2, max: 2m}"};
    uint32_t versions[sizeof texts / sizeof texts[0] + 1] = {0};
    for (size_t i = 0; i <= sizeof texts / sizeof texts[0]; i++) {
        char text[256], penalty[128] = "";
        if (i > 0) snprintf(penalty, sizeof penalty, ", penalty: %s", texts[i - 1]);
        snprintf(text, sizeof text, "policies: {login: {algorithm: fixed_window, limit: 5, window: 10s%s}}\n", penalty);
        struct config *config = config_of(text);
        versions[i] = config_policy(config, "login")->version;
        for (size_t j = 0; j < i; j++) assert_int_not_equal(versions[i], versions[j]);
        assert_string_equal(config_limit(config, "login")->key_head, "fw1:login:");
        config_free(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_is_reported_with_its_line_and_its_key),
        cmocka_unit_test(what_is_not_written_has_the_default_of_the_manual),
        cmocka_unit_test(an_override_may_set_a_limit_with_a_penalty_to_0),
        cmocka_unit_test(only_a_policy_with_a_penalty_has_another_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
