/*
 * lease_list.c: see lease_list.h. Sorted, because a new lease ends last unless the clock stepped back,
 * and so most insertions are at the end.
 */
#include "limit/lease_list.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

enum { FIRST_CAP = 4 };

struct lease {
    int64_t end_ms;
    char id[SLOT_ID_LEN];
};

struct lease_list {
    size_t len;
    size_t cap;
    struct lease at[];
};

int lease_list_reserve(struct lease_list **list)
{
    size_t len = lease_list_len(*list);
    size_t cap = *list == NULL ? 0 : (*list)->cap;
    if (len < cap) return 0;

    cap = cap == 0 ? FIRST_CAP : cap * 2;
    struct lease_list *new = mem_realloc(*list, sizeof *new + cap * sizeof new->at[0]);
    if (new == NULL) return -1;
    new->len = len;
    new->cap = cap;
    *list = new;
    return 0;
}

void lease_list_insert(struct lease_list *list, const char *id, int64_t end_ms)
{
    CHECK(list->len < list->cap);
    size_t at = list->len++;
    for (; at > 0 && list->at[at - 1].end_ms > end_ms; at--) list->at[at] = list->at[at - 1];
    list->at[at].end_ms = end_ms;
    memcpy(list->at[at].id, id, SLOT_ID_LEN);
}

bool lease_list_remove(struct lease_list *list, const char *id)
{
    for (size_t i = 0; i < lease_list_len(list); i++) {
        if (memcmp(list->at[i].id, id, SLOT_ID_LEN) != 0) continue;
        list->len--;
        memmove(&list->at[i], &list->at[i + 1], (list->len - i) * sizeof list->at[0]);
        return true;
    }
    return false;
}

bool lease_list_move(struct lease_list *list, const char *id, int64_t end_ms)
{
    if (!lease_list_remove(list, id)) return false;
    lease_list_insert(list, id, end_ms);
    return true;
}

void lease_list_drop_until(struct lease_list *list, int64_t until_ms)
{
    size_t n = lease_list_len(list) - lease_list_count_after(list, until_ms);
    if (n == 0) return;
    list->len -= n;
    memmove(&list->at[0], &list->at[n], list->len * sizeof list->at[0]);
}

void lease_list_lower(struct lease_list *list, int64_t to_ms)
{
    for (size_t i = lease_list_len(list); i-- > 0 && list->at[i].end_ms > to_ms;) list->at[i].end_ms = to_ms;
}

size_t lease_list_len(const struct lease_list *list)
{
    return list == NULL ? 0 : list->len;
}

int64_t lease_list_end(const struct lease_list *list, size_t i)
{
    CHECK(i < lease_list_len(list));
    return list->at[i].end_ms;
}

size_t lease_list_count_after(const struct lease_list *list, int64_t after_ms)
{
    size_t low = 0, len = lease_list_len(list);
    for (size_t high = len; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (list->at[middle].end_ms <= after_ms)
            low = middle + 1;
        else
            high = middle;
    }
    return len - low;
}

size_t lease_list_bytes(const struct lease_list *list)
{
    return list == NULL ? 0 : sizeof *list + list->cap * sizeof list->at[0];
}

void lease_list_free(struct lease_list *list)
{
    mem_free(list);
}
