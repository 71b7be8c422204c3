/*
 * engine_private.h: the engine's struct, for the files that are one module, so that calls among them may go in circles.
 *
 *   engine.c        the way of a check, and what becomes due
 *   test_store.c    what a test does to the store
 *   give_back.c     the engine's own checks, by which it gives back what was reserved or abandoned
 *   failure.c       failure answers; what its table admits of policies with merge_back goes to
 *   merge_back.c    which charges it once the store is back, and asks how much of it the table still counts
 *   reservations.c  what is reserved; reads the policies
 */
#ifndef RL_ENGINE_ENGINE_PRIVATE_H
#define RL_ENGINE_ENGINE_PRIVATE_H

#include "engine/calls.h"
#include "engine/candidate.h"
#include "engine/engine.h"
#include "engine/errand.h"
#include "engine/failure.h"
#include "engine/fair_cap.h"
#include "engine/merge_back.h"
#include "engine/overdue.h"
#include "engine/reservations.h"
#include "engine/split.h"
#include "engine/unit_leases.h"

struct engine {
    struct clock *clock; /* not owned */
    struct store store;
    struct policy_set *set;                  /* one reference */
    struct inline_policies *inline_policies; /* not owned; NULL = none */
    uint64_t generation;                     /* how many sets came before this one */
    struct check_pool pool;
    struct deadlines deadlines; /* of every check that waits for the store */
    struct overdue overdue;     /* those of them that have passed */
    uint32_t work;              /* engine_take_work() */
    struct failure failure;
    struct errands errands;
    struct splits splits;
    struct unit_leases leases;
    struct calls calls;
    struct reservations reservations;
    uint64_t n_reserved; /* ever */
    struct slots slots;
    struct merge_back merge_back;
    uint32_t max_inflight;
    struct fair_cap orphans; /* checks that their owner has let go, and whose reply is still to come */
    bool closing;
    bool store_closed;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* ---- engine.c, for give_back.c ---- */

/* The owner of a check that waits gets an error now; what the store still grants is given back. */
void engine_give_up(struct check *check);

/* ---- give_back.c, for engine.c ---- */

/* Gives back a reservation that is due (reservations_take): it has ended, or could not be cancelled before. */
void engine_sweep(struct engine *engine, struct reservation *reservation);
/* The store is done with an OP_RESERVE. If its owner has left, has abandoned it or has another answer, no settle will
 * come for the reservation: it is cancelled, unless a request id lets the owner ask for it again. If the connection was
 * lost, there may be a reservation: a timer is started for it. */
void engine_follow_up_reserve(struct check *check, enum op_outcome outcome);

#endif
