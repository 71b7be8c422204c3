#include "store/hold_list.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "store/store.h"

enum { FIRST_CAP = 4, FORGET_AT_ONCE = HOLD_LIST_MAX / 16 };

struct hold_list {
    size_t n, cap;
    size_t first; /* where they begin: what ends leaves its place in front */
    struct hold at[];
};

static size_t bytes_for(size_t cap)
{
    return sizeof(struct hold_list) + cap * sizeof(struct hold);
}

static void move(struct hold_list *list, size_t to, size_t from, size_t n)
{
    memmove(&list->at[to], &list->at[from], n * sizeof list->at[0]);
}

/* Some of the marks that end soonest; many together, because all that stand behind them move. */
static void forget_marks(struct hold_list *list)
{
    size_t n_kept = 0, n_forgotten = 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct hold *hold = &list->at[list->first + i];
        if (hold->settled && n_forgotten < FORGET_AT_ONCE)
            n_forgotten++;
        else
            list->at[n_kept++] = *hold;
    }
    list->n = n_kept;
    list->first = 0;
}

int hold_list_reserve(struct hold_list **list)
{
    struct hold_list *old = *list;
    if (old != NULL && old->n == HOLD_LIST_MAX) forget_marks(old);
    if (old != NULL && old->n < old->cap) return 0;
    size_t cap = old == NULL ? FIRST_CAP : old->cap * 2;
    if (cap > HOLD_LIST_MAX) return -1;
    struct hold_list *grown = mem_realloc(old, bytes_for(cap));
    if (grown == NULL) return -1;
    if (old == NULL) grown->n = grown->first = 0;
    grown->cap = cap;
    *list = grown;
    return 0;
}

/* As the ZSET has them: of one end, by the bytes of the id, which are little-endian there. */
static bool is_before(const struct hold *hold, uint64_t id, int64_t end_ms)
{
    if (hold->end_ms != end_ms) return hold->end_ms < end_ms;
    return __builtin_bswap64(hold->id) < __builtin_bswap64(id);
}

/* Where a hold of that id and end stands, or would. */
static size_t place_of(const struct hold_list *list, uint64_t id, int64_t end_ms)
{
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (is_before(&list->at[list->first + middle], id, end_ms))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void hold_list_add(struct hold_list *list, const struct hold *hold)
{
    CHECK(list->n < list->cap);
    size_t i = place_of(list, hold->id, hold->end_ms), first = list->first;
    if (first > 0 && (i < list->n - i || first + list->n == list->cap)) {
        move(list, first - 1, first, i);
        list->first--;
    } else {
        move(list, first + i + 1, first + i, list->n - i);
    }
    list->at[list->first + i] = *hold;
    list->n++;
}

void hold_list_remove(struct hold_list *list, size_t i)
{
    CHECK(i < list->n);
    size_t first = list->first;
    if (i < list->n - i - 1) {
        move(list, first + 1, first, i);
        list->first++;
    } else {
        move(list, first + i, first + i + 1, list->n - i - 1);
    }
    list->n--;
}

size_t hold_list_len(const struct hold_list *list)
{
    return list != NULL ? list->n : 0;
}

const struct hold *hold_list_at(const struct hold_list *list, size_t i)
{
    CHECK(i < list->n);
    return &list->at[list->first + i];
}

/* NULL: none of that id ends then. */
static const struct hold *find_at(const struct hold_list *list, uint64_t id, int64_t end_ms)
{
    size_t i = place_of(list, id, end_ms);
    const struct hold *hold = &list->at[list->first + i];
    return i < list->n && hold->id == id && hold->end_ms == end_ms ? hold : NULL;
}

const struct hold *hold_list_find(const struct hold_list *list, uint64_t id, int64_t end_ms, size_t *ret_i)
{
    if (list == NULL) return NULL;
    const struct hold *first = &list->at[list->first], *found = find_at(list, id, end_ms);
    if (found == NULL) found = find_at(list, id, end_ms + HOLD_GRACE_MS);
    for (size_t i = 0; i < list->n && found == NULL; i++)
        if (first[i].id == id) found = &first[i];
    if (found != NULL) *ret_i = (size_t)(found - first);
    return found;
}

size_t hold_list_bytes(const struct hold_list *list)
{
    return list != NULL ? bytes_for(list->cap) : 0;
}

void hold_list_free(struct hold_list *list)
{
    mem_free(list);
}
