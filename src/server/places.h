/*
 * places.h: a place for each connection, which it keeps as long as it is open. A view that comes in parts goes on at a
 * place: a connection that is there all the time is in it once, however others come, go, or ask.
 */
#ifndef RL_SERVER_PLACES_H
#define RL_SERVER_PLACES_H

#include <stdint.h>

struct places {
    void **items; /* owned; NULL: free */
    uint32_t n;   /* places that were ever taken */
    uint32_t cap;
    uint32_t *free; /* owned; the places that are free */
    uint32_t n_free;
};

int places_take(struct places *places, void *item, uint32_t *ret_place); /* 0, or -1 without memory */
void places_leave(struct places *places, uint32_t place);
void places_fini(struct places *places);

#endif
