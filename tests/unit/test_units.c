/* test_units.c: durations, sizes, counts and modes as people write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/units.h"

static void assert_says(const char *wrong, const char *advice)
{
    assert_non_null(wrong);
    if (strstr(wrong, advice) == NULL) fail_msg("'%s' does not say '%s'", wrong, advice);
}

static void durations_are_exact_microseconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t us;
    } table[] = {{"500us", 500},
                 {"20ms", 20000},
                 {"10s", 10000000},
                 {"1m", 60000000},
                 {"1h", INT64_C(3600000000)},
                 {"1d", INT64_C(86400000000)},
                 {"0", 0},
                 {"0s", 0},
                 {"00020ms", 20000}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int64_t us = -1;
        assert_null(units_duration(table[i].text, &us));
        assert_int_equal(us, table[i].us);
    }
}

static void a_number_without_its_unit_is_refused(void **state)
{
    (void)state;
    int64_t value = 7;
    assert_says(units_duration("20", &value), "without its unit");
    assert_says(units_size("64", &value), "without its unit");
    assert_int_equal(value, 7);
}

static void what_is_no_duration_or_size_is_refused(void **state)
{
    (void)state;
    static const char *const durations[] = {"",    "s",     "-1s", "1.5s", "1,5s", " 1s",
                                            "1 s", "1m30s", "10S", "1w",   "0x10s"};
    static const char *const sizes[] = {"", "KiB", "-1B", "1.5MiB", "64KB", "64k", "64 KiB"};
    int64_t value = 7;
    for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++)
        assert_says(units_duration(durations[i], &value), "not a duration");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) assert_says(units_size(sizes[i], &value), "not a size");
    assert_int_equal(value, 7);
}

/* Earlier each of these was "not a duration; write a whole number and its unit". */
static void what_is_too_large_is_called_so(void **state)
{
    static const char *const durations[] = {"99999999999999999999s", "106751992d", "9223372036854775807d"};
    static const char *const sizes[] = {"99999999999999999999B", "8589934592GiB", "9223372036854775807GiB"};
    (void)state;
    int64_t value = 7;
    for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++) {
        assert_says(units_duration(durations[i], &value), "too large; write at most 106751991d");
        assert_says(units_size(sizes[i], &value), "too large; write at most 8589934591GiB");
    }
    assert_int_equal(value, 7);

    assert_null(units_duration("106751991d", &value));
    assert_null(units_size("8589934591GiB", &value));
    assert_says(units_duration("99999999999999999999", &value), "without its unit");
    assert_says(units_size("99999999999999999999x", &value), "not a size");
}

static void sizes_are_exact_bytes(void **state)
{
    (void)state;
    int64_t bytes;
    assert_null(units_size("1B", &bytes));
    assert_int_equal(bytes, 1);
    assert_null(units_size("64KiB", &bytes));
    assert_int_equal(bytes, 65536);
    assert_null(units_size("3MiB", &bytes));
    assert_int_equal(bytes, 3 << 20);
    assert_null(units_size("8GiB", &bytes));
    assert_int_equal(bytes, INT64_C(8) << 30);
}

static void counts_are_digits_only(void **state)
{
    (void)state;
    int64_t value;
    assert_null(units_count("0", &value));
    assert_null(units_count("9223372036854775807", &value));
    assert_true(value == INT64_MAX);
    assert_says(units_count("1e3", &value), "digits only");
    assert_says(units_count("-1", &value), "digits only");
    assert_says(units_count("1_000", &value), "digits only");
    assert_says(units_count("9223372036854775808", &value), "digits only");
    assert_says(units_count("", &value), "digits only");
}

static void truth_is_spelled_out(void **state)
{
    (void)state;
    int64_t truth = 0;
    assert_null(units_bool("true", &truth));
    assert_true(truth);
    assert_null(units_bool("false", &truth));
    assert_false(truth);
    assert_says(units_bool("yes", &truth), "write one of the two");
    assert_says(units_bool("True", &truth), "write one of the two");
}

static void a_date_is_a_day_of_the_calendar(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t number;
    } good[] = {{"2026-01-31", 20260131},
                {"0001-01-01", 10101},
                {"9999-12-31", 99991231},
                {"2000-02-29", 20000229},
                {"2024-02-29", 20240229}};
    static const char *const no_days[] = {"2026-02-29", "1900-02-29", "0000-01-01", "2026-04-31",
                                          "2026-00-10", "2026-13-01", "2026-01-00"};
    static const char *const no_dates[] = {"",         "31",         "2026-1-31", "2026-01-31T00:00", "2026-01-31 ",
                                           "26-01-31", "2026/01/31", "+026-01-31"};
    int64_t number = -1;
    for (size_t i = 0; i < sizeof no_days / sizeof no_days[0]; i++)
        assert_says(units_date(no_days[i], &number), "no day of the calendar");
    for (size_t i = 0; i < sizeof no_dates / sizeof no_dates[0]; i++)
        assert_says(units_date(no_dates[i], &number), "no date; write year");
    assert_int_equal(number, -1);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_null(units_date(good[i].text, &number));
        assert_int_equal(number, good[i].number);
    }
}

static void a_percentage_has_its_sign(void **state)
{
    (void)state;
    int64_t percent;
    assert_null(units_percent("80%", &percent));
    assert_int_equal(percent, 80);
    static const char *const wrong[] = {"80", "%", "", "8.5%", "-1%", "80 %", "80%%", "99999999999999999999%"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_says(units_percent(wrong[i], &percent), "e.g. 80%");
}

static void a_mode_is_octal(void **state)
{
    (void)state;
    int64_t mode;
    assert_null(units_mode("0660", &mode));
    assert_int_equal(mode, 0660);
    assert_null(units_mode("600", &mode));
    assert_int_equal(mode, 0600);
    assert_says(units_mode("1660", &mode), "octal");
    assert_says(units_mode("0o660", &mode), "octal");
    assert_says(units_mode("rw-rw----", &mode), "octal");
    assert_says(units_mode("068", &mode), "octal");
    assert_says(units_mode("", &mode), "octal");
}

static void what_is_printed_parses_back(void **state)
{
    (void)state;
    static const int64_t values[] = {0, 1, 999, 1000, 1500, 60000000, 90000000, INT64_C(86400000000), INT64_MAX};
    char text[UNITS_TEXT_MAX];
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        int64_t back = -1;
        assert_null(units_duration(units_print_duration(text, values[i]), &back));
        assert_true(back == values[i]);
        assert_null(units_size(units_print_size(text, values[i]), &back));
        assert_true(back == values[i]);
    }
    assert_string_equal(units_print_duration(text, 90000000), "90s");
    assert_string_equal(units_print_duration(text, INT64_C(7200000000)), "2h");
    assert_string_equal(units_print_size(text, 65536), "64KiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_exact_microseconds),
        cmocka_unit_test(a_number_without_its_unit_is_refused),
        cmocka_unit_test(what_is_no_duration_or_size_is_refused),
        cmocka_unit_test(what_is_too_large_is_called_so),
        cmocka_unit_test(sizes_are_exact_bytes),
        cmocka_unit_test(counts_are_digits_only),
        cmocka_unit_test(truth_is_spelled_out),
        cmocka_unit_test(a_date_is_a_day_of_the_calendar),
        cmocka_unit_test(a_percentage_has_its_sign),
        cmocka_unit_test(a_mode_is_octal),
        cmocka_unit_test(what_is_printed_parses_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
