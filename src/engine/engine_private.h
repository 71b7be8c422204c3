/*
 * engine_private.h: the inside of the engine, shared by engine.c (the way of a check) and engine_holds.c (what is
 * reserved).
 */
#ifndef RL_ENGINE_ENGINE_PRIVATE_H
#define RL_ENGINE_ENGINE_PRIVATE_H

#include "engine/candidate.h"
#include "engine/check_pool.h"
#include "engine/engine.h"
#include "engine/failure.h"
#include "engine/reservations.h"

struct engine {
    struct clock *clock; /* not owned */
    struct store store;
    struct policy_set *set; /* one reference */
    struct check_pool pool;
    struct deadlines deadlines; /* every submitted check without an answer */
    struct failure failure;
    struct candidates candidates;
    struct reservations reservations;
    uint64_t n_reserved; /* ever */
    struct slots slots;
    uint32_t max_inflight;
    size_t n_tombs; /* checks whose asker has let go and whose reply is still to come */
    bool closing;
    bool store_closed;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

void engine_start_hold(struct engine *engine, struct check *check); /* of an OP_RESERVE, before it is submitted */
/* The store has decided `check`, whether or not anybody still waits for that. */
void engine_note_hold(struct check *check);
/* The store has let go of an OP_RESERVE. Where its asker has left, or was told otherwise, nobody will settle what it
 * made: it is cancelled. Where the connection was lost there may be a hold all the same: its end is waited for. */
void engine_follow_up_hold(struct check *check, enum op_outcome outcome);
void engine_sweep_ended(struct engine *engine); /* give back some of what has been reserved until now */

#endif
