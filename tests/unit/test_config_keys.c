/* test_config_keys.c: key_format, by, overrides and unlimited of a configuration file. */
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

#define TENANT_API                                                                                                     \
    "policies:\n"                                                                                                      \
    "  tenant-api:\n"                                                                                                  \
    "    key_format: \"{tenant}:{user}\"\n"                                                                            \
    "    limits:\n"                                                                                                    \
    "      - {name: user, algorithm: token_bucket, limit: 100, window: 1m}\n"                                          \
    "      - {name: tenant, by: [tenant], algorithm: sliding_counter, limit: 5000, window: 1m}\n"                      \
    "      - {name: all, by: [], algorithm: fixed_window, limit: 100000, window: 1m}\n"

static void a_limit_counts_by_some_parts_of_the_key(void **state)
{
    (void)state;
    struct config *config = config_of(TENANT_API);
    const struct policy *policy = config_policy(config, "tenant-api");
    assert_int_equal(policy->format->n_parts, 2);
    assert_false(policy->limits[0].shared);
    assert_true(policy->limits[1].shared);
    assert_int_equal(policy->limits[1].parts, 1);
    assert_true(policy->limits[2].shared);
    assert_int_equal(policy->limits[2].parts, 0);
    assert_int_equal(policy->plan.shard_parts, 0);
    config_free(config);
    config = config_of(
        "policies:\n  p: {key_format: '{a}:{b}:{c}', by: [c, a], algorithm: fixed_window, limit: 1, window: 1s}\n");
    policy = config_policy(config, "p");
    assert_int_equal(policy->limits[0].parts, 5);
    assert_int_equal(policy->plan.shard_parts, 5);
    assert_int_equal(policy->plan.n_joined, 2);
    config_free(config);
    config = config_of(
        "policies:\n  p: {key_format: '{a}:{b}', by: [b, a], algorithm: fixed_window, limit: 1, window: 1s}\n");
    assert_false(config_policy(config, "p")->limits[0].shared);
    config_free(config);
}

static void without_them_a_policy_keeps_its_version(void **state)
{
    (void)state;
    struct config *plain = config_of("policies:\n  p: {algorithm: fixed_window, limit: 5, window: 10s}\n");
    struct config *format =
        config_of("policies:\n  p: {key_format: '{a}:{b}', algorithm: fixed_window, limit: 5, window: 10s}\n");
    struct config *by =
        config_of("policies:\n  p: {key_format: '{a}:{b}', by: [a], algorithm: fixed_window, limit: 5, window: 10s}\n");
    struct config *other =
        config_of("policies:\n  p: {key_format: '{a}:{b}', by: [b], algorithm: fixed_window, limit: 5, window: 10s}\n");
    struct config *no = config_of(
        "policies:\n  p: {unlimited: false, overrides: [], algorithm: fixed_window, limit: 5, window: 10s}\n");
    assert_int_equal(config_policy(no, "p")->version, config_policy(plain, "p")->version);
    assert_int_not_equal(config_policy(plain, "p")->version, config_policy(format, "p")->version);
    assert_int_not_equal(config_policy(format, "p")->version, config_policy(by, "p")->version);
    assert_int_not_equal(config_policy(by, "p")->version, config_policy(other, "p")->version);
    config_free(plain);
    config_free(format);
    config_free(by);
    config_free(other);
    config_free(no);
}

#define SEARCH                                                                                                         \
    "policies:\n"                                                                                                      \
    "  search:\n"                                                                                                      \
    "    limits:\n"                                                                                                    \
    "      - {name: second, algorithm: leaky_bucket, limit: 10, window: 1s, max_wait: 1s}\n"                           \
    "      - {name: day, algorithm: fixed_window, limit: 5000, window: 1d}\n"                                          \
    "    overrides:\n"                                                                                                 \
    "      - {key: \"user:42\", limit: {second: 100}}\n"                                                               \
    "      - {match: \"partner:*\", unlimited: true}\n"                                                                \
    "      - {match: \"slow:*\", limit: {day: 0}, window: {second: 10s}, burst: {second: 3}, max_wait: {second: 0}}\n" \
    "      - {key: \"quoted \\\"\\\\\\x01\", limit: {second: 0}}\n"

