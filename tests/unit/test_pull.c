/* test_pull.c: the readers take every encoding of a value, nothing else, and never move on a refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/pull.h"

#define PULL(text) pull_of((const uint8_t *)(text), sizeof(text) - 1)

static void expect_int(struct pull pull, int64_t expected)
{
    int64_t value = 77;
    assert_int_equal(pull_type(&pull) == PULL_INT || pull_type(&pull) == PULL_FLOAT, 1);
    assert_int_equal(pull_int(&pull, &value), 0);
    assert_true(value == expected);
    assert_ptr_equal(pull.at, pull.end);
}

static void expect_no_int(struct pull pull)
{
    const uint8_t *before = pull.at;
    int64_t value = 77;
    assert_int_equal(pull_int(&pull, &value), -1);
    assert_int_equal(value, 77);
    assert_ptr_equal(pull.at, before);
}

static void an_integer_is_read_in_every_encoding(void **state)
{
    (void)state;
    expect_int(PULL("\x05"), 5);
    expect_int(PULL("\xcc\x05"), 5);
    expect_int(PULL("\xcd\x00\x05"), 5);
    expect_int(PULL("\xce\x00\x00\x00\x05"), 5);
    expect_int(PULL("\xcf\x00\x00\x00\x00\x00\x00\x00\x05"), 5);
    expect_int(PULL("\xd0\x05"), 5);
    expect_int(PULL("\xd1\x00\x05"), 5);
    expect_int(PULL("\xd2\x00\x00\x00\x05"), 5);
    expect_int(PULL("\xd3\x00\x00\x00\x00\x00\x00\x00\x05"), 5);
    expect_int(PULL("\xca\x40\xa0\x00\x00"), 5);
    expect_int(PULL("\xcb\x40\x14\x00\x00\x00\x00\x00\x00"), 5);
    expect_int(PULL("\xff"), -1);
    expect_int(PULL("\xd0\xff"), -1);
    expect_int(PULL("\xd1\xff\xff"), -1);
    expect_int(PULL("\xd2\xff\xff\xff\xff"), -1);
    expect_int(PULL("\xd3\xff\xff\xff\xff\xff\xff\xff\xff"), -1);
    expect_int(PULL("\xcb\xbf\xf0\x00\x00\x00\x00\x00\x00"), -1);
    expect_int(PULL("\xcb\x80\x00\x00\x00\x00\x00\x00\x00"), 0);
}

static void an_integer_ends_at_the_largest_exact_double(void **state)
{
    (void)state;
    expect_int(PULL("\xcf\x00\x1f\xff\xff\xff\xff\xff\xff"), EXACT_MAX);
    expect_int(PULL("\xd3\xff\xe0\x00\x00\x00\x00\x00\x01"), -EXACT_MAX);
    expect_int(PULL("\xcb\x43\x3f\xff\xff\xff\xff\xff\xff"), EXACT_MAX);
    expect_no_int(PULL("\xcf\x00\x20\x00\x00\x00\x00\x00\x00"));
    expect_no_int(PULL("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"));
    expect_no_int(PULL("\xd3\xff\xe0\x00\x00\x00\x00\x00\x00"));
    expect_no_int(PULL("\xd3\x80\x00\x00\x00\x00\x00\x00\x00"));
    expect_no_int(PULL("\xcb\x43\x40\x00\x00\x00\x00\x00\x00"));
    expect_no_int(PULL("\xca\x5a\x00\x00\x00"));
}

static void a_float_that_is_not_whole_is_no_integer(void **state)
{
    (void)state;
    expect_no_int(PULL("\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00"));
    expect_no_int(PULL("\xca\x3f\xc0\x00\x00"));
    expect_no_int(PULL("\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"));
    expect_no_int(PULL("\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00"));
    expect_no_int(PULL("\xcb\xff\xf0\x00\x00\x00\x00\x00\x00"));
    expect_no_int(PULL("\xca\x7f\x80\x00\x00"));
    expect_no_int(PULL("\xcb\x00\x00\x00\x00\x00\x00\x00\x01"));
}

static void other_types_are_no_integer(void **state)
{
    (void)state;
    expect_no_int(PULL("\xc0"));
    expect_no_int(PULL("\xc3"));
    expect_no_int(PULL("\xa1\x31"));
    expect_no_int(PULL("\x91\x01"));
    expect_no_int(PULL("\xd4\x00\x01"));
    expect_no_int(PULL(""));
}

static void expect_uint64(struct pull pull, uint64_t expected)
{
    uint64_t value = 77;
    assert_int_equal(pull_uint64(&pull, &value), 0);
    assert_true(value == expected);
    assert_ptr_equal(pull.at, pull.end);
}

static void expect_msgid(struct pull pull, uint64_t expected)
{
    uint64_t value = 77;
    assert_int_equal(pull_msgid(&pull, &value), 0);
    assert_true(value == expected);
    assert_ptr_equal(pull.at, pull.end);
}

static void a_msgid_may_be_a_whole_float_up_to_2_to_53(void **state)
{
    (void)state;
    expect_msgid(PULL("\x07"), 7);
    expect_msgid(PULL("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), UINT64_MAX);
    expect_msgid(PULL("\xca\x4f\x00\x00\x00"), UINT64_C(1) << 31);
    expect_msgid(PULL("\xcb\x80\x00\x00\x00\x00\x00\x00\x00"), 0); /* -0.0 */
    expect_msgid(PULL("\xcb\x43\x3f\xff\xff\xff\xff\xff\xff"), (UINT64_C(1) << 53) - 1);
    expect_msgid(PULL("\xcb\x43\x40\x00\x00\x00\x00\x00\x00"), UINT64_C(1) << 53);

    struct pull refused[] = {
        PULL("\xcb\x43\x40\x00\x00\x00\x00\x00\x01"), /* 2^53 + 2 */
        PULL("\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00"), /* 0.5 */
        PULL("\xca\xbf\x80\x00\x00"),                 /* -1.0 */
        PULL("\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"), /* NaN */
        PULL("\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00"), /* infinity */
        PULL("\xff"),
        PULL("\xc0"),
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        uint64_t value;
        const uint8_t *before = refused[i].at;
        assert_int_equal(pull_msgid(&refused[i], &value), -1);
        assert_ptr_equal(refused[i].at, before);
    }
}

