/* latency.c: a histogram for each stage of a check's way, filled by server/, engine/ and redis/. */
#include "base/latency.h"

#include <stdio.h>

#include "base/clock.h"

enum { NOTED_MAX = 64, MINUTE_US = 60 * 1000000 };

const struct latency_row latency_rows[N_LATENCY_STAGES] = {
    [LATENCY_CHECK] = {"check", "check_duration_seconds",
                       "from the read that brought a check until its answer was written; every decision is one"},
    [LATENCY_QUEUE] = {"queue", "queue_duration_seconds",
                       "from the read that brought a check until its batch was sent to Redis"},
    [LATENCY_STORE] = {"store", "store_duration_seconds", "from sending a batch to Redis until its reply"},
    [LATENCY_TICK] = {"tick", "loop_tick_seconds",
                      "work of one tick of the event loop: a client may wait that long before it is read"},
};
struct histogram latencies[N_LATENCY_STAGES];

static struct latency_answers noted[NOTED_MAX];
struct latency_answers *latency_noted = noted;
static int64_t minute_us; /* when the present minute began */

/* Apart, as the minute's end, so that a tick without answers saves no registers for it. */
static __attribute__((noinline)) void count_noted(int64_t now_us)
{
    for (struct latency_answers *one = noted; one <= latency_noted; one++) {
        if (one->n > 0) histogram_add(&latencies[LATENCY_CHECK], one->read_us > 0 ? now_us - one->read_us : 0, one->n);
        one->n = 0;
    }
    latency_noted = noted;
}

void latency_note_other(int64_t read_us)
{
    if (latency_noted == noted + NOTED_MAX - 1)
        count_noted(clock_mono_us()); /* a tick with many reads: a little early */
    if (latency_noted->n > 0) latency_noted++;
    *latency_noted = (struct latency_answers){.read_us = read_us};
}

static __attribute__((noinline)) void begin_minute(int64_t now_us)
{
    if (minute_us > 0)
        for (int i = 0; i < N_LATENCY_STAGES; i++) histogram_minute_passed(&latencies[i]);
    minute_us = now_us;
}

void latency_tick_ended(int64_t began_us, int64_t now_us)
{
    if (latency_noted->n > 0) count_noted(now_us); /* else it is the first, and none was noted */
    if (began_us > 0) histogram_add(&latencies[LATENCY_TICK], now_us - began_us, 1);
    if (now_us - minute_us >= MINUTE_US) begin_minute(now_us);
}

int64_t latency_stat(unsigned i, char ret_name[LATENCY_NAME_MAX])
{
    static const struct {
        const char *name;
        unsigned of_thousand;
    } quantiles[LATENCY_QUANTILES] = {{"p50", 500}, {"p90", 900}, {"p99", 990}, {"p999", 999}, {"max", 1000}};
    unsigned stage = i / LATENCY_QUANTILES, at = i % LATENCY_QUANTILES;
    snprintf(ret_name, LATENCY_NAME_MAX, "%s_%s_us", latency_rows[stage].name, quantiles[at].name);
    histogram_add_run(&latencies[stage]);
    return histogram_quantile(&latencies[stage], quantiles[at].of_thousand);
}
