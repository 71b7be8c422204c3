#include "store/memory_table.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/counters.h"
#include "base/hash.h"
#include "limit/policy.h"
#include "limit/time_ring.h"

enum {
    SAMPLE = 8,
    ALLOC_OVERHEAD = 16, /* the heap's own bytes per block */
    PLACE_BYTES = 16,    /* an entry's share of the map's slots and of the array */
};

int memory_table_init(struct memory_table *table, size_t max_keys, uint64_t max_bytes)
{
    if (max_keys < 1) max_keys = 1;
    if (max_keys > UINT32_MAX - POLICY_LIMITS_MAX) max_keys = UINT32_MAX - POLICY_LIMITS_MAX;
    /* The slack: an op's own entries are never evicted for each other. */
    size_t width = max_keys + POLICY_LIMITS_MAX;
    *table = (struct memory_table){.width = width, .max_keys = max_keys, .max_bytes = max_bytes};
    table->random = hash_keyed("memory_table", 12) | 1;
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

/* Peers choose the key, so that part is keyed; the head is ours. */
static uint64_t hash_of(const struct limit *limit, struct slice key)
{
    uint64_t head = hash_stable(HASH_STABLE_START + limit->algo, limit->key_head, limit->key_head_len);
    return hash_keyed(key.data, key.len) ^ head;
}

/* The algorithm is part of the name: foreign prefixes may be shared by policies whose states are not. */
static bool is_named(const struct memory_entry *entry, const struct limit *limit, struct slice key)
{
    return entry->key_len == key.len && entry->head_len == limit->key_head_len && entry->algo == limit->algo &&
           memcmp(entry->key, limit->key_head, entry->head_len) == 0 &&
           memcmp(entry->key + entry->head_len, key.data, key.len) == 0;
}

struct memory_entry *memory_table_find(struct memory_table *table, const struct limit *limit, struct slice key)
{
    struct map_node *node = map_first(&table->map, hash_of(limit, key));
    while (node != NULL && !is_named(CONTAINER_OF(node, struct memory_entry, node), limit, key))
        node = map_next_same(node);
    if (node == NULL) return NULL;
    struct memory_entry *entry = CONTAINER_OF(node, struct memory_entry, node);
    if (entry->generation == table->generation) return entry;
    memory_table_remove(table, entry);
    return NULL;
}

/* What a state of `limit` may last at most: a full bucket drains in window * burst / limit, and before that what waits;
 * a window ends in its length. */
static int64_t life_of(const struct limit *limit)
{
    int64_t windows = limit->limit > 0 ? (limit->full + limit->limit - 1) / limit->limit : 1;
    int64_t life_us;
    if (__builtin_mul_overflow(limit->window_us, windows + 1, &life_us)) return INT64_MAX / 2;
    return life_us < INT64_MAX / 2 ? life_us + limit->max_wait_us : INT64_MAX / 2;
}

static uint32_t bytes_of(const struct memory_entry *entry)
{
    size_t n = sizeof *entry + entry->head_len + entry->key_len + ALLOC_OVERHEAD + PLACE_BYTES;
    return (uint32_t)(n + time_ring_bytes(entry->state.log));
}

struct memory_entry *memory_table_add(struct memory_table *table, const struct limit *limit, struct slice key,
                                      int64_t now_us)
{
    struct memory_entry *entry = mem_zalloc(sizeof *entry + limit->key_head_len + key.len);
    if (entry == NULL) return NULL;
    entry->life_us = life_of(limit);
    entry->generation = table->generation;
    entry->key_len = (uint32_t)key.len;
    entry->head_len = limit->key_head_len;
    entry->algo = (uint8_t)limit->algo;
    entry->pinned = true;
    memcpy(entry->key, limit->key_head, limit->key_head_len);
    if (key.len > 0) memcpy(entry->key + limit->key_head_len, key.data, key.len);
    if (table->n >= table->max_keys) memory_table_evict(table, now_us);
    CHECK(table->n < table->width);
    entry->place = (uint32_t)table->n;
    table->entries[table->n++] = entry;
    map_insert(&table->map, &entry->node, hash_of(limit, key));
    memory_table_update(table, entry, now_us);
    return entry;
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
    state_fini(&entry->state);
    mem_free(entry);
}

static uint64_t next_random(struct memory_table *table)
{
    table->random ^= table->random << 13;
    table->random ^= table->random >> 7;
    table->random ^= table->random << 17;
    return table->random;
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
    size_t at = next_random(table) % table->n;
    /* More than a sample are looked at only while all seen so far are pinned. */
    for (size_t i = 0; i < table->n && (i < SAMPLE || first == NULL) && i < SAMPLE + POLICY_LIMITS_MAX; i++) {
        struct memory_entry *entry = table->entries[at];
        at = i < SAMPLE ? next_random(table) % table->n : (at + 1) % table->n;
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
