#include "store/memory_table.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"
#include "limit/lease_list.h"
#include "limit/time_ring.h"
#include "policy/policy.h"

enum {
    SAMPLE = 8,
    ALLOC_OVERHEAD = 16, /* the heap's own bytes per block */
    PLACE_BYTES = 16,    /* an entry's share of the map's slots and of the array */
    SIZE_STEP = 64,      /* entries have sizes that are multiples of this, so that one fits another key */
    KEPT_MAX = 1024,     /* removed entries; about as many as go in a busy tick */
};

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

/* ---- the memory of entries ---- */

/* In steps, for a key of that many bytes with its head. */
static size_t size_of(size_t name_len)
{
    return (sizeof(struct memory_entry) + name_len + SIZE_STEP - 1) / SIZE_STEP;
}

static struct memory_entry *entry_new(struct memory_table *table, size_t size)
{
    struct map_node *node = size <= MEMORY_ENTRY_SIZES ? table->kept[size - 1] : NULL;
    if (node == NULL) return mem_alloc(size * SIZE_STEP);

    table->kept[size - 1] = node->next;
    table->n_kept--;
    return CONTAINER_OF(node, struct memory_entry, node);
}

static void entry_free(struct memory_table *table, struct memory_entry *entry)
{
    size_t size = size_of((size_t)entry->head_len + entry->key_len);
    state_fini(&entry->state);
    reservation_list_free(entry->reserved);
    if (size > MEMORY_ENTRY_SIZES || table->n_kept >= KEPT_MAX) {
        mem_free(entry);
        return;
    }

    entry->node.next = table->kept[size - 1];
    table->kept[size - 1] = &entry->node;
    table->n_kept++;
}

void memory_table_fini(struct memory_table *table)
{
    while (table->n > 0) memory_table_remove(table, table->entries[table->n - 1]);
    for (size_t size = 1; size <= MEMORY_ENTRY_SIZES; size++)
        while (table->kept[size - 1] != NULL) mem_free(entry_new(table, size));
    mem_free(table->entries);
    map_fini(&table->map);
}

/* Peers choose the key, so that part is keyed; the head is ours. */
struct memory_key memory_key_of_state(const struct limit *limit, struct slice key)
{
    return (struct memory_key){
        .hash = hash_keyed(key.data, key.len) ^ limit->head_hash,
        .kind = (uint8_t)limit->algo,
        .head = {(const uint8_t *)limit->key_head, limit->key_head_len},
        .key = key,
    };
}

struct memory_key memory_key_of_reservations(const struct policy *policy, struct slice key)
{
    return (struct memory_key){
        .hash = hash_keyed(key.data, key.len) ^ (policy->name_hash + MEMORY_RESERVATIONS),
        .kind = MEMORY_RESERVATIONS,
        .head = slice_of(policy->name),
        .key = key,
    };
}

static bool is_named(const struct memory_entry *entry, const struct memory_key *key)
{
    return entry->key_len == key->key.len && entry->head_len == key->head.len && entry->kind == key->kind &&
           memcmp(entry->key, key->head.data, entry->head_len) == 0 &&
           memcmp(entry->key + entry->head_len, key->key.data, key->key.len) == 0;
}

struct memory_entry *memory_table_find(struct memory_table *table, const struct memory_key *key)
{
    struct map_node *node = map_first(&table->map, key->hash);
    while (node != NULL && !is_named(CONTAINER_OF(node, struct memory_entry, node), key)) node = map_next_same(node);
    if (node == NULL) return NULL;
    struct memory_entry *entry = CONTAINER_OF(node, struct memory_entry, node);
    if (entry->generation == table->generation) return entry;
    memory_table_remove(table, entry);
    return NULL;
}

/* A full bucket drains in window * burst / limit, and before that its debt and what waits; a window ends in its length.
 */
int64_t memory_life_us(const struct limit *limit)
{
    int64_t most = limit->full + limit_debt(limit);
    int64_t windows = limit->limit > 0 ? div_up(most, limit->limit) : 1;
    int64_t life_us;
    if (__builtin_mul_overflow(limit->window_us, windows + 1, &life_us)) return INT64_MAX / 2;
    return life_us < INT64_MAX / 2 ? life_us + limit->max_wait_us : INT64_MAX / 2;
}

/* Without its lists. */
static size_t bytes_of(size_t size)
{
    return size * SIZE_STEP + ALLOC_OVERHEAD + PLACE_BYTES;
}

void memory_table_recount(struct memory_table *table, struct memory_entry *entry)
{
    size_t n_bytes = bytes_of(size_of((size_t)entry->head_len + entry->key_len));
    n_bytes += time_ring_bytes(entry->state.log) + lease_list_bytes(entry->state.leases);
    n_bytes += reservation_list_bytes(entry->reserved);
    table->n_bytes += n_bytes - entry->n_bytes;
    entry->n_bytes = (uint32_t)n_bytes;
}

struct memory_entry *memory_table_add(struct memory_table *table, const struct memory_key *key, int64_t life_us,
                                      int64_t now_us)
{
    size_t size = size_of(key->head.len + key->key.len);
    struct memory_entry *entry = entry_new(table, size);
    if (entry == NULL) return NULL;
    *entry = (struct memory_entry){
        .expires_us = now_us,
        .life_us = life_us,
        .generation = table->generation,
        .n_bytes = (uint32_t)bytes_of(size),
        .key_len = (uint32_t)key->key.len,
        .head_len = (uint16_t)key->head.len,
        .kind = key->kind,
        .pinned = true,
    };
    memcpy(entry->key, key->head.data, key->head.len);
    if (key->key.len > 0) memcpy(entry->key + key->head.len, key->key.data, key->key.len);

    if (table->n >= table->max_keys) memory_table_evict(table, now_us);
    CHECK(table->n < table->width);
    entry->place = (uint32_t)table->n;
    table->entries[table->n++] = entry;
    table->n_reserved_lists += key->kind == MEMORY_RESERVATIONS;
    table->n_bytes += entry->n_bytes;
    map_insert(&table->map, &entry->node, key->hash);
    return entry;
}

void memory_table_remove(struct memory_table *table, struct memory_entry *entry)
{
    struct memory_entry *last = table->entries[--table->n];
    table->entries[entry->place] = last;
    last->place = entry->place;
    table->n_bytes -= entry->n_bytes;
    table->n_stale -= entry->generation != table->generation;
    map_remove(&table->map, &entry->node);
    table->n_reserved_lists -= entry->kind == MEMORY_RESERVATIONS;
    entry_free(table, entry);
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
