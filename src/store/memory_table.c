#include "store/memory_table.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/counters.h"
#include "base/hash.h"
#include "base/random.h"
#include "limit/lease_list.h"
#include "limit/policy.h"
#include "limit/time_ring.h"
#include "store/store.h"

enum {
    SAMPLE = 8,
    ALLOC_OVERHEAD = 16, /* the heap's own bytes per block */
    PLACE_BYTES = 16,    /* an entry's share of the map's slots and of the array */
    HOLDS = UINT8_MAX,   /* in place of an algorithm: the entry is a list of holds */
};

/* A hold's longest time limit, the time that a settled one is remembered, and the time until its list expires. */
#define HOLDS_LIFE_US ((HOLD_TTL_MAX_MS + 2 * HOLD_GRACE_MS) * INT64_C(1000))

int memory_table_init(struct memory_table *table, size_t max_keys, uint64_t max_bytes)
{
    if (max_keys < 1) max_keys = 1;
    if (max_keys > UINT32_MAX - MEMORY_TABLE_SPARE) max_keys = UINT32_MAX - MEMORY_TABLE_SPARE;
    /* The slack: an op's own entries are never evicted for each other. */
    size_t width = max_keys + MEMORY_TABLE_SPARE;
    *table = (struct memory_table){.width = width, .max_keys = max_keys, .max_bytes = max_bytes};
    table->random = hash_keyed("memory_table", 12);
    if (map_init(&table->map, width) < 0) return -1;
    table->entries = mem_zalloc(width * sizeof(struct memory_entry *));
    if (table->entries == NULL) {
        map_fini(&table->map);
        return -1;
    }
    return 0;
}

void memory_table_fini(struct memory_table *table)
{
    while (table->n > 0) memory_table_remove(table, table->entries[table->n - 1]);
    mem_free(table->entries);
    map_fini(&table->map);
}

/* The algorithm is part of the name: foreign prefixes may be shared by policies whose states are not. */
struct name {
    uint8_t algo; /* or HOLDS */
    struct slice head;
    struct slice key;
};

static struct name name_of(const struct limit *limit, struct slice key)
{
    return (struct name){(uint8_t)limit->algo, {(const uint8_t *)limit->key_head, limit->key_head_len}, key};
}

static struct name name_of_holds(const struct policy *policy, struct slice key)
{
    return (struct name){HOLDS, slice_of(policy->name), key};
}

/* Peers choose the key, so that part is keyed; the head is ours. */
static uint64_t hash_of(const struct name *name)
{
    uint64_t head = hash_stable(HASH_STABLE_START + name->algo, name->head.data, name->head.len);
    return hash_keyed(name->key.data, name->key.len) ^ head;
}

static bool is_named(const struct memory_entry *entry, const struct name *name)
{
    return entry->key_len == name->key.len && entry->head_len == name->head.len && entry->algo == name->algo &&
           memcmp(entry->key, name->head.data, entry->head_len) == 0 &&
           memcmp(entry->key + entry->head_len, name->key.data, name->key.len) == 0;
}

static struct memory_entry *find(struct memory_table *table, const struct name *name)
{
    struct map_node *node = map_first(&table->map, hash_of(name));
    while (node != NULL && !is_named(CONTAINER_OF(node, struct memory_entry, node), name)) node = map_next_same(node);
    if (node == NULL) return NULL;
    struct memory_entry *entry = CONTAINER_OF(node, struct memory_entry, node);
    if (entry->generation == table->generation) return entry;
    memory_table_remove(table, entry);
    return NULL;
}

struct memory_entry *memory_table_find(struct memory_table *table, const struct limit *limit, struct slice key)
{
    const struct name name = name_of(limit, key);
    return find(table, &name);
}

struct memory_entry *memory_table_find_holds(struct memory_table *table, const struct policy *policy, struct slice key)
{
    const struct name name = name_of_holds(policy, key);
    return find(table, &name);
}

/* What a state of `limit` may last at most: a full bucket drains in window * burst / limit, and before that its debt
 * and what waits; a window ends in its length. */
static int64_t life_of(const struct limit *limit)
{
    int64_t most = limit->full + limit_debt(limit);
    int64_t windows = limit->limit > 0 ? div_up(most, limit->limit) : 1;
    int64_t life_us;
    if (__builtin_mul_overflow(limit->window_us, windows + 1, &life_us)) return INT64_MAX / 2;
    return life_us < INT64_MAX / 2 ? life_us + limit->max_wait_us : INT64_MAX / 2;
}

static uint32_t bytes_of(const struct memory_entry *entry)
{
    size_t n = sizeof *entry + entry->head_len + entry->key_len + ALLOC_OVERHEAD + PLACE_BYTES;
    return (uint32_t)(n + time_ring_bytes(entry->state.log) + lease_list_bytes(entry->state.leases) +
                      hold_list_bytes(entry->holds));
}

