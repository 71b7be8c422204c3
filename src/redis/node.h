/*
 * redis/node.h: one Redis server: its connection, the ops on their way to it, its window, clock offset and breaker.
 *
 *   add ──▶ redis/batches.h ──▶ redis/link.h ──▶ the server ──▶ on_answers or on_end, exactly once for every op
 *
 * While the breaker is open, ops are refused at once (SUBMIT_BREAKER), and what waits ends with OP_BREAKER. Every
 * probe_every the node asks by itself: a server that was late by the handshake's empty batch, which must be answered
 * within the deadlines that it had missed; one that refused by a write to a scratch key, because a full server still
 * answers reads and empty scripts. Both work without traffic. After each return, of the connection or of the server
 * behind the breaker, the window begins at 1: the crowd that has gathered is not let through at once.
 */
#ifndef RL_REDIS_NODE_H
#define RL_REDIS_NODE_H

#include <uv.h>

#include "redis/batches.h"
#include "redis/breaker.h"
#include "redis/cluster_map.h"
#include "redis/daemons.h"
#include "redis/link.h"
#include "redis/self_test.h"

struct redis_node_events {
    void *arg;
    struct redis_batches_events batches; /* where ops come back to */
    void (*on_down)(void *arg);          /* a ready connection has ended; what was in flight has ended before */
    void (*on_attempt)(void *arg);       /* an attempt to connect has ended: ready, or not */
    void (*on_moved)(void *arg);         /* of a cluster: the map is that of another one */
};

struct redis_node {
    struct clock *clock;                 /* not owned */
    const struct redis_options *options; /* the store's */
    struct redis_node_events events;

    struct list link_of_nodes;          /* the store's list of them */
    char address[CLUSTER_ADDRESS_SIZE]; /* of a cluster's; "" = the settings have it, or Sentinels */
    int64_t wanted_until_us;            /* of a cluster's that no map names: a redirect did; CLOCK_MONOTONIC */
    bool is_in_map;
    bool had_attempt; /* one to connect has ended: until then a cluster's ops wait for it */

    struct redis_link *link; /* owned; NULL once it is closed */
    struct redis_batches batches;
    struct redis_breaker breaker;
    uv_timer_t probe_timer; /* runs while the breaker is open, and no probe is under way */
    struct redis_call probe;
    struct redis_self_test self_test;
    struct redis_daemons daemons;
    bool is_probing;
    bool is_probe_empty; /* the last probe was an empty batch, else a write */
    bool is_up;          /* it counts in redis_up */
    bool was_up;         /* it has been: the next connection is a return */
    int64_t proven_us;   /* CLOCK_MONOTONIC: a handshake or a probe went well last; 0 = none yet */
    char breaker_text[REDIS_TEXT_MAX + 64];

    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* 0, or -1 without memory. `clock`, `options` and `slots` outlive the node; address and slots: a cluster's, else NULL.
 * Starts to connect in the next tick. */
int redis_node_init(struct redis_node *node, uv_loop_t *loop, struct clock *clock, const struct redis_options *options,
                    const char *address, struct cluster_slots *slots, const struct redis_node_events *events);
/* What waits ends with OP_DOWN, what is in flight as well; on_closed runs once, later. Then the node is gone. */
void redis_node_close(struct redis_node *node, void (*on_closed)(void *arg), void *arg);

/* May an op be added to its batches? SUBMIT_PENDING = yes, else why not. */
enum submit redis_node_can_submit(const struct redis_node *node);
bool redis_node_is_idle(const struct redis_node *node); /* nothing waits or is in flight, and no one else asks it */
void redis_node_flush(struct redis_node *node);         /* end of the tick */

bool redis_node_is_ready(const struct redis_node *node);
const char *redis_node_status(const struct redis_node *node); /* of the connection: "ready", or what went wrong last */
/* Why the breaker is open, any bytes; NULL = it is closed. Valid until the next call. */
const char *redis_node_breaker_text(struct redis_node *node);
/* The options have changed; is_other_server: those of the server itself. */
void redis_node_options_changed(struct redis_node *node, bool is_other_server);

#endif
