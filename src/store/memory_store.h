/*
 * memory_store.h: counters in this process: the embedded default, and the local table that answers
 * while Redis is away.
 *
 * Bounded in keys and in bytes: when full, of a small sample the counter goes whose loss admits the least
 * (memory_table.h; counted in memory_evicted; such a key starts afresh, so a full table errs towards allowing).
 * Expired keys are swept a few per tick. Decides synchronously: SUBMIT_DECIDED, or SUBMIT_OVERLOAD
 * if memory is short.
 */
#ifndef RL_STORE_MEMORY_STORE_H
#define RL_STORE_MEMORY_STORE_H

#include "base/clock.h"
#include "store/store.h"

struct memory_store;

struct memory_options {
    uint64_t max_keys;
    uint64_t max_bytes; /* keys and states together; 0 = 1 KiB per key of max_keys */
    bool sweep;         /* false under --test-clock: states count by their own content alone */
    bool exact;         /* with sweep: nothing that counts is evicted, what has no space is SUBMIT_OVERLOAD */
    bool counted;       /* update the memory_* gauges (the store itself, not the fallback table) */
};

/* NULL without memory. `clock` outlives the store; its wall_us is the limits' now. */
struct memory_store *memory_store_new(const struct clock *clock, const struct memory_options *options);
void memory_store_free(struct memory_store *memory); /* for those who hold it directly, instead of store_close() */
struct store memory_store_handle(struct memory_store *memory);

void memory_store_clear(struct memory_store *memory); /* forget every key */
/* Reload. Lowering evicts in later ticks; above the width chosen at start it is capped. */
void memory_store_set_max_keys(struct memory_store *memory, uint64_t max);
size_t memory_store_n_keys(const struct memory_store *memory);

#endif