static struct memory_entry *add(struct memory_table *table, const struct name *name, int64_t life_us, int64_t now_us)
{
    struct memory_entry *entry = mem_zalloc(sizeof *entry + name->head.len + name->key.len);
    if (entry == NULL) return NULL;
    entry->life_us = life_us;
    entry->generation = table->generation;
    entry->key_len = (uint32_t)name->key.len;
    entry->head_len = (uint16_t)name->head.len;
    entry->algo = name->algo;
    entry->pinned = true;
    memcpy(entry->key, name->head.data, name->head.len);
    if (name->key.len > 0) memcpy(entry->key + name->head.len, name->key.data, name->key.len);
    if (table->n >= table->max_keys) memory_table_evict(table, now_us);
    CHECK(table->n < table->width);
    entry->place = (uint32_t)table->n;
    table->entries[table->n++] = entry;
    table->n_holds += name->algo == HOLDS;
    map_insert(&table->map, &entry->node, hash_of(name));
    memory_table_update(table, entry, now_us);
    return entry;
}

struct memory_entry *memory_table_add(struct memory_table *table, const struct limit *limit, struct slice key,
                                      int64_t now_us)
{
    const struct name name = name_of(limit, key);
    return add(table, &name, life_of(limit), now_us);
}

struct memory_entry *memory_table_add_holds(struct memory_table *table, const struct policy *policy, struct slice key,
                                            int64_t now_us)
{
    const struct name name = name_of_holds(policy, key);
    return add(table, &name, HOLDS_LIFE_US, now_us);
}

void memory_table_relimit(struct memory_entry *entry, const struct limit *limit)
{
    entry->life_us = life_of(limit);
}

void memory_table_update(struct memory_table *table, struct memory_entry *entry, int64_t expires_us)
{
    uint32_t n_bytes = bytes_of(entry);
    table->n_bytes += n_bytes;
    table->n_bytes -= entry->n_bytes;
    entry->n_bytes = n_bytes;
    entry->expires_us = expires_us;
}

void memory_table_remove(struct memory_table *table, struct memory_entry *entry)
{
    struct memory_entry *last = table->entries[--table->n];
    table->entries[entry->place] = last;
    last->place = entry->place;
    table->n_bytes -= entry->n_bytes;
    table->n_stale -= entry->generation != table->generation;
    map_remove(&table->map, &entry->node);
    table->n_holds -= entry->algo == HOLDS;
    state_fini(&entry->state);
    hold_list_free(entry->holds);
    mem_free(entry);
}

/* After the clock stepped back an expiry may be further ahead than any state can be. */
static int64_t expiry_of(const struct memory_table *table, const struct memory_entry *entry, int64_t now_us)
{
    if (entry->generation != table->generation) return INT64_MIN;
    int64_t latest = now_us + entry->life_us;
    return entry->expires_us < latest ? entry->expires_us : latest;
}

bool memory_table_evict(struct memory_table *table, int64_t now_us)
{
    struct memory_entry *first = NULL;
    if (table->n == 0) return false;
    size_t at = random_below(&table->random, table->n);
    /* More than a sample are looked at only while all seen so far are pinned. */
    for (size_t i = 0; i < table->n && (i < SAMPLE || first == NULL) && i < SAMPLE + MEMORY_TABLE_SPARE; i++) {
        struct memory_entry *entry = table->entries[at];
        at = i < SAMPLE ? random_below(&table->random, table->n) : (at + 1) % table->n;
        if (entry->pinned) continue;
        if (first == NULL || expiry_of(table, entry, now_us) < expiry_of(table, first, now_us)) first = entry;
    }
    if (first == NULL) return false;
    memory_table_remove(table, first);
    return true;
}

bool memory_table_is_over(const struct memory_table *table)
{
    return table->n > table->max_keys || table->n_bytes > table->max_bytes;
}

size_t memory_table_sweep(struct memory_table *table, size_t n, int64_t now_us)
{
    size_t n_expired = 0;
    if (n > table->n) n = table->n;
    for (size_t i = 0; i < n; i++) {
        if (table->cursor == 0 || table->cursor > table->n) table->cursor = table->n;
        struct memory_entry *entry = table->entries[--table->cursor];
        int64_t expires_us = expiry_of(table, entry, now_us);
        if (expires_us > now_us) {
            entry->expires_us = expires_us;
            continue;
        }
        n_expired += expires_us != INT64_MIN;
        memory_table_remove(table, entry);
    }
    return n_expired;
}

void memory_table_forget_all(struct memory_table *table)
{
    table->generation++;
    table->n_stale = table->n;
}
