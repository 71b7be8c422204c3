/*
 * memory_check.h: the memory store's ops on limits: checks, and what its other ops need of a key's state.
 * memory_store.c has the store itself, with resets, slots and reservations.
 */
#ifndef RL_STORE_MEMORY_CHECK_H
#define RL_STORE_MEMORY_CHECK_H

#include "store/memory_records.h"
#include "store/memory_store.h"
#include "store/memory_table.h"

/* One limit of the op being decided. */
struct open_limit {
    struct memory_key key;
    struct memory_entry *entry; /* NULL while not in the table */
    struct state fresh;         /* used as long as there is no entry */
    struct memory_entry *pause; /* of its penalty; NULL while not in the table */
    struct view view;           /* with the charge, once it is decided */
    int64_t units;              /* to be charged */
};

struct memory_store {
    const struct clock *clock; /* not owned */
    struct memory_table table;
    struct memory_records records;
    bool sweep;
    bool exact;
    bool is_down; /* as a test wants it */
    bool counted;
    int64_t swept_us;                            /* CLOCK_MONOTONIC of the last sweep */
    bool many_expired;                           /* it found many: go on in the next tick, whenever that is */
    struct open_limit opened[POLICY_LIMITS_MAX]; /* used within one submit only */
};

int64_t memory_now_ms(const struct memory_store *memory);
struct memory_entry *memory_find_state(struct memory_store *memory, struct op_member *member);
/* The member's limit as of now, without a state. */
void memory_view_now(struct memory_store *memory, const struct op_member *member, struct view *view);

/* Gives back up to `units` that were charged at charged_us; returns how many. ret_view is the state after it. */
int64_t memory_give_back(struct memory_store *memory, struct op_member *member, int64_t units, int64_t charged_us,
                         struct view *ret_view);

/* Gives back the slots of that reservation. */
void memory_end_slots(struct memory_store *memory, const struct op *op, uint64_t id);

/* Call it after a change of the list: removes an empty one, unless it is pinned, and updates its expiry. */
void memory_update_reservations(struct memory_store *memory, struct memory_entry *entry);
/* Notes in the states of an open op that their key now has a list of reservations (or of tombstones). */
void memory_set_reserved(struct memory_store *memory, const struct op *op);

/* Give back what has ended, and open each limit's state. */
void memory_open(struct memory_store *memory, const struct op *op);
void memory_unpin(struct memory_store *memory, const struct op *op); /* close them */
/* Charge up to `units` to every limit of an open op, as many as fit into all of them, with their debt. Returns how
 * many, or -1 without memory, nothing changed. */
int64_t memory_charge_used(struct memory_store *memory, const struct op *op, int64_t units);

/* Decide a check or peek of one limit, without a record, while nothing is reserved: the usual case. */
enum submit memory_check_one(struct memory_store *memory, struct op *op);
/* Decide checks, peeks and refunds. */
enum submit memory_check(struct memory_store *memory, struct op *op);
/* The same after memory_open(), which has given back ended reservations, and without a record. */
enum submit memory_check_again(struct memory_store *memory, struct op *op);

#endif
