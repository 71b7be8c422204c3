/*
 * engine.h: the way of a check between the edges and the store.
 *
 *   engine_check_new    from the pool; NULL = OVERLOADED, now
 *   check_join ... check_seal          (check.h)
 *   engine_submit  ───┬ answered now: by its policies alone, by the memory store, or because the store is down or a cap
 *                     │ is reached (failure.h)
 *                     └ the store keeps it
 *   engine_flush        end of the tick
 *   on_op_done | engine_expire, whichever is first ─▶ check->done, exactly once
 *   check_release       back to the pool when owner and store have both let go
 *
 * The engine also asks a policy's candidate (candidate.h), divides a check_all whose counters lie in several places of
 * the store (split.h), keeps the slots of connections alive (slots.h), and gives back what was reserved, by sweeps of
 * its own, once its time is over (reservations.h). A connection can abandon an acquire or a reserve (engine_abandon).
 *
 * Time is read from the clock only; the wiring calls engine_expire() when engine_next_deadline() says so. Nothing here
 * knows of sockets, libuv or msgpack.
 */
#ifndef RL_ENGINE_ENGINE_H
#define RL_ENGINE_ENGINE_H

#include "base/clock.h"
#include "engine/check.h"
#include "engine/slots.h"
#include "policy/policy.h"
#include "store/store.h"

enum { ENGINE_EXPIRED_UNITS = 384 }; /* of work in engine_expire(), as of engine_take_work() */

struct engine;
struct failure;
struct inline_policies;

struct engine_options {
    uint32_t max_inflight;   /* checks alive at once, each of a check_all */
    uint64_t local_max_keys; /* of the table that answers on_failure: local */
    bool shadow_default;     /* defaults.shadow, to be counted */
    bool is_exact;           /* a test's: the store forgets nothing that counts, and what it cannot keep is an error */
    struct slots_options slots;
};

/* NULL without memory. Takes over `store` (closed by engine_close) and one reference to `set`. */
struct engine *engine_new(struct clock *clock, struct store store, struct policy_set *set,
                          const struct engine_options *options);
/* The daemon stops, and every owner has left: slots and leased units are given back, as engine_expire() and the store
 * go on, until nothing is held. */
void engine_stop(struct engine *engine);
bool engine_holds_any(const struct engine *engine);
/* Closes the store; every check still in the engine is answered (failure answer, reason down) before. on_closed runs
 * once nothing is left; the engine is gone then. */
void engine_close(struct engine *engine, void (*on_closed)(void *arg), void *arg);

struct policy_set *engine_policies(struct engine *engine);               /* borrowed */
uint64_t engine_policies_generation(const struct engine *engine);        /* another number for each set */
void engine_set_policies(struct engine *engine, struct policy_set *set); /* reload; takes over the reference */
/* Where the policies that requests bring are kept, so that their reservations are given back; not owned. */
void engine_set_inline_policies(struct engine *engine, struct inline_policies *inline_policies);
void engine_set_options(struct engine *engine, const struct engine_options *options);

/* A new check of this kind, of a client (store.h), with the present policies; NULL = the cap is reached or memory is
 * short (counted in overloaded). */
struct check *engine_check_new(struct engine *engine, enum op_kind kind, uint64_t client);
bool engine_is_full(const struct engine *engine); /* it is the cap */
/* Replaces the check's reference to the present policies by one to `set`. */
void check_use_set(struct check *check, struct policy_set *set);
/* Decide a sealed check, or all of a check_all whose first it is. check->done runs exactly once, now or later. No two
 * of a check_all are of the same policy and key, and none is in shadow. */
void engine_submit(struct engine *engine, struct check *check);
/* Do the counters of a sealed check_all lie in several places of the store (split.h)? Then no request id can be kept
 * for it. */
bool engine_splits(const struct engine *engine, const struct check *check);
/* Answers those checks now that would be answered in this tick anyway (store_submit_ahead). It is for the order of
 * answers, and for counting what is in flight; the order in which ops take effect is the store's. */
void engine_decide_ahead(struct engine *engine);
/* Moves the limits' time of a clock that a test moves. */
void engine_set_time(struct engine *engine, int64_t wall_us);
/* Lets the store of such a test fail, decide again, or begin anew, with all that was held and remembered, at time 0. */
void engine_test_store(struct engine *engine, enum store_test what);
/* Make `check` (sealed, not submitted) one of OP_ACQUIRE whose slot `owner` will hold, if it is allowed.
 * check->slot is that slot within done. 0, or -1 if no more slots are available (counted in overloaded). */
int engine_acquires(struct engine *engine, struct check *check, struct slot_owner *owner);
/* Make `check` (new) one of OP_RELEASE for a slot that is held (slots_find). Once it is submitted the slot is left. */
void engine_releases(struct check *check, struct slot *slot);
/* Gives back what the acquire or reserve of this client and msgid (check->msgid) was or will be granted; one that waits
 * for its answer gets an error now. Nothing if there is no such call, or nothing of it is left. */
void engine_abandon(struct engine *engine, uint64_t client, uint64_t msgid);
/* The owner needs the check no more. After done; or before, submitted or not: then done will not run. */
void check_release(struct check *check);

void engine_flush(struct engine *engine);
void engine_update_counters(struct engine *engine);        /* engine_counters are those of this moment */
int64_t engine_next_deadline(const struct engine *engine); /* CLOCK_MONOTONIC us; INT64_MAX = none */
/* Answers checks whose deadline has passed, gives back ended reservations, renews slots: some of each, and
 * engine_next_deadline() tells when to go on. */
void engine_expire(struct engine *engine);
/* The work since the last call for checks that wait for the store, and for failure answers, in units of about a plain
 * check. Who takes messages takes that much less: else more comes in than can be answered in time when the store is
 * away. */
uint32_t engine_take_work(struct engine *engine);
uint32_t engine_max_inflight(const struct engine *engine);
size_t engine_n_available(const struct engine *engine); /* how many more checks the cap allows */
size_t engine_n_live(const struct engine *engine);      /* checks out of the pool */

/* So many daemons share the store now, as it has counted them; 0 = it has not. For on_failure: local. */
void engine_set_n_daemons(struct engine *engine, uint32_t n);
/* As store_walk(). */
bool engine_walk(struct engine *engine, struct store_walk *walk);
/* Why the store refused an op (op.is_refused) within its `done`, in the server's own words, any bytes. */
const char *engine_store_error(const struct engine *engine);
const char *engine_store_trial(const struct engine *engine);       /* as store_trial_text() */
const struct failure *engine_failure(const struct engine *engine); /* borrowed; for reading */
struct slots *engine_slots(struct engine *engine);                 /* borrowed */

#endif
