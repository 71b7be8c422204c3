/* clock.c: reads the kernel's clocks, for the loop, once a callback, and for the client. */
#include "base/clock.h"

#include <time.h>

static int64_t read_us(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t clock_mono_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

void clock_update(struct clock *clock)
{
    clock->n_updates++;
    if (clock->frozen) return;
    clock->mono_us = clock_mono_us();
    if (!clock->manual) clock->wall_us = read_us(CLOCK_REALTIME);
    if (clock->tick_us == 0) clock->tick_us = clock->mono_us;
}
