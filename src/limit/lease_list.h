/*
 * lease_list.h: the leases of one key in memory: a slot's id and when its lease ends, the earliest first.
 *
 * Corresponds to the sorted set of concurrency in Redis. It grows by doubling.
 */
#ifndef RL_LIMIT_LEASE_LIST_H
#define RL_LIMIT_LEASE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLOT_ID_LEN = 32 };

#define SLOT_TTL_DEFAULT_US INT64_C(30000000)

struct lease_list;

/* Space for one more, so that the next insertion cannot fail. `list` may point to NULL (empty) and may move. 0, or -1
 * without memory, nothing changed. */
int lease_list_reserve(struct lease_list **list);
/* `id` has SLOT_ID_LEN bytes and is not inside; there must be space. */
void lease_list_insert(struct lease_list *list, const char *id, int64_t end_ms);
bool lease_list_remove(struct lease_list *list, const char *id);                /* false: not inside */
bool lease_list_move(struct lease_list *list, const char *id, int64_t end_ms);  /* a new end; false: not inside */
void lease_list_drop_until(struct lease_list *list, int64_t until_ms);          /* those that end up to then go */
void lease_list_lower(struct lease_list *list, int64_t to_ms);                  /* ends above to_ms become to_ms */
size_t lease_list_len(const struct lease_list *list);                           /* NULL = 0 */
int64_t lease_list_end(const struct lease_list *list, size_t i);                /* i < len, 0 = earliest */
size_t lease_list_count_after(const struct lease_list *list, int64_t after_ms); /* those that end later than that */
size_t lease_list_bytes(const struct lease_list *list);                         /* on the heap */
void lease_list_free(struct lease_list *list);                                  /* NULL is fine */

#endif
