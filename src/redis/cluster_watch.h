/*
 * cluster_watch.h: the map of a cluster, asked over a connection of its own, so that no check waits behind it.
 *
 * It asks at start, when its owner wants a fresh map (once a second at most, however often it is asked to), and every
 * 30 to 60 seconds. The servers of `options->address` and the nodes of the last map are asked in turn, 250 ms each, the
 * one that answered first the next time. If the map is doubted within seconds, because a node does not serve, the one
 * behind it is asked: the first may be cut off from the others. Its map counts unless it knows fewer hash slots.
 */
#ifndef RL_REDIS_CLUSTER_WATCH_H
#define RL_REDIS_CLUSTER_WATCH_H

#include <uv.h>

#include "base/clock.h"
#include "redis/cluster_map.h"
#include "redis/options.h"

struct cluster_watch;

/* Both run from a timer. */
struct cluster_watch_events {
    void *arg;
    /* After each answer, also if nothing has changed. Valid until the next one, or the end of the watch. */
    void (*on_map)(void *arg, const struct cluster_map *map);
    void (*on_none)(void *arg, const char *why); /* all have been asked in vain; any bytes. It goes on asking */
};

/* NULL without memory. `clock` and `options` outlive it. Begins in the next tick. */
struct cluster_watch *cluster_watch_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options,
                                        const struct cluster_watch_events *events);
void cluster_watch_ask(struct cluster_watch *watch);               /* soon; many are one */
void cluster_watch_doubt(struct cluster_watch *watch);             /* the same: a node of the map does not serve */
int64_t cluster_watch_asked_us(const struct cluster_watch *watch); /* when the last map was; CLOCK_MONOTONIC */
void cluster_watch_options_changed(struct cluster_watch *watch);   /* other servers, or another password */

/* Why the n-th address of the settings, from 0, was passed over the last time, any bytes; "" = it was not. NULL: no
 * n-th. */
const char *cluster_watch_passed(const struct cluster_watch *watch, uint32_t nth);

/* on_closed runs once, later; nothing else does any more. */
void cluster_watch_close(struct cluster_watch *watch, void (*on_closed)(void *arg), void *arg);

#endif
