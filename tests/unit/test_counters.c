/* test_counters.c: rows of a group of counters, and several instances of one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/counters.h"

#define BOXES_COUNTERS(COUNTER, GAUGE)                                                                                 \
    COUNTER(boxes_red, "boxes painted red", "boxes_painted", "colour=\"red\"")                                         \
    COUNTER(boxes_blue, "boxes painted blue", "boxes_painted", "colour=\"blue\"")                                      \
    GAUGE(boxes, "boxes there are")

COUNTERS_DECLARE(boxes, BOXES_COUNTERS);
COUNTERS_DEFINE(boxes, BOXES_COUNTERS);

static void a_row_keeps_its_name_kind_help_family_and_labels(void **state)
{
    (void)state;
    const struct counter_row *row = boxes_counter_group.rows;
    assert_int_equal(boxes_counter_group.n, 3);
    assert_string_equal(row[0].name, "boxes_red");
    assert_string_equal(row[0].help, "boxes painted red");
    assert_string_equal(row[0].family, "boxes_painted");
    assert_string_equal(row[0].labels, "colour=\"red\"");
    assert_int_equal(row[0].kind, KIND_COUNTER);
    assert_int_equal(row[2].kind, KIND_GAUGE);
    assert_null(row[2].family);
}

static void instances_of_a_group_add_up_until_they_are_removed(void **state)
{
    (void)state;
    struct boxes_counters first = {.boxes_blue = 2}, second = {.boxes_blue = 3};
    struct counter_group one, two;
    boxes_counters.boxes_blue = 1;
    counters_add(&boxes_counter_group, &one, (uint64_t *)(void *)&first, "hall=\"1\"");
    counters_add(&boxes_counter_group, &two, (uint64_t *)(void *)&second, "hall=\"2\"");
    assert_int_equal(counters_value(&boxes_counter_group, 1), 6);
    assert_string_equal(boxes_counter_group.other->labels, "hall=\"2\"");

    counters_remove(&boxes_counter_group, &one);
    assert_int_equal(counters_value(&boxes_counter_group, 1), 4);
    counters_remove(&boxes_counter_group, &two);
    assert_int_equal(counters_value(&boxes_counter_group, 1), 1);
    assert_null(boxes_counter_group.other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_keeps_its_name_kind_help_family_and_labels),
        cmocka_unit_test(instances_of_a_group_add_up_until_they_are_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
