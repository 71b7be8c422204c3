/* test_policy_diff.c: what a reload says of each policy and its counters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "fakes/config_text.h"
#include "policy/policy_diff.h"

/* 2026-11-24 12:30:10 UTC; in no window's first millisecond. */
#define NOW_US INT64_C(1795523410123456)

#define STORE "store: {type: redis, redis: {addresses: ['127.0.0.1:1']}}\n"

static void find(struct changes *changes, const char *before, const char *after, bool in_redis)
{
    char text[4096];
    snprintf(text, sizeof text, STORE "policies:\n%s", before);
    struct config *old = config_of(text);
    snprintf(text, sizeof text, STORE "policies:\n%s", after);
    struct config *new = config_of(text);
    changes_init(changes, NOW_US, in_redis);
    policy_diff(changes, old->policies, new->policies);
    config_free(old);
    config_free(new);
}

/* The lines in Redis, with a newline between them, are `expected`. */
static void assert_lines(const char *before, const char *after, const char *expected)
{
    struct changes changes;
    char all[8192] = "", line[CHANGE_TEXT_MAX];
    find(&changes, before, after, true);
    for (size_t i = 0; i < changes.n; i++) {
        strcat(all, i > 0 ? "\n" : "");
        strcat(all, changes_text(&changes, &changes.items[i], line));
    }
    assert_string_equal(all, expected);
    assert_int_equal(changes.n, changes.n_all);
    changes_fini(&changes);
}

#define LOGIN "  login: {algorithm: fixed_window, limit: 5, window: 10s}\n"

static void what_is_the_same_is_not_mentioned(void **state)
{
    (void)state;
    assert_lines(LOGIN, LOGIN, "");
    assert_lines(LOGIN, "  login: {algorithm: fixed_window, limit: 5, window: 10000ms}\n", "");
}

static void policies_come_and_go(void **state)
{
    (void)state;
    assert_lines(LOGIN, LOGIN "  sms: {algorithm: fixed_window, limit: 1, window: 1m}\n", "sms: added");
    assert_lines(LOGIN "  sms: {algorithm: fixed_window, limit: 1, window: 1m}\n", LOGIN,
                 "sms: removed; its keys end by 12:33");
    assert_lines(LOGIN "  sms: {unlimited: true}\n", LOGIN, "sms: removed");
}

static void another_limit_keeps_the_counts(void **state)
{
    (void)state;
    assert_lines(LOGIN, "  login: {algorithm: fixed_window, limit: 10, window: 10s}\n",
                 "login: limit 5 -> 10, keeps its counts; takes effect now");
    assert_lines("  a: {algorithm: token_bucket, limit: 5, window: 10s}\n",
                 "  a: {algorithm: gcra, limit: 6, window: 20s, burst: 9}\n",
                 "a: limit 5 -> 6, window 10s -> 20s, burst 5 -> 9, keeps its counts; takes effect now");
    assert_lines("  a: {algorithm: sliding_log, limit: 5, window: 10s}\n",
                 "  a: {algorithm: sliding_log, limit: 5, window: 1m, count_denied: true}\n",
                 "a: window 10s -> 1m, count_denied false -> true, keeps its counts; takes effect now");
    assert_lines("  a: {algorithm: concurrency, limit: 5}\n", "  a: {algorithm: concurrency, limit: 5, slot_ttl: 1m}\n",
                 "a: slot_ttl 30s -> 1m, keeps its counts; takes effect now");
}

static void windows_with_other_edges_start_afresh(void **state)
{
    (void)state;
    assert_lines(LOGIN, "  login: {algorithm: fixed_window, limit: 5, window: 1m}\n",
                 "login: window 10s -> 1m, starts afresh; takes effect now");
    assert_lines("  a: {algorithm: sliding_counter, limit: 5, window: 1m}\n",
                 "  a: {algorithm: sliding_counter, limit: 5, window: 10s}\n",
                 "a: window 1m -> 10s, starts afresh; takes effect now");
    assert_lines("  a: {algorithm: sliding_counter, limit: 5, window: 10s}\n",
                 "  a: {algorithm: sliding_counter, limit: 5, window: 1m}\n",
                 "a: window 10s -> 1m, keeps its counts; takes effect now");
    assert_lines("  a: {algorithm: fixed_window, start: first_hit, limit: 5, window: 10s}\n",
                 "  a: {algorithm: fixed_window, start: first_hit, limit: 5, window: 1m}\n",
                 "a: window 10s -> 1m, keeps its counts; takes effect now");
    assert_lines(LOGIN, "  login: {algorithm: fixed_window, limit: 5, window: 10s, phase: true}\n",
                 "login: phase false -> true; takes effect now\n"
                 "login: some keys keep their counts, the others start a new window; takes effect now");
}

