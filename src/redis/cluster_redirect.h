/*
 * cluster_redirect.h: "MOVED 3999 10.0.0.7:6379" and "ASK ...", by which a node of a cluster says who has a hash slot;
 * pure.
 */
#ifndef RL_REDIS_CLUSTER_REDIRECT_H
#define RL_REDIS_CLUSTER_REDIRECT_H

#include "redis/cluster_map.h"

struct cluster_redirect {
    bool is_ask; /* only this call goes there: the slot is on its way */
    uint16_t hash_slot;
    char address[CLUSTER_ADDRESS_SIZE]; /* as redis_address_parse() takes it */
};

/* NULL, or what is wrong (static): then `ret` is as it was. An empty host is the sender's. */
const char *cluster_redirect_read(struct slice error, const struct cluster_sender *sender,
                                  struct cluster_redirect *ret);

#endif
