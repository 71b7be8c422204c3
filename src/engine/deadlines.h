/*
 * deadlines.h: who must be answered by when.
 *
 * Nearly all checks have one of a few durations, their policies', and of those with one duration the
 * first to come is the first to expire: a lane each, a list with nothing to sort. Whatever finds no
 * lane goes into a heap. If deadlines are equal, the one set first comes first.
 */
#ifndef RL_ENGINE_DEADLINES_H
#define RL_ENGINE_DEADLINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/heap.h"
#include "base/list.h"

enum { DEADLINE_LANES = 8 };

struct deadline {
    int64_t at_us;    /* CLOCK_MONOTONIC */
    struct list link; /* in a lane */
    struct heap_node node;
};

struct deadlines {
    struct deadline_lane {
        int64_t duration_us; /* of all inside */
        struct list waiting; /* earliest first */
    } lanes[DEADLINE_LANES];
    size_t n_lanes; /* of them in use, ever: the first ones */
    struct heap others;
};

void deadlines_init(struct deadlines *deadlines);
void deadlines_fini(struct deadlines *deadlines); /* must be empty */

void deadline_init(struct deadline *deadline);
bool deadline_is_set(const struct deadline *deadline);

/* Makes space, so that one more cannot fail to be set. 0, or -1 without memory. */
int deadlines_reserve(struct deadlines *deadlines);
/* At now_us + duration_us; now_us never steps back. 0, or -1 without memory. */
int deadlines_set(struct deadlines *deadlines, struct deadline *deadline, int64_t now_us, int64_t duration_us);
void deadlines_unset(struct deadlines *deadlines, struct deadline *deadline); /* one that is not set is fine */
struct deadline *deadlines_first_set(const struct deadlines *deadlines);

/* NULL if none is set. Each tick asks, even if none ever is. */
static inline struct deadline *deadlines_first(const struct deadlines *deadlines)
{
    return deadlines->n_lanes > 0 ? deadlines_first_set(deadlines) : NULL; /* the heap comes after the lanes */
}

#endif
