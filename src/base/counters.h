/*
 * counters.h: every counter and gauge, listed once in counters.def.
 *
 * The daemon is one thread, so a counter is a plain integer: `counters.checks++`. `stats` walks the same list,
 * and the drift test holds PROTOCOL.md against it.
 */
#ifndef RL_BASE_COUNTERS_H
#define RL_BASE_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

struct counters {
#define COUNTER(name, help) uint64_t name; /* help */
#define GAUGE(name, help)   uint64_t name;
#include "base/counters.def"
#undef COUNTER
#undef GAUGE
};

extern struct counters counters;

struct counter_info {
    const char *name; /* as `stats` shows it, e.g. "checks" */
    size_t offset;    /* into struct counters */
};

extern const struct counter_info counter_table[];
extern const size_t n_counters;

static inline uint64_t counter_value(const struct counter_info *info)
{
    return *(const uint64_t *)(const void *)((const char *)&counters + info->offset);
}

#endif
