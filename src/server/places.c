/* places.c: a table of places, for session_input.c; views.c reads it in order. */
#include "server/places.h"

#include "base/alloc.h"
#include "base/assert.h"

enum { PLACES_FIRST = 64 };

static int grow(struct places *places)
{
    uint32_t cap = places->cap == 0 ? PLACES_FIRST : 2 * places->cap;
    void **items = mem_realloc(places->items, cap * sizeof *items);
    if (items == NULL) return -1;
    places->items = items;
    uint32_t *free = mem_realloc(places->free, cap * sizeof *free);
    if (free == NULL) return -1;
    places->free = free;
    places->cap = cap;
    return 0;
}

int places_take(struct places *places, void *item, uint32_t *ret_place)
{
    CHECK(item != NULL);
    if (places->n_free == 0 && places->n == places->cap && grow(places) != 0) return -1;
    uint32_t place = places->n_free > 0 ? places->free[--places->n_free] : places->n++;
    places->items[place] = item;
    *ret_place = place;
    return 0;
}

void places_leave(struct places *places, uint32_t place)
{
    CHECK(place < places->n && places->items[place] != NULL);
    places->items[place] = NULL;
    places->free[places->n_free++] = place;
}

void places_fini(struct places *places)
{
    CHECK(places->n_free == places->n);
    mem_free(places->items);
    mem_free(places->free);
}
