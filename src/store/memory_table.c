/* memory_table.c: adds, finds, sweeps and evicts entries, for the memory store. */
#include "store/memory_table.h"

#include <stddef.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/units.h"
#include "limit/lease_list.h"
#include "limit/time_ring.h"
#include "policy/policy.h"

enum {
    SAMPLE = 8,
    LOOKS_MAX = 64,   /* for a sample: most entries may have to stay */
    OVERHEAD = 32,    /* the heap's own bytes of an entry, and its share of the map's slots and of the array */
    SIZE_STEP = 64,   /* entries have sizes that are multiples of this, so that one fits another key */
    SPARE_MAX = 1024, /* removed entries; about as many as go in a busy tick */
};

int memory_table_init(struct memory_table *table, size_t max_keys, uint64_t max_bytes)
{
    if (max_keys < 1) max_keys = 1;
    if (max_keys > UINT32_MAX - MEMORY_TABLE_SPARE) max_keys = UINT32_MAX - MEMORY_TABLE_SPARE;
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
    for (size_t i = 0; i < MEMORY_ENTRY_SIZES; i++) {
        for (struct map_node *node; (node = table->spare[i]) != NULL;) {
            table->spare[i] = node->next;
            mem_free(CONTAINER_OF(node, struct memory_entry, node));
        }
    }
    mem_free(table->entries);
    map_fini(&table->map);
}

/* ---- names ---- */

struct memory_key memory_key_of_state(struct op_member *member)
{
    const struct limit *limit = member->limit;
    return (struct memory_key){
        .hash = op_member_hash(member),
        .kind = (uint8_t)limit->algo,
        .epoch = limit->epoch,
        .head = {(const uint8_t *)limit->key_head, limit->key_head_len},
        .key = member->key,
    };
}

struct memory_key memory_key_of_reservations(const struct limit *limit, struct slice key)
{
    const struct policy *policy = limit->policy;
    return (struct memory_key){
        .hash = hash_keyed(key.data, key.len) ^ (policy->name_hash + MEMORY_RESERVATIONS),
        .kind = MEMORY_RESERVATIONS,
        .epoch = limit->epoch,
        .head = slice_of(policy->name),
        .key = key,
    };
}

struct memory_key memory_key_of_pause(struct op_member *member)
{
    struct memory_key name = memory_key_of_state(member);
    name.hash += MEMORY_PAUSE;
    name.kind = MEMORY_PAUSE;
    return name;
}

struct memory_key memory_key_of_merges(struct op_member *member)
{
    struct memory_key name = memory_key_of_state(member);
    name.kind = MEMORY_RESERVATIONS;
    return name;
}

void memory_table_prefetch(struct memory_table *table, uint64_t hash)
{
    const struct map *map = &table->map;
    const struct map_node *before = map->slots[table->prefetched & (map->n_slots - 1)];
    if (before != NULL) {
        const struct memory_entry *entry = CONTAINER_OF(before, struct memory_entry, node);
        __builtin_prefetch(entry);
        __builtin_prefetch(entry->name);
    }

    __builtin_prefetch(&map->slots[hash & (map->n_slots - 1)]);
    table->prefetched = hash;
}

struct memory_entry *memory_table_find(struct memory_table *table, const struct memory_key *key)
{
    for (struct map_node *node = map_first(&table->map, key->hash); node != NULL; node = map_next_same(node)) {
        struct memory_entry *entry = CONTAINER_OF(node, struct memory_entry, node);
        bool is_it = entry->key_len == key->key.len && entry->head_len == key->head.len && entry->kind == key->kind &&
                     memcmp(entry->name, key->head.data, key->head.len) == 0 &&
                     memcmp(entry->name + key->head.len, key->key.data, key->key.len) == 0;
        if (!is_it) continue;

        if (entry->generation == table->generation && entry->epoch == key->epoch) return entry;
        memory_table_remove(table, entry);
        return NULL;
    }
    return NULL;
}

/* ---- entries ---- */

/* In steps, for a key of that many bytes with its head. */
static size_t size_of(size_t name_len)
{
    return (offsetof(struct memory_entry, name) + name_len + SIZE_STEP - 1) / SIZE_STEP;
}