static void an_override_is_the_policy_with_other_numbers(void **state)
{
    (void)state;
    struct config *config = config_of(SEARCH);
    const struct policy *policy = config_policy(config, "search");
    const struct policy *user = policy_for_key(policy, slice_of("user:42"));
    assert_int_equal(user->limits[0].limit, 100);
    assert_int_equal(user->limits[0].burst, 100);
    assert_int_equal(user->limits[0].max_wait_us, 1000000);
    assert_int_equal(user->limits[1].limit, 5000);
    assert_string_equal(user->limits[1].name, "day");
    assert_int_equal(user->on_failure, policy->on_failure);
    assert_true(policy_for_key(policy, slice_of("partner:x"))->unlimited);
    const struct policy *slow = policy_for_key(policy, slice_of("slow:x"));
    assert_int_equal(slow->limits[0].limit, 10);
    assert_int_equal(slow->limits[0].burst, 3);
    assert_int_equal(slow->limits[0].window_us, 10000000);
    assert_int_equal(slow->limits[0].max_wait_us, 0);
    assert_ptr_equal(slow->plan.zero_limit, &slow->limits[1]);
    assert_ptr_equal(policy_for_key(policy, slice_of("user:43")), policy);
    config_free(config);
}

/* A burst that was written stays; one that was not follows the limit. */
static void an_override_of_one_limit_is_a_number(void **state)
{
    (void)state;
    struct config *config =
        config_of("policies:\n"
                  "  own: {algorithm: gcra, limit: 10, window: 1s, burst: 20, overrides: [{key: k, limit: 5}]}\n"
                  "  not: {algorithm: gcra, limit: 10, window: 1s, overrides: [{key: k, limit: 5}]}\n"
                  "  shut: {algorithm: gcra, limit: 0, window: 1s, overrides: [{key: k, limit: 5}]}\n"
                  "  old: {compat: first-hit, limit: 9, window: 1s, overrides: [{key: k, limit: 5}]}\n"
                  "store: {type: redis, redis: {addresses: [\"h:1\"]}}\n");
    assert_int_equal(policy_for_key(config_policy(config, "own"), slice_of("k"))->limits[0].burst, 20);
    assert_int_equal(policy_for_key(config_policy(config, "not"), slice_of("k"))->limits[0].burst, 5);
    assert_int_equal(policy_for_key(config_policy(config, "shut"), slice_of("k"))->limits[0].full, 5);
    const struct limit *old = &policy_for_key(config_policy(config, "old"), slice_of("k"))->limits[0];
    assert_int_equal(old->full, 5);
    assert_string_equal(old->key_head, "rate_limit:");
    config_free(config);
}

static void what_is_printed_parses_back_to_the_same(void **state)
{
    (void)state;
    static const char *const texts[] = {
        TENANT_API,
        SEARCH,
        "policies:\n  free: {unlimited: true}\n",
        TENANT_API "    overrides:\n      - {key: 'a:b', limit: {tenant: 7, all: 0, user: 9}}\n",
        ("policies:\n  p: {algorithm: gcra, limit: 10, window: 1s, burst: 20, overrides: [{key: k, limit: 5}, "
         "{match: 'a*', burst: 7, window: 2s}, {match: 'b*', limit: 0}]}\n"),
        "policies:\n  p: {algorithm: gcra, limit: 10, window: 1s, overrides: [{key: k, limit: 5, burst: 10}]}\n",
        TENANT_API
        "    overrides:\n      - {match: {cidr: [10.0.0.0/8, '::/0', 2001:DB8::/32], part: user}, limit: {all: 7}}\n",
        "policies:\n  p: {algorithm: gcra, limit: 10, window: 1s, overrides: [{match: {cidr: [10.0.0.1]}, limit: "
        "5}]}\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct config *first = config_of(texts[i]);
        char *text = text_of(first);
        struct config *second = config_of(text);
        const struct policy *a = first->policies->in_order[0], *b = second->policies->in_order[0];
        if (a->version != b->version) fail_msg("%s", text);
        config_free(first);
        config_free(second);
        free(text);
    }
}

#define ONE "policies:\n  p:\n    algorithm: token_bucket\n    limit: 5\n    window: 1s\n"
#define TWO                                                                                                            \
    "policies:\n  p:\n    limits:\n      - {name: a, algorithm: gcra, limit: 5, window: 1s}\n"                         \
    "      - {name: b, algorithm: fixed_window, limit: 9, window: 1m}\n"
