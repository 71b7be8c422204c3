/* test_top_keys.c: counts of keys against exact ones: no error beyond N / m, and no frequent key missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/random.h"
#include "server/top_keys.h"

enum { KEYS_MAX = 20000, WINDOW_US = 1000000 };

static struct top_keys top;
static uint64_t exact[KEYS_MAX], n_units;
static int64_t now_us;

static int set_up(void **state)
{
    (void)state;
    memset(&top, 0, sizeof top);
    memset(exact, 0, sizeof exact);
    n_units = 0;
    now_us = WINDOW_US;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    top_keys_fini(&top);
    return 0;
}

/* A key's hash that shows which it is. */
static uint64_t hash_of(uint64_t key)
{
    return random_mix(key + 1);
}

static void add(uint64_t key, uint64_t units)
{
    bool is_new = false;
    struct top_row *row = top_keys_add(&top, hash_of(key), units, now_us, &is_new);
    if (is_new) row->key.len = (uint32_t)key;
    assert_int_equal(row->key.len, key);
    exact[key] += units;
    n_units += units;
}

static const struct top_row *row_of(const struct top_table *table, uint64_t key)
{
    for (uint32_t i = 0; i < table->n; i++)
        if (table->rows[i].hash == hash_of(key)) return &table->rows[i];
    return NULL;
}

/* What the paper promises, for each row and for each key that is not there. */
static void assert_bounds(uint64_t n_keys)
{
    const struct top_table *table = top_keys_table(&top, TOP_RUNNING);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < table->n; i++) {
        const struct top_row *row = &table->rows[i];
        uint64_t is = exact[row->key.len];
        assert_true(row->count >= is && is >= row->count - row->error);
        assert_true(row->error <= n_units / table->max);
        sum += row->count;
    }
    assert_int_equal(sum, n_units);
    for (uint64_t key = 0; key < n_keys; key++)
        if (exact[key] > n_units / table->max) assert_non_null(row_of(table, key));
}

static void errors_stay_within_n_divided_by_m(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 7, 64, 1024};
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int trace = 0; trace < 6; trace++) {
            memset(exact, 0, sizeof exact);
            n_units = 0;
            assert_int_equal(top_keys_set(&top, 0, WINDOW_US), 0);
            assert_int_equal(top_keys_set(&top, sizes[i], WINDOW_US), 0);
            uint64_t n_keys = 1 + random_below(&seed, KEYS_MAX);
            for (int n = 0; n < 30000; n++) {
                /* some keys are frequent: the product of two is small more often */
                uint64_t key = random_below(&seed, n_keys);
                if (trace % 2 == 0) key = key * random_below(&seed, n_keys) / n_keys;
                add(key, trace < 4 ? 1 : 1 + random_below(&seed, 100));
            }
            assert_bounds(n_keys);
        }
    }
}

static void keys_that_all_differ_leave_no_frequent_one_out(void **state)
{
    (void)state;
    assert_int_equal(top_keys_set(&top, 16, WINDOW_US), 0);
    for (uint64_t key = 1; key < KEYS_MAX; key++) {
        add(key, 1);
        add(0, 1); /* half of all */
    }
    assert_bounds(KEYS_MAX);
    assert_true(row_of(top_keys_table(&top, TOP_RUNNING), 0)->count >= KEYS_MAX - 1);
}

static void fewer_keys_than_rows_are_counted_exactly(void **state)
{
    (void)state;
    assert_int_equal(top_keys_set(&top, 1024, WINDOW_US), 0);
    for (uint64_t n = 0; n < 50000; n++) add(n % 1024, 1 + n % 3);
    const struct top_table *table = top_keys_table(&top, TOP_RUNNING);
    assert_int_equal(table->n, 1024);
    for (uint32_t i = 0; i < table->n; i++) {
        assert_int_equal(table->rows[i].error, 0);
        assert_int_equal(table->rows[i].count, exact[table->rows[i].key.len]);
    }
}

static void a_window_is_complete_until_the_next_one_ends(void **state)
{
    (void)state;
    assert_int_equal(top_keys_set(&top, 8, WINDOW_US), 0);
    add(1, 5);
    assert_int_equal(top_keys_table(&top, TOP_COMPLETE)->n, 0);

    now_us += WINDOW_US; /* it ends with the next check */
    add(2, 3);
    assert_int_equal(row_of(top_keys_table(&top, TOP_COMPLETE), 1)->count, 5);
    assert_int_equal(top_keys_table(&top, TOP_RUNNING)->n, 1);

    now_us += WINDOW_US; /* or with a look */
    top_keys_look(&top, now_us);
    assert_null(row_of(top_keys_table(&top, TOP_COMPLETE), 1));
    assert_int_equal(row_of(top_keys_table(&top, TOP_COMPLETE), 2)->count, 3);
    assert_int_equal(top_keys_table(&top, TOP_RUNNING)->n, 0);

    add(3, 1);
    uint64_t number = top.number;
    now_us += 5 * WINDOW_US / 2; /* nothing was denied in the last one */
    top_keys_look(&top, now_us);
    assert_int_equal(top_keys_table(&top, TOP_COMPLETE)->n, 0);
    assert_true(top.number > number);
    now_us += WINDOW_US / 2 - 1; /* windows go on in their own time */
    number = top.number;
    top_keys_look(&top, now_us);
    assert_int_equal(top.number, number);
    now_us++;
    top_keys_look(&top, now_us);
    assert_int_equal(top.number, number + 1);
}

static void another_size_begins_anew_and_without_memory_it_stays(void **state)
{
    (void)state;
    assert_int_equal(top_keys_set(&top, 8, WINDOW_US), 0);
    add(1, 5);
    for (uint64_t nth = 1; nth <= 6; nth++) {
        mem_fail_nth(nth);
        assert_int_equal(top_keys_set(&top, 16, WINDOW_US), -1);
        mem_fail_nth(0);
        assert_int_equal(top_keys_table(&top, TOP_RUNNING)->n, 1);
    }
    assert_int_equal(top_keys_set(&top, 16, WINDOW_US), 0);
    assert_int_equal(top_keys_table(&top, TOP_RUNNING)->n, 0);
    assert_int_equal(top_keys_set(&top, 0, WINDOW_US), 0);
    assert_false(top_keys_is_on(&top));
    top_keys_look(&top, now_us + 10 * WINDOW_US);
}

static void a_row_stays_in_its_place_while_its_key_is_counted(void **state)
{
    (void)state;
    uint64_t seed = 11;
    assert_int_equal(top_keys_set(&top, 64, WINDOW_US), 0);
    for (int n = 0; n < 100; n++) add(0, 1);
    const struct top_row *row = row_of(top_keys_table(&top, TOP_RUNNING), 0);
    for (int n = 0; n < 3000; n++) {
        add(1 + random_below(&seed, 1000), 1);
        add(0, 1);
    }
    assert_ptr_equal(row, row_of(top_keys_table(&top, TOP_RUNNING), 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(errors_stay_within_n_divided_by_m, set_up, tear_down),
        cmocka_unit_test_setup_teardown(keys_that_all_differ_leave_no_frequent_one_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fewer_keys_than_rows_are_counted_exactly, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_window_is_complete_until_the_next_one_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_size_begins_anew_and_without_memory_it_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_row_stays_in_its_place_while_its_key_is_counted, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
