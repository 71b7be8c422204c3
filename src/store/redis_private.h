/*
 * redis_private.h: the inside of the Redis store, shared by redis_store.c (the store) and redis_turns.c (what is on its
 * way to Redis and back).
 */
#ifndef RL_STORE_REDIS_PRIVATE_H
#define RL_STORE_REDIS_PRIVATE_H

#include "store/batch.h"
#include "store/op_queue.h"
#include "store/redis_link.h"
#include "store/redis_store.h"

/* One turn on its way. */
struct redis_slot {
    struct list link; /* in idle, in_flight or refused; in none while it is filled */
    struct redis_call call;
    struct redis_store *store; /* not owned */
    struct batch *batch;       /* owned */
    uint32_t nonce;
    int64_t last_deadline_us; /* of its ops; CLOCK_MONOTONIC, as the next two */
    int64_t sent_us;
    int64_t until_us; /* it certainly does not begin any later */
    bool is_sent;     /* it may have run */
    bool was_refused; /* met NOSCRIPT once */
    bool is_apart;    /* of one policy alone, because Redis refused it among others */
};

enum phase {
    SENDING,
    RELOADING, /* the script is away: wait for in_flight, then load it; nothing new is sent */
    MOVING,    /* the server's settings have changed: wait for in_flight, then for the new connection; as above */
};

struct redis_store {
    struct clock *clock; /* not owned */
    struct redis_options options;
    struct redis_script script;
    struct redis_link *link; /* owned; NULL once it is closed */

    struct op_queue waiting; /* ops that are not sent yet */
    uint32_t n_idle;
    struct list idle;      /* slots without a turn */
    struct list in_flight; /* oldest first */
    struct list refused;   /* met NOSCRIPT: to be sent again, before what waits */
    uint32_t n_calls;      /* in_flight and refused */
    uint32_t window;       /* how many n_calls may be now: 1 to options.window, by how fast Redis answers */
    enum phase phase;
    int64_t server_ahead_us; /* the server's clock less CLOCK_MONOTONIC, as its last reply had it */
    struct redis_call reload;
    struct batch *canary; /* owned; stays empty */
    uint32_t canary_nonce;
    uint32_t last_nonce;

    struct list ended; /* ops with their outcome; done is still to run */
    uv_timer_t soon;
    bool had_attempt;
    void (*on_first_attempt)(void *arg); /* NULL = nobody asks, or told */
    void *on_first_attempt_arg;

    char last_error[REDIS_TEXT_MAX];
    int64_t last_error_us;

    bool is_closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

void redis_store_end(struct redis_store *store, struct op *op, enum op_outcome outcome); /* done runs soon */
void redis_store_call_soon(struct redis_store *store);                     /* done of those in `ended`, from a timer */
void redis_store_adapt_window(struct redis_store *store, int64_t sent_us); /* to the reply of what was sent then */
/* Not done, and not sent: it waits again, before the others. It ends where there is no memory for that. */
void redis_store_wait_again(struct redis_store *store, struct op *op);

struct redis_slot *redis_turns_begin(struct redis_store *store); /* for a new turn; NULL without memory */
int redis_turns_add(struct redis_slot *slot, struct op *op);     /* as batch_add */
void redis_turns_abandon(struct redis_slot *slot);               /* nothing was put in */
void redis_turns_free_slots(struct list *slots);
void redis_turns_send(struct redis_slot *slot);           /* it is complete */
void redis_turns_send_refused(struct redis_store *store); /* those that met NOSCRIPT, in their order */
void redis_turns_end_refused(struct redis_store *store);  /* they end with OP_DOWN */
/* Load the script again, or move to another server, once nothing is in flight that this could overtake. */
void redis_turns_go_on_when_drained(struct redis_store *store);
void redis_turns_learn_time(struct redis_store *store, const struct batch *batch); /* the server's, of a good reply */

#endif