#define OVER(e) "    overrides:\n      - " e "\n"
#define PARTS   "    key_format: '{t}:{u}'\n"

#define CALENDAR(s) "policies:\n  p:\n    algorithm: calendar_window\n    limit: 1\n" s
#define CIDR(list)  OVER("{match: {cidr: [" list "]}, limit: 9}")
#define NET(format) ONE "    key_format: '" format "'\n    overrides:\n      - limit: 9\n        match:\n"

static const struct {
    const char *text;
    uint32_t line;
    const char *fault;
} faulty[] = {
    {CALENDAR("    window: day\n    anchor: 2026-01-31\n"), 6,
     "policies.p.anchor: is of no use with this window; leave it out, or write window: month or window: year"},
    {CALENDAR("    window: week\n    anchor: 2026-01-31\n"), 6, "policies.p.anchor: is of no use with this window"},
    {CALENDAR("    window: month\n    anchor: 2026-02-29\n"), 6,
     "policies.p.anchor: '2026-02-29' is no day of the calendar; write one that is, e.g. 2026-01-31"},
    {CALENDAR("    window: month\n    anchor: 2026-1-31\n"), 6,
     "policies.p.anchor: '2026-1-31' is no date; write year, month and day, e.g. 2026-01-31"},
    {CALENDAR("    window: month\n    key_format: '{t}:{u}'\n    by: [t]\n    overrides: [{key: 'a:b', anchor: "
              "2026-02-01}]\n"),
     8, "policies.p.overrides[0].anchor: would differ for keys that share one calendar_window (by)"},
    {ONE "    anchor: 2026-01-31\n", 6,
     "policies.p.anchor: is not a setting of token_bucket; leave it out (it belongs to calendar_window with window: "
     "month or year)"},
    {CALENDAR("    window: month\n    overrides: [{key: a, anchor: 2026-02-30}]\n"), 6,
     "policies.p.overrides[0].anchor: '2026-02-30' is no day of the calendar"},
    {CALENDAR("    window: day\n    overrides: [{key: a, anchor: 2026-02-01}]\n"), 6,
     "policies.p.overrides[0].anchor: is of no use with this window"},
    {CALENDAR("    window: month\n    overrides: [{key: a, limit: 0, anchor: 2026-02-01}]\n"), 6,
     "policies.p.overrides[0].anchor: means nothing with limit: 0"},
    {ONE CIDR("10.0.0.1/8"), 7,
     "policies.p.overrides[0].match.cidr: '10.0.0.1/8' has bits set behind the first 8; write 10.0.0.0/8, or "
     "10.0.0.1/32 for this address alone"},
    {ONE CIDR("10.0.0.0/33"), 7, "policies.p.overrides[0].match.cidr: '10.0.0.0/33' has no length from 0 to 32"},
    {ONE CIDR("'fe80::1%eth0'"), 7,
     "policies.p.overrides[0].match.cidr: 'fe80::1%eth0' is no network; write an address"},
    {ONE CIDR(""), 7, "policies.p.overrides[0].match.cidr: has no network; write some, e.g. cidr: [10.0.0.0/8]"},
    {ONE CIDR("[10.0.0.0/8]"), 7, "policies.p.overrides[0].match.cidr: a list where one value"},
    {ONE OVER("{match: {cidr: 10.0.0.0/8}, limit: 9}"), 7,
     "policies.p.overrides[0].match.cidr: is not a list; write networks in brackets, e.g. cidr: [10.0.0.0/8]"},
    {ONE OVER("{match: {part: ip}, limit: 9}"), 7, "policies.p.overrides[0].match.part: needs key_format"},
    {ONE OVER("{match: {}, limit: 9}"), 7, "policies.p.overrides[0].match.cidr: has no network"},
    {ONE OVER("{match: {cidr: [10.0.0.0/8], ip: x}, limit: 9}"), 7,
     "policies.p.overrides[0].match: has ip, and a map here has cidr and part alone"},
    {ONE CIDR("10.0.0.0/8, 10.0.0.0/9, '::ffff:10.0.0.0/104'"), 7,
     "policies.p.overrides: 10.0.0.0/8 is written twice, first on line 7; keep one of the two"},
    {ONE "    overrides:\n      - {match: {cidr: [10.0.0.0/8]}, limit: 9}\n      - {match: {cidr: [10.0.0.0/8]}, "
         "limit: 8}\n",
     8, "policies.p.overrides: 10.0.0.0/8 is written twice, first on line 7; keep one of the two"},
    {NET("{user}|{ip}") "          cidr: [10.0.0.0/8]\n", 9,
     "policies.p.overrides[0].match.part: is missing, and a key has more in it than the address; write which part of "
     "key_format '{user}|{ip}' is one"},
    {NET("ip:{ip}") "          cidr: [10.0.0.0/8]\n", 9, "policies.p.overrides[0].match.part: is missing"},
    {NET("{user}|{ip}") "          cidr: [10.0.0.0/8]\n          part: ips\n", 11,
     "policies.p.overrides[0].match.part: 'ips' is not a part of key_format '{user}|{ip}'; write one of those"},
    {NET("{ip}:{user}") "          cidr: [10.0.0.0/8]\n          part: ip\n", 11,
     "policies.p.overrides[0].match.part: 'ip' ends with : in key_format, which an address may have in it; put the "
     "part "
     "last, or write another literal behind it, such as |"},
    {NET("{ip}.feed.{user}") "          cidr: [10.0.0.0/8]\n          part: [ip]\n", 11,
     "policies.p.overrides[0].match.part: a list where one value"},
    {NET("{ip}.fEEd:{user}") "          part: ip\n          cidr:\n            - 10.0.0.0/8\n            - "
                             "10.0.0.0/7.\n",
     10, "policies.p.overrides[0].match.part: 'ip' ends with .fEEd: in key_format"},
    {ONE "    key_format: 'x'\n", 6, "policies.p.key_format: 'x' has no parts"},
    {ONE "    key_format: [x]\n", 6, "policies.p.key_format: a list where one value"},
    {ONE "    by: [t]\n", 6, "policies.p.by: needs key_format"},
    {ONE PARTS "    by: t\n", 7, "policies.p.by: is not a list"},
    {ONE PARTS "    by: [t, x]\n", 7, "policies.p.by: 'x' is not a part of key_format '{t}:{u}'"},
    {ONE "    key_format: \"{t}\\n\\e[1m{u}\"\n    by: [x]\n", 7,
     "policies.p.by: 'x' is not a part of key_format '{t}\\x0a\\x1b[1m{u}'"},
    {ONE PARTS "    by: [t, t]\n", 7, "policies.p.by: 't' is in it twice"},
    {TWO PARTS "    by: [t]\n", 7, "policies.p.by: does not go with limits"},
    {"policies:\n  p: {compat: first-hit, limit: 1, window: 1s, key_format: '{t}:{u}', by: [t]}\n", 2,
     "policies.p.by: is not a setting of first-hit"},
    {"policies:\n  p:\n    limits:\n      - {name: a, algorithm: gcra, limit: 5, window: 1s, overrides: []}\n", 4,
     "policies.p.limits[0].overrides: is the policy's"},
    {"policies:\n  p: {unlimited: true, limit: 5}\n", 2, "policies.p.limit: does not go with unlimited: true"},
    {"policies:\n  p: {unlimited: maybe}\n", 2, "policies.p.unlimited: 'maybe' is"},
    {"policies:\n  p: {unlimited: false}\n", 2, "policies.p.algorithm: is missing"},
    {ONE "    overrides: 5\n", 6, "policies.p.overrides: is not a list"},
    {ONE OVER("5"), 7, "policies.p.overrides[0]: is not a map"},
    {ONE OVER("{limit: 5}"), 7, "policies.p.overrides[0].key: is missing"},
    {ONE OVER("{key: a, match: b, limit: 5}"), 7, "policies.p.overrides[0].match: does not go with key"},
    {ONE OVER("{key: '', limit: 5}"), 7, "policies.p.overrides[0].key: is empty"},
    {ONE OVER("{key: a}"), 7, "policies.p.overrides[0]: changes nothing"},
    {ONE OVER("{key: a, unlimited: false}"), 7, "policies.p.overrides[0]: changes nothing"},
    {TWO OVER("{key: a, limit: {}}"), 7, "policies.p.overrides[0]: changes nothing"},
    {"policies:\n  p: {algorithm: concurrency, limit: 5, on_failure: local, merge_back: true}\n", 2,
     "policies.p.merge_back: is not for policies with a"},
    {"policies:\n  p: {compat: first-hit, limit: 5, window: 1s, merge_back: true}\n", 2,
     "policies.p.merge_back: is not a setting of first-hit; leave it out (it belongs to policies with on_failure: "
     "local, without max_wait and concurrency, and without compat, whose keys another limiter reads too)"},
    {"policies:\n  p: {algorithm: leaky_bucket, limit: 5, window: 1s, max_wait: 1s, merge_back: true}\n", 2,
     "policies.p.merge_back: is not for policies with max_wait"},
    {"policies:\n  p: {unlimited: true, merge_back: true}\n", 2, "policies.p.merge_back: does not go with unlimited"},
    {ONE OVER("{key: a, unlimited: true, limit: 5}"), 7, "policies.p.overrides[0].limit: does not go with unlimited"},
    {ONE OVER("{key: a, limit: 6}\n      - {key: a, limit: 7}"), 8,
     "policies.p.overrides[1].key: has an override already"},
    {ONE OVER("{match: a, limit: 6}\n      - {match: a, limit: 7}"), 8,
     "policies.p.overrides[1].match: has an override already"},
    {ONE OVER("{key: a, limits: 5}"), 7, "policies.p.overrides[0].limits: is the same for every key"},
    {ONE OVER("{key: a, algorithm: gcra}"), 7, "policies.p.overrides[0].algorithm: is the same for every key"},
    {ONE OVER("{key: a, limt: 5}"), 7, "policies.p.overrides[0].limt: no such setting; did you mean limit?"},
    {ONE OVER("{key: a, colour: 5}"), 7, "policies.p.overrides[0].colour: no such setting; an override has"},
    {ONE OVER("{key: a, limit: -1}"), 7, "policies.p.overrides[0].limit: '-1' is"},
    {ONE OVER("{key: a, limit: {a: 5}}"), 7, "policies.p.overrides[0].limit.a: names a limit, and the policy's one"},
    {ONE OVER("{key: a, limit: 99999999999}"), 7, "policies.p.overrides[0].limit: must be 0 to"},
    {ONE OVER("{key: a, limit: 0, burst: 5}"), 7, "policies.p.overrides[0].burst: means nothing with limit: 0"},
    {ONE OVER("{key: a, burst: 0}"), 7, "policies.p.overrides[0].burst: '0' is too small"},
    {ONE OVER("{key: a, max_wait: 1s}"), 7, "policies.p.overrides[0].max_wait: is not a setting of token_bucket"},
    {ONE OVER("{key: a, window: 0}"), 7, "policies.p.overrides[0].window: '0' is no time at all"},
    {TWO OVER("{key: a, limit: 5}"), 7, "policies.p.overrides[0].limit: is one value, and the policy has several"},
    {TWO OVER("{key: a, limit: {c: 5}}"), 7, "policies.p.overrides[0].limit.c: is no limit of this policy"},
    {TWO OVER("{key: a, burst: {b: 5}}"), 7, "policies.p.overrides[0].burst.b: is not a setting of fixed_window"},
    {ONE PARTS OVER("{key: a, limit: 6}"), 8, "policies.p.overrides[0].key: does not fit key_format '{t}:{u}'"},
    {ONE "    key_format: \"{t}\\n{u}\"\n" OVER("{key: a, limit: 6}"), 8,
     "policies.p.overrides[0].key: does not fit key_format '{t}\\x0a{u}'"},
    {ONE PARTS "    by: [t]\n" OVER("{match: 'a:*', limit: 6}"), 9,
     "policies.p.overrides[0].limit: would differ for keys that share one token_bucket"},
    {"policies:\n  p:\n    key_format: '{t}:{u}'\n    by: [t]\n    algorithm: sliding_counter\n    limit: 5\n"
     "    window: 1s\n" OVER("{key: 'a:b', limit: 6, window: 2s}"),
     9, "policies.p.overrides[0].window: would differ for keys that share one sliding_counter"},
    {"policies:\n  p:\n    algorithm: nonsense\n    limit: 5\n    window: 1s\n" OVER("{key: a}"), 7,
     "policies.p.overrides[0]: changes nothing"},
    {ONE OVER("{key: a, limit: 5, key: b}"), 7, "policies.p.overrides.key: is written twice"},
    {ONE OVER("{key: *a, limit: 5}"), 7, "key: an alias (*a)"},
};

