/*
 * counters.h: what modules count, by name, for `stats`.
 *
 * The daemon is one thread, so a counter is a plain integer: `engine_counters.checks++`. Each module lists its own,
 *
 *     #define NAME_COUNTERS(COUNTER, GAUGE)  COUNTER(name, "help") GAUGE(name, "help") ...
 *
 * where a COUNTER only rises and a GAUGE is a present value; declares them in a header with COUNTERS_DECLARE, and
 * defines them once with COUNTERS_DEFINE. The wiring lists their groups, in the order of `stats`. The drift test holds
 * PROTOCOL.md against the lists.
 */
#ifndef RL_BASE_COUNTERS_H
#define RL_BASE_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"

struct counter_group {
    const char *const *names; /* as `stats` shows them, e.g. "checks" */
    uint64_t *values;         /* of the same order */
    size_t n;
};

#define COUNTERS_FIELD_(name, help) uint64_t name; /* help */
#define COUNTERS_NAME_(name, help)  #name,

/* struct NAME_counters, of which there is one, and its group. */
#define COUNTERS_DECLARE(name, LIST)                                                                                   \
    struct name##_counters {                                                                                           \
        LIST(COUNTERS_FIELD_, COUNTERS_FIELD_)                                                                         \
    };                                                                                                                 \
    extern struct name##_counters name##_counters;                                                                     \
    extern const struct counter_group name##_counter_group

#define COUNTERS_DEFINE(name, LIST)                                                                                    \
    struct name##_counters name##_counters;                                                                            \
    static const char *const name##_counter_names[] = {LIST(COUNTERS_NAME_, COUNTERS_NAME_)};                          \
    const struct counter_group name##_counter_group = {                                                                \
        .names = name##_counter_names,                                                                                 \
        .values = (uint64_t *)(void *)&name##_counters,                                                                \
        .n = N_OF(name##_counter_names),                                                                               \
    }

/* The groups in the order of `stats`, with NULL behind the last. Set once, at start. */
extern const struct counter_group *const *counters_groups;

size_t counters_n(void); /* of all groups */

#endif
