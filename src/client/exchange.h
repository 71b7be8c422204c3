/*
 * exchange.h: what goes on between a client and its daemon: connecting, sending, answers, deadlines, losses. Private to
 * async.c, which is the public face of it.
 */
#ifndef RL_CLIENT_EXCHANGE_H
#define RL_CLIENT_EXCHANGE_H

#include "base/clock.h"
#include "client/decode.h"
#include "client/link.h"
#include "client/origin.h"
#include "client/request.h"

enum {
    EXCHANGE_FAULT_SIZE = 128,
    EXCHANGE_BACKOFF_MIN_US = 1000,  /* between attempts to get into a full backlog */
    EXCHANGE_BACKOFF_MAX_US = 20000, /* nothing beside a daemon that takes this long to accept */
};

struct ratelimit_async {
    struct link connection;
    struct clock clock;
    struct origin origin; /* whose connection it is */

    struct list waiting; /* of struct request, in the order made; the first may be half written */
    struct list sent;
    struct list ending;  /* calls that one event ends, while their callbacks run */
    struct list orphans; /* sent, and nobody waits any more, but a yes is to be taken back */
    struct map by_msgid; /* the calls in `sent` and `orphans` */
    struct heap deadlines;
    struct request_pool pool;
    struct request hello; /* sent first on each connection; in no heap, not counted */
    size_t n_pending;
    size_t n_orphans;    /* also the one that is half written */
    size_t n_slots;      /* that acquire gave to this connection and release has not taken */
    uint64_t next_msgid; /* never used again, so a late answer cannot meet another call */

    struct ratelimit_decision *members; /* owned; of the answer last shown: its request may be another's by then */
    size_t members_cap;

    struct buffer id; /* of the answer last shown, with a NUL behind it */

    struct decode_order order;
    uint32_t max_frame; /* the daemon's, once hello has answered */
    bool maps;

    bool stuck;          /* the socket is full: wait for POLLOUT */
    bool answered;       /* this connection has brought an answer */
    int64_t retry_at_us; /* no attempt to connect before */
    int64_t backoff_us;

    ratelimit_watch_fn *on_change;
    void *on_change_arg;
    short told_events;               /* what on_change heard last */
    char fault[EXCHANGE_FAULT_SIZE]; /* why the last call made was a BAD_ARGUMENT */
    bool busy;                       /* in process() or free() */
    bool dying;                      /* freed by a callback */
};

/* One turn without waiting, within `busy`. `revents` as for ratelimit_async_process(). */
void exchange_turn(struct ratelimit_async *client, short revents);

/* In a child of fork(): forget what is the parent's, without a word to anybody. Else nothing. */
void exchange_leave_parent(struct ratelimit_async *client);

/* Close the connection, which takes back what its orphans may yet be given, unless slots would end with it. Outside of
 * process(). */
void exchange_drop_orphans(struct ratelimit_async *client);

/* Close, and end every call as CANCELLED; within `busy` and `dying`. */
void exchange_cancel(struct ratelimit_async *client);

/* Tell the watcher, where this is news, that these are the events from now on. */
void exchange_tell(struct ratelimit_async *client, short events);

#endif
