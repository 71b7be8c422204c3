/*
 * store.h: where counters live, behind one seam: memory, Redis, or a test's script.
 *
 * The engine hands over an `op`: one question about one or several limits (all or nothing). Either
 * the store answers within store_submit() (SUBMIT_DECIDED), or it refuses there (and `done` never
 * runs), or it keeps the op and calls `done` exactly once later: error now XOR callback later.
 * Between SUBMIT_PENDING and `done` the op, its members and their key bytes must stay where they
 * are; the store holds no other pointer into the engine.
 *
 * Ops of one client on one key take effect in the order they were submitted; ops that have to wait are taken from the
 * clients round robin. Failure answers and deadlines are the engine's. The store looks at an op's deadline only before
 * it sends the op: one that has waited beyond it ends with OP_EXPIRED.
 */
#ifndef RL_STORE_STORE_H
#define RL_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/slice.h"
#include "limit/lease_list.h"
#include "limit/limit.h"

enum op_kind {
    OP_CHECK,   /* charge every member's cost, or none */
    OP_PEEK,    /* what OP_CHECK would answer; nothing is charged */
    OP_RESET,   /* forget every member's state */
    OP_REFUND,  /* give back what every member is charged, up to its cost; the decision is a peek's of cost 0 after it.
                   With a reservation: take back the charge of its made_us, as if it had not been; with its level,
                   only from a bucket without a charge since then (limit_undo) */
    OP_RESERVE, /* OP_CHECK, and if it admits, a reservation of the members' cost, with its slot (reservation_slot) */
    OP_SETTLE,  /* end a reservation: charge what was used beyond it, or return what was not, and give its slot back;
                   members' cost 0 */
    OP_SWEEP,   /* return the units and slots of reservations that have ended; members' cost 0 */

    /* The members of the last two are limits of slots (concurrency) only. */
    OP_ACQUIRE, /* OP_CHECK, by which such limits among the members take the slot op->slot */
    OP_RELEASE, /* give op->slot back */
    OP_RENEW,   /* let the lease of op->slot begin anew, if it is still there */
};

/* Are its costs charged if they fit? */
static inline bool op_is_check(enum op_kind kind)
{
    return kind == OP_CHECK || kind == OP_RESERVE || kind == OP_ACQUIRE;
}

enum op_outcome {
    OP_DECIDED,     /* the members' results are filled */
    OP_DOWN,        /* the connection was lost; once sent it may or may not have been charged: never resend */
    OP_EXPIRED,     /* its deadline passed while it waited to be sent: it is certainly not done */
    OP_BREAKER,     /* the store has stopped asking a server in trouble: it is certainly not done */
    OP_OVERLOAD,    /* a cap towards the store, or memory: it is certainly not done */
    OP_STORE_ERROR, /* an error reply, or one that makes no sense */
    /* batch.c's own, of a call to several hash slots: nothing was done, for some key of the op */
    OP_AWAY,   /* is not there any more */
    OP_BARRED, /* is none that the user may read */
};

enum submit {
    SUBMIT_DECIDED,  /* answered now; `done` does not run */
    SUBMIT_PENDING,  /* `done` runs exactly once, later, never from within store_submit() */
    SUBMIT_DOWN,     /* refused: no connection */
    SUBMIT_BREAKER,  /* refused: a server in trouble is not asked for a while */
    SUBMIT_OVERLOAD, /* refused: a cap towards the store, or memory */
};

/* What an op whose `done` does not run has come to: of any but SUBMIT_PENDING. */
static inline enum op_outcome submit_outcome(enum submit status)
{
    static const enum op_outcome outcomes[] = {[SUBMIT_DECIDED] = OP_DECIDED,
                                               [SUBMIT_DOWN] = OP_DOWN,
                                               [SUBMIT_BREAKER] = OP_BREAKER,
                                               [SUBMIT_OVERLOAD] = OP_OVERLOAD};
    return outcomes[status];
}

enum {
    RESERVATION_GRACE_MS = 60000, /* for this time after its end a reservation can still be settled, and only once */
    RESERVATION_TTL_MAX_MS = 86400000,
};

/*
 * Units charged for a while: they are returned at the reservation's end, unless it was settled before. A policy
 * and key has one list of reservations, for all its limits. Every op on a reservation, and a refund, first takes out
 * those that have ended; in memory, a check and a peek do so too.
 */