/* Slots and reservations. */
static bool is_kept(uint8_t kind)
{
    return kind == MEMORY_RESERVATIONS || kind == ALGO_CONCURRENCY;
}

bool memory_table_keeps_more(const struct memory_table *table)
{
    return table->kept_bytes < table->max_bytes / 2;
}

static void count_bytes(struct memory_table *table, const struct memory_entry *entry, int64_t more)
{
    table->n_bytes += (uint64_t)more;
    if (is_kept(entry->kind)) table->kept_bytes += (uint64_t)more;
}

/* ---- what gives way ---- */

/* After the clock stepped back an expiry may be further ahead than any state can be. */
static int64_t expiry_of(const struct memory_table *table, const struct memory_entry *entry, int64_t now_us)
{
    if (entry->generation != table->generation) return INT64_MIN;
    int64_t latest_us = now_us + (int64_t)entry->life_s * SECOND_US;
    return entry->expires_us < latest_us ? entry->expires_us : latest_us;
}

/* By how much in_use is to be multiplied: what drains from a bucket, or expires from a log, without a change. */
static float units_left(const struct memory_entry *entry, int64_t until_us, int64_t now_us)
{
    if (is_kept(entry->kind)) return 0;
    if (entry->kind == ALGO_BUCKET || entry->kind == ALGO_LEAKY_BUCKET) return (float)(until_us - now_us);
    const struct time_ring *log = entry->state.log;
    size_t len = time_ring_len(log);
    if (len == 0) return 1;
    int64_t window_us = until_us - time_ring_at(log, len - 1); /* it is over when its newest unit is */
    return (float)(len - time_ring_count_until(log, now_us - window_us));
}

void memory_entry_weigh(struct memory_entry *entry, const struct view *view)
{
    float units = units_left(entry, entry->expires_us, view->now_us);
    bool is_in_use = view->used > 0 && view->capacity > 0 && units > 0;
    entry->in_use = is_in_use ? (float)view->used / (float)view->capacity / units : 0;
}

/* What may give way, of a sample: */
enum way {
    WAY_OF_COUNTERS, /* counters, and what is over */
    WAY_OF_LISTS,    /* lists of reservations, and slots that are over */
    WAY_OF_OVER,     /* slots and lists that are over */
};

static bool gives_way(const struct memory_entry *entry, enum way way, bool is_over)
{
    if (way == WAY_OF_COUNTERS) return is_over || !is_kept(entry->kind);
    return is_over ? is_kept(entry->kind) : way == WAY_OF_LISTS && entry->kind == MEMORY_RESERVATIONS;
}

/* The one whose loss admits the least, as a share of its limit, goes; what is over admits nothing. */
static bool evict(struct memory_table *table, enum way way, int64_t now_us)
{
    struct memory_entry *least = NULL;
    float least_share = 0;
    int64_t least_until_us = 0;
    for (size_t i = 0, n = 0; i < LOOKS_MAX && n < SAMPLE && table->n > 0; i++) {
        struct memory_entry *entry = table->entries[random_below(&table->random, table->n)];
        int64_t until_us = expiry_of(table, entry, now_us);
        bool is_over = until_us <= now_us;
        float share = is_over ? -1 : entry->in_use * units_left(entry, until_us, now_us);
        if (entry->pinned || !gives_way(entry, way, is_over)) continue;

        n++;
        bool is_less = share < least_share || (share <= least_share && until_us < least_until_us);
        if (least != NULL && !is_less) continue;
        least = entry;
        least_share = share;
        least_until_us = until_us;
    }

    if (least == NULL) return false;
    table->n_evicted++;
    memory_table_remove(table, least);
    return true;
}

bool memory_table_evict(struct memory_table *table, int64_t now_us)
{
    return evict(table, WAY_OF_COUNTERS, now_us);
}

/* ---- entries ---- */

/* What is over gives way, and nothing else. */
static bool make_exact_space(struct memory_table *table, uint8_t kind, int64_t now_us)
{
    for (bool has_swept = false;; has_swept = true) {
        bool is_kept_full = table->n_kept >= table->max_keys - table->max_keys / 2 || !memory_table_keeps_more(table);
        if (table->n < table->max_keys && !(is_kept(kind) && is_kept_full)) return true;
        if (has_swept) return false;
        memory_table_sweep(table, table->n, now_us);
    }
}

