/* counter_table.c: sets of entries by hash, for the engine's leases of units and the deny cache of redis/. */
#include "store/counter_table.h"

#include <string.h>

#include "base/alloc.h"

enum { LINE = 64, HASH_BITS = 64, TAGS_SIZE = COUNTER_WAYS * sizeof(uint32_t) };
_Static_assert(TAGS_SIZE + COUNTER_EXTRA_SIZE == LINE, "a look-up that finds nothing reads one line of memory");

/* Behind each entry. */
struct name {
    uint16_t head_len, key_len;
    uint8_t bytes[]; /* the head of the key, and the limit's id */
};

static size_t round_up(size_t size, size_t to)
{
    return (size + to - 1) / to * to;
}

void counter_table_init(struct counter_table *table, uint64_t n_max, size_t entry_size, size_t extra_size,
                        size_t name_max)
{
    uint32_t n_ways = n_max < COUNTER_WAYS ? (uint32_t)n_max : COUNTER_WAYS;
    *table = (struct counter_table){.n_sets = n_ways > 0 ? n_max / n_ways : 0,
                                    .n_ways = n_ways,
                                    .entry_size = round_up(entry_size, _Alignof(uint64_t)),
                                    .extra_size = extra_size,
                                    .name_max = name_max};
}

void counter_table_fini(struct counter_table *table)
{
    mem_free(table->memory);
    table->memory = NULL;
}

static size_t set_size(const struct counter_table *table)
{
    return TAGS_SIZE + table->extra_size;
}

static size_t place_size(const struct counter_table *table)
{
    return round_up(table->entry_size + sizeof(struct name) + table->name_max, _Alignof(uint64_t));
}

bool counter_table_reserve(struct counter_table *table)
{
    if (table->memory != NULL) return true;

    size_t all_sets = table->n_sets * set_size(table);
    table->memory = mem_zalloc(LINE + all_sets + table->n_sets * table->n_ways * place_size(table));
    if (table->memory == NULL) return false;
    table->sets = table->memory + LINE - (uintptr_t)table->memory % LINE;
    table->entries = table->sets + all_sets;
    return true;
}

static uint32_t *tags_of(const struct counter_table *table, uint64_t set)
{
    return (uint32_t *)(table->sets + set * set_size(table));
}

void counter_table_clear(struct counter_table *table)
{
    for (uint64_t set = 0; table->memory != NULL && set < table->n_sets; set++)
        memset(tags_of(table, set), 0, TAGS_SIZE);
}

/* ---- entries ---- */

static uint64_t set_of(const struct counter_table *table, uint64_t hash)
{
    return (uint64_t)(((unsigned __int128)hash * table->n_sets) >> HASH_BITS);
}

/* Other bits of the hash; never 0, which stands for no entry. */
static uint32_t tag_of(uint64_t hash)
{
    return (uint32_t)hash + ((uint32_t)hash == 0);
}

static uint8_t *place_at(const struct counter_table *table, uint64_t set, uint32_t way)
{
    return table->entries + (set * table->n_ways + way) * place_size(table);
}

static struct name *name_of(const struct counter_table *table, const void *entry)
{
    return (struct name *)((uintptr_t)entry + table->entry_size);
}

bool counter_table_fits(const struct counter_table *table, const struct op_member *member)
{
    return member->key.len <= COUNTER_KEY_MAX && member->limit->key_head_len + member->key.len <= table->name_max;
}

void *counter_table_find(const struct counter_table *table, struct op_member *member)
{
    if (table->memory == NULL) return NULL;

    uint64_t hash = op_member_hash(member), set = set_of(table, hash);
    const uint32_t *tags = tags_of(table, set), tag = tag_of(hash);
    const struct limit *limit = member->limit;
    for (uint32_t way = 0; way < table->n_ways; way++) {
        if (tags[way] != tag) continue;
        void *entry = place_at(table, set, way);
        const struct name *name = name_of(table, entry);
        if (name->head_len == limit->key_head_len && name->key_len == member->key.len &&
            memcmp(name->bytes, limit->key_head, name->head_len) == 0 &&
            memcmp(name->bytes + name->head_len, member->key.data, name->key_len) == 0)
            return entry;
    }
    return NULL;
}

void *counter_table_extra(const struct counter_table *table, struct op_member *member)
{
    return tags_of(table, set_of(table, op_member_hash(member))) + COUNTER_WAYS;
}

void *counter_table_add(struct counter_table *table, struct op_member *member, int64_t (*last_us_of)(const void *entry))
{
    if (!counter_table_reserve(table)) return NULL;

    uint64_t hash = op_member_hash(member), set = set_of(table, hash);
    uint32_t *tags = tags_of(table, set), chosen = table->n_ways;
    int64_t first = INT64_MAX;
    for (uint32_t way = 0; way < table->n_ways && first > INT64_MIN; way++) {
        int64_t last_us = tags[way] == 0 ? INT64_MIN : last_us_of(place_at(table, set, way));
        if (last_us >= first) continue;
        first = last_us;
        chosen = way;
    }
    if (chosen == table->n_ways) return NULL;

    const struct limit *limit = member->limit;
    uint8_t *entry = place_at(table, set, chosen);
    struct name *name = name_of(table, entry);
    tags[chosen] = tag_of(hash);
    name->head_len = limit->key_head_len;
    name->key_len = (uint16_t)member->key.len;
    memcpy(name->bytes, limit->key_head, name->head_len);
    memcpy(name->bytes + name->head_len, member->key.data, name->key_len);
    return entry;
}

void counter_table_remove(struct counter_table *table, void *entry)
{
    size_t nth = (size_t)((const uint8_t *)entry - table->entries) / place_size(table);
    tags_of(table, nth / table->n_ways)[nth % table->n_ways] = 0;
}

struct slice counter_table_key(const struct counter_table *table, const void *entry)
{
    const struct name *name = name_of(table, entry);
    return (struct slice){name->bytes + name->head_len, name->key_len};
}
