/*
 * time_ring.c: see time_ring.h. Entries are sorted, because times are pushed in order and lowered
 * from the newest end.
 */
#include "limit/time_ring.h"

#include "base/alloc.h"
#include "base/assert.h"

enum { FIRST_CAP = 4 };

struct time_ring {
    size_t first; /* index of the oldest */
    size_t len;
    size_t cap;
    int64_t at_us[];
};

static size_t index_in_ring(const struct time_ring *ring, size_t i)
{
    size_t at = ring->first + i;
    return at < ring->cap ? at : at - ring->cap;
}

int time_ring_reserve(struct time_ring **ring, size_t n, size_t max)
{
    CHECK(max > 0);
    const struct time_ring *old = *ring;
    size_t len = time_ring_len(old), needed = n < max && len + n <= max ? len + n : max;
    if (old != NULL && needed <= old->cap) return 0;

    if (max < len) max = len; /* it was higher: what is inside stays */
    if (needed < len) needed = len;
    size_t cap = old == NULL ? FIRST_CAP : old->cap * 2;
    while (cap < needed) cap *= 2;
    if (cap > max) cap = max;

    struct time_ring *new = mem_alloc(sizeof *new + cap * sizeof new->at_us[0]);
    if (new == NULL) return -1;
    *new = (struct time_ring){.cap = cap, .len = len};
    for (size_t i = 0; i < len; i++) new->at_us[i] = time_ring_at(old, i);
    mem_free(*ring);
    *ring = new;
    return 0;
}

int time_ring_push(struct time_ring **ring, int64_t time_us, size_t n, size_t max)
{
    if (time_ring_reserve(ring, n, max) < 0) return -1;
    if (n > max) n = max;

    struct time_ring *to = *ring;
    size_t n_left = to->len + n <= max ? to->len : max - n;
    to->first = index_in_ring(to, to->len - n_left);
    to->len = n_left;
    for (size_t i = 0; i < n; i++) to->at_us[index_in_ring(to, to->len++)] = time_us;
    return 0;
}

size_t time_ring_len(const struct time_ring *ring)
{
    return ring == NULL ? 0 : ring->len;
}

int64_t time_ring_at(const struct time_ring *ring, size_t i)
{
    CHECK(i < ring->len);
    return ring->at_us[index_in_ring(ring, i)];
}

void time_ring_lower(struct time_ring *ring, int64_t to_us)
{
    for (size_t i = time_ring_len(ring); i-- > 0 && time_ring_at(ring, i) > to_us;)
        ring->at_us[index_in_ring(ring, i)] = to_us;
}

void time_ring_remove(struct time_ring *ring, size_t first, size_t n)
{
    CHECK(first + n <= ring->len);
    for (size_t i = first; i + n < ring->len; i++)
        ring->at_us[index_in_ring(ring, i)] = ring->at_us[index_in_ring(ring, i + n)];
    ring->len -= n;
}

size_t time_ring_count_until(const struct time_ring *ring, int64_t until_us)
{
    size_t low = 0;
    for (size_t high = time_ring_len(ring); low < high;) {
        size_t middle = low + (high - low) / 2;
        if (time_ring_at(ring, middle) <= until_us)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t time_ring_bytes(const struct time_ring *ring)
{
    return ring == NULL ? 0 : sizeof *ring + ring->cap * sizeof ring->at_us[0];
}

void time_ring_free(struct time_ring *ring)
{
    mem_free(ring);
}
