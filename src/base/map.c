/* map.c: chains of nodes in a table of fixed width, for all who look something up by a hash. */
#include "base/map.h"

#include "base/alloc.h"
#include "base/assert.h"

int map_init(struct map *map, size_t n_expected)
{
    size_t n_slots = 16;
    while (n_slots < n_expected) n_slots *= 2;
    *map = (struct map){.slots = mem_zalloc(n_slots * sizeof *map->slots), .n_slots = n_slots};
    return map->slots != NULL ? 0 : -1;
}

void map_fini(struct map *map)
{
    mem_free(map->slots);
    *map = (struct map){0};
}

static struct map_node *same_hash(struct map_node *node, uint64_t hash)
{
    while (node != NULL && node->hash != hash) node = node->next;
    return node;
}

struct map_node *map_first(const struct map *map, uint64_t hash)
{
    return same_hash(map->slots[hash & (map->n_slots - 1)], hash);
}

struct map_node *map_next_same(const struct map_node *node)
{
    return same_hash(node->next, node->hash);
}

void map_insert(struct map *map, struct map_node *node, uint64_t hash)
{
    struct map_node **slot = &map->slots[hash & (map->n_slots - 1)];
    node->hash = hash;
    node->next = *slot;
    *slot = node;
    map->n++;
}

void map_remove(struct map *map, struct map_node *node)
{
    struct map_node **at = &map->slots[node->hash & (map->n_slots - 1)];
    while (*at != NULL && *at != node) at = &(*at)->next;
    CHECK(*at == node);
    *at = node->next;
    node->next = NULL;
    map->n--;
}
