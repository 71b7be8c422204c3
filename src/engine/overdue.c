/* overdue.c: lanes of overdue checks, one a client, for engine.c. */
#include "engine/overdue.h"

#include "base/assert.h"

void overdue_init(struct overdue *overdue)
{
    list_init(&overdue->turns);
    for (size_t i = 0; i < OVERDUE_LANES; i++) {
        struct overdue_lane *lane = &overdue->lanes[i];
        list_init(&lane->link);
        list_init(&lane->waiting);
        lane->n_spent = 0;
    }
}

void overdue_add(struct overdue *overdue, struct deadline *deadline, uint64_t client)
{
    CHECK(!deadline_is_set(deadline));
    struct overdue_lane *lane = &overdue->lanes[client % OVERDUE_LANES];
    list_push_back(&lane->waiting, &deadline->link);
    if (list_empty(&lane->link)) list_push_back(&overdue->turns, &lane->link);
}

static struct overdue_lane *first_lane(const struct overdue *overdue)
{
    return LIST_ITEM(overdue->turns.next, struct overdue_lane, link);
}

/* The first lane's turn is over, or nothing is left in it. */
static void end_turn(struct overdue *overdue, struct overdue_lane *lane)
{
    list_remove(&lane->link);
    if (list_empty(&lane->waiting)) {
        lane->n_spent = 0;
    } else {
        lane->n_spent -= OVERDUE_SHARE;
        list_push_back(&overdue->turns, &lane->link);
    }
}

struct deadline *overdue_next(struct overdue *overdue)
{
    while (!list_empty(&overdue->turns)) {
        struct overdue_lane *lane = first_lane(overdue);
        if (!list_empty(&lane->waiting) && lane->n_spent < OVERDUE_SHARE)
            return LIST_ITEM(lane->waiting.next, struct deadline, link);
        end_turn(overdue, lane);
    }
    return NULL;
}

void overdue_spend(struct overdue *overdue, uint32_t units)
{
    if (list_empty(&overdue->turns)) return;
    struct overdue_lane *lane = first_lane(overdue);
    lane->n_spent += units;
    if (list_empty(&lane->waiting)) end_turn(overdue, lane);
}
