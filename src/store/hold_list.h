/*
 * hold_list.h: the holds of one policy and key in memory, those that end first in front; the twin of the ZSET in Redis.
 *
 * A hold that was settled stays as a mark, without units, until HOLD_GRACE_MS after its end: a second settlement of
 * it finds the mark and does nothing. Where there are HOLD_LIST_MAX, marks that end soonest are forgotten for what
 * comes; where none is a mark, what comes is refused at once, since whoever fills one key must not cost all the others.
 */
#ifndef RL_STORE_HOLD_LIST_H
#define RL_STORE_HOLD_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOLD_LIST_MAX = 65536 };

struct hold {
    uint64_t id;
    int64_t units;
    int64_t made_us;
    int64_t end_ms; /* of a mark: when it goes */
    bool settled;   /* it is a mark */
    bool moved;     /* of a mark: it goes earlier than HOLD_GRACE_MS after its hold's end, for the clock stepped back */
};

struct hold_list;

/* Room for one more, so that the next hold_list_add() cannot fail. `list` may point to NULL (empty) and may move. 0, or
 * -1 without memory or where there are HOLD_LIST_MAX already, none of them a mark; nothing changed then. */
int hold_list_reserve(struct hold_list **list);
void hold_list_add(struct hold_list *list, const struct hold *hold);
void hold_list_remove(struct hold_list *list, size_t i);
size_t hold_list_len(const struct hold_list *list);                      /* NULL = 0 */
const struct hold *hold_list_at(const struct hold_list *list, size_t i); /* i < len */
/* The hold of that id that ends then, or its mark; NULL: none. By binary search, but for marks that were moved. */
const struct hold *hold_list_find(const struct hold_list *list, uint64_t id, int64_t end_ms, size_t *ret_i);
size_t hold_list_bytes(const struct hold_list *list); /* on the heap */
void hold_list_free(struct hold_list *list);          /* NULL is fine */

#endif