struct op_reservation {
    uint64_t id;     /* chosen by the engine, at random */
    int64_t units;   /* what was charged to the limits that count units; without any, 1 */
    int64_t made_us; /* the store's now when it was charged: result of OP_RESERVE, and what OP_SETTLE brings back */
    int64_t ttl_ms;  /* it ends this time after it was made */
    int64_t level;   /* OP_REFUND: limit_undo()'s; 0 = none */
    int64_t actual;  /* OP_SETTLE: what was used; 0 = it is cancelled */
    bool is_merge;   /* OP_SETTLE of one limit: there was no reservation; what was used is charged as far as twice the
                        limit's capacity, and the id is remembered in a list of that counter alone */
    /* results */
    bool held;        /* OP_RESERVE: admitted, and a reservation was made */
    bool is_known;    /* OP_RESERVE: by an op of the same record before: all of this is that one's; OP_SETTLE: it was
                         settled before */
    bool ended;       /* OP_SETTLE: no such reservation was there any more: its units are back already */
    int64_t refunded; /* OP_SETTLE: of that, the most that any limit had to give back */
    int64_t charged;  /* OP_SETTLE: to every limit that counts units */
};

/* Does it hold units of this limit? Of a limit that takes one of a check nothing comes back. */
static inline bool reservation_holds(const struct op_reservation *reservation, const struct limit *limit)
{
    return reservation->is_merge || !limit_takes_one(limit);
}

/* The slot of limits of slots that a reservation takes goes by the reservation's id, as 16 hexadecimal digits, twice. */
void reservation_slot(uint64_t id, char out[SLOT_ID_LEN]);

/* By how many units an OP_SETTLE may lift the charges of a limit above its capacity. */
static inline int64_t reservation_debt(const struct op_reservation *reservation, const struct limit *limit)
{
    return reservation->is_merge || limit->debt ? limit->full : 0;
}

static inline int64_t reservation_end_ms(const struct op_reservation *reservation)
{
    return reservation->made_us / 1000 + reservation->ttl_ms;
}

struct op_member {
    const struct limit *limit; /* alive until `done` */
    struct slice key;          /* the limit's id: the client's key, or some of its parts; bytes alive until `done` */
    struct slice shard_id;     /* what decides the shard of the key in Redis; data NULL: `key` itself; alive as that */
    struct slice reservations_key; /* the client's whole key, which names its reservations; len 0: there are none */
    int64_t cost;                  /* 0 = peek; already checked: <= max_cost, or > limit->full (never admitted) */
    int64_t max_wait_us;           /* a delay that will do, at most the limit's; 0 if that has none */
    int64_t used, extra;           /* result of OP_CHECK and OP_PEEK: the state (limit.h) before any charge */
    int64_t wait_us;               /* result of OP_CHECK: how long a log's denial lasts, else 0 */
    struct pause pause;            /* the same of its penalty, if it has one, before the op begins one; zeroed: none */
    struct decision decision;      /* result of OP_CHECK, OP_ACQUIRE and OP_PEEK: all but source, reason and version */
    int64_t refunded;              /* result of OP_REFUND: so many units were given back */
    bool removed;                  /* result of OP_RESET: there was a state */
    bool found;                    /* result of OP_RELEASE and OP_RENEW: the slot's lease was there */
    bool is_foreign;     /* result with OP_STORE_ERROR: its key, or the op's own, holds a value of another type */
    uint64_t hash;       /* op_member_hash(); 0 until it is needed */
    uint16_t batch_key;  /* batch.c's own: its number among the keys */
    uint64_t batch_hash; /* batch.c's own: of limit and key; 0 until it is needed */
};

struct redis_node;

struct op {
    struct list link; /* the store's while pending */

    /* the question */
    enum op_kind kind;
    uint16_t n_members;                 /* at least 1; no two charge the same counter */
    struct op_member *members;          /* not owned */
    struct op_reservation *reservation; /* not owned; of OP_RESERVE, OP_SETTLE, and of an OP_REFUND that takes back one
                                           charge; else NULL */
    /* OP_CHECK: as many units as fit, up to this many and at most each limit's max_cost, the costs being 1; 0 = the
     * costs as they are. */
    int64_t at_most;
    /* OP_CHECK, OP_RESERVE, OP_REFUND: the name under which an admission (or what was given back) is remembered for
     * record_ms: an op of that name in that time changes nothing and gets the first one's answer, and reservation.
     * Empty = none. Bytes alive until `done`. */
    struct slice record;
    uint32_t record_ms;
    uint32_t answer_units; /* of work with its answer beyond a check's (op_units()) */
    bool is_all;           /* its limits are those of a check_all */
    const char *slot;      /* OP_ACQUIRE, OP_RELEASE, OP_RENEW: SLOT_ID_LEN bytes, alive until `done`; else NULL */
    uint64_t client;       /* the connection that asks; 0 = the daemon itself */
    int64_t read_us;       /* CLOCK_MONOTONIC of the read that brought it; 0 = none did */
    int64_t deadline_us;   /* CLOCK_MONOTONIC: not to be sent after this; 0 = it is never dropped */
    bool is_awaited;       /* an owner waits for the answer: it is work even if it is none of the store's */
    bool is_bound;         /* it is about what was charged in `server`, and is done there or not at all */
    void (*done)(struct op *op, enum op_outcome outcome);