static void each_fault_is_reported_with_its_line_and_its_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faulty / sizeof faulty[0]; i++) {
        struct faults faults;
        bool found = false;
        assert_null(config_from(faulty[i].text, &faults));
        for (size_t j = 0; j < faults.n; j++)
            found |= faults.items[j].line == faulty[i].line &&
                     strncmp(faults.items[j].text, faulty[i].fault, strlen(faulty[i].fault)) == 0;
        if (!found) fail_msg("%s: line %u: %s", faulty[i].text, faults.items[0].line, faults.items[0].text);
        faults_fini(&faults);
    }
}

/* So many networks in one list, each an address. */
static char *with_networks(unsigned n)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fputs(ONE "    overrides:\n      - limit: 9\n        match:\n          cidr:\n", out);
    for (unsigned i = 0; i < n; i++) fprintf(out, "            - 10.%u.%u.%u\n", i >> 16, i >> 8 & 255, i & 255);
    fclose(out);
    return text;
}

static void a_policy_has_a_hundred_thousand_networks_and_no_more(void **state)
{
    (void)state;
    char *text = with_networks(NETWORKS_MAX), *more = with_networks(NETWORKS_MAX + 1);
    struct config *config = config_of(text);
    struct faults faults;
    const struct policy *policy = config_policy(config, "p");
    assert_int_equal(policy_for_key(policy, slice_of("10.0.0.0"))->limits[0].limit, 9);
    assert_int_equal(policy_for_key(policy, slice_of("10.1.134.159"))->limits[0].limit, 9);
    assert_int_equal(policy_for_key(policy, slice_of("10.1.134.160"))->limits[0].limit, 5);
    config_free(config);

    assert_null(config_from(more, &faults));
    assert_int_equal(faults.n, 1);
    assert_int_equal(faults.items[0].line, 10 + NETWORKS_MAX);
    assert_string_equal(
        faults.items[0].text,
        "policies.p.overrides[0].match.cidr: '10.1.134.160' is one more than the 100000 networks that a "
        "policy may have; join neighbours into larger ones");
    faults_fini(&faults);
    free(text);
    free(more);
}

