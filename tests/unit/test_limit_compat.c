/* test_limit_compat.c: the presets of existing limiters, decided in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fakes/one_limit.h"

static const enum algo presets[] = {ALGO_COMPAT_WINDOW_START, ALGO_COMPAT_RLAAS_FIXED,     ALGO_COMPAT_RLAAS_SLIDING,
                                    ALGO_COMPAT_FIRST_HIT,    ALGO_COMPAT_ENDPOINT_WINDOW, ALGO_COMPAT_ENDPOINT_LOG};
enum { N_PRESETS = sizeof presets / sizeof presets[0], WINDOW_US = 10000000 };
static const int64_t start_us = INT64_C(1700000000000000); /* a multiple of the window */

static void every_preset_admits_the_limit_and_says_when_again(void **state)
{
    (void)state;
    for (int i = 0; i < N_PRESETS; i++) {
        struct one_limit one = one_limit(presets[i], 3, WINDOW_US, 0, false);
        for (int64_t n = 0; n < 3; n++) {
            struct decision allowed = one_check(&one, start_us + 500 + n, 1);
            assert_true(allowed.allowed);
            assert_int_equal(allowed.remaining, 2 - n);
            assert_int_equal(allowed.retry_after_ms, 0);
            assert_int_equal(allowed.reset_after_ms, 10000);
        }
        struct decision peek = one_peek(&one, start_us + 2000000, 1), denied = one_check(&one, start_us + 2000000, 1);
        assert_memory_equal(&peek, &denied, sizeof peek);
        assert_false(denied.allowed);
        assert_int_equal(denied.remaining, 0);
        assert_true(denied.retry_after_ms == 8000 || presets[i] == ALGO_COMPAT_ENDPOINT_LOG);
        assert_false(one_peek(&one, start_us + 2000000 + (denied.retry_after_ms - 1) * 1000, 1).allowed);
        assert_true(one_check(&one, start_us + 2000000 + denied.retry_after_ms * 1000, 1).allowed);
        one_limit_fini(&one);
    }
}

static void windows_in_the_keys_name_count_every_request(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct one_limit one = one_limit(presets[i], 2, WINDOW_US, 0, false);
        for (int n = 0; n < 5; n++) one_check(&one, start_us, 1);
        assert_int_equal(one.state.window.count, 5);
        struct decision denied = one_check(&one, start_us, 1);
        assert_int_equal(denied.retry_after_ms, denied.reset_after_ms);
        one_limit_fini(&one);
    }
}

static void first_hit_does_not_count_denials(void **state)
{
    (void)state;
    struct one_limit one = one_limit(ALGO_COMPAT_FIRST_HIT, 2, WINDOW_US, 0, false);
    for (int n = 0; n < 5; n++) one_check(&one, start_us + n, 1);
    assert_int_equal(one.state.span.count, 2);
    one_limit_fini(&one);
}

static void endpoint_window_counts_one_denial(void **state)
{
    (void)state;
    struct one_limit one = one_limit(ALGO_COMPAT_ENDPOINT_WINDOW, 2, WINDOW_US, 0, false);
    for (int n = 0; n < 5; n++) one_check(&one, start_us + n, 1);
    assert_int_equal(one.state.span.count, 3);
    one_limit_change(&one, 3, WINDOW_US, 0);
    assert_false(one_check(&one, start_us, 1).allowed);
    assert_int_equal(one.state.span.count, 4);
    one_limit_fini(&one);
}

/* Denials keep a counting log full: only a pause of a window empties it. */
static void logs_differ_in_what_a_denial_does(void **state)
{
    (void)state;
    struct one_limit sliding = one_limit(ALGO_COMPAT_RLAAS_SLIDING, 2, WINDOW_US, 0, false);
    struct one_limit counting = one_limit(ALGO_COMPAT_ENDPOINT_LOG, 2, WINDOW_US, 0, false);
    int n_sliding = 0, n_counting = 0;
    for (int64_t t = 0; t < 3 * WINDOW_US; t += WINDOW_US / 4) {
        n_sliding += one_check(&sliding, start_us + t, 1).allowed;
        n_counting += one_check(&counting, start_us + t, 1).allowed;
    }
    assert_int_equal(n_sliding, 6);
    assert_int_equal(n_counting, 2);
    one_limit_fini(&sliding);
    one_limit_fini(&counting);
}

/* Another limiter's host, whose clock is ahead, has written the newest entry: it stays the last to leave. */
static void a_charge_leaves_an_entry_ahead_of_now_the_newest(void **state)
{
    (void)state;
    static const enum algo logs[] = {ALGO_COMPAT_RLAAS_SLIDING, ALGO_COMPAT_ENDPOINT_LOG};
    for (int i = 0; i < 2; i++) {
        struct one_limit one = one_limit(logs[i], 3, WINDOW_US, 0, false);
        struct decision ret;
        struct view view;
        limit_here(&view, one.limit, (struct slice){0}, 0, start_us);
        limit_report(&view, 1, start_us + 4000000, 0);
        assert_int_equal(limit_decide(&view, 1, true, true, &ret), 1);
        assert_int_equal(view.extra, start_us + 4000000);
        assert_int_equal(ret.remaining, 1);
        assert_int_equal(ret.reset_after_ms, 14000);
        one_limit_fini(&one);
    }
}

static void what_the_originals_cannot_do_is_refused(void **state)
{
    (void)state;
    char text[256];
    for (int i = 0; i < N_PRESETS; i++) {
        bool in_ms = presets[i] == ALGO_COMPAT_WINDOW_START || presets[i] == ALGO_COMPAT_RLAAS_SLIDING;
        assert_null(one_limit_fault(presets[i], 5, 2000000, 0, false, text, sizeof text));
        assert_true((one_limit_fault(presets[i], 5, 1500000, 0, false, text, sizeof text) == NULL) == in_ms);
        assert_non_null(one_limit_fault(presets[i], 5, 1500, 0, false, text, sizeof text));
        assert_non_null(one_limit_fault(presets[i], 5, 2000000, 5, false, text, sizeof text));
        assert_non_null(one_limit_fault(presets[i], INT64_C(1) << 33, 2000000, 0, false, text, sizeof text));
    }
}

static void the_keys_are_the_foreign_ones(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "ratelimiter:", "rlaas:rate_limit:", "rlaas:rate_limit:", "rate_limit:", "rate_limit:", "rate_limit:"};
    static const char *const names[] = {"window-start-millis", "rlaas-fixed",     "rlaas-sliding",
                                        "first-hit",           "endpoint-window", "endpoint-log"};
    for (int i = 0; i < N_PRESETS; i++) {
        struct one_limit one = one_limit(presets[i], 1, WINDOW_US, 0, false);
        assert_string_equal(one.limit->key_head, heads[i]);
        assert_int_equal(compat_of_name(names[i]), presets[i]);
        assert_int_equal(algo_of_name(names[i]), -1);
        one_limit_fini(&one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_preset_admits_the_limit_and_says_when_again),
        cmocka_unit_test(windows_in_the_keys_name_count_every_request),
        cmocka_unit_test(first_hit_does_not_count_denials),
        cmocka_unit_test(endpoint_window_counts_one_denial),
        cmocka_unit_test(logs_differ_in_what_a_denial_does),
        cmocka_unit_test(a_charge_leaves_an_entry_ahead_of_now_the_newest),
        cmocka_unit_test(what_the_originals_cannot_do_is_refused),
        cmocka_unit_test(the_keys_are_the_foreign_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
