/*
 * latency.h: how long checks take, by stage, for `stats` and the page of metrics.
 *
 *   read ──▶ batch sent ──▶ reply ──▶ answer written
 *     ├─ queue ─┤─── store ───┤          │
 *     └──────────────── check ───────────┘       tick: the work of one tick of the loop
 *
 * There is one of it, as of a module's counters: the daemon is one thread. A check's answer is written at the end of
 * its tick, so it is noted when it is decided and counted then. Most checks of a tick came with few reads: those of one
 * are noted together.
 */
#ifndef RL_BASE_LATENCY_H
#define RL_BASE_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/histogram.h"

enum latency_stage { LATENCY_CHECK, LATENCY_QUEUE, LATENCY_STORE, LATENCY_TICK, N_LATENCY_STAGES };

struct latency_row {
    const char *name;   /* as in the names of `stats`: "check" */
    const char *metric; /* ratelimitd_..._seconds */
    const char *help;
};

extern const struct latency_row latency_rows[N_LATENCY_STAGES];
extern struct histogram latencies[N_LATENCY_STAGES];

/* The answers of this tick to what came with one read. */
struct latency_answers {
    int64_t read_us; /* CLOCK_MONOTONIC */
    uint64_t n;
};
extern struct latency_answers *latency_noted; /* the last one that was noted */

void latency_note_other(int64_t read_us);

/* n decisions to what was read then; their answers are written at the end of this tick. False, and not counted: the
 * last ones were to what was read at another time. */
static inline bool latency_decided_again(int64_t read_us, uint64_t n)
{
    if (__builtin_expect(latency_noted->read_us != read_us, 0)) return false;
    latency_noted->n += n;
    return true;
}

static inline void latency_decided(int64_t read_us, uint64_t n)
{
    if (latency_decided_again(read_us, n)) return;
    latency_note_other(read_us);
    latency_noted->n += n;
}

/* A check that was read then is sent to a store now. */
static inline void latency_sent(int64_t read_us, int64_t now_us)
{
    if (read_us > 0) histogram_add(&latencies[LATENCY_QUEUE], now_us - read_us, 1);
}

/* All answers of the tick are written. began_us: of its first callback; 0: none ran. */
void latency_tick_ended(int64_t began_us, int64_t now_us);

/* For `stats`: number i of N_LATENCY_STATS, and its name. */
enum { LATENCY_QUANTILES = 5, N_LATENCY_STATS = N_LATENCY_STAGES * LATENCY_QUANTILES, LATENCY_NAME_MAX = 32 };
int64_t latency_stat(unsigned i, char ret_name[LATENCY_NAME_MAX]);

#endif