static void a_uint64_is_any_integer_of_64_bits_and_no_float(void **state)
{
    (void)state;
    expect_uint64(PULL("\x00"), 0);
    expect_uint64(PULL("\xd0\x7f"), 127);
    expect_uint64(PULL("\xd3\x7f\xff\xff\xff\xff\xff\xff\xff"), INT64_MAX);
    expect_uint64(PULL("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), UINT64_MAX);
    struct pull refused[] = {PULL("\xff"), PULL("\xd0\x80"), PULL("\xcb\x40\x14\x00\x00\x00\x00\x00\x00"), PULL("\xc0"),
                             PULL("\xa1\x31")};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        uint64_t value;
        const uint8_t *before = refused[i].at;
        assert_int_equal(pull_uint64(&refused[i], &value), -1);
        assert_ptr_equal(refused[i].at, before);
    }
}

static void text_is_str_or_bin_of_any_length_form(void **state)
{
    (void)state;
    struct pull texts[] = {
        PULL("\xa2hi"),     PULL("\xd9\x02hi"),     PULL("\xda\x00\x02hi"),        PULL("\xdb\x00\x00\x00\x02hi"),
        PULL("\xc4\x02hi"), PULL("\xc5\x00\x02hi"), PULL("\xc6\x00\x00\x00\x02hi")};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct slice text;
        assert_int_equal(pull_type(&texts[i]), PULL_TEXT);
        assert_int_equal(pull_is_bin(&texts[i]), i >= 4);
        assert_int_equal(pull_text(&texts[i], &text), 0);
        assert_true(slice_is(text, "hi"));
        assert_int_equal(pull_type(&texts[i]), PULL_END);
    }
    struct pull bytes = PULL("\xa4\x00\xff\r\n");
    struct slice text;
    assert_int_equal(pull_text(&bytes, &text), 0);
    assert_int_equal(text.len, 4);
}

