/* test_describe.c: states in words and keys by name, for explain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/policies.h"
#include "store/store_key.h"

#define SECOND_US INT64_C(1000000)
#define NOW_US    INT64_C(1700000003500000) /* 3.5 s into a window of 10 s */

static struct policy_set *set;
static const struct limit *limit;
static struct view view;
static struct state_terms terms;

static void describe(struct limit_spec spec, int64_t used, int64_t extra)
{
    policy_set_unref(set);
    set = policies_make(&(struct policy_spec){.name = "p", .limits = {spec}}, 1);
    limit = &set->in_order[0]->limits[0];
    limit_here(&view, limit, slice_of("k"), limit->max_wait_us, NOW_US);
    limit_report(&view, used, extra, 0);
    terms = (struct state_terms){0};
    limit_ops(limit)->describe(&view, &terms);
}

static int64_t term(const char *name)
{
    for (size_t i = 0; i < terms.n; i++)
        if (strcmp(terms.at[i].name, name) == 0) return terms.at[i].value;
    fail_msg("no term %s", name);
    return -1;
}

static int tear_down(void **state)
{
    (void)state;
    policy_set_unref(set);
    set = NULL;
    return 0;
}

static void every_algorithm_describes_its_state(void **state)
{
    (void)state;
    for (int i = 0; i < N_ALGOS; i++) assert_non_null(algo_table[i]->describe);
}

static void windows_say_their_count_and_their_end(void **state)
{
    (void)state;
    describe((struct limit_spec){.algo = ALGO_FIXED_WINDOW, .limit = 5, .window_us = 10 * SECOND_US}, 4, 0);
    assert_int_equal(term("count"), 4);
    assert_int_equal(term("window_ends_in_ms"), 6500);
    struct limit_spec first_hit = {.algo = ALGO_FIRST_HIT, .limit = 5, .window_us = 10 * SECOND_US};
    describe(first_hit, 2, NOW_US / 1000 + 1234);
    assert_int_equal(term("window_ends_in_ms"), 1234);
    describe(first_hit, 0, 0);
    assert_int_equal(term("window_ends_in_ms"), 0);
    describe((struct limit_spec){.algo = ALGO_SLIDING_COUNTER, .limit = 9, .window_us = 10 * SECOND_US}, 1, 4);
    assert_int_equal(term("previous_count"), 4);
    assert_int_equal(term("previous_still_counts"), 3); /* 65 % of 4, rounded up */
    assert_int_equal(term("window_ends_in_ms"), 6500);
}

static void a_calendars_window_ends_by_its_clocks(void **state)
{
    (void)state;
    struct limit_spec hour = {.algo = ALGO_CALENDAR_WINDOW, .limit = 5, .window_us = 3600 * SECOND_US};
    describe(hour, 2, NOW_US / 1000 + 1234);
    assert_int_equal(term("count"), 2);
    assert_int_equal(term("window_ends_in_ms"), 1234);
    describe(hour, 0, 0);
    assert_int_equal(term("window_ends_in_ms"), 3600000 - NOW_US / 1000 % 3600000);
}

static void a_log_says_when_its_newest_unit_expires(void **state)
{
    (void)state;
    struct limit_spec log = {.algo = ALGO_SLIDING_LOG, .limit = 5, .window_us = 10 * SECOND_US};
    describe(log, 3, NOW_US - 4 * SECOND_US + 1);
    assert_int_equal(term("count"), 3);
    assert_int_equal(term("newest_expires_in_ms"), 6001);
    describe(log, 0, 0);
    assert_int_equal(terms.n, 1);
}

/* Earlier 52: Redis' view of a check that was denied in the same call has its whole cost, while a log keeps one unit more than
 * the limit. */
static void a_log_that_counts_denials_says_no_more_than_the_limit(void **state)
{
    (void)state;
    struct limit_spec log = {.algo = ALGO_SLIDING_LOG, .limit = 3, .window_us = 10 * SECOND_US, .count_denied = true};
    static const int64_t used[] = {2, 3, 4, 53}, counts[] = {2, 3, 3, 3};
    for (size_t i = 0; i < N_OF(used); i++) {
        describe(log, used[i], NOW_US - SECOND_US);
        assert_int_equal(term("count"), counts[i]);
    }
}

static void buckets_say_their_tokens(void **state)
{
    (void)state;
    struct limit_spec bucket = {.algo = ALGO_BUCKET, .limit = 5, .window_us = 10 * SECOND_US};
    describe(bucket, 0, 0);
    assert_int_equal(term("tokens"), 5);
    assert_int_equal(term("full_in_ms"), 0);
    describe(bucket, 3 * view.step + 1, 0);
    assert_int_equal(term("tokens"), 1);
    assert_int_equal(term("full_in_ms"), 6001);
}

static void key_of(const char *policy, const char *key, char *out)
{
    struct op_member member = {.limit = &policies_get(set, policy)->limits[0], .key = slice_of(key)};
    struct store_key_space space;
    struct slice pieces[STORE_KEY_PIECES];
    limit_here(&view, member.limit, member.key, 0, NOW_US);
    size_t n = store_key_pieces(&member, &view, &(struct store_key_scheme){"rl", STORE_SHARDS}, &space, pieces);
    for (size_t i = 0; i < n; i++) out += sprintf(out, "%.*s", (int)pieces[i].len, (const char *)pieces[i].data);
}

static void the_bucket_of_a_key_is_its_hash_modulo_their_number(void **state)
{
    (void)state;
    char tag[STORE_TAG_LEN + 1] = "";
    store_key_tag(1000 * 256 + 7, STORE_SHARDS, tag);
    assert_string_equal(tag, ":{b007}:");
    store_key_tag(1000 * 256 + 999, 1000, tag);
    assert_string_equal(tag, ":{b999}:");
    store_key_tag(UINT64_MAX, 1, tag);
    assert_string_equal(tag, ":{b000}:");
}

static void keys_have_their_names_in_redis(void **state)
{
    (void)state;
    static const struct policy_spec specs[] = {
        {.name = "login", .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 5, .window_us = 10 * SECOND_US}}},
        {.name = "start", .limits = {{.algo = ALGO_COMPAT_WINDOW_START, .limit = 5, .window_us = 10 * SECOND_US}}},
        {.name = "number", .limits = {{.algo = ALGO_COMPAT_RLAAS_FIXED, .limit = 5, .window_us = 10 * SECOND_US}}},
        {.name = "hit", .limits = {{.algo = ALGO_COMPAT_FIRST_HIT, .limit = 5, .window_us = 10 * SECOND_US}}},
    };
    char text[128];
    policy_set_unref(set);
    set = policies_make(specs, sizeof specs / sizeof specs[0]);
    key_of("login", "k", text);
    assert_int_equal(strncmp(text, "rl:{b", 5), 0);
    assert_string_equal(strchr(text, '}'), "}:fw1:login:k");
    key_of("start", "k", text);
    assert_string_equal(text, "ratelimiter:k:1700000000000");
    key_of("number", "k", text);
    assert_string_equal(text, "rlaas:rate_limit:k:170000000");
    key_of("hit", "k", text);
    assert_string_equal(text, "rate_limit:k");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_algorithm_describes_its_state),
        TEST(windows_say_their_count_and_their_end),
        TEST(a_calendars_window_ends_by_its_clocks),
        TEST(a_log_says_when_its_newest_unit_expires),
        TEST(a_log_that_counts_denials_says_no_more_than_the_limit),
        TEST(buckets_say_their_tokens),
        TEST(the_bucket_of_a_key_is_its_hash_modulo_their_number),
        TEST(keys_have_their_names_in_redis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
