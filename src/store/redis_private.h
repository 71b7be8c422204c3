/*
 * redis_private.h: the inside of the Redis store, shared by redis_store.c (the store) and redis_turns.c (what is on its
 * way to Redis and back).
 */
#ifndef RL_STORE_REDIS_PRIVATE_H
#define RL_STORE_REDIS_PRIVATE_H

#include "store/redis_link.h"
#include "store/redis_store.h"
#include "store/turn.h"

/* One turn on its way. */
struct redis_slot {
    struct list link; /* in idle, in_flight, refused or held; in none while gathering */
    struct redis_call call;
    struct redis_store *store; /* not owned */
    struct turn *turn;         /* owned */
    uint32_t nonce;
    bool was_refused; /* met NOSCRIPT once */
};

enum phase {
    SENDING,
    RELOADING, /* the script is away: wait for in_flight, then load it */
    MOVING,    /* the server's settings have changed: wait for in_flight, then for the new connection */
};

struct redis_store {
    struct clock *clock; /* not owned */
    struct redis_options options;
    struct redis_script script;
    struct redis_link *link; /* owned; NULL once it is closed */

    struct redis_slot *gathering; /* this loop turn's; NULL = none */
    uint32_t n_idle;
    struct list idle; /* slots without a turn */
    struct list in_flight;
    struct list refused; /* met NOSCRIPT: to be sent again, before held */
    struct list held;    /* gathered while not SENDING */
    uint32_t n_calls;    /* gathering, in_flight, refused and held */
    enum phase phase;
    struct redis_call reload;
    struct turn *canary; /* owned; stays empty */
    uint32_t canary_nonce;
    uint32_t last_nonce;

    struct list ended; /* ops with their outcome; done is still to run */
    uv_timer_t soon;
    bool had_attempt;
    void (*on_first_attempt)(void *arg); /* NULL = nobody asks, or told */
    void *on_first_attempt_arg;

    bool is_closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

void redis_store_run_done(struct list *ops);           /* takes the ops off the list and tells each its outcome */
void redis_store_call_soon(struct redis_store *store); /* the same to those in `ended`, from a timer */

struct redis_slot *redis_turns_begin(struct redis_store *store); /* for a new turn; NULL without memory */
void redis_turns_free_slots(struct list *slots);
void redis_turns_send_gathering(struct redis_store *store); /* it is complete; nothing where there is none */
void redis_turns_send_waiting(struct redis_store *store);   /* what had to wait, in the order it came */
void redis_turns_end_waiting(struct redis_store *store);    /* it and the gathering end with OP_DOWN */
/* Load the script again, or move to another server, once nothing is in flight that this could overtake. */
void redis_turns_go_on_when_drained(struct redis_store *store);

#endif
