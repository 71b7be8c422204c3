/*
 * redis/reach.h: how far one call to a node of a cluster reaches: the keys of one hash slot, or of all that it has.
 *
 * Keys of several hash slots cannot be declared, so they go as arguments. Redis and Valkey run such a call; what stands
 * in their place (a proxy, a managed service) may refuse it, and Valkey 9.0.0 and 9.0.1 load it from their append-only
 * file into the wrong slots (valkey-io/valkey, pull request 3004). So each connection is tried before the first such
 * call, with an empty batch that names two scratch keys of two slots of the node: the script looks at both, and leaves
 * nothing behind. Where there was no clear answer, it is asked again with the next map. A refusal counts until the
 * connection ends.
 *
 *   unknown ── canary ──▶ by node ── refused ──▶ by slot
 *      └────── refused, Valkey 9.0.0, store.redis.calls: slot ──▶
 */
#ifndef RL_REDIS_REACH_H
#define RL_REDIS_REACH_H

#include "redis/conn.h"

struct redis_batches;

enum redis_reach_of {
    REACH_UNKNOWN, /* calls go as by slot, until it is known */
    REACH_SLOT,    /* keys of one hash slot */
    REACH_NODE,    /* of all that the node has */
};

struct redis_reach {
    enum redis_reach_of of;
    bool is_set;               /* by the settings: REACH_SLOT */
    bool is_asking;            /* the canary is on its way */
    bool is_news;              /* `text` has not been reported yet */
    char text[REDIS_TEXT_MAX]; /* why it was REACH_SLOT last, any bytes; "" = never, or by the settings */
    uint32_t nonce;            /* of the canary */
    struct redis_call info, canary;
};

/* A connection has ended: what was known of it counts no longer. */
void redis_reach_forget(struct redis_batches *batches);
void redis_reach_options_changed(struct redis_batches *batches);
/* Ask, unless it is known or there is nothing to ask: no cluster, no connection, less than two hash slots. */
void redis_reach_ask(struct redis_batches *batches);
/* The server does not take such calls; why: its words. */
void redis_reach_refused(struct redis_batches *batches, const char *why);

#endif
