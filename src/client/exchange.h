/*
 * exchange.h: all that happens between a client and its daemon: connecting, sending, answers, deadlines, losses.
 * The public functions are in async.c and, for the blocking client, in blocking.c.
 */
#ifndef RL_CLIENT_EXCHANGE_H
#define RL_CLIENT_EXCHANGE_H

#include "base/clock.h"
#include "client/decode.h"
#include "client/denials.h"
#include "client/link.h"
#include "client/request.h"

enum { EXCHANGE_FAULT_SIZE = 128 };

/* A daemon that hangs must cost its callers three timeouts, and not one with every call. After three calls in a row
 * that timed out the breaker is open for a second: calls are not tried. Then one call goes through, as a probe, while
 * others are still turned away. Any answer closes the breaker; a probe that times out opens it for another second.
 * Failures that take no time do not count. */
struct breaker {
    int n_timeouts; /* in a row */
    bool probes;    /* a probe is on its way */
    int64_t open_until_us;
};

struct ratelimit_async {
    struct link connection;
    struct clock clock; /* a test freezes it */

    struct list waiting; /* of struct request, in the order made; the first may be half written */
    struct list sent;
    struct list repeats;   /* answered by what is remembered; they end in the next tick */
    struct list ending;    /* calls that one event ends, while their callbacks run */
    struct list orphans;   /* sent, and no caller waits any more, but a late grant must be undone or abandoned */
    struct map by_msgid;   /* the calls in `sent` and `orphans` */
    struct heap deadlines; /* of the calls in flight */
    struct request_pool pool;
    struct request hello; /* sent first on each connection; without a deadline, and never half written when it ends */
    size_t n_orphans;     /* also the one that is half written, and those whose abandon has not left */
    size_t n_slots;       /* that acquire gave to this connection and release has not given back */
    uint64_t next_msgid;  /* never used again, so a late answer cannot match another call */

    struct buffer id; /* of the last reported answer, with a NUL after it */

    struct decode_order order;
    unsigned features;  /* of this connection's daemon: a set of FEATURE_*, once hello has answered */
    uint32_t max_frame; /* likewise */
    bool maps;          /* from the next connection on hello asks for maps */
    bool describes;     /* and for decisions that say which limit they speak of */

    struct denials denials;
    struct breaker breaker;
    bool stuck;          /* the socket is full: wait for POLLOUT */
    bool answered;       /* this connection has brought an answer */
    int64_t retry_at_us; /* no attempt to connect before */
    int64_t backoff_us;  /* how long it was put off last; 0: not since the last answer */

    ratelimit_watch_fn *on_change;
    void *on_change_arg;
    short reported_events;           /* the events of the last on_change */
    char fault[EXCHANGE_FAULT_SIZE]; /* the reason of the last BAD_ARGUMENT */
    bool busy;                       /* in process() or free() */
    bool dying;                      /* freed by a callback */
};

/* Queue a packed call. OK; or BREAKER or NO_MEMORY, and it is still the caller's. */
enum ratelimit_status exchange_submit(struct ratelimit_async *client, struct request *request);

/* The same for a call whose answer denials_find() has found: it ends in the next tick. OK, or NO_MEMORY and it
 * is back in the pool. */
enum ratelimit_status exchange_repeat(struct ratelimit_async *client, struct request *request);

/* One tick without waiting, within `busy`. `revents` as for ratelimit_async_process(). */
void exchange_tick(struct ratelimit_async *client, short revents);

/* In a child of fork(): forget the parent's connection and calls, without callbacks. Else nothing. */
void exchange_leave_parent(struct ratelimit_async *client);

/* The connection has ended, or is given up: end the calls that were sent on it. */
void exchange_lose(struct ratelimit_async *client, enum ratelimit_status status, const char *code, const char *message);

/* Close, and end every call as CANCELLED; within `busy` and `dying`. */
void exchange_cancel(struct ratelimit_async *client);

/* Report the events from now on to the watcher, if they have changed. */
void exchange_report_events(struct ratelimit_async *client, short events);

#endif
