/*
 * list.h: an intrusive doubly linked ring. The list owns nothing.
 *
 * A `struct list` is either a head or a link inside an object. An unlinked link points to itself,
 * so list_remove() may be called twice.
 */
#ifndef RL_BASE_LIST_H
#define RL_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/assert.h"

struct list {
    struct list *next;
    struct list *prev;
};

static inline void list_init(struct list *head)
{
    head->next = head;
    head->prev = head;
}

static inline bool list_empty(const struct list *head)
{
    return head->next == head;
}

static inline void list_push_back(struct list *head, struct list *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

static inline void list_push_front(struct list *head, struct list *link)
{
    list_push_back(head->next, link);
}

static inline void list_remove(struct list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    list_init(link);
}

/* The first link, taken out; NULL when empty. */
static inline struct list *list_pop_front(struct list *head)
{
    struct list *first = head->next;
    if (first == head) return NULL;
    list_remove(first);
    return first;
}

/* All of `from` to the end of `to`; `from` is empty afterwards. */
static inline void list_append(struct list *to, struct list *from)
{
    if (list_empty(from)) return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

/* `it` may be removed inside the loop (not its successor). */
#define LIST_FOREACH(it, head)                                                                                         \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head); it = it##_next, it##_next = it->next)

#define LIST_ITEM(link, type, field) CONTAINER_OF(link, type, field)

#endif
