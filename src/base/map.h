/*
 * map.h: an intrusive hash table of fixed width.
 *
 * The width is chosen at init for the most entries that may ever be inside, because a table that
 * grows rehashes in one tick and a tick must not stall. The map owns nothing: nodes live inside
 * the caller's objects, equality is the caller's.
 */
#ifndef RL_BASE_MAP_H
#define RL_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map_node {
    struct map_node *next;
    uint64_t hash;
};

struct map {
    struct map_node **slots; /* owned; pages are touched only when used */
    size_t n_slots;          /* a power of two */
    size_t n;                /* entries */
};

/* 0, or -1 without memory. */
int map_init(struct map *map, size_t n_expected);
void map_fini(struct map *map); /* frees the slots, not the nodes */

/* First node of the hash's chain or NULL; walk on with map_next_same(). */
struct map_node *map_first(const struct map *map, uint64_t hash);
struct map_node *map_next_same(const struct map_node *node);

void map_insert(struct map *map, struct map_node *node, uint64_t hash);
void map_remove(struct map *map, struct map_node *node);

#endif
