/*
 * redis/sentinel.h: the address of the master, from one of several Sentinels.
 *
 * A round (redis/round.h) begins when the owner asks, when a Sentinel hints at a new master, and after some seconds.
 * The connection to the one that answered stays open for its hints (+switch-master) until the next round. What one says
 * is a claim: the owner proves it by a handshake with the server that it names.
 */
#ifndef RL_REDIS_SENTINEL_H
#define RL_REDIS_SENTINEL_H

#include <uv.h>

#include "base/clock.h"
#include "redis/options.h"

struct redis_sentinel;

/* Both run from a timer. */
struct redis_sentinel_events {
    void *arg;
    /* "host:port", and the Sentinel that says so; after each round that has not failed. */
    void (*on_master)(void *arg, const char *address, const char *sentinel);
    void (*on_none)(void *arg, const char *why); /* a round that was asked for has failed */
};

/* NULL without memory. `clock` and `options` outlive it. Does nothing before it is asked. */
struct redis_sentinel *redis_sentinel_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options,
                                          const struct redis_sentinel_events *events);
/* on_master or on_none follows, once; a round that runs answers as well. */
void redis_sentinel_ask(struct redis_sentinel *sentinel);
/* The one that answered last named a server that is of no use: the others come first. `lie`: that is no master by its
 * own words, for people; NULL: it may only be down. */
void redis_sentinel_distrust(struct redis_sentinel *sentinel, const char *lie);
void redis_sentinel_trust(struct redis_sentinel *sentinel); /* the master that it named is one */
void redis_sentinel_options_changed(struct redis_sentinel *sentinel);

/* "Sentinel host:port answered last, 1 of 3 silent"; "" before the first answer, and of NULL. */
void redis_sentinel_text(const struct redis_sentinel *sentinel, char *out, size_t size);

/* Why the n-th Sentinel, from 0, was passed over the last time, any bytes; "" = it was not. NULL: there is no n-th, or
 * no Sentinel. */
const char *redis_sentinel_passed(const struct redis_sentinel *sentinel, uint32_t nth);

/* on_closed runs once, later; nothing else does any more. */
void redis_sentinel_close(struct redis_sentinel *sentinel, void (*on_closed)(void *arg), void *arg);

#endif
