#include "store/hold_list.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"

enum { FIRST_CAP = 4 };

struct hold_list {
    size_t n, cap;
    struct hold at[];
};

static size_t bytes_for(size_t cap)
{
    return sizeof(struct hold_list) + cap * sizeof(struct hold);
}

int hold_list_reserve(struct hold_list **list)
{
    struct hold_list *old = *list;
    if (old != NULL && old->n < old->cap) return 0;
    size_t cap = old == NULL ? FIRST_CAP : old->cap * 2;
    if (cap > HOLD_LIST_MAX) return -1;
    struct hold_list *grown = mem_realloc(old, bytes_for(cap));
    if (grown == NULL) return -1;
    if (old == NULL) grown->n = 0;
    grown->cap = cap;
    *list = grown;
    return 0;
}

/* Most have one time limit: then the place is the end. */
void hold_list_add(struct hold_list *list, const struct hold *hold)
{
    CHECK(list->n < list->cap);
    size_t i = list->n;
    for (; i > 0 && list->at[i - 1].end_ms > hold->end_ms; i--) continue;
    memmove(&list->at[i + 1], &list->at[i], (list->n - i) * sizeof list->at[0]);
    list->at[i] = *hold;
    list->n++;
}

void hold_list_remove(struct hold_list *list, size_t i)
{
    CHECK(i < list->n);
    list->n--;
    memmove(&list->at[i], &list->at[i + 1], (list->n - i) * sizeof list->at[0]);
}

size_t hold_list_len(const struct hold_list *list)
{
    return list != NULL ? list->n : 0;
}

const struct hold *hold_list_at(const struct hold_list *list, size_t i)
{
    CHECK(i < list->n);
    return &list->at[i];
}

const struct hold *hold_list_find(const struct hold_list *list, uint64_t id, size_t *ret_i)
{
    for (size_t i = 0; i < hold_list_len(list); i++) {
        if (list->at[i].id != id) continue;
        *ret_i = i;
        return &list->at[i];
    }
    return NULL;
}

size_t hold_list_bytes(const struct hold_list *list)
{
    return list != NULL ? bytes_for(list->cap) : 0;
}

void hold_list_free(struct hold_list *list)
{
    mem_free(list);
}