static void another_algorithm_starts_afresh_and_the_old_keys_end(void **state)
{
    (void)state;
    assert_lines(LOGIN, "  login: {algorithm: sliding_log, limit: 5, window: 10s}\n",
                 "login: algorithm fixed_window -> sliding_log, starts afresh where no keys of these settings are "
                 "left; old keys end by 12:31");
    assert_lines(LOGIN, "  login: {algorithm: fixed_window, start: first_hit, limit: 5, window: 10s}\n",
                 "login: start aligned -> first_hit, starts afresh where no keys of these settings are left; old keys "
                 "end by 12:31");
    assert_lines("  a: {algorithm: calendar_window, limit: 5, window: day}\n",
                 "  a: {algorithm: sliding_log, limit: 5, window: 1d}\n",
                 "a: algorithm calendar_window -> sliding_log, window day -> 1d, starts afresh where no keys of these "
                 "settings are left; old keys end by "
                 "00:00");
    assert_lines("  a: {compat: first-hit, limit: 5, window: 10s}\n",
                 "  a: {compat: endpoint-window, limit: 5, window: 10s}\n",
                 "a: compat first-hit -> endpoint-window, keeps its counts; takes effect now");
    assert_lines("  a: {compat: first-hit, limit: 5, window: 10s}\n",
                 "  a: {compat: first-hit, limit: 5, window: 10s, key_prefix: mine}\n",
                 "a: key_prefix rate_limit -> mine, starts afresh where no keys of these settings are left; old keys "
                 "end by 12:31");
}

#define LIMITS(list) "  s:\n    key_format: '{tenant}:{user}'\n    limits:\n" list
#define USER         "      - {name: user, algorithm: token_bucket, limit: 2, window: 1s}\n"
#define TENANT       "      - {name: tenant, by: [tenant], algorithm: token_bucket, limit: 9, window: 1s}\n"

static void limits_of_a_list_are_found_by_their_names(void **state)
{
    (void)state;
    assert_lines(LIMITS(USER TENANT),
                 LIMITS(TENANT "      - {name: user, algorithm: token_bucket, limit: 3, window: 1s}\n"),
                 "s/user: limit 2 -> 3, burst 2 -> 3, keeps its counts; takes effect now");
    assert_lines(LIMITS(USER TENANT),
                 LIMITS(USER "      - {name: org, by: [tenant], algorithm: token_bucket, limit: 9, window: 1s}\n"),
                 "s/org: was tenant, starts afresh where no keys of these settings are left; old keys end by 12:31");
    assert_lines(LOGIN,
                 "  login:\n    limits:\n      - {name: a, algorithm: fixed_window, limit: 5, window: 10s}\n"
                 "      - {name: b, algorithm: fixed_window, limit: 9, window: 1m}\n",
                 "login/a: was the one limit, starts afresh where no keys of these settings are left; old keys end by "
                 "12:31\nlogin/b: added");
}

static void a_limit_of_another_part_moves_the_keys_of_its_siblings(void **state)
{
    (void)state;
    assert_lines(LIMITS(USER), LIMITS(USER TENANT),
                 "s/user: its keys get other names, which follow from key_format, by and on_change, starts afresh "
                 "where no keys of these settings are left; old "
                 "keys end by 12:31\ns/tenant: added");

    /* In memory there are no shards. */
    struct changes changes;
    find(&changes, LIMITS(USER), LIMITS(USER TENANT), false);
    assert_int_equal(changes.n, 1);
    assert_string_equal(changes.items[0].limit, "tenant");
    changes_fini(&changes);
    assert_lines(LIMITS(USER TENANT),
                 LIMITS(USER "      - {name: tenant, by: [], algorithm: token_bucket, limit: 9, window: 1s}\n"),
                 "s/user: its keys get other names, which follow from key_format, by and on_change, starts afresh "
                 "where no keys of these settings are left; old "
                 "keys end by 12:31\ns/tenant: by [tenant] -> [], starts afresh where no keys of these settings are "
                 "left; old keys end by 12:31");
}

static void settings_of_the_policy_touch_no_counter(void **state)
{
    (void)state;
    assert_lines(
        LOGIN,
        "  login: {algorithm: fixed_window, limit: 5, window: 10s, on_failure: deny, shadow: true, deadline: 5ms}\n",
        "login: on_failure local -> deny, deadline 20ms -> 5ms, shadow false -> true; "
        "takes effect now");
    assert_lines(LOGIN, "  login: {unlimited: true}\n", "login: unlimited false -> true; takes effect now");
}

