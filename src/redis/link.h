/*
 * redis/link.h: the connection to one server of Redis, kept alive.
 *
 *   waiting ──▶ dialing ──▶ opening ──▶ ready
 *      ▲           │           │          │      each of them may end at any time; the reason is kept
 *      └───────────┴───────────┴──────────┘      for people, the wait is backoff.h's
 *
 * One attempt at a time, always begun by a timer, never from inside hiredis. The owner of the link sends
 * calls while it is ready and gets each one's reply, or NULL, exactly once.
 */
#ifndef RL_REDIS_LINK_H
#define RL_REDIS_LINK_H

#include "redis/conn.h"
#include "redis/handshake.h"
#include "redis/options.h"

struct redis_link;
struct redis_sentinel;

struct redis_link_events {
    void *arg;
    void (*on_ready)(void *arg);
    void (*on_down)(void *arg);    /* a ready connection has ended; its calls have had their NULL */
    void (*on_attempt)(void *arg); /* an attempt has ended: ready, or not */
};

/* NULL without memory, or if the loop is out of handles. `clock`, `script` and `options` outlive the link, and so does
 * `address`, of one server of a cluster; NULL: it is the options', or their Sentinels name it. Begins in the next tick.
 */
struct redis_link *redis_link_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options,
                                  const char *address, const struct redis_script *script,
                                  const struct redis_link_events *events);
void redis_link_options_changed(struct redis_link *link); /* how often to try */
/* The server's own settings have changed: leave the present one, and ask at once. Calls that wait are lost. */
void redis_link_move(struct redis_link *link);

bool redis_link_is_ready(const struct redis_link *link);
const char *redis_link_status(const struct redis_link *link); /* "ready", or what went wrong last */
/* What the ready server says that it is: "redis 7.2.4", "valkey 9.0.1"; "" = it does not say. */
const char *redis_link_server(const struct redis_link *link);

/* NULL: without Sentinels. */
const struct redis_sentinel *redis_link_sentinel(const struct redis_link *link);

/* As redis_conn_send; -1 if the link is not ready. */
int redis_link_send(struct redis_link *link, struct redis_call *call, const struct slice *args, size_t n);
void redis_link_flush(struct redis_link *link);
size_t redis_link_output(const struct redis_link *link);

/* Close the connection and begin anew; `why` is for people. on_down runs from within, or, while replies are given out,
 * when the present one's callback has returned. */
void redis_link_drop(struct redis_link *link, enum redis_remedy remedy, const char *why);

/* Every call gets its NULL first (perhaps from within), on_closed runs once, later; the link is gone then. A name
 * lookup that runs is not waited for: it keeps the loop alive until the resolver gives up. */
void redis_link_close(struct redis_link *link, void (*on_closed)(void *arg), void *arg);

#endif
