/*
 * reservations.h: which reservations this daemon has made or is making, and when each of them ends.
 *
 * A plain check in Redis does not look for reservations that have ended, so the daemon that made one gives its units
 * back itself, by a sweep of its policy and key (OP_SWEEP) at its end; also if it may have made one, and the
 * connection was lost. Until then its connection can abandon it (calls.h).
 *
 * An entry lives from the asking until nothing is left to give back: no check is about to make it, the store has
 * nothing of it, nor has the failure table. Bounded: beyond RESERVATIONS_MAX (fair_cap.h), or without memory, a
 * reservation has no entry, and its units come back with the next reserve, settle or cancel of that policy and key.
 */
#ifndef RL_ENGINE_RESERVATIONS_H
#define RL_ENGINE_RESERVATIONS_H

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "base/slice.h"
#include "engine/calls.h"
#include "engine/fair_cap.h"
#include "limit/limit.h"
#include "store/store.h"

struct check;
struct engine;
struct plan;
struct policy_set;

enum { RESERVATIONS_MAX = 65536 };

struct reservation {
    struct call call;
    uint64_t client;            /* that asked for it first: it counts as that one's */
    struct list link;           /* in reservations->all, until it is taken */
    struct heap_node node;      /* its timer: at its end, or when to try again; none while a test sets the clock */
    struct map_node in_map;     /* by id, while is_made and not taken */
    struct op_reservation made; /* as the store made it, or may have */
    int64_t local_made_us;      /* the same of the failure table */
    enum reason local_reason;   /* not NONE: the failure table has it, because of this */
    int64_t end_us, until_us;   /* CLOCK_MONOTONIC: the latest end; from here on no store knows it any more */
    bool is_asked;              /* a check may still make it */
    bool is_made;               /* the store has it, as far as is known */
    bool is_doubtful;           /* of one that is_made: the store's answer was lost */
    bool is_abandoned;          /* it is to be cancelled */
    bool is_counted;            /* in the gauge */
    char policy[NAME_MAX_LEN + 1];
    size_t key_len;
    uint8_t key[];
};

struct reservations {
    struct calls *calls; /* not owned */
    struct list all;
    struct heap ends;
    struct map by_id;
    struct fair_cap inside;
};

void reservations_init(struct reservations *reservations, struct calls *calls);
void reservations_fini(struct reservations *reservations); /* frees those that are inside */

/* ---- of an OP_RESERVE: check->making is its entry ---- */

/* The store is about to be asked: makes the entry, by which its connection can abandon it. None if full, or without
 * memory. */
void reservations_ask(struct check *check);
/* The store has decided `check`: updates entries and counters, even if no owner waits for the answer; of an OP_SETTLE
 * too. */
void reservations_decided(const struct check *check);
/* The store has made the reservation, or may have: it ends its time after from_us at the latest; INT64_MAX: no timer
 * knows. If its request id brought one that is inside already, that one is this call's from now on. False: there is no
 * entry, or no memory. */
bool reservations_keep(const struct check *check, int64_t from_us);
/* The owner gets its answer. There is an entry. */
void reservations_answered(struct check *check);
/* The store is done with the check, or was not asked: unless the reservation was made, the entry is gone. */
void reservations_let_go(struct check *check);

/* ---- what is given back ---- */

/* The policy of that name, maybe an inline one; *ret_set holds it. NULL: it is gone. */
const struct policy *reservations_policy(const struct engine *engine, struct slice name, struct policy_set **ret_set);
/* What counts for a reservation's key now; *ret_set holds it. NULL: the policy is gone or has changed, so it is unknown
 * what the reservation was charged to. */
const struct plan *reservations_plan(const struct engine *engine, const struct reservation *reservation,
                                     struct policy_set **ret_set);
/* The failure table has nothing of it any more: the entry may be gone. */
void reservations_forget_local(struct reservations *reservations, struct reservation *reservation);
/* It could not be cancelled: at_us, or its end, becomes due. One that is not inside is fine. */
void reservations_cancel_later(struct reservations *reservations, uint64_t id, int64_t at_us);
int64_t reservations_next_us(const struct reservations *reservations); /* INT64_MAX = none */

/* The next that is due by now_us, the caller's from here on; NULL = none. Either reservation_free(), or
 * reservations_retry() at another time. */
struct reservation *reservations_take(struct reservations *reservations, int64_t now_us);
void reservations_retry(struct reservations *reservations, struct reservation *reservation, int64_t at_us);
void reservation_free(struct reservation *reservation);

#endif
