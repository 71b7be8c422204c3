/* histogram.c: buckets, and the quantiles that follow from them, for latency.c. */
#include "base/histogram.h"

#include <string.h>

static uint32_t bucket_of(int64_t us)
{
    if (us < 100) return us > 0 ? (uint32_t)us : 0;

    int64_t width = 10; /* of the buckets of its power of ten */
    uint32_t first = 100;
    for (int decade = 2; decade < HISTOGRAM_DECADES && us >= width * 100; decade++) {
        width *= 10;
        first += 90;
    }
    int64_t at = us / width;
    return first + (at < 100 ? (uint32_t)at - 10 : 89);
}

/* The largest value that belongs to a bucket. */
static int64_t largest_of(uint32_t bucket)
{
    int64_t width = 1;
    if (bucket < 10) return bucket;
    for (bucket -= 10; bucket >= 90; bucket -= 90) width *= 10;
    return (bucket + 11) * width - 1;
}

void histogram_add_run(struct histogram *histogram)
{
    uint64_t n = histogram->n_run;
    if (n == 0) return;
    histogram->n_run = 0;
    histogram->n += n;
    histogram->sum_us += histogram->run_us > 0 ? n * (uint64_t)histogram->run_us : 0;
    histogram->buckets[bucket_of(histogram->run_us)] += n;
}

uint64_t histogram_below(const struct histogram *histogram, int64_t us)
{
    uint64_t n = 0;
    uint32_t end = bucket_of(us);
    for (uint32_t i = 0; i < end; i++) n += histogram->buckets[i];
    return n;
}

void histogram_minute_passed(struct histogram *histogram)
{
    histogram_add_run(histogram);
    memcpy(histogram->before[0], histogram->before[1], sizeof histogram->before[0]);
    memcpy(histogram->before[1], histogram->buckets, sizeof histogram->before[1]);
}

int64_t histogram_quantile(const struct histogram *histogram, unsigned of_thousand)
{
    uint64_t n = 0, seen = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) n += histogram->buckets[i] - histogram->before[0][i];
    uint64_t wanted = (n * of_thousand + 999) / 1000;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS && n > 0; i++) {
        seen += histogram->buckets[i] - histogram->before[0][i];
        if (seen >= wanted && seen > 0) return largest_of(i);
    }
    return 0;
}
