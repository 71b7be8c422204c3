/* test_histogram.c: quantiles against sorted samples, and every edge of a bucket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/histogram.h"
#include "base/latency.h"

static struct histogram histogram;

static int set_up(void **state)
{
    (void)state;
    memset(&histogram, 0, sizeof histogram);
    memset(latencies, 0, sizeof latencies);
    return 0;
}

static void a_bound_of_two_digits_is_an_edge(void **state)
{
    (void)state;
    for (int64_t power = 1; power <= 10000000; power *= 10) {
        for (int64_t digits = 10; digits < 100; digits++) {
            int64_t bound = digits * power;
            memset(&histogram, 0, sizeof histogram);
            histogram_add(&histogram, bound - 1, 3);
            histogram_add(&histogram, bound, 5);
            histogram_add_run(&histogram);
            assert_int_equal(histogram_below(&histogram, bound), 3);
            assert_int_equal(histogram.n, 8);
            assert_int_equal(histogram.sum_us, 8 * bound - 3);
        }
    }
}

static void what_is_too_long_or_negative_is_in_the_outer_buckets(void **state)
{
    (void)state;
    histogram_add(&histogram, INT64_C(5000000000000), 1);
    histogram_add(&histogram, -7, 1);
    histogram_add_run(&histogram);
    assert_int_equal(histogram.buckets[HISTOGRAM_BUCKETS - 1], 1);
    assert_int_equal(histogram.buckets[0], 1);
    assert_int_equal(histogram.sum_us, INT64_C(5000000000000));
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void a_quantile_is_at_most_a_tenth_above_the_sample(void **state)
{
    static const unsigned of_thousand[] = {1, 500, 900, 990, 999, 1000};
    static int64_t samples[10000];
    uint64_t random = 12345;
    (void)state;
    for (size_t i = 0; i < 10000; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        samples[i] = (int64_t)((random >> 33) % 10) << ((random >> 50) % 14);
        histogram_add(&histogram, samples[i], 1);
    }
    histogram_add_run(&histogram);
    qsort(samples, 10000, sizeof samples[0], by_value);

    for (size_t i = 0; i < 6; i++) {
        int64_t exact = samples[of_thousand[i] * 10 - 1], got = histogram_quantile(&histogram, of_thousand[i]);
        assert_true(got >= exact && got * 10 <= exact * 11);
    }
}

static void quantiles_forget_what_is_older_than_two_minutes(void **state)
{
    (void)state;
    histogram_add(&histogram, 5000, 10);
    histogram_minute_passed(&histogram);
    histogram_add(&histogram, 50, 10);
    histogram_add_run(&histogram);
    assert_int_equal(histogram_quantile(&histogram, 1000), 5099);
    histogram_minute_passed(&histogram);
    assert_int_equal(histogram_quantile(&histogram, 1000), 50);
    histogram_minute_passed(&histogram);
    assert_int_equal(histogram_quantile(&histogram, 1000), 0);
    assert_int_equal(histogram.n, 20);
}

static void each_decision_of_a_tick_is_counted_from_its_read_to_the_end_of_the_tick(void **state)
{
    (void)state;
    for (int64_t read_us = 1000; read_us < 1200; read_us++) { /* more reads than are noted at once */
        latency_decided(read_us, 2);
        latency_decided(read_us, 1);
    }
    latency_tick_ended(900, 1300);
    for (int i = 0; i < N_LATENCY_STAGES; i++) histogram_add_run(&latencies[i]);
    assert_int_equal(latencies[LATENCY_CHECK].n, 600);
    assert_int_equal(latencies[LATENCY_TICK].n, 1);
    assert_int_equal(latencies[LATENCY_TICK].sum_us, 400);

    latency_decided(1400, 1);
    latency_tick_ended(0, 1407);
    histogram_add_run(&latencies[LATENCY_CHECK]);
    assert_int_equal(latencies[LATENCY_CHECK].n, 601);
    assert_int_equal(latencies[LATENCY_CHECK].buckets[7], 1);
    assert_int_equal(latencies[LATENCY_TICK].n, 1);
}

static void stats_name_each_quantile_of_each_stage(void **state)
{
    char name[LATENCY_NAME_MAX];
    (void)state;
    histogram_add(&latencies[LATENCY_STORE], 42, 1);
    assert_int_equal(latency_stat(0, name), 0);
    assert_string_equal(name, "check_p50_us");
    assert_int_equal(latency_stat(2 * LATENCY_QUANTILES + 2, name), 42);
    assert_string_equal(name, "store_p99_us");
    latency_stat(N_LATENCY_STATS - 1, name);
    assert_string_equal(name, "tick_max_us");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_bound_of_two_digits_is_an_edge, set_up),
        cmocka_unit_test_setup(what_is_too_long_or_negative_is_in_the_outer_buckets, set_up),
        cmocka_unit_test_setup(a_quantile_is_at_most_a_tenth_above_the_sample, set_up),
        cmocka_unit_test_setup(quantiles_forget_what_is_older_than_two_minutes, set_up),
        cmocka_unit_test_setup(each_decision_of_a_tick_is_counted_from_its_read_to_the_end_of_the_tick, set_up),
        cmocka_unit_test_setup(stats_name_each_quantile_of_each_stage, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
