/*
 * placed_store.h: a store with places, as a cluster has hash slots: a key lies in the place of its first letter.
 *
 * It decides on a memory store, and holds every op until the test replies, so the parts of a split check are charged in
 * whatever order the test wants. It lives in the test's memory.
 */
#ifndef RL_TESTS_PLACED_STORE_H
#define RL_TESTS_PLACED_STORE_H

#include "store/memory_store.h"

enum { PLACES = 26 };

struct placed_store {
    const struct clock *clock;   /* not owned */
    struct memory_store *memory; /* owned, until the engine closes */
    struct store inside;         /* its handle */
    struct list held;            /* ops, oldest first */
    size_t n_held, n_submitted, n_flushed;
    uint32_t server;      /* store_server() */
    bool is_down[PLACES]; /* refuses */
    bool holds_unsent;    /* a held op was not sent, and can be withdrawn */
    bool decides_at_once;
    bool is_closed;
};

void placed_init(struct placed_store *placed, const struct clock *clock);
struct store placed_handle(struct placed_store *placed);

struct op *placed_held(const struct placed_store *placed, size_t i); /* the i-th held op; 0 = oldest */
/* Does what the i-th held op asks; its reply is still to come. */
void placed_decide(struct placed_store *placed, size_t i);
/* The reply, of an op that is decided, or a loss. */
void placed_end(struct placed_store *placed, size_t i, enum op_outcome outcome);
/* Both. */
void placed_reply(struct placed_store *placed, size_t i);
void placed_reply_all(struct placed_store *placed); /* also to what is submitted meanwhile */

#endif