static void on_change_reset_starts_afresh_what_keep_would_keep(void **state)
{
    (void)state;
    static const char reset[] = "  login: {algorithm: fixed_window, limit: 5, window: 10s, on_change: reset}\n";
    static const char more[] = "  login: {algorithm: fixed_window, limit: 6, window: 10s, on_change: reset}\n";
    static const char other[] = "  login: {algorithm: fixed_window, limit: 5, window: 10s, on_change: reset, "
                                "on_failure: deny, overrides: [{key: a, limit: 9}]}\n";
    assert_lines(reset, more,
                 "login: limit 5 -> 6, starts afresh where no keys of these settings are left; old keys end by 12:31");
    assert_lines(LOGIN, reset,
                 "login: on_change keep -> reset; takes effect now\n"
                 "login: its keys get other names, which follow from key_format, by and on_change, starts afresh where "
                 "no keys of these settings are left; old "
                 "keys end by 12:31");
    assert_lines(reset, other,
                 "login: on_failure local -> deny; takes effect now\n"
                 "login: overrides: 1 added; their keys keep their counts; takes effect now");
    assert_lines(reset, "  login: {algorithm: fixed_window, limit: 5, window: 10s, on_change: reset, phase: true}\n",
                 "login: phase false -> true; takes effect now\n"
                 "login: its keys get other names, which follow from key_format, by and on_change, starts afresh where "
                 "no keys of these settings are left; old "
                 "keys end by 12:31");
}

static void trials_begin_and_end(void **state)
{
    (void)state;
    static const char trial[] = "  login:\n    algorithm: fixed_window\n    limit: 5\n    window: 10s\n"
                                "    candidate: [{name: c, algorithm: fixed_window, limit: 9, window: 10s}]\n";
    static const char other[] = "  login:\n    algorithm: fixed_window\n    limit: 5\n    window: 10s\n"
                                "    candidate: [{name: c, algorithm: fixed_window, limit: 8, window: 10s}]\n";
    assert_lines(LOGIN, trial, "login: candidate: begins its trial");
    assert_lines(trial, LOGIN, "login: candidate: ended its trial; its keys end by 12:31");
    assert_lines(trial, other, "login: candidate c: limit 9 -> 8, keeps its counts; takes effect now");
}

static void overrides_are_counted(void **state)
{
    (void)state;
    static const char two[] = "  login:\n    algorithm: fixed_window\n    limit: 5\n    window: 10s\n"
                              "    overrides: [{key: a, limit: 7}, {match: 'b*', unlimited: true}]\n";
    static const char other[] = "  login:\n    algorithm: fixed_window\n    limit: 6\n    window: 10s\n"
                                "    overrides: [{key: a, limit: 8}, {key: c, window: 1m}]\n";
    assert_lines(LOGIN, two, "login: overrides: 2 added; their keys keep their counts; takes effect now");
    assert_lines(two, other,
                 "login: limit 5 -> 6, keeps its counts; takes effect now\n"
                 "login: overrides: 1 added, 1 changed, 1 removed; the keys of 1 of them start afresh, because their "
                 "windows have other edges; takes effect now");
}

static void what_cannot_be_kept_is_counted(void **state)
{
    (void)state;
    struct changes changes;
    struct change change = {.subject = CHANGE_OF_POLICY, .kind = CHANGE_REMOVED, .policy = "p"};
    changes_init(&changes, NOW_US, true);
    for (size_t i = 0; i < CHANGES_MAX + 7; i++) changes_add(&changes, &change);
    assert_int_equal(changes.n, CHANGES_MAX);
    assert_int_equal(changes.n_all, CHANGES_MAX + 7);
    changes_fini(&changes);
    changes_init(&changes, NOW_US, true);
    mem_fail_nth(1);
    changes_add(&changes, &change);
    mem_fail_nth(0);
    assert_int_equal(changes.n, 0);
    assert_int_equal(changes.n_all, 1);
    changes_fini(&changes);
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_the_same_is_not_mentioned),
        cmocka_unit_test(policies_come_and_go),
        cmocka_unit_test(another_limit_keeps_the_counts),
        cmocka_unit_test(windows_with_other_edges_start_afresh),
        cmocka_unit_test(another_algorithm_starts_afresh_and_the_old_keys_end),
        cmocka_unit_test(limits_of_a_list_are_found_by_their_names),
        cmocka_unit_test(a_limit_of_another_part_moves_the_keys_of_its_siblings),
        cmocka_unit_test(settings_of_the_policy_touch_no_counter),
        cmocka_unit_test(on_change_reset_starts_afresh_what_keep_would_keep),
        cmocka_unit_test(trials_begin_and_end),
        cmocka_unit_test(overrides_are_counted),
        cmocka_unit_test(what_cannot_be_kept_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
