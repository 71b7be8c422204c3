/*
 * clock.h: time as plain data, read once per callback, written by tests.
 *
 * `mono_us` orders deadlines and never steps; `wall_us` is what the limits of the memory store
 * call now. Under --test-clock (and in unit tests) `manual` is set and clock_update() leaves
 * wall_us alone; unit tests set `frozen` and move mono_us themselves.
 */
#ifndef RL_BASE_CLOCK_H
#define RL_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct clock {
    int64_t mono_us; /* CLOCK_MONOTONIC, microseconds */
    int64_t wall_us; /* microseconds since the epoch */
    bool manual;     /* wall_us is set by a test, not by the system */
    bool frozen;     /* both are set by a test */
    int64_t
        tick_us; /* of the first update in this tick of the loop; 0: there was none. The end of the tick clears it */
    uint64_t n_updates; /* calls of clock_update(): if it is the same as before, no callback of ours has run */
};

/* Reads the system's clocks into `clock`, except what is manual or frozen. Every uv callback that leads to decisions or
 * deadlines, or leaves work for the end of the tick, calls this first. */
void clock_update(struct clock *clock);

int64_t clock_mono_us(void); /* CLOCK_MONOTONIC now, for callers without a struct clock */

#endif
