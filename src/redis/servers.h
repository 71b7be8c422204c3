/*
 * redis/servers.h: the servers that have the keys, and which of them an op goes to: one server, or the nodes of a Redis
 * Cluster. One server is treated as a cluster with one node that has every key: there are no hash slots and no map, and
 * what follows is of a cluster alone.
 *
 *   map (cluster_watch.h) ──▶ nodes, and the owner of each hash slot
 *   op ──▶ its hash slot ──▶ the owner's batches ──▶ the answer
 *                                    └─ MOVED, ASK, TRYAGAIN: the op goes on, to another node or later
 *
 * MOVED      the slot is held (cluster_slots.h); once no call of it is on its way it has its new owner, and its ops go
 *            there. So does a fresh map that moves a slot whose ops wait or are on their way.
 * ASK        its ops go to the named node, each after ASKING; the slot stays where it is. Both connections are first
 *            come, first served, so an op that comes later goes the same way behind them.
 * TRYAGAIN   only some of the call's keys have arrived: the slot is held for some milliseconds, and its ops go alone
 *            for a second, so that only those wait whose own keys are apart.
 *
 * An op is sent on three times at most, and ends then with OP_STORE_ERROR. Every redirect asks for a fresh map; so does
 * a node that goes down, or says that it has no master. A master that is down fails only its own slots.
 */
#ifndef RL_REDIS_SERVERS_H
#define RL_REDIS_SERVERS_H

#include <uv.h>

#include "redis/node.h"

struct redis_servers;

enum {
    REDIS_SERVERS_STRANGERS_MAX = 16, /* nodes that are on no map */
    REDIS_SERVERS_FILES_MAX =
        CLUSTER_NODES_MAX + REDIS_SERVERS_STRANGERS_MAX + 1, /* descriptors; 1: who gives the map */
};

/* One server, unless the topology is a cluster. NULL without memory. `clock` and `options` outlive it. Of events->batches
 * on_answers and on_end are used. on_attempt: all nodes have been tried, or there is no map. Begins in the next tick. */
struct redis_servers *redis_servers_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options,
                                        const struct redis_node_events *events);
/* As redis_node_close(), but there are only no nodes then. */
void redis_servers_close(struct redis_servers *servers, void (*on_closed)(void *arg), void *arg);
void redis_servers_free(struct redis_servers *servers); /* once it is closed */

/* The hash slot of a member's key; 0 of one server. */
uint16_t redis_servers_slot_of(const struct redis_servers *servers, const struct op_member *member);
/* Sets the op's hash slot, which all its members must have; then as redis_node_can_submit(), redis_node_add() ... */
enum submit redis_servers_can_submit(struct redis_servers *servers, struct op *op);
int redis_servers_add(struct redis_servers *servers, struct op *op);
bool redis_servers_withdraw(struct redis_servers *servers, struct op *op);
void redis_servers_flush(struct redis_servers *servers);

/* Of struct redis_node (link_of_nodes): those that are not closing. */
struct list *redis_servers_nodes(struct redis_servers *servers);
/* One server's, until it is closed; NULL: a cluster. */
struct redis_node *redis_servers_only(const struct redis_servers *servers);
/* The one that has the first shard, where the daemons are counted; NULL: there is none. */
struct redis_node *redis_servers_first(const struct redis_servers *servers);
bool redis_servers_is_ready(const struct redis_servers *servers); /* the map is known, and every node of it is ready */
const char *redis_servers_status(struct redis_servers *servers);  /* "ready", or what is wrong; until the next call */
/* As cluster_watch_passed(). */
const char *redis_servers_passed(const struct redis_servers *servers, uint32_t nth);
/* The options have changed. is_other_server: the addresses, or the login; is_other_login: user, password or TLS. */
void redis_servers_options_changed(struct redis_servers *servers, bool is_other_server, bool is_other_login);

#endif
