/*
 * counter_table.h: what a daemon keeps of some counters, found by limit and key.
 *
 * The table has sets of a few entries, all of one size, so a look-up takes the same time however many there are. Some
 * bits of a set's hashes lie next to each other, so that a look-up that finds nothing reads one line of memory; there
 * is space for what else the owner knows of the set's counters. A pointer to an entry is good until another one takes
 * its place.
 */
#ifndef RL_STORE_COUNTER_TABLE_H
#define RL_STORE_COUNTER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

enum {
    COUNTER_WAYS = 8,        /* entries of a set, at most */
    COUNTER_KEY_MAX = 128,   /* bytes of a limit's id; longer ones have no entry */
    COUNTER_EXTRA_SIZE = 32, /* bytes for each set that its owner may have */
};

struct counter_table {
    uint64_t n_sets;
    uint32_t n_ways; /* of a set */
    size_t entry_size, extra_size;
    size_t name_max;         /* bytes of the head of the key and the limit's id */
    uint8_t *memory;         /* owned; NULL before counter_table_reserve() */
    uint8_t *sets, *entries; /* in there */
};

/* For n_max entries, which are rounded down to full sets. extra_size: 0 or COUNTER_EXTRA_SIZE. */
void counter_table_init(struct counter_table *table, uint64_t n_max, size_t entry_size, size_t extra_size,
                        size_t name_max);
void counter_table_fini(struct counter_table *table);
bool counter_table_reserve(struct counter_table *table); /* takes the memory; false: there is none */
void counter_table_clear(struct counter_table *table);   /* every entry goes, and not what is next to them */

static inline bool counter_table_is_reserved(const struct counter_table *table)
{
    return table->memory != NULL;
}

/* May the counter have an entry? */
bool counter_table_fits(const struct counter_table *table, const struct op_member *member);

void *counter_table_find(const struct counter_table *table, struct op_member *member); /* the entry, or NULL */
/* A new entry for a counter that has none; its owner writes all of it. In a full set it replaces the one that was used
 * the longest ago, by last_us_of(); INT64_MAX: that one stays. NULL: all stay, or there is no memory. */
void *counter_table_add(struct counter_table *table, struct op_member *member,
                        int64_t (*last_us_of)(const void *entry));
/* What else is known of the counter's set. The memory must be reserved. */
void *counter_table_extra(const struct counter_table *table, struct op_member *member);

void counter_table_remove(struct counter_table *table, void *entry);
struct slice counter_table_key(const struct counter_table *table, const void *entry); /* the limit's id */

#endif