    /* results, besides those of its members and its reservation */
    int64_t now_us;        /* OP_CHECK and OP_PEEK: the store's time, in us since the epoch */
    enum source source;    /* where it was decided */
    bool is_known;         /* its record was known: nothing was charged; set by the memory store alone */
    bool sent;             /* it may have been done; */
    int64_t sent_us;       /* CLOCK_MONOTONIC of that; 0: it was not sent to another process */
    uint32_t server;       /* store_server() when it was sent; of one that is_bound part of the question */
    bool is_refused;       /* with OP_STORE_ERROR: store_error_text() had the reason when it ended */
    bool is_doubtful;      /* with OP_STORE_ERROR: the answer makes no sense, so it may have been done */
    int64_t runs_until_us; /* once sent: CLOCK_MONOTONIC after which it certainly does not begin any more */

    /* each its module's own */
    enum op_outcome outcome; /* redis/store.c: for `done`; of an answered batch batch.c's */
    uint16_t hash_slot;      /* redis/servers.c: the members' place; else 0 */
    struct redis_node *node; /* redis/servers.c: whose it is */
    uint64_t number;         /* redis/servers.c: the order in which ops were submitted */
    bool is_held;            /* cluster_slots.c: it waits there */
    bool is_asking;          /* redis/servers.c: it goes to a node that does not have its hash slot yet */
    uint8_t n_hops;          /* redis/servers.c: how often it was sent on to another node */
    uint8_t n_tries;         /* redis/servers.c: how often it was to be sent again */
    bool is_queued;          /* op_queue.c: it waits to be sent */
    struct list same_key;    /* op_queue.c: while it waits, next to those that it may merge with */
    bool met_noscript;       /* redis/batches.c: it was sent to a Redis that had lost the script */
    bool met_noperm;         /* redis/batches.c: it was sent with another policy's ops, and Redis refused them all */
    uint32_t batch_op;       /* batch.c: its number among the script's ops */
    uint32_t weight;         /* batch.c: batch_weight(); 0 until it is needed */
    int64_t submitted_us;    /* redis/batches.c: when it began to wait; CLOCK_MONOTONIC */
    uint64_t deny_epoch;     /* deny_cache.c: when it was submitted */
};

/* A check of one limit, with nothing of its own that has to be remembered: equal ones may be counted together. */
static inline bool op_is_single_check(const struct op *op)
{
    return op->kind == OP_CHECK && op->n_members == 1 && op->record.len == 0;
}

/* Does it keep no more than states: no reservation, no slot, no record? */
static inline bool op_is_light(const struct op *op)
{
    return op->record.len == 0 && (op->kind == OP_CHECK || op->kind == OP_PEEK || op->kind == OP_RESET);
}

/* The counter's hash, for tables of this process: never 0. */
uint64_t op_member_hash(struct op_member *member);
/* Do both charge the same counter? */
bool op_same_counter(const struct op_member *a, const struct op_member *b);
/* Decide a check or peek of one limit by its view, which is charged by it. Returns the units charged. */
int64_t op_decide_one(struct op *op, struct view *view);
/* A fingerprint of the policies whose limits the op asks. */
uint32_t op_version(const struct op *op);
/* How much work this process has with the op once it is decided here, in units of about a plain check. */
uint32_t op_units(const struct op *op);

/* What a test does to a store that a test's clock moves. */
enum store_test {
    STORE_TEST_DOWN,  /* refuse every op but renewals of slots with SUBMIT_DOWN, and keep all counts */
    STORE_TEST_UP,    /* decide again */
    STORE_TEST_CLEAR, /* forget everything, and decide */
};

/*
 * A walk over the counters of some limits, for operators: one part of it in each call, so that it blocks no tick. A
 * counter that is there all the time is found exactly once, however others come and go between two calls.
 */
struct store_walk {
    const struct limit *const *limits; /* not owned; whose counters */
    size_t n_limits;
    uint64_t at;   /* where it goes on: 0 at first; STORE_WALK_OVER: all was looked at */
    int64_t steps; /* of work that this call may do; an empty place is one, a counter some more */
    /* A counter of limits[i], and its id (op_member.key), valid until the call returns: is it to be removed? It may
     * lower `steps`. */
    bool (*found)(struct store_walk *walk, size_t i, struct slice id);
};

