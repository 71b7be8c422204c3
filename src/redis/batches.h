/*
 * redis/batches.h: ops on their way to Redis, in batches, and back.
 *
 *   add ──▶ waiting (op_queue.h) ── send ──▶ EVALSHA ──▶ on_answers or on_end, exactly once for every op
 *
 * While the window has space, one batch after the other is sent, filled round robin over the clients.
 * What waits can be dropped when its deadline passes, and is shared out fairly. Waiting checks that merge with one in a
 * full batch go with it: they cost Redis nothing.
 *
 * The window bounds what Redis has before it. What is sent cannot be called back, so a Redis that falls behind would
 * work off ops that were answered long ago, first come first served, and one client that asks for much would have all
 * of it.
 *
 * What becomes of a batch:
 *   good reply      the batch gives every op its answer
 *   begun too late  not executed: its ops wait again
 *   NOSCRIPT        not executed: its ops wait again, once each, until the script is loaded
 *   NOPERM          not executed, because of one of its keys: its ops wait again, once each, and the ops of each of its
 *                   policies go in batches of their own until Redis takes one of them
 *   other error     OP_STORE_ERROR; never sent again, because it may have been executed in part
 *   wrong shape     OP_STORE_ERROR, and the connection is closed: nothing on it can be trusted any more
 *   lost            OP_DOWN; never sent again, because it may have been executed
 *
 * Order: before ops wait again, all that was sent behind them is answered, and nothing new is sent. If a batch behind
 * them ran (another daemon loaded the script, or it has other policies), those of them that have client and key of one
 * of its ops end with OP_STORE_ERROR: they would take effect after it.
 *
 * Every batch carries a nonce that comes back as the last integer, so that an answer can never reach another's check.
 * It also carries the latest time, by the server's clock, at which it may begin. A server that was stopped, or that
 * reads a dead connection's last bytes long after we gave up on it, does nothing then, and the client that had the
 * answer "not decided" is not charged much later. The server's clock is known from its last reply, the first of which
 * is the handshake's; before that, or if another node of the cluster has the handshake's key, it counts as the host's.
 *
 * In a cluster (redis/servers.h) a call may have keys of all hash slots of its node, if that takes keys which are not
 * declared (redis/reach.h); else those of one. Of several slots, the script looks at each key before it writes: ops
 * whose keys are not there leave the call before it counts as run (on_away), so does what the user may not read. An op
 * of a slot that moves goes alone, its keys declared, so that the node itself redirects it (on_redirect).
 *
 * New settings of the server itself (a reload) are moved to without losing anything: ops wait until what is in flight
 * has been answered and the new connection is ready; only if that fails do they end.
 */
#ifndef RL_REDIS_BATCHES_H
#define RL_REDIS_BATCHES_H

#include "redis/batch_call.h"
#include "redis/breaker.h"
#include "redis/cluster_slots.h"
#include "redis/link.h"
#include "redis/op_queue.h"
#include "redis/reach.h"
#include "redis/window.h"

/* Where ops come back to. */
struct redis_batches_events {
    void *arg;
    /* All ops of one batch, in order, each with its outcome. sent_us: CLOCK_MONOTONIC before its call was written. */
    void (*on_answers)(void *arg, struct list *ops, int64_t sent_us);
    /* Redis did not answer it. `done` may not run from within: hiredis may be taking the connection down. */
    void (*on_end)(void *arg, struct op *op, enum op_outcome outcome);

    /* Of a cluster's node, else NULL. Of a call to several hash slots: these ops were not executed, for some key of
     * each is not there any more. It takes them. */
    void (*on_away)(struct redis_batches *batches, struct list *ops);
    /* MOVED, ASK or TRYAGAIN, in `error`, to a call of these ops, which were not
     * executed. It takes them. */
    void (*on_redirect)(struct redis_batches *batches, uint16_t hash_slot, struct slice error, bool is_try_again,
                        struct list *ops);
    void (*on_call_over)(struct redis_batches *batches, uint16_t hash_slot); /* one less is on its way */
    void (*on_doubt)(struct redis_batches *batches);                         /* the map may be out of date */
};

enum redis_batches_phase {
    BATCHES_SENDING,
    BATCHES_HOLDING,   /* some ops were not executed: wait for in_flight, then send them again; nothing new is sent */
    BATCHES_RELOADING, /* as above, and load the script, which is gone */
    BATCHES_MOVING,    /* to another server: wait for in_flight, then for the new connection */
};

