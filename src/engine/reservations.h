/*
 * reservations.h: which reservations this daemon has made or is making, and when each of them ends.
 *
 * A plain check in Redis does not look for reservations that have ended, so the daemon that made one gives its units
 * back itself, by a sweep of its policy and key (OP_SWEEP) at its end; also if it may have made one, and the
 * connection was lost. Until then its connection can abandon it (calls.h).
 *
 * An entry lives from the asking until nothing is left to give back: no check is about to make it, the store has
 * nothing of it, nor has the failure table. Bounded: beyond RESERVATIONS_MAX, or without memory, a reservation has no
 * entry, and its units come back with the next reserve, settle or cancel of that policy and key.
 */
#ifndef RL_ENGINE_RESERVATIONS_H
#define RL_ENGINE_RESERVATIONS_H

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "base/slice.h"
#include "engine/calls.h"
#include "limit/limit.h"
#include "store/store.h"

enum { RESERVATIONS_MAX = 65536 };

struct reservation {
    struct call call;
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
    size_t n;
};

void reservations_init(struct reservations *reservations, struct calls *calls);
void reservations_fini(struct reservations *reservations); /* frees those that are inside */

/* An entry for a check that is about to reserve, by which `client` can abandon it. NULL = full, or without memory. */
struct reservation *reservations_ask(struct reservations *reservations, struct check *check, const char *policy,
                                     struct slice key);
/* The store has made it, or may have: it ends ttl_ms after from_us at the latest; INT64_MAX: no timer knows. Where its
 * request id brought one that is inside already, that one is this call's from now on. False without memory. */
bool reservations_made(struct reservations *reservations, struct reservation *reservation,
                       const struct op_reservation *made, int64_t from_us);
/* The failure table has made it, because of this. */
void reservations_made_locally(struct reservations *reservations, struct reservation *reservation, enum reason reason,
                               const struct op_reservation *made, int64_t now_us);
/* The check is over: unless it was made, the entry is gone. */
void reservations_let_go(struct reservations *reservations, struct reservation *reservation);
/* The store, or the failure table, has nothing of it any more: the entry may be gone. */
void reservations_forget(struct reservations *reservations, uint64_t id); /* one that is not inside is fine */
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
