/*
 * call.h: one call of a client: its packed request until that has left, then its place among those that wait for an
 * answer. async.c moves calls between its lists; this module makes them, packs them and keeps the used ones.
 *
 * A call that ended goes back to the pool with the storage of its request, so a warmed-up client allocates nothing.
 */
#ifndef RL_CLIENT_CALL_H
#define RL_CLIENT_CALL_H

#include "base/buffer.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "client/ratelimit.h"
#include "proto/rpc.h"

enum call_kind { CALL_HELLO, CALL_DECISION, CALL_OTHER };

struct call {
    struct list link;          /* in one of the client's lists, or in the pool */
    struct map_node by_msgid;  /* while `sent` */
    struct heap_node deadline; /* until it ends; hello has none */
    uint64_t msgid;
    enum call_kind kind;
    int64_t cost;          /* CALL_DECISION */
    struct buffer request; /* owned */
    size_t n_written;      /* bytes of the request that the socket took */
    bool sent;             /* all of them: the daemon may act on it */
    bool ended;            /* half written when its deadline came: the rest must follow, nobody waits for the answer */
    ratelimit_answer_fn *callback;
    void *arg; /* the caller's */
};

struct call_pool {
    struct list free;
    size_t n;
};

void call_pool_init(struct call_pool *pool);
void call_pool_fini(struct call_pool *pool);

void call_init(struct call *call, enum call_kind kind);
void call_fini(struct call *call);

struct call *call_new(struct call_pool *pool, enum call_kind kind); /* NULL without memory */
void call_release(struct call_pool *pool, struct call *call);       /* must be in no list, map or heap */

/* Each packs the whole request; 0, or -1 without memory. */
int call_pack_hello(struct call *call, uint64_t msgid, bool as_maps);
int call_pack_check(struct call *call, uint64_t msgid, const char *method, const struct ratelimit_item *item);
/* `params` are a whole packed array, or empty. */
int call_pack_other(struct call *call, uint64_t msgid, const char *method, struct slice params);

#endif