struct redis_batches {
    struct clock *clock;                 /* not owned */
    const struct redis_options *options; /* the store's */
    struct redis_link *link;             /* the node's; set once there is one */
    struct cluster_slots *slots;         /* the cluster's; NULL: this server has every key */
    struct redis_script script;
    struct redis_breaker *breaker; /* the node's: it counts what becomes of the batches */
    struct redis_batches_events events;

    struct op_queue waiting; /* ops that are in no batch yet; its owner may take one out */
    struct list in_flight;   /* struct batch_call, oldest first */
    struct list refused;     /* ops that were not executed: they wait again once in_flight is answered, before others */
    struct list idle;        /* calls kept for later batches */
    uint32_t n_calls;        /* in_flight, and those that are filled */
    size_t n_keys;           /* of a cluster's node: in n_calls */
    uint32_t n_idle;
    struct redis_window window; /* how many n_calls, or batches of n_keys, may be now */
    enum redis_batches_phase phase;
    struct redis_reach reach;          /* of a cluster's node: of each call */
    struct doubtful_policies doubtful; /* whose ops go in batches of their own */
    int64_t server_ahead_us;           /* the server's clock less CLOCK_MONOTONIC, as its last reply had it */
    int64_t wall_ahead_us;             /* the same less the host's clock at the middle of the round trip */
    bool has_wall;                     /* there was such a reply */
    struct redis_call reload;
    struct batch *canary;  /* owned; stays empty */
    uint32_t canary_nonce; /* of each: a probe and a trial's handshake may be under way at once */
    char canary_key[STORE_OWN_KEY_MAX];
    struct slice canary_args[3]; /* numkeys, the key and the packet */
    /* Of a cluster's node: the first shard that it has, for keys of our own, and one of another hash slot; -1 = none */
    int32_t shard, other_shard;
    uint32_t last_nonce;

    char last_error[REDIS_TEXT_MAX]; /* of the ops that ended last with OP_STORE_ERROR; "" = there were none */
    int64_t last_error_us;
    char last_error_policy[NAME_MAX_LEN + 1]; /* it is about this policy alone; "" = it is not */
};

/* 0, or -1 without memory. slots: NULL, or the cluster's. */
int redis_batches_init(struct redis_batches *batches, struct clock *clock, const struct redis_options *options,
                       struct cluster_slots *slots, struct redis_breaker *breaker,
                       const struct redis_batches_events *events);
void redis_batches_fini(struct redis_batches *batches); /* nothing waits or is in flight any more */

void redis_batches_prepare(struct op *op, int64_t now_us);           /* it begins to wait */
int redis_batches_add(struct redis_batches *batches, struct op *op); /* 0, or -1: too much waits, or no memory */
/* Of an op that another node, or this one, did not execute: its second, third ... time. 0, or -1 without memory. */
int redis_batches_add_again(struct redis_batches *batches, struct op *op);
/* What waits here for the hash slots that are wanted, to the end of `to`, in any order. */
void redis_batches_take_slots(struct redis_batches *batches, const bool *is_wanted, struct list *to);
/* True at each hash slot of which ops wait here. */
void redis_batches_mark_slots(const struct redis_batches *batches, bool *has_waiting);
/* All of these end with OP_STORE_ERROR; for people, `text`. */
void redis_batches_end_refused(struct redis_batches *batches, struct list *ops, const char *text);
void redis_batches_send(struct redis_batches *batches); /* end of the tick: sends what waits, as the window allows */

/* The link is ready; it has lost its connection. */
void redis_batches_on_ready(struct redis_batches *batches);
void redis_batches_on_down(struct redis_batches *batches);
/* All ops that are not in flight end so: they are certainly not done. */
void redis_batches_end_waiting(struct redis_batches *batches, enum op_outcome outcome);
void redis_batches_end_unsent(struct redis_batches *batches); /* with OP_DOWN: there is no connection */
/* A key of our own that this node has, if it has any: what tries the server names it. */
const char *redis_batches_scratch_key(const struct redis_batches *batches, char out[STORE_OWN_KEY_MAX]);
/* The server's settings have changed: to the new one, once what is in flight has been answered. */
void redis_batches_move(struct redis_batches *batches);

#endif
