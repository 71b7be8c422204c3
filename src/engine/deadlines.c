/* deadlines.c: lanes and a heap, for engine.c, slots.c and unit_leases.c. */
#include "engine/deadlines.h"

#include "base/assert.h"

void deadlines_init(struct deadlines *deadlines)
{
    *deadlines = (struct deadlines){0};
    for (size_t i = 0; i < DEADLINE_LANES; i++) list_init(&deadlines->lanes[i].waiting);
    heap_init(&deadlines->others);
}

void deadlines_fini(struct deadlines *deadlines)
{
    CHECK(deadlines_first(deadlines) == NULL);
    heap_fini(&deadlines->others);
}

void deadline_init(struct deadline *deadline)
{
    *deadline = (struct deadline){0};
    list_init(&deadline->link);
}

bool deadline_is_set(const struct deadline *deadline)
{
    return !list_empty(&deadline->link) || deadline->node.index > 0;
}

int deadlines_reserve(struct deadlines *deadlines)
{
    return heap_reserve(&deadlines->others);
}

int deadlines_set(struct deadlines *deadlines, struct deadline *deadline, int64_t now_us, int64_t duration_us)
{
    CHECK(!deadline_is_set(deadline));
    deadline->at_us = now_us + duration_us;

    /* the lane of this duration, or an empty one that becomes it */
    struct deadline_lane *lane = deadlines->lanes, *end = lane + deadlines->n_lanes, *empty = NULL;
    for (; lane < end && lane->duration_us != duration_us; lane++)
        if (list_empty(&lane->waiting)) empty = lane;
    if (lane == end && empty != NULL) lane = empty;
    if (lane == end && deadlines->n_lanes < DEADLINE_LANES) deadlines->n_lanes++;
    if (lane == deadlines->lanes + DEADLINE_LANES) /* all are taken */
        return heap_push(&deadlines->others, &deadline->node, deadline->at_us);

    lane->duration_us = duration_us;
    list_push_back(&lane->waiting, &deadline->link);
    return 0;
}

void deadlines_unset(struct deadlines *deadlines, struct deadline *deadline)
{
    if (deadline->node.index > 0)
        heap_remove(&deadlines->others, &deadline->node);
    else if (!list_empty(&deadline->link))
        list_remove(&deadline->link);
}

/* If the deadlines of two lanes are equal, the longer one was set first. */
struct deadline *deadlines_first_set(const struct deadlines *deadlines)
{
    struct heap_node *node = heap_min(&deadlines->others);
    struct deadline *first = node != NULL ? CONTAINER_OF(node, struct deadline, node) : NULL;
    int64_t duration_us = INT64_MAX;

    for (size_t i = 0; i < deadlines->n_lanes; i++) {
        const struct deadline_lane *lane = &deadlines->lanes[i];
        if (list_empty(&lane->waiting)) continue;

        struct deadline *next = LIST_ITEM(lane->waiting.next, struct deadline, link);
        if (first != NULL && next->at_us > first->at_us) continue;
        if (first != NULL && next->at_us == first->at_us && lane->duration_us < duration_us) continue;
        first = next;
        duration_us = lane->duration_us;
    }
    return first;
}
