/*
 * time_ring.h: admission times of one key in memory, oldest first, only the newest `max` of them.
 *
 * The counterpart of the Redis LIST of sliding_log. It grows by doubling up to max entries, then the
 * oldest makes space for the newest.
 */
#ifndef RL_LIMIT_TIME_RING_H
#define RL_LIMIT_TIME_RING_H

#include <stddef.h>
#include <stdint.h>

struct time_ring;

/* Space for `n` more, so that the next push of as many cannot fail. 0, or -1 without memory, nothing changed. */
int time_ring_reserve(struct time_ring **ring, size_t n, size_t max);
/* Append `n` copies of `time_us`, keeping the newest `max` entries. `ring` may point to NULL (empty) and may move. 0,
 * or -1 without memory, nothing changed. */
int time_ring_push(struct time_ring **ring, int64_t time_us, size_t n, size_t max);
size_t time_ring_len(const struct time_ring *ring);           /* NULL = 0 */
int64_t time_ring_at(const struct time_ring *ring, size_t i); /* 0 = oldest; i < len */
void time_ring_lower(struct time_ring *ring, int64_t to_us);  /* entries above to_us become to_us */
void time_ring_remove(struct time_ring *ring, size_t first,
                      size_t n); /* entries first to first + n - 1, which are there */
size_t time_ring_count_until(const struct time_ring *ring, int64_t until_us); /* entries <= until_us */
size_t time_ring_bytes(const struct time_ring *ring);                         /* on the heap */
void time_ring_free(struct time_ring *ring);                                  /* NULL is fine */

#endif
