/*
 * cluster_map.h: the hash slot of a key, and which master of a Redis Cluster has it, out of what a node says: its map,
 * or "MOVED 3999 10.0.0.7:6379" and "ASK ..."; pure.
 *
 * A reply is bytes of a server that may be broken or hostile. It gives a whole map, or none and a reason for people.
 */
#ifndef RL_REDIS_CLUSTER_MAP_H
#define RL_REDIS_CLUSTER_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "redis/options.h"

enum { HASH_SLOTS = 16384 };

/* What braces enclose is all that counts, if the first of them have anything in between. */
uint16_t hash_slot_of(const uint8_t *key, size_t len);

enum {
    CLUSTER_NODES_MAX = 256, /* masters */
    CLUSTER_NONE = UINT16_MAX,
    CLUSTER_ADDRESS_SIZE = REDIS_HOST_MAX + sizeof "[]:65535",
    CLUSTER_FAULT_SIZE = 192,
};

struct cluster_map {
    uint16_t owner[HASH_SLOTS]; /* of each hash slot, the node that has it; CLUSTER_NONE = none */
    uint32_t n_nodes;           /* masters with a slot at least */
    char address[CLUSTER_NODES_MAX][CLUSTER_ADDRESS_SIZE]; /* of each, as redis_address_parse() takes it */
};

/* Who is asked, and how. */
struct cluster_sender {
    const char *host; /* stands for a host that it does not name; without brackets */
    bool is_tls;
};

enum cluster_form { CLUSTER_SHARDS, CLUSTER_SLOTS }; /* the command, CLUSTER SHARDS or CLUSTER SLOTS */

/* The bytes of one whole reply. False: `fault` says why, and the map is of no use. */
bool cluster_map_read(struct cluster_map *map, enum cluster_form form, struct slice reply,
                      const struct cluster_sender *sender, char fault[CLUSTER_FAULT_SIZE]);

struct cluster_redirect {
    bool is_ask; /* only this call goes there: the slot is on its way */
    uint16_t hash_slot;
    char address[CLUSTER_ADDRESS_SIZE]; /* as redis_address_parse() takes it */
};

/* NULL, or what is wrong (static): then `ret` is as it was. An empty host is the sender's. */
const char *cluster_redirect_read(struct slice error, const struct cluster_sender *sender,
                                  struct cluster_redirect *ret);

#endif
