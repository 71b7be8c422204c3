/*
 * memory_private.h: the inside of the memory store, shared by memory_store.c (checks) and memory_holds.c (what is
 * reserved and settled).
 */
#ifndef RL_STORE_MEMORY_PRIVATE_H
#define RL_STORE_MEMORY_PRIVATE_H

#include "store/memory_notes.h"
#include "store/memory_store.h"
#include "store/memory_table.h"

/* One member of the op being decided. */
struct seat {
    struct seat *first;         /* the first seat of its key: what follows is kept there */
    struct memory_entry *entry; /* NULL while not in the table */
    struct state fresh;         /* stands in for the entry's */
    struct run run;
    int64_t seen1, seen2, keep; /* from view */
    int64_t s1, s2;             /* with the charges so far */
    int64_t units;              /* to be charged */
};

struct memory_store {
    const struct clock *clock; /* not owned */
    struct memory_table table;
    struct memory_notes notes;
    bool sweep;
    bool counted;
    size_t n_added;                       /* since the last sweep */
    int64_t swept_us;                     /* CLOCK_MONOTONIC of the last sweep */
    bool many_expired;                    /* it found many: go on in the next turn, whenever that is */
    struct seat seats[POLICY_LIMITS_MAX]; /* used within one submit only */
};

/* The steps of a decision: each member's state as of now; what is charged into it; the answers. */
void memory_open(struct memory_store *memory, const struct op *op);
/* Charge the seats' units. 0, or -1 without memory, nothing written. */
int memory_write(struct memory_store *memory, const struct op *op);
void memory_unpin(struct memory_store *memory, const struct op *op);
enum submit memory_decide(struct memory_store *memory, struct op *op);
/* The same of an op that has taken what has ended before. */
enum submit memory_answer(struct memory_store *memory, struct op *op);

/* Give back what has ended of the op's holds. True where anything was. */
bool memory_holds_take_ended(struct memory_store *memory, const struct op *op);
enum submit memory_reserve(struct memory_store *memory, struct op *op);
enum submit memory_settle(struct memory_store *memory, struct op *op);

#endif
