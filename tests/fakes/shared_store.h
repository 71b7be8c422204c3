/*
 * shared_store.h: one memory store that several engines ask, each over a connection of its own that delays ops and
 * replies as the test says, or is lost.
 */
#ifndef RL_TESTS_SHARED_STORE_H
#define RL_TESTS_SHARED_STORE_H

#include "base/clock.h"
#include "store/store.h"

struct shared_store {
    struct clock clock; /* the store's; frozen */
    struct store memory;
    void (*before_run)(struct op *op); /* an op will be decided now; may be NULL, as the next */
    void (*on_run)(struct op *op);     /* it was */
};

/* A connection. */
struct shared_link {
    struct shared_store *shared;
    bool is_direct;  /* ops are decided where they are submitted */
    bool is_down;    /* ops are refused */
    uint32_t server; /* store_server() */
    struct list sent;
    struct list replied; /* decided, and their `done` is still to run */
    size_t n_sent, n_replied;
    size_t n_asked; /* ops, ever */
};

void shared_store_init(struct shared_store *shared, int64_t wall_us);
void shared_store_fini(struct shared_store *shared);

void shared_link_init(struct shared_link *link, struct shared_store *shared, bool is_direct);
struct store shared_link_handle(struct shared_link *link);  /* SOURCE_REDIS */
void shared_link_run(struct shared_link *link, size_t n);   /* the store decides the first n ops */
void shared_link_reply(struct shared_link *link, size_t n); /* `done` of the first n of these */
void shared_link_lose(struct shared_link *link);            /* all end with OP_DOWN */

#endif