/* Slots and lists of reservations have half of the table. Beyond that a list takes the place of another. */
static bool make_space_to_keep(struct memory_table *table, uint8_t kind, int64_t now_us)
{
    if (!memory_table_keeps_more(table)) return false;
    if (table->n_kept < table->max_keys - table->max_keys / 2) return true;
    return evict(table, kind == MEMORY_RESERVATIONS ? WAY_OF_LISTS : WAY_OF_OVER, now_us);
}

struct memory_entry *memory_table_add(struct memory_table *table, const struct memory_key *key, uint32_t life_s,
                                      int64_t now_us)
{
    size_t size = size_of(key->head.len + key->key.len);
    struct map_node *spare = size <= MEMORY_ENTRY_SIZES ? table->spare[size - 1] : NULL;
    struct memory_entry *entry =
        spare != NULL ? CONTAINER_OF(spare, struct memory_entry, node) : mem_alloc(size * SIZE_STEP);
    if (entry == NULL) return NULL;
    if (spare != NULL) {
        table->spare[size - 1] = spare->next;
        table->n_spare--;
    }

    *entry = (struct memory_entry){
        .expires_us = now_us,
        .life_s = life_s,
        .generation = table->generation,
        .epoch = key->epoch,
        .n_bytes = (uint32_t)(size * SIZE_STEP + OVERHEAD),
        .key_len = (uint32_t)key->key.len,
        .head_len = (uint8_t)key->head.len,
        .kind = key->kind,
        .pinned = true,
    };
    memcpy(entry->name, key->head.data, key->head.len);
    if (key->key.len > 0) memcpy(entry->name + key->head.len, key->key.data, key->key.len);

    bool has_space = table->exact ? make_exact_space(table, key->kind, now_us)
                                  : !is_kept(key->kind) || make_space_to_keep(table, key->kind, now_us);
    table->n_refused += !has_space;
    if (has_space && table->n >= table->max_keys) evict(table, WAY_OF_COUNTERS, now_us);
    if (!has_space || table->n == table->width) {
        mem_free(entry);
        return NULL;
    }

    entry->index = (uint32_t)table->n;
    table->entries[table->n++] = entry;
    table->n_reserved_lists += key->kind == MEMORY_RESERVATIONS;
    table->n_kept += is_kept(key->kind);
    count_bytes(table, entry, entry->n_bytes);
    table->n_added++;
    map_insert(&table->map, &entry->node, key->hash);
    return entry;
}

void memory_table_recount(struct memory_table *table, struct memory_entry *entry)
{
    size_t n_bytes = size_of((size_t)entry->head_len + entry->key_len) * SIZE_STEP + OVERHEAD;
    if (entry->kind == MEMORY_RESERVATIONS)
        n_bytes += reservation_list_bytes(entry->reserved);
    else
        n_bytes += time_ring_bytes(entry->state.log) + lease_list_bytes(entry->state.leases);
    count_bytes(table, entry, (int64_t)n_bytes - entry->n_bytes);
    entry->n_bytes = (uint32_t)n_bytes;
}

void memory_table_remove(struct memory_table *table, struct memory_entry *entry)
{
    struct memory_entry *last = table->entries[--table->n];
    table->entries[entry->index] = last;
    last->index = entry->index;
    count_bytes(table, entry, -(int64_t)entry->n_bytes);
    table->n_kept -= is_kept(entry->kind);
    table->n_stale -= entry->generation != table->generation;
    table->n_reserved_lists -= entry->kind == MEMORY_RESERVATIONS;
    map_remove(&table->map, &entry->node);

    if (entry->kind == MEMORY_RESERVATIONS)
        reservation_list_free(entry->reserved);
    else
        state_fini(&entry->state);

    size_t size = size_of((size_t)entry->head_len + entry->key_len);
    if (size > MEMORY_ENTRY_SIZES || table->n_spare >= SPARE_MAX) {
        mem_free(entry);
        return;
    }
    entry->node.next = table->spare[size - 1];
    table->spare[size - 1] = &entry->node;
    table->n_spare++;
}

/* ---- bounds ---- */

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
        if (expires_us > now_us || entry->pinned) {
            if (expires_us > now_us) entry->expires_us = expires_us;
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
