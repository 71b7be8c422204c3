/*
 * reservation_list.h: the reservations of one policy and key in memory, those that end first in front; the counterpart
 * of the ZSET in Redis.
 *
 * A reservation that was settled stays as a tombstone, without units, until RESERVATION_GRACE_MS after its end: a
 * second settlement of it finds the tombstone and does nothing. At RESERVATIONS_PER_KEY_MAX, tombstones that end
 * soonest are forgotten for a new reservation; without a tombstone it is refused at once, since a client that fills one
 * key must not cost all the others.
 */
#ifndef RL_STORE_RESERVATION_LIST_H
#define RL_STORE_RESERVATION_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RESERVATIONS_PER_KEY_MAX = 65536 };

struct reserved {
    uint64_t id;
    int64_t units;
    int64_t made_us;
    int64_t end_ms; /* of a tombstone: when it goes */
    bool settled;   /* it is a tombstone */
    bool moved; /* of a tombstone: it goes earlier than RESERVATION_GRACE_MS after its reservation's end, for the clock
                   stepped back */
};

struct reservation_list;

/* Space for one more, so that the next reservation_list_add() cannot fail. `list` may point to NULL (empty) and may
 * move. 0, or -1 without memory or at RESERVATIONS_PER_KEY_MAX without a tombstone; nothing changed
 * then. */
int reservation_list_reserve(struct reservation_list **list);
void reservation_list_add(struct reservation_list *list, const struct reserved *reservation);
void reservation_list_remove(struct reservation_list *list, size_t i);
size_t reservation_list_len(const struct reservation_list *list);                          /* NULL = 0 */
const struct reserved *reservation_list_at(const struct reservation_list *list, size_t i); /* i < len */
/* The reservation of that id that ends then, or its tombstone; NULL: none. By binary search, but for tombstones that
 * were moved.
 */
const struct reserved *reservation_list_find(const struct reservation_list *list, uint64_t id, int64_t end_ms,
                                             size_t *ret_i);
size_t reservation_list_bytes(const struct reservation_list *list); /* on the heap */
void reservation_list_free(struct reservation_list *list);          /* NULL is fine */

#endif
