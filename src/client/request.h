/*
 * request.h: one call of a client: its packed bytes until they have left, then its place among those that wait for an
 * answer. async.c moves requests between its lists; this module makes them, packs them and keeps the used ones.
 *
 * One that ended goes back to the pool with its storage, so a warmed-up client allocates nothing.
 */
#ifndef RL_CLIENT_REQUEST_H
#define RL_CLIENT_REQUEST_H

#include "base/buffer.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "client/ratelimit.h"
#include "proto/rpc.h"

enum request_kind { REQUEST_HELLO, REQUEST_DECISION, REQUEST_OTHER };

struct request {
    struct list link;          /* in one of the client's lists, or in the pool */
    struct map_node by_msgid;  /* while `sent` */
    struct heap_node deadline; /* until it ends; hello has none */
    uint64_t msgid;
    enum request_kind kind;
    int64_t cost;        /* REQUEST_DECISION */
    struct buffer bytes; /* owned; packed */
    size_t n_written;    /* of `bytes` that the socket took */
    bool sent;           /* all of them: the daemon may act on it */
    bool ended;          /* half written when its deadline came: the rest must follow, nobody waits for the answer */
    ratelimit_answer_fn *callback;
    void *arg; /* the caller's */
};

struct request_pool {
    struct list free;
    size_t n;
};

void request_pool_init(struct request_pool *pool);
void request_pool_fini(struct request_pool *pool);

void request_init(struct request *request, enum request_kind kind);
void request_fini(struct request *request);

struct request *request_new(struct request_pool *pool, enum request_kind kind); /* NULL without memory */
void request_release(struct request_pool *pool, struct request *request);       /* must be in no list, map or heap */

/* Each packs the whole request; 0, or -1 without memory. */
int request_pack_hello(struct request *request, uint64_t msgid, bool as_maps);
int request_pack_check(struct request *request, uint64_t msgid, const char *method, const struct ratelimit_item *item);
/* `params` are a whole packed array, or empty. */
int request_pack_other(struct request *request, uint64_t msgid, const char *method, struct slice params);

#endif
