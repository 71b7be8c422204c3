/* test_line.c: a text in parts, and what becomes of one that is too long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/line.h"

static void what_fits_is_whole(void **state)
{
    (void)state;
    char out[8] = "before";
    struct line line = line_of(out, sizeof out);
    assert_string_equal(out, "");
    line_add(&line, "%d", 12);
    line_add(&line, "%s", "34567");
    assert_string_equal(out, "1234567");
    assert_int_equal(line.len, 7);
    assert_false(line.is_cut);
}

static void what_does_not_fit_is_cut_off_once_and_for_all(void **state)
{
    (void)state;
    char out[8];
    struct line line = line_of(out, sizeof out);
    line_add(&line, "%s", "123456");
    line_add(&line, "%s", "789");
    assert_true(line.is_cut);
    line_add(&line, "%s", "x");
    assert_string_equal(out, "1234567");
    assert_int_equal(line.len, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_whole),
        cmocka_unit_test(what_does_not_fit_is_cut_off_once_and_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
