/*
 * histogram.h: how long something took, in whole microseconds: counts in buckets of two significant digits.
 *
 *   0 to 9 us         a bucket each
 *   10 to 99 us       a bucket each
 *   100 to 990 us     90 buckets of 10 us, and so on: 90 for each power of ten, the last up to 1000 s
 *
 * So no bucket is wider than a tenth of what is in it, and every bound with two digits is the edge of one: the buckets
 * that Prometheus is shown are exact sums of these.
 *
 * Equal durations in a row cost a comparison each; they are added together when another one comes.
 */
#ifndef RL_BASE_HISTOGRAM_H
#define RL_BASE_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_DECADES = 8, HISTOGRAM_BUCKETS = 10 + 90 * HISTOGRAM_DECADES };

struct histogram {
    int64_t run_us; /* the last duration, */
    uint64_t n_run; /* and how often it came since it was added */
    uint64_t n, sum_us;
    uint64_t buckets[HISTOGRAM_BUCKETS];
    uint64_t before[2][HISTOGRAM_BUCKETS]; /* `buckets` as of the last two minutes' beginnings, the older one first */
};

void histogram_add_run(struct histogram *histogram); /* what is counted in n_run; before the fields above are read */

/* n durations of `us`. A negative one counts as 0. */
static inline void histogram_add(struct histogram *histogram, int64_t us, uint64_t n)
{
    if (__builtin_expect(us != histogram->run_us, 0)) {
        histogram_add_run(histogram);
        histogram->run_us = us;
    }
    histogram->n_run += n;
}

/* How many were shorter than `us`, which is an edge: a number of two digits, with zeros behind them. */
uint64_t histogram_below(const struct histogram *histogram, int64_t us);

void histogram_minute_passed(struct histogram *histogram);
/* The duration that so many of a thousand did not exceed in the last minute or two, as the largest value of its
 * bucket; 1000: the longest. 0 if there were none. */
int64_t histogram_quantile(const struct histogram *histogram, unsigned of_thousand);

#endif
