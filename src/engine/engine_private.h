/*
 * engine_private.h: the engine's struct, for its own files.
 *
 *   abandon.c    what a connection gives up, and
 *   expire.c     what becomes due, both on top of
 *   engine.c     the way of a check, and
 *   test_store.c what a test does to the store, and
 *   merge_back.c what the failure table has admitted is charged in the store
 */
#ifndef RL_ENGINE_ENGINE_PRIVATE_H
#define RL_ENGINE_ENGINE_PRIVATE_H

#include "engine/calls.h"
#include "engine/candidate.h"
#include "engine/engine.h"
#include "engine/failure.h"
#include "engine/fair_cap.h"
#include "engine/merge_back.h"
#include "engine/overdue.h"
#include "engine/reservations.h"
#include "engine/split.h"
#include "engine/unit_leases.h"

enum { ENGINE_RETRY_US = 5000000 }; /* until what could not be given back is tried again */

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
    struct candidates candidates;
    struct splits splits;
    struct unit_leases leases;
    struct calls calls;
    struct reservations reservations;
    uint64_t n_reserved; /* ever */
    struct slots slots;
    struct merge_back merge_back;
    uint32_t max_inflight;
    struct fair_cap orphans; /* checks that their owner has let go, and whose reply is still to come */
    struct fair_cap own;     /* checks that the engine itself needs, by the client that they are for */
    bool closing;
    bool store_closed;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* ---- engine.c, for abandon.c and expire.c ---- */

/* A check that the engine itself needs (a sweep, a cancel) to give back what `client` had; no request waits for it. It
 * takes that client's turn in the store. NULL: that client has too many of them, or memory is short. */
struct check *engine_internal_check(struct engine *engine, struct policy_set *set, const struct plan *plan,
                                    struct slice key, enum op_kind kind, uint64_t client,
                                    void (*done)(struct check *check));
bool engine_submit_internal(struct check *check); /* seals it, too; false without memory: the check is released */
/* The deadline of a check that waits has passed. */
void engine_too_late(struct check *check);
/* The owner of a check that waits gets an error now; what the store still grants is given back. */
void engine_give_up(struct check *check);
/* Gives a reservation of this plan and key back at once; if this fails, later. In the store, or (local_reason) in the
 * failure table. `client` asks: so it takes effect in the order of that connection's calls. */
void engine_cancel(struct engine *engine, struct policy_set *set, const struct plan *plan, struct slice key,
                   const struct op_reservation *reservation, enum reason local_reason, uint64_t client);

#endif
