/*
 * redis_flights.h: the batches on their way to Redis and back, each one EVALSHA.
 *
 * The store fills a batch with ops (begin, add) and sends it. Every op then comes back exactly once, to one of the
 * functions of struct redis_flights_events.
 *
 * What becomes of a batch:
 *   good reply      the batch gives every op its answer
 *   begun too late  nothing of it was done; the ops wait again
 *   NOSCRIPT        not executed. What was sent before the script is back fails like this too, so nothing new is sent
 *                   until all of it has been answered; then SCRIPT LOAD and the refused batches go out in their order.
 *                   Each at most twice
 *   NOPERM          not executed, because of one of its keys: each policy's ops go out once more, apart from the rest
 *   other error     OP_STORE_ERROR; never sent again, because it may have been executed in part
 *   wrong shape     OP_STORE_ERROR, and the connection is closed: nothing on it can be trusted any more
 *   lost            OP_DOWN; never sent again, because it may have been executed
 *
 * The window bounds what Redis has before it. What is sent cannot be called back, so a Redis that falls behind would
 * work off ops that were answered long ago, first come first served, and one party that asks for much would have all of
 * it.
 *
 * Every batch carries a nonce that comes back as the last integer, so that an answer can never reach another's check.
 * It also carries the latest time, by the server's clock, at which it may begin. A server that was stopped, or that
 * reads a dead connection's last bytes long after we gave up on it, does nothing then, and whoever had the answer "not
 * decided" is not charged much later. The server's clock is known from its last reply, the first of which is the
 * handshake's.
 */
#ifndef RL_STORE_REDIS_FLIGHTS_H
#define RL_STORE_REDIS_FLIGHTS_H

#include "store/batch.h"
#include "store/redis_link.h"

struct redis_flight; /* one batch and what is known of it */

/* Where ops come back to. Those that Redis did not answer may not be done at once: hiredis may be taking the connection
 * down. */
struct redis_flights_events {
    void *arg;
    /* All ops of one batch, in order, each with its outcome. sent_us: CLOCK_MONOTONIC before its call was written. */
    void (*on_answers)(void *arg, struct list *ops, int64_t sent_us);
    void (*on_end)(void *arg, struct op *op, enum op_outcome outcome);
    void (*on_unsent)(void *arg, struct op *op); /* certainly not done: it waits again, before the others */
};

enum redis_phase {
    REDIS_SENDING,
    REDIS_RELOADING, /* the script is gone: wait for in_flight, then load it; nothing new is sent */
    REDIS_MOVING,    /* to another server: wait for in_flight, then for the new connection; as above */
};

struct redis_flights {
    struct clock *clock;                 /* not owned */
    const struct redis_options *options; /* the store's */
    struct redis_link *link;             /* the store's; set once there is one */
    struct redis_script script;
    struct redis_flights_events events;

    struct list idle; /* kept for later batches */
    uint32_t n_idle;
    struct list in_flight; /* oldest first */
    struct list refused;   /* met NOSCRIPT: to be sent again, before what waits */
    uint32_t n_calls;      /* in_flight and refused */
    uint32_t window;       /* how many n_calls may be now: 1 to options.window, by how fast Redis answers */
    enum redis_phase phase;
    int64_t server_ahead_us; /* the server's clock less CLOCK_MONOTONIC, as its last reply had it */
    struct redis_call reload;
    struct batch *canary; /* owned; stays empty */
    uint32_t canary_nonce;
    uint32_t last_nonce;

    char last_error[REDIS_TEXT_MAX]; /* the last error reply to a batch; "" = there was none */
    int64_t last_error_us;
};

/* 0, or -1 without memory. */
int redis_flights_init(struct redis_flights *flights, struct clock *clock, const struct redis_options *options,
                       const struct redis_flights_events *events);
void redis_flights_fini(struct redis_flights *flights); /* nothing is in flight any more */

bool redis_flights_is_at_cap(const struct redis_flights *flights); /* nothing may wait any more */
uint32_t
redis_flights_n_free(const struct redis_flights *flights); /* more batches that may be sent now, while REDIS_SENDING */

struct redis_flight *redis_flights_begin(struct redis_flights *flights); /* an empty batch; NULL without memory */
int redis_flight_add(struct redis_flight *flight, struct op *op);        /* as batch_add */
enum batch_merge redis_flight_would_merge(const struct redis_flight *flight, const struct op *op);
/* The batch is complete. Where it is empty or cannot be sent it ends here; it was certainly not executed. */
void redis_flight_send(struct redis_flight *flight);

void redis_flights_on_ready(struct redis_flights *flights);
/* Those that wait for the script to be loaded again end with OP_DOWN. */
void redis_flights_end_refused(struct redis_flights *flights);
/* The server's settings have changed: to the new one, once what is in flight has been answered. */
void redis_flights_move(struct redis_flights *flights);

#endif
