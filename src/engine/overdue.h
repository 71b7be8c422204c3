/*
 * overdue.h: checks whose deadline has passed and that are still to be answered, a fair share for each client.
 *
 * When the store stops, all that a flood has in flight is overdue within a few ticks, and a tick can answer a part of
 * it only. So the clients have their turns, OVERDUE_SHARE units of work each: an overdue check of another client waits
 * for one turn of each, and not for all of the flood. What the last answer of a turn weighs beyond the share is taken
 * from the next turns. Each client's are answered in their order.
 *
 * A client's lane is its number modulo OVERDUE_LANES, so there is nothing to allocate and nothing to find (P. McKenney,
 * "Stochastic fairness queueing", 1990). Connections are numbered one after the other: those of one time rarely share a
 * lane, and if two do they share its turns.
 */
#ifndef RL_ENGINE_OVERDUE_H
#define RL_ENGINE_OVERDUE_H

#include "engine/deadlines.h"

enum { OVERDUE_LANES = 1024, OVERDUE_SHARE = 16 };

struct overdue {
    struct list turns; /* struct overdue_lane: those with something inside; the first is next */
    struct overdue_lane {
        struct list link;    /* in turns */
        struct list waiting; /* struct deadline: earliest first */
        uint32_t n_spent;    /* units, of its present turn */
    } lanes[OVERDUE_LANES];
};

void overdue_init(struct overdue *overdue);

/* One that is not set any more; deadlines_unset() takes it out again. */
void overdue_add(struct overdue *overdue, struct deadline *deadline, uint64_t client);
/* The one that is next, which stays; NULL: there is none. */
struct deadline *overdue_next(struct overdue *overdue);
/* What was next is answered, and it was so much work. */
void overdue_spend(struct overdue *overdue, uint32_t units);

/* False: certainly none. */
static inline bool overdue_may_have(const struct overdue *overdue)
{
    return !list_empty(&overdue->turns);
}

#endif
