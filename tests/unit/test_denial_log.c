/* test_denial_log.c: which denials are logged: the memory of the last ones, and the bound on lines in a second. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/log_key.h"
#include "policy/policy.h"
#include "server/denial_log.h"

enum { NO_BOUND = UINT16_MAX, SECOND_US = 1000000 };

static struct denial_log denials;
static struct policy *policy, *other;
static int64_t now_us;

static int set_up(void **state)
{
    (void)state;
    memset(&denials, 0, sizeof denials);
    now_us = INT64_C(1000) * SECOND_US;
    policy = policy_new("p", 1);
    other = policy_new("q", 1);
    assert_non_null(policy);
    assert_non_null(other);
    policy->name_hash = 1;
    other->name_hash = 2;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    policy_free(policy);
    policy_free(other);
    return 0;
}

static bool takes_of(const struct policy *of, const char *key)
{
    uint64_t n_held = 0;
    bool taken = denial_log_takes(&denials, of, NULL, slice_of(key), now_us, &n_held);
    assert_int_equal(n_held, 0);
    return taken;
}

static bool takes(int key)
{
    char text[16];
    snprintf(text, sizeof text, "key-%d", key);
    return takes_of(policy, text);
}

static void a_policy_and_key_are_logged_once_in_sixty_seconds(void **state)
{
    (void)state;
    denial_log_set(&denials, DENIALS_FIRST, NO_BOUND);
    assert_true(takes_of(policy, "alice"));
    assert_false(takes_of(policy, "alice"));
    assert_true(takes_of(policy, "bob"));
    assert_true(takes_of(other, "alice"));

    now_us += DENIAL_QUIET_US - 1;
    assert_false(takes_of(policy, "alice")); /* and what was held back does not prolong it */
    now_us += 1;
    assert_true(takes_of(policy, "alice"));
    assert_false(takes_of(policy, "alice"));
    assert_true(takes_of(policy, "bob"));
}

static void the_last_4096_are_remembered_and_the_oldest_is_forgotten_first(void **state)
{
    (void)state;
    denial_log_set(&denials, DENIALS_FIRST, NO_BOUND);
    for (int i = 0; i < DENIALS_REMEMBERED; i++) assert_true(takes(i));
    for (int i = 0; i < DENIALS_REMEMBERED; i++) assert_false(takes(i));

    assert_true(takes(DENIALS_REMEMBERED));
    for (int i = 1; i <= DENIALS_REMEMBERED; i++) assert_false(takes(i));
    assert_true(takes(0));
    assert_true(takes(1));
    assert_false(takes(3));
}

static size_t longest_list(void)
{
    size_t longest = 0;
    for (size_t i = 0; i < DENIALS_REMEMBERED; i++) {
        size_t n = 0;
        for (uint16_t at = denials.heads[i]; at != 0; at = denials.entries[at - 1].next) n++;
        if (n > longest) longest = n;
    }
    return longest;
}

static size_t remembered(void)
{
    size_t n = 0;
    for (size_t i = 0; i < DENIALS_REMEMBERED; i++)
        for (uint16_t at = denials.heads[i]; at != 0; at = denials.entries[at - 1].next) n++;
    return n;
}

static void a_flood_of_keys_leaves_short_lists_and_the_last_4096(void **state)
{
    enum { FLOOD = 200000, SHORT = 16 };
    (void)state;
    denial_log_set(&denials, DENIALS_FIRST, UINT32_MAX);
    for (int i = 0; i < FLOOD; i++) {
        assert_true(takes(i));
        now_us += 10; /* two seconds in all */
    }
    assert_int_equal(remembered(), DENIALS_REMEMBERED);
    assert_true(longest_list() <= SHORT);
    for (int i = FLOOD - DENIALS_REMEMBERED; i < FLOOD; i++) assert_false(takes(i));
}

/* Each key is logged again every 60 s, and so is in the memory many times: lists must not grow from that. */
static void keys_that_come_back_each_minute_do_not_make_lists_long(void **state)
{
    enum { MINUTES = 10000, KEYS = 3 };
    (void)state;
    denial_log_set(&denials, DENIALS_FIRST, NO_BOUND);
    for (int minute = 0; minute < MINUTES; minute++) {
        for (int key = 0; key < KEYS; key++) {
            assert_true(takes(key));
            assert_false(takes(key));
        }
        assert_true(remembered() <= KEYS);
        now_us += DENIAL_QUIET_US;
    }
}

static void no_more_lines_than_asked_for_in_a_second_and_the_rest_is_counted(void **state)
{
    enum { PER_SECOND = 10, DENIED = 1000 };
    (void)state;
    uint64_t n_held, n_lines = 0, n_told = 0;
    denial_log_set(&denials, DENIALS_SAMPLED, PER_SECOND);
    for (int i = 0; i < DENIED; i++) { /* a hundred a second */
        n_held = 0;
        n_lines += denial_log_takes(&denials, policy, NULL, slice_of("alice"), now_us, &n_held);
        n_told += n_held;
        now_us += SECOND_US / 100;
    }
    assert_int_equal(n_lines, PER_SECOND * DENIED / 100);
    assert_int_equal(n_lines + n_told + denials.n_held, DENIED);
}

