/*
 * memory_table.h: the memory store's keys and states, bounded in keys and in bytes.
 *
 * A map finds an entry by algorithm, key_head and client key; a dense array of the same entries
 * makes a random sample (for eviction) and a slice of the whole (for sweeping) cheap however full
 * the table is. One allocation per key; some of removed keys are kept for the next ones, because a limit that refills
 * quickly has keys that come and go all the time. Forgetting everything is one increment: entries of an
 * older generation count as gone, and are freed a slice per tick.
 *
 * A list of reservations is an entry too, under its policy and the client's whole key, which expires
 * RESERVATION_GRACE_MS after the last of its ends. So is the pause of a penalty, under the name of its counter, which
 * gives way like a counter that is used up.
 *
 * In a full table the entry whose loss admits the least gives way, out of a small sample: one that is over; else the
 * counter with the smallest share of its limit in use, of equal ones the one that is over first. So who checks many
 * fresh keys loses those, and not the counters that deny. Slots and lists of reservations are promises, and never give
 * way to a counter. They may have half of the table, so that there is always a counter that gives way; beyond that a
 * list takes the place of another one, and a slot is refused.
 *
 * A table that is `exact` forgets nothing that counts: what is over gives way, and else the new one is refused.
 */
#ifndef RL_STORE_MEMORY_TABLE_H
#define RL_STORE_MEMORY_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "base/slice.h"
#include "policy/policy.h"
#include "store/reservation_list.h"
#include "store/store.h"

/* In place of an algorithm: the entry is a list of reservations; it is the pause of a counter's penalty. */
enum { MEMORY_RESERVATIONS = UINT8_MAX, MEMORY_PAUSE = UINT8_MAX - 1 };

/* A reservation's longest time limit, the time that a settled one is remembered, and the time until its list expires.
 */
enum { MEMORY_RESERVATIONS_LIFE_S = (RESERVATION_TTL_MAX_MS + 2 * RESERVATION_GRACE_MS) / 1000 };

/* The entries of one op are never evicted for each other: its limits' states and pauses, and a list of reservations. */
enum { MEMORY_TABLE_SPARE = 2 * POLICY_LIMITS_MAX + 1 };

enum { MEMORY_ENTRY_SIZES = 6 }; /* of entries that are kept for the next keys */

struct memory_entry {
    /* What a decision reads and writes comes first, within one line of memory. */
    struct map_node node;
    union {
        struct state state;
        struct reservation_list *reserved; /* owned; of an entry that is a list of reservations */
    };
    int64_t expires_us; /* wall clock: when the state equals fresh again */

    uint32_t life_s;     /* no state of its limit lives longer */
    uint32_t index;      /* in entries */
    uint16_t generation; /* of the table when it came */
    uint16_t epoch;      /* of its key */
    uint32_t n_bytes;    /* as counted in the table */
    uint32_t key_len;
    uint8_t head_len;
    uint8_t kind;  /* the algorithm, or MEMORY_RESERVATIONS */
    bool pinned;   /* an op being decided points here */
    bool reserves; /* of a state: there may be reservations of its units */
    /* Of a counter: the share of its limit at the last change; of a bucket per us until it is over, of a log per unit.
     */
    float in_use;
    uint8_t name[]; /* key_head, then the client's key */
};

struct memory_table {
    struct map map;
    struct memory_entry **entries; /* owned, and what they point to; in no order */
    size_t width;                  /* space in entries */
    size_t n;
    size_t n_stale;          /* of them, of an older generation */
    size_t n_reserved_lists; /* of them, lists of reservations, stale ones included */
    size_t n_kept;           /* of them, those and slots */
    uint64_t kept_bytes;     /* theirs; of n_bytes */
    size_t n_added;          /* until the owner sets it to 0 */
    uint64_t n_evicted;      /* ever */
    uint64_t n_refused;      /* ever: entries of slots and reservations that had no space */
    size_t max_keys;
    uint64_t n_bytes;
    uint64_t max_bytes;
    uint16_t generation;
    bool exact;    /* set by the owner; its clock never steps back */
    size_t cursor; /* entries from here on were visited by the present sweep */
    uint64_t random;
    uint64_t prefetched;                        /* the hash of the last memory_table_prefetch() */
    struct map_node *spare[MEMORY_ENTRY_SIZES]; /* owned; entries of removed keys: of each size a list, by node.next */
    size_t n_spare;                             /* not in n_bytes */
};

int memory_table_init(struct memory_table *table, size_t max_keys, uint64_t max_bytes); /* 0, or -1 without memory */
void memory_table_fini(struct memory_table *table);

/* What an entry is called. The algorithm is part of it: foreign prefixes may be shared by policies whose states are
 * not. Its bytes are the caller's. */
struct memory_key {
    uint64_t hash;
    uint8_t kind;   /* the algorithm, or MEMORY_RESERVATIONS */
    uint16_t epoch; /* the limit's: an entry of another one counts as gone */
    struct slice head;
    struct slice key; /* the client's, or some of its parts */
};

struct memory_key memory_key_of_state(struct op_member *member);
/* `limit`: one of the policy's. */
struct memory_key memory_key_of_reservations(const struct limit *limit, struct slice key);
/* The pause of the limit's penalty. */
struct memory_key memory_key_of_pause(struct op_member *member);
/* The list of the ids that were merged into the limit's counter. */
struct memory_key memory_key_of_merges(struct op_member *member);

/* Does the entry count at now_us? Else it is of an older generation, or over. */
static inline bool memory_entry_counts(const struct memory_table *table, const struct memory_entry *entry,
                                       int64_t now_us)
{
    return entry->generation == table->generation && entry->expires_us > now_us;
}

/* Let a key's memory come into the processor's cache: its slot of the map now, and its entry with the next call. */
void memory_table_prefetch(struct memory_table *table, uint64_t hash);
struct memory_entry *memory_table_find(struct memory_table *table, const struct memory_key *key);
/* A fresh entry, pinned, for a key not inside; if the table is full another goes. NULL without memory, if slots and
 * reservations have their half, or if the table is exact and full. */
struct memory_entry *memory_table_add(struct memory_table *table, const struct memory_key *key, uint32_t life_s,
                                      int64_t now_us);
/* After its list may have grown. */
void memory_table_recount(struct memory_table *table, struct memory_entry *entry);
void memory_table_remove(struct memory_table *table, struct memory_entry *entry);

/* May slots and reservations take more bytes? */
bool memory_table_keeps_more(const struct memory_table *table);
/* After a counter's state was saved by `view`. */
void memory_entry_weigh(struct memory_entry *entry, const struct view *view);

/* An entry goes, unless none of a sample may. */
bool memory_table_evict(struct memory_table *table, int64_t now_us);
bool memory_table_is_over(const struct memory_table *table); /* its bounds, in keys or bytes */

/* Look at the next n entries, and free those that are stale, or expired at now_us, and not pinned. Returns how many had
 * expired. */
size_t memory_table_sweep(struct memory_table *table, size_t n, int64_t now_us);
void memory_table_forget_all(struct memory_table *table);

#endif
