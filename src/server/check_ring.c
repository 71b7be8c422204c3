/* check_ring.c: a ring of copies, filled by watch.c and read by views.c. */
#include "server/check_ring.h"

#include "base/alloc.h"
#include "base/assert.h"

int check_ring_set(struct check_ring *ring, uint32_t max)
{
    if (max == ring->max) return 0;
    struct check_ring next = {.max = max, .first_id = ring->first_id, .next_id = ring->next_id};
    if (max > 0) next.entries = mem_zalloc(max * sizeof next.entries[0]);
    if (max > 0 && next.entries == NULL) return -1;

    if (next.next_id - next.first_id > max) next.first_id = next.next_id - max;
    for (uint64_t id = next.first_id; max > 0 && id < next.next_id; id++)
        next.entries[id % max] = *check_ring_at(ring, id);
    mem_free(ring->entries);
    *ring = next;
    return 0;
}

void check_ring_fini(struct check_ring *ring)
{
    mem_free(ring->entries);
    *ring = (struct check_ring){0};
}

struct kept_check *check_ring_add(struct check_ring *ring)
{
    CHECK(ring->max > 0);
    if (ring->next_id == 0) ring->first_id = ring->next_id = 1;
    if (ring->next_id - ring->first_id == ring->max) ring->first_id++;

    struct kept_check *entry = &ring->entries[ring->next_id % ring->max];
    entry->id = ring->next_id++;
    return entry;
}

void check_ring_clear(struct check_ring *ring)
{
    ring->first_id = ring->next_id;
}

const struct kept_check *check_ring_at(const struct check_ring *ring, uint64_t id)
{
    CHECK(ring->max > 0 && id >= ring->first_id && id < ring->next_id);
    return &ring->entries[id % ring->max];
}