/* The version is of the networks, however they are written. */
static void networks_are_part_of_the_version(void **state)
{
    (void)state;
    static const char *const lists[][3] = {
        {"10.0.0.0/8, '::/0'", "'::ffff:10.0.0.0/104', '0:0::/0'", "10.0.0.0/9, '::/0'"},
        {"10.0.0.1", "10.0.0.1/32", "10.0.0.2"}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        uint32_t versions[3];
        for (size_t j = 0; j < 3; j++) {
            char text[512];
            snprintf(text, sizeof text, ONE OVER("{match: {cidr: [%s]}, limit: 9}"), lists[i][j]);
            struct config *config = config_of(text);
            versions[j] = config_policy(config, "p")->version;
            config_free(config);
        }
        assert_int_equal(versions[0], versions[1]);
        assert_int_not_equal(versions[0], versions[2]);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const texts[] = {SEARCH, TENANT_API, "policies:\n  free: {unlimited: true}\n",
                                        ONE CIDR("10.0.0.0/8, 10.0.0.0/9")};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        bool succeeded = false;
        for (uint64_t nth = 1; nth < 1000 && !succeeded; nth++) {
            struct faults faults;
            faults_init(&faults);
            mem_fail_nth(nth);
            struct config *config = config_parse(texts[i], strlen(texts[i]), CONFIG_START, &faults);
            succeeded = config != NULL && faults.n_errors == 0;
            assert_true(succeeded || faults.n_errors > 0);
            mem_fail_nth(0);
            config_free(config);
            faults_fini(&faults);
        }
        assert_true(succeeded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_counts_by_some_parts_of_the_key),
        cmocka_unit_test(without_them_a_policy_keeps_its_version),
        cmocka_unit_test(an_override_is_the_policy_with_other_numbers),
        cmocka_unit_test(an_override_of_one_limit_is_a_number),
        cmocka_unit_test(what_is_printed_parses_back_to_the_same),
        cmocka_unit_test(each_fault_is_reported_with_its_line_and_its_key),
        cmocka_unit_test(a_policy_has_a_hundred_thousand_networks_and_no_more),
        cmocka_unit_test(networks_are_part_of_the_version),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