#define STORE_WALK_OVER UINT64_MAX

struct store_ops {
    enum submit (*submit)(void *store, struct op *op);
    /* Where the member's counter lies: all members of an op have one place, or the store CHECKs. NULL: any may. */
    uint32_t (*place_of)(void *store, const struct op_member *member);
    /* `op` will be submitted after a few others (store_submit_ahead): let what it needs come into the processor's cache
     * until then. Only of stores that decide every op at once; else NULL. */
    void (*prefetch)(void *store, struct op *op);
    void (*flush)(void *store);                         /* end of the tick: send what has gathered */
    bool (*withdraw)(void *store, struct op *op);       /* NULL: nothing ever waits in the store */
    const char *(*error_text)(void *store);             /* NULL: the store refuses nothing */
    const char *(*trial_text)(void *store);             /* NULL: it never tries other settings */
    void (*test)(void *store, enum store_test what);    /* NULL: no test can do this */
    void (*walk)(void *store, struct store_walk *walk); /* NULL: its counters are in another process */
    void (*close)(void *store, void (*on_closed)(void *arg),
                  void *arg); /* pending ops end with OP_DOWN; on_closed once, then the store is gone */
};

enum { STORE_AHEAD = 2 };

/* One handle for every store; each implementation's constructor returns one by value. */
struct store {
    const struct store_ops *ops;
    void *impl;                    /* owned by the implementation */
    enum source source;            /* SOURCE_REDIS or SOURCE_MEMORY: also the source of what the policy alone decides */
    const uint32_t *server;        /* store_server(); NULL: there is only one */
    struct op *ahead[STORE_AHEAD]; /* of store_submit_ahead(): prefetched, the older one first; NULL = empty */
};

/* The number of the server, or cluster, that has the counters: another one once a reload has named another. What was
 * charged in the one before cannot be given back in this one. */
static inline uint32_t store_server(const struct store *store)
{
    return store->server != NULL ? *store->server : 0;
}

/* Every op of a store comes through store_submit() or store_submit_ahead(), so they take effect in that order. */
enum submit store_submit(struct store *store, struct op *op);

/*
 * If the memory store has more keys than fit into the processor's cache, a decision mostly waits for the memory of its
 * key. So a check of one limit is prefetched, and decided while two more are submitted: its `done` runs within the
 * submit of another op, or within store_flush(), so at the end of the tick at the latest; with OP_DECIDED, with
 * OP_OVERLOAD without memory, or with OP_DOWN if a test has set that. Only if store_looks_ahead().
 */
void store_submit_ahead(struct store *store, struct op *op);
/* Decides those now. Never needed for the order of ops. */
void store_decide_ahead(struct store *store);

static inline bool store_looks_ahead(const struct store *store)
{
    return store->ops->prefetch != NULL;
}

/* Are there members that cannot share an op? The engine then asks for the place of each member before it submits an op
 * of several. */
static inline bool store_has_places(const struct store *store)
{
    return store->ops->place_of != NULL;
}

static inline uint32_t store_place_of(const struct store *store, const struct op_member *member)
{
    return store_has_places(store) ? store->ops->place_of(store->impl, member) : 0;
}

void store_flush(struct store *store); /* end of the tick */

/* For a store that can: after what was submitted before. */
void store_test(struct store *store, enum store_test what);

/* A part of the walk; false: the counters of this store are in another process. */
static inline bool store_walk(struct store *store, struct store_walk *walk)
{
    if (store->ops->walk == NULL) return false;
    store_decide_ahead(store);
    store->ops->walk(store->impl, walk);
    return true;
}

/* Take back an op that is pending and not sent: true, and `done` does not run. */
static inline bool store_withdraw(struct store *store, struct op *op)
{
    return store->ops->withdraw != NULL && store->ops->withdraw(store->impl, op);
}

/* The last refusal in the server's own words, any bytes; "" = there was none. Valid until the loop goes on. */
static inline const char *store_error_text(const struct store *store)
{
    return store->ops->error_text != NULL ? store->ops->error_text(store->impl) : "";
}

void store_close(struct store *store, void (*on_closed)(void *arg), void *arg);

/* Why other settings are not used yet, for people, valid until the next call; "" = there are none. */
static inline const char *store_trial_text(const struct store *store)
{
    return store->ops->trial_text != NULL ? store->ops->trial_text(store->impl) : "";
}

#endif
