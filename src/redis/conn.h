/*
 * redis/conn.h: one connection to Redis: commands out, replies in.
 *
 * From open to gone:
 *   redis_conn_open    one attempt to a path or a numeric address; never blocks
 *   redis_conn_send    a command, and the call that gets its reply; replies come in order
 *   redis_conn_flush   while corked: write what has gathered (once per tick)
 *   redis_conn_drop    give up; every waiting call gets NULL, then on_gone runs, once
 * Whatever ends the connection, the order is the same: NULL to every waiting call, then on_gone.
 */
#ifndef RL_REDIS_CONN_H
#define RL_REDIS_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/slice.h"
#include "redis/reader.h"

struct redisAsyncContext; /* of hiredis */
struct redis_tls;
struct redis_tls_session;

/* A command on its way; the caller's memory, until on_reply. */
struct redis_call {
    struct list link; /* the connection's, oldest first */
    int64_t sent_us;  /* CLOCK_MONOTONIC */
    /* Exactly once. NULL: the connection was lost; nothing may be sent then. */
    void (*on_reply)(struct redis_call *call, const struct redis_reader *reply);
};

struct redis_conn {
    struct redisAsyncContext *context; /* owned; NULL = closed */
    struct redis_tls_session *tls;     /* owned; NULL = plain text */
    struct clock *clock;               /* not owned */
    struct list calls;
    int64_t last_reply_us;
    /* Both are kept, so that a warm connection allocates nothing. */
    struct buffer output; /* commands not written yet */
    struct buffer input;  /* not read by `reader` yet */
    struct redis_reader reader;
    bool is_corked;  /* writes wait for redis_conn_flush */
    bool is_secret;  /* `output` holds a password: to be wiped once it is written */
    bool is_reading; /* replies are being given out */
    bool is_ending;  /* nothing may be sent any more */
    bool is_refused; /* it ended because of a certificate: asking again soon cannot help */
    char error[256]; /* why it ended, or could not begin */
    void (*on_gone)(struct redis_conn *conn);
};

void redis_conn_init(struct redis_conn *conn, struct clock *clock, void (*on_gone)(struct redis_conn *conn));

void redis_conn_fini(struct redis_conn *conn); /* must be gone */

struct redis_endpoint {
    const char *path; /* NULL = TCP */
    const char *host; /* numeric */
    uint16_t port;
    bool is_v6;
    uint32_t user_timeout_ms;    /* TCP_USER_TIMEOUT */
    const struct redis_tls *tls; /* NULL = plain text */
    const char *name;            /* what `host` was found by, for the certificate */
};

/* 0: on its way (commands may be sent already). -1: conn->error says why; on_gone does not run. */
int redis_conn_open(struct redis_conn *conn, uv_loop_t *loop, const struct redis_endpoint *endpoint);
bool redis_conn_is_connected(const struct redis_conn *conn); /* the kernel's part is done */
/* So is the handshake of TLS, or none is wanted. */
bool redis_conn_is_secure(const struct redis_conn *conn);
const char *redis_conn_tls_version(const struct redis_conn *conn); /* "TLSv1.3"; NULL: plain text */

/* 0, or -1 (closing, or no memory): then on_reply does not run. `args` are copied. */
int redis_conn_send(struct redis_conn *conn, struct redis_call *call, const struct slice *args, size_t n);

/* For what the server sends by itself after a subscription: the next reply behind those that are waited for. The call
 * counts as waiting, so redis_conn_waiting_since() says nothing then. */
void redis_conn_expect(struct redis_conn *conn, struct redis_call *call);

/* Call it before commands that contain a password: everything up to the next complete write is wiped. `reserve`: their
 * bytes, so that the output buffer need not move and leave a copy behind. 0, or -1 without memory. */
int redis_conn_guard(struct redis_conn *conn, size_t reserve);

void redis_conn_cork(struct redis_conn *conn);
void redis_conn_flush(struct redis_conn *conn);

void redis_conn_drop(struct redis_conn *conn);
/* Since when the oldest call has been waiting without any reply coming in; INT64_MAX if none waits. */
int64_t redis_conn_waiting_since(const struct redis_conn *conn);

#endif
