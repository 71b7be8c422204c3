/*
 * scripted_store.h: a store that decides each op as the test sets, and does nothing by itself.
 *
 * It lives in the test's memory, so that a test can inspect it after engine_close().
 */
#ifndef RL_TESTS_SCRIPTED_STORE_H
#define RL_TESTS_SCRIPTED_STORE_H

#include "store/store.h"

enum scripted_mode {
    SCRIPTED_HOLD, /* keep the op until the test replies */
    SCRIPTED_DECIDE,
    SCRIPTED_REFUSE_DOWN,
    SCRIPTED_REFUSE_OVERLOAD,
    SCRIPTED_REFUSE_BREAKER,
};

struct scripted_store {
    enum scripted_mode mode;
    struct decision decision; /* of every reply, together with .removed and .found */
    bool removed, found;
    bool holds_unsent; /* a held op was not sent, and can be withdrawn */
    bool holds_close;  /* on_closed waits for scripted_finish_close() */
    struct list held;  /* ops, oldest first */
    size_t n_held;
    size_t n_submitted;
    size_t n_flushed;
    bool closed;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* Stores to come: a key lies in the place of its first byte (store_has_places). */
extern bool scripted_has_places;

void scripted_init(struct scripted_store *scripted); /* mode SCRIPTED_HOLD, with replies that allow */
struct store scripted_handle(struct scripted_store *scripted);

struct op *scripted_held(struct scripted_store *scripted, size_t i); /* the i-th held op; 0 = oldest */
/* Ends the i-th held op with this outcome. */
void scripted_end(struct scripted_store *scripted, size_t i, enum op_outcome outcome);
void scripted_end_all(struct scripted_store *scripted, enum op_outcome outcome);
/* Simulates a bug in a store: calls `done` twice for one op. */
void scripted_reply_twice(struct scripted_store *scripted);
void scripted_finish_close(struct scripted_store *scripted);

#endif