static void a_key_that_was_held_back_has_its_line_in_a_later_second(void **state)
{
    (void)state;
    uint64_t n_held = 0;
    denial_log_set(&denials, DENIALS_FIRST, 1);
    assert_true(takes_of(policy, "alice"));
    assert_false(takes_of(policy, "bob"));
    assert_false(takes_of(policy, "bob"));
    assert_false(takes_of(policy, "alice")); /* not held back, but known */

    now_us += SECOND_US;
    assert_true(denial_log_takes(&denials, policy, NULL, slice_of("bob"), now_us, &n_held));
    assert_int_equal(n_held, 2);
}

static void the_lines_held_back_last_are_reported_once_their_second_is_over(void **state)
{
    (void)state;
    denial_log_set(&denials, DENIALS_SAMPLED, 1);
    assert_true(takes(1));
    assert_false(takes(2));
    denial_log_look(&denials, now_us + SECOND_US - 1);
    assert_int_equal(denials.n_held, 1); /* the next line tells it */
    denial_log_look(&denials, now_us + SECOND_US);
    assert_int_equal(denials.n_held, 0);
}

/* Keys in lines */

static const char *shown(enum log_keys keys, const char *secret, const char *key)
{
    static char out[LOG_KEY_MAX];
    log_keys_set(keys, LOG_KEYS_CLEAR, secret);
    return log_key(out, slice_of(key));
}

static void a_key_is_hashed_unless_asked_for_otherwise(void **state)
{
    char out[LOG_KEY_MAX], drawn[LOG_KEY_MAX];
    (void)state;
    log_keys_seed(1, 2);
    snprintf(drawn, sizeof drawn, "%s", log_key(out, slice_of("alice"))); /* nothing was set */
    assert_int_equal(strlen(drawn), strlen(" key #0123456789ab"));
    assert_memory_equal(drawn, " key #", 6);
    assert_int_equal(strspn(drawn + 6, "0123456789abcdef"), 12);
    assert_string_equal(shown(LOG_KEYS_HASH, NULL, "alice"), drawn);
    assert_string_not_equal(shown(LOG_KEYS_HASH, NULL, "bob"), drawn);
    assert_string_equal(shown(LOG_KEYS_NONE, NULL, "alice"), "");
    assert_string_equal(shown(LOG_KEYS_CLEAR, NULL, "alice"), " key alice");

    log_keys_seed(1, 3);
    assert_string_not_equal(shown(LOG_KEYS_HASH, NULL, "alice"), drawn);
}

static void the_same_secret_gives_the_same_hash_whatever_was_drawn(void **state)
{
    char first[LOG_KEY_MAX];
    (void)state;
    log_keys_seed(1, 2);
    snprintf(first, sizeof first, "%s", shown(LOG_KEYS_HASH, "open sesame", "alice"));
    log_keys_seed(3, 4);
    assert_string_equal(shown(LOG_KEYS_HASH, "open sesame", "alice"), first);
    assert_string_not_equal(shown(LOG_KEYS_HASH, "open sesam", "alice"), first);
    assert_string_not_equal(shown(LOG_KEYS_HASH, NULL, "alice"), first);
}

static void a_clear_key_is_one_word_of_one_line_and_no_longer_than_its_space(void **state)
{
    char key[2000];
    (void)state;
    assert_string_equal(shown(LOG_KEYS_CLEAR, NULL, "a cost 9\n\\\xc3\xa9"),
                        " key a\\x20cost\\x209\\x0a\\x5c\\xc3\\xa9");
    memset(key, '\n', sizeof key - 1);
    for (size_t len = 0; len < sizeof key - 1; len++) {
        char out[LOG_KEY_MAX];
        size_t n = strlen(log_key(out, (struct slice){(uint8_t *)key, len}));
        assert_true(n < LOG_KEY_MAX);
        if (n != strlen(" key ") + 4 * len) assert_string_equal(out + n - 3, "...");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_policy_and_key_are_logged_once_in_sixty_seconds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_4096_are_remembered_and_the_oldest_is_forgotten_first, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_flood_of_keys_leaves_short_lists_and_the_last_4096, set_up, tear_down),
        cmocka_unit_test_setup_teardown(keys_that_come_back_each_minute_do_not_make_lists_long, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_more_lines_than_asked_for_in_a_second_and_the_rest_is_counted, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_key_that_was_held_back_has_its_line_in_a_later_second, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_lines_held_back_last_are_reported_once_their_second_is_over, set_up,
                                        tear_down),
        cmocka_unit_test(a_key_is_hashed_unless_asked_for_otherwise),
        cmocka_unit_test(the_same_secret_gives_the_same_hash_whatever_was_drawn),
        cmocka_unit_test(a_clear_key_is_one_word_of_one_line_and_no_longer_than_its_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
