/* reservation_list.c: a sorted array of reservations and tombstones, for the memory store. */
#include "store/reservation_list.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/store.h"

enum { FIRST_CAP = 4, FORGET_AT_ONCE = RESERVATIONS_PER_KEY_MAX / 16 };

struct reservation_list {
    size_t n, cap;
    size_t first; /* where they begin: what ends leaves its place in front */
    size_t n_tombstones, n_moved;
    int64_t tombstones_from_ms, moved_from_ms; /* none of them ends earlier */
    struct reserved at[];
};

static size_t bytes_for(size_t cap)
{
    return sizeof(struct reservation_list) + cap * sizeof(struct reserved);
}

static void move_reserved(struct reservation_list *list, size_t to, size_t from, size_t n)
{
    memmove(&list->at[to], &list->at[from], n * sizeof list->at[0]);
}

/* As the ZSET has them: of one end, by the bytes of the id, which are little-endian there. */
static bool ends_before(const struct reserved *reservation, uint64_t id, int64_t end_ms)
{
    if (reservation->end_ms != end_ms) return reservation->end_ms < end_ms;
    return __builtin_bswap64(reservation->id) < __builtin_bswap64(id);
}

/* The index of the reservation of that id and end, or where to insert it. */
static size_t index_of_reservation(const struct reservation_list *list, uint64_t id, int64_t end_ms)
{
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ends_before(&list->at[list->first + middle], id, end_ms))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Removes some of the tombstones that end soonest; several at once, because all entries behind them move. */
static void forget_tombstones(struct reservation_list *list)
{
    if (list->n_tombstones == 0) return;

    struct reserved *at = &list->at[list->first];
    size_t left = list->n_tombstones < FORGET_AT_ONCE ? list->n_tombstones : FORGET_AT_ONCE;
    size_t i = index_of_reservation(list, 0, list->tombstones_from_ms), n_kept = i;
    list->n_tombstones -= left;
    for (; left > 0; i++) {
        CHECK(i < list->n);
        if (!at[i].settled) {
            at[n_kept++] = at[i];
            continue;
        }

        list->n_moved -= at[i].moved;
        list->tombstones_from_ms = at[i].end_ms;
        left--;
    }

    move_reserved(list, list->first + n_kept, list->first + i, list->n - i);
    list->n -= i - n_kept;
}

int reservation_list_reserve(struct reservation_list **list)
{
    struct reservation_list *old = *list;
    if (old != NULL && old->n == RESERVATIONS_PER_KEY_MAX) forget_tombstones(old);
    if (old != NULL && old->n < old->cap) return 0;

    size_t cap = old == NULL ? FIRST_CAP : old->cap * 2;
    if (cap > RESERVATIONS_PER_KEY_MAX) return -1;
    struct reservation_list *grown = mem_realloc(old, bytes_for(cap));
    if (grown == NULL) return -1;
    if (old == NULL) *grown = (struct reservation_list){0};
    grown->cap = cap;
    *list = grown;
    return 0;
}

void reservation_list_add(struct reservation_list *list, const struct reserved *reservation)
{
    CHECK(list->n < list->cap);

    size_t i = index_of_reservation(list, reservation->id, reservation->end_ms), first = list->first;
    if (first > 0 && (i < list->n - i || first + list->n == list->cap)) {
        move_reserved(list, first - 1, first, i);
        list->first--;
    } else {
        move_reserved(list, first + i + 1, first + i, list->n - i);
    }
    list->at[list->first + i] = *reservation;
    list->n++;

    if (reservation->settled && (list->n_tombstones++ == 0 || reservation->end_ms < list->tombstones_from_ms))
        list->tombstones_from_ms = reservation->end_ms;
    if (reservation->moved && (list->n_moved++ == 0 || reservation->end_ms < list->moved_from_ms))
        list->moved_from_ms = reservation->end_ms;
}

void reservation_list_remove(struct reservation_list *list, size_t i)
{
    CHECK(i < list->n);

    size_t first = list->first;
    list->n_tombstones -= list->at[first + i].settled;
    list->n_moved -= list->at[first + i].moved;

    if (i < list->n - i - 1) {
        move_reserved(list, first + 1, first, i);
        list->first++;
    } else {
        move_reserved(list, first + i, first + i + 1, list->n - i - 1);
    }
    list->n--;
}

size_t reservation_list_len(const struct reservation_list *list)
{
    return list != NULL ? list->n : 0;
}

const struct reserved *reservation_list_at(const struct reservation_list *list, size_t i)
{
    CHECK(i < list->n);
    return &list->at[list->first + i];
}

/* NULL: none of that id ends then. */
static const struct reserved *find_at(const struct reservation_list *list, uint64_t id, int64_t end_ms)
{
    size_t i = index_of_reservation(list, id, end_ms);
    const struct reserved *reservation = &list->at[list->first + i];
    return i < list->n && reservation->id == id && reservation->end_ms == end_ms ? reservation : NULL;
}

const struct reserved *reservation_list_find(const struct reservation_list *list, uint64_t id, int64_t end_ms,
                                             size_t *ret_i)
{
    if (list == NULL) return NULL;

    const struct reserved *found = find_at(list, id, end_ms);
    if (found == NULL) found = find_at(list, id, end_ms + RESERVATION_GRACE_MS);
    if (found == NULL && list->n_moved > 0) {
        /* Those moved were put a day and more ahead, where few others are. */
        for (size_t i = index_of_reservation(list, 0, list->moved_from_ms); i < list->n && found == NULL; i++) {
            const struct reserved *reservation = &list->at[list->first + i];
            if (reservation->moved && reservation->id == id) found = reservation;
        }
    }
    if (found != NULL) *ret_i = (size_t)(found - &list->at[list->first]);
    return found;
}

size_t reservation_list_bytes(const struct reservation_list *list)
{
    return list != NULL ? bytes_for(list->cap) : 0;
}

void reservation_list_free(struct reservation_list *list)
{
    mem_free(list);
}
