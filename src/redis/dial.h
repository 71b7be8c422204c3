/*
 * redis/dial.h: from an address to a connection on its way: the lookup of its name, if it has one, then the connection.
 *
 * hiredis' own lookup would block the loop, so a thread of libuv does it; only one at a time for each owner: a resolver
 * that hangs must not get all of these threads. A lookup that is given up goes on, and the address that it finds is kept
 * for the next time that its name is dialed.
 */
#ifndef RL_REDIS_DIAL_H
#define RL_REDIS_DIAL_H

#include <netdb.h>

#include <uv.h>

#include "redis/conn.h"
#include "redis/options.h"

struct redis_dial_lookup;

struct redis_dial {
    uv_loop_t *loop;         /* not owned, as the next one */
    struct redis_conn *conn; /* closed when it is dialed */
    /* Not owned: where the options have it when the connection begins, for a reload may come while a name is looked up. */
    struct redis_tls *const *tls;
    /* Once for each redis_dial_start() that is not given up; from within, if nothing has to be looked up. NULL: commands
     * may be sent; else what is wrong. */
    void (*on_dialed)(struct redis_dial *dial, const char *fault);
    struct redis_address address; /* the owner's to set before each start */
    uint32_t nth;                 /* likewise: which of a name's addresses, round and round */

    uint32_t user_timeout_ms;
    struct redis_dial_lookup *lookup; /* NULL = none runs */
    bool is_awaited;                  /* its end */
    char name[REDIS_HOST_MAX + 1];    /* was looked up last */
    char found[NI_MAXHOST];           /* its address, as digits; "" = none */
    bool is_found_v6;
    int64_t late_us; /* CLOCK_MONOTONIC: when `found` came, and was not awaited; 0 = it was, or has been used */
};

/* *tls: NULL = plain text, as a Unix socket always has it. `tls` outlives the dial. */
void redis_dial_init(struct redis_dial *dial, uv_loop_t *loop, struct redis_conn *conn, struct redis_tls *const *tls,
                     void (*on_dialed)(struct redis_dial *dial, const char *fault));
/* To dial->address. user_timeout_ms: as in struct redis_endpoint. */
void redis_dial_start(struct redis_dial *dial, uint32_t user_timeout_ms);
void redis_dial_give_up(struct redis_dial *dial); /* on_dialed does not run any more */
/* "10.0.0.7": what dial->address's name was found to be; "" = it is none, or nothing was found. */
const char *redis_dial_found(const struct redis_dial *dial);
/* The owner goes. A lookup that has begun keeps the loop alive until the resolver gives up. */
void redis_dial_fini(struct redis_dial *dial);

#endif
