/*
 * counters.h: what modules count, by name, for `stats` and for the page of metrics.
 *
 * The daemon is one thread, so a counter is a plain integer: `engine_counters.checks++`. Each module lists its own,
 *
 *     #define NAME_COUNTERS(COUNTER, GAUGE)  COUNTER(name, "help") GAUGE(name, "help") ...
 *
 * (a COUNTER only rises, a GAUGE is a present value), declares them in a header with COUNTERS_DECLARE, and defines them
 * once with COUNTERS_DEFINE. The wiring lists their groups, in the order of `stats`. The drift test holds
 * PROTOCOL.md against the lists.
 *
 * A row may go on with the name of a family and labels: COUNTER(failure_down, "help", "failure_answers",
 * "reason=\"down\""). The page of metrics shows all rows of a family together, under its name and the help of its first
 * row. A row whose family is COUNTED_BY_LABEL is the sum of a labelled family of its own name, which the page shows in
 * its place.
 *
 * Where there are several of what a group counts for, such as nodes of a cluster, each has values of its own in an
 * instance of the group, with labels. `stats` shows their sums.
 */
#ifndef RL_BASE_COUNTERS_H
#define RL_BASE_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"

#define COUNTED_BY_LABEL "-"

enum counter_kind { KIND_COUNTER, KIND_GAUGE };

struct counter_row {
    const char *name; /* as `stats` shows it, e.g. "checks" */
    enum counter_kind kind;
    const char *help;
    const char *family; /* NULL: it is one of its own */
    const char *labels; /* as on the page: reason="down"; NULL: none */
};

struct counter_group {
    const struct counter_row *rows;
    uint64_t *values; /* of the same order */
    size_t n;
    const char *labels;          /* of this instance; NULL: none */
    struct counter_group *other; /* the next instance of the same rows; NULL: there is none */
};

#define COUNTERS_FIELD_(name, help, ...)                     uint64_t name; /* help */
#define COUNTERS_ROW_(name, kind, help, family, labels, ...) {#name, kind, help, family, labels},
#define COUNTERS_COUNTER_(name, ...)                         COUNTERS_ROW_(name, KIND_COUNTER, __VA_ARGS__, NULL, NULL, )
#define COUNTERS_GAUGE_(name, ...)                           COUNTERS_ROW_(name, KIND_GAUGE, __VA_ARGS__, NULL, NULL, )

/* struct NAME_counters, and the first instance of it, which is the only one of most groups. */
#define COUNTERS_DECLARE(name, LIST)                                                                                   \
    struct name##_counters {                                                                                           \
        LIST(COUNTERS_FIELD_, COUNTERS_FIELD_)                                                                         \
    };                                                                                                                 \
    extern struct name##_counters name##_counters;                                                                     \
    extern struct counter_group name##_counter_group

#define COUNTERS_DEFINE(name, LIST)                                                                                    \
    struct name##_counters name##_counters;                                                                            \
    static const struct counter_row name##_counter_rows[] = {LIST(COUNTERS_COUNTER_, COUNTERS_GAUGE_)};                \
    struct counter_group name##_counter_group = {                                                                      \
        .rows = name##_counter_rows,                                                                                   \
        .values = (uint64_t *)(void *)&name##_counters,                                                                \
        .n = N_OF(name##_counter_rows),                                                                                \
    }

/* The groups in the order of `stats`, with NULL behind the last. Set once, at start. */
extern struct counter_group *const *counters_groups;

/* A family of counters whose label has one of a list of values. */
struct counter_family {
    const char *name, *help, *label;
    size_t n;
    const char *(*value)(size_t i); /* the label's */
    const uint64_t *counts;
};

/* Those that there are, with NULL behind the last; `stats` shows their sums as counters. Set once, at start. */
extern const struct counter_family *const *counters_families;

size_t counters_n(void); /* of all groups */
/* The sum of row i over the group's instances. */
uint64_t counters_value(const struct counter_group *group, size_t i);
/* One more instance of a group, with its own values (all its counters, from 0) and labels, until it is removed. Both
 * are the caller's. */
void counters_add(struct counter_group *group, struct counter_group *instance, uint64_t *values, const char *labels);
void counters_remove(struct counter_group *group, const struct counter_group *instance);

#endif
