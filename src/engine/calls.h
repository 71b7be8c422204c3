/*
 * calls.h: the acquires and reserves that their connection can still abandon, by connection and msgid.
 *
 * An entry is part of what the call was, or will be, granted: a slot (slots.h) or a reservation (reservations.h). It is
 * inside from the asking until nothing is left to give back, so the table has the bounds of those two. If two calls
 * have one msgid, the later one is found.
 */
#ifndef RL_ENGINE_CALLS_H
#define RL_ENGINE_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"

struct check;

enum call_kind { CALL_ACQUIRE, CALL_RESERVE };

struct call {
    struct map_node node;
    enum call_kind kind;
    bool is_inside;
    uint64_t client, msgid;
    struct check *check; /* not owned; while its owner waits for the answer; else NULL */
};

struct calls {
    struct map map; /* without memory until the first call */
};

void calls_fini(struct calls *calls); /* must be empty */

/* `call` is found by this client and msgid from now on, in place of any earlier one. Without memory it is not found. */
void calls_add(struct calls *calls, struct call *call, uint64_t client, uint64_t msgid);
void calls_remove(struct calls *calls, struct call *call); /* one that is not inside is fine */
struct call *calls_find(const struct calls *calls, uint64_t client, uint64_t msgid); /* NULL = none */

#endif