static void nil_and_bool_are_only_themselves(void **state)
{
    (void)state;
    struct pull pull = PULL("\xc0\xc2\xc3\x00");
    bool value = true;
    assert_int_equal(pull_bool(&pull, &value), -1);
    assert_int_equal(pull_nil(&pull), 0);
    assert_int_equal(pull_nil(&pull), -1);
    assert_int_equal(pull_type(&pull), PULL_BOOL);
    assert_int_equal(pull_bool(&pull, &value), 0);
    assert_false(value);
    assert_int_equal(pull_bool(&pull, &value), 0);
    assert_true(value);
    assert_int_equal(pull_bool(&pull, &value), -1);
    assert_int_equal(pull_nil(&pull), -1);
}

static void containers_are_entered(void **state)
{
    (void)state;
    struct pull pull = PULL("\x92\x81\xa1k\x07\xdc\x00\x01\xc0");
    uint32_t n;
    int64_t value;
    struct slice key;
    assert_int_equal(pull_map(&pull, &n), -1);
    assert_int_equal(pull_array(&pull, &n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(pull_array(&pull, &n), -1);
    assert_int_equal(pull_map(&pull, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(pull_text(&pull, &key), 0);
    assert_int_equal(pull_int(&pull, &value), 0);
    assert_int_equal(pull_array(&pull, &n), 0);
    assert_int_equal(pull_nil(&pull), 0);
    assert_int_equal(pull_type(&pull), PULL_END);
}

static void skip_goes_over_one_value_whatever_it_holds(void **state)
{
    (void)state;
    struct pull pull = PULL("\x93\x82\xa1k\x91\xc0\xc3\xca\x00\x00\x00\x00\xc7\x02\x05xy\xd8\x05"
                            "0123456789abcdef\x2a");
    int64_t value;
    assert_int_equal(pull_skip(&pull), 0);
    assert_int_equal(pull_int(&pull, &value), 0);
    assert_int_equal(value, 42);
    assert_int_equal(pull_skip(&pull), -1);
}

static void nothing_is_read_past_the_end(void **state)
{
    (void)state;
    const uint8_t message[] = "\x95\x81\xa2kk\xcd\x01\x00\xdb\x00\x00\x00\x03"
                              "abc\xcb\x40\x14\x00\x00\x00\x00\x00\x00\xc8\x00\x01\x05x\xdf\x00\x00\x00\x01\xc2\xc0";
    for (size_t len = 0; len < sizeof message - 1; len++) {
        uint8_t cut[sizeof message]; /* exactly sized, so that the sanitizer sees a byte too many */
        memcpy(cut + sizeof cut - len, message, len);
        struct pull pull = pull_of(cut + sizeof cut - len, len);
        assert_int_equal(pull_skip(&pull), -1);
    }
    struct pull whole = PULL("\x91\xc1");
    assert_int_equal(pull_skip(&whole), -1);
}

static void a_declared_size_is_not_believed(void **state)
{
    (void)state;
    struct pull bombs[] = {PULL("\xdd\xff\xff\xff\xff\x00"), PULL("\xdf\x80\x00\x00\x00\x00"),
                           PULL("\xdb\xff\xff\xff\xff\x00"), PULL("\xc9\xff\xff\xff\xff\x00\x00"),
                           PULL("\x82\x00\x00\x00")};
    for (size_t i = 0; i < sizeof bombs / sizeof bombs[0]; i++) {
        uint32_t n;
        struct slice text;
        assert_int_equal(pull_type(&bombs[i]), PULL_END);
        assert_int_equal(pull_array(&bombs[i], &n), -1);
        assert_int_equal(pull_map(&bombs[i], &n), -1);
        assert_int_equal(pull_text(&bombs[i], &text), -1);
        assert_int_equal(pull_skip(&bombs[i]), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_integer_is_read_in_every_encoding),
        cmocka_unit_test(an_integer_ends_at_the_largest_exact_double),
        cmocka_unit_test(a_float_that_is_not_whole_is_no_integer),
        cmocka_unit_test(other_types_are_no_integer),
        cmocka_unit_test(a_uint64_is_any_integer_of_64_bits_and_no_float),
        cmocka_unit_test(a_msgid_may_be_a_whole_float_up_to_2_to_53),
        cmocka_unit_test(text_is_str_or_bin_of_any_length_form),
        cmocka_unit_test(nil_and_bool_are_only_themselves),
        cmocka_unit_test(containers_are_entered),
        cmocka_unit_test(skip_goes_over_one_value_whatever_it_holds),
        cmocka_unit_test(nothing_is_read_past_the_end),
        cmocka_unit_test(a_declared_size_is_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
