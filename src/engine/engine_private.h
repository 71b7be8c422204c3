/*
 * engine_private.h: the engine's struct, for its own files.
 *
 *   abandon.c    what a connection gives up, and
 *   expire.c     what becomes due, both on top of
 *   engine.c     the way of a check, on top of
 *   reserving.c  what becomes of the reservation that an OP_RESERVE makes
 */
#ifndef RL_ENGINE_ENGINE_PRIVATE_H
#define RL_ENGINE_ENGINE_PRIVATE_H

#include "engine/calls.h"
#include "engine/candidate.h"
#include "engine/engine.h"
#include "engine/failure.h"
#include "engine/reservations.h"

struct engine {
    struct clock *clock; /* not owned */
    struct store store;
    struct policy_set *set;                  /* one reference */
    struct inline_policies *inline_policies; /* not owned; NULL = none */
    uint64_t generation;                     /* how many sets came before this one */
    struct check_pool pool;
    struct deadlines deadlines; /* of every check that waits for the store */
    uint32_t work;              /* engine_take_work() */
    struct failure failure;
    struct candidates candidates;
    struct calls calls;
    struct reservations reservations;
    uint64_t n_reserved; /* ever */
    struct slots slots;
    uint32_t max_inflight;
    size_t n_orphans; /* checks that their owner has let go, and whose reply is still to come */
    bool closing;
    bool store_closed;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

enum { SWEEP_RETRY_US = 5000000 }; /* until what could not be given back is tried again */

/* ---- engine.c, for abandon.c and expire.c ---- */

/* A check that the engine itself needs (a sweep, a cancel); no request waits for it. NULL: overloaded. */
struct check *engine_internal_check(struct engine *engine, struct policy_set *set, const struct plan *plan,
                                    struct slice key, enum op_kind kind, void (*done)(struct check *check));
bool engine_submit_internal(struct check *check); /* seals it, too; false without memory: the check is released */
/* The deadline of a check that waits has passed. */
void engine_too_late(struct check *check);
/* The owner of a check that waits gets an error now; what the store still grants is given back. */
void engine_give_up(struct check *check);
/* Gives a reservation of this plan and key back at once; if this fails, later. In the store, or (local_reason) in the
 * failure table. `client` asks: so it takes effect in the order of that connection's calls. */
void engine_cancel(struct engine *engine, struct policy_set *set, const struct plan *plan, struct slice key,
                   const struct op_reservation *reservation, enum reason local_reason, uint64_t client);

/* ---- reserving.c ---- */

/* The store has made the reservation, or may have. From from_us on its timer runs: a sweep gives its units back at its
 * end. False: there is no space for one more. */
bool reserving_keep(const struct check *check, int64_t from_us);
/* The store has decided `check`: updates timers and counters of reservations, even if no owner waits for the answer. */
void reserving_decided(const struct check *check);
/* The owner of an OP_RESERVE gets its answer. */
void reserving_answered(struct check *check);
/* The store is done with an OP_RESERVE, or was not asked. */
void reserving_let_go(struct check *check);
/* What counts for a reservation's key now; *ret_set holds it. NULL: the policy is gone or has changed, so it is unknown
 * what the reservation was charged to. */
const struct plan *reserving_plan(const struct engine *engine, const struct reservation *reservation,
                                  struct policy_set **ret_set);

#endif
