/*
 * redis_handshake.h: from a connection to a proof that checks will work on it.
 *
 * One pipelined write: HELLO (user, password, name), SELECT, SCRIPT LOAD, and an EVALSHA of an empty
 * turn, the canary. The connection is good only once the canary's reply is: an accepted connect says
 * nothing (a hung server's kernel accepts), nor does HELLO (it answers while every script gets BUSY).
 */
#ifndef RL_STORE_REDIS_HANDSHAKE_H
#define RL_STORE_REDIS_HANDSHAKE_H

#include "store/redis_conn.h"
#include "store/redis_options.h"
#include "store/redis_reply.h"

/* The script and the empty call that proves it. */
struct redis_script {
    struct slice text;
    struct slice sha1; /* 40 lower-case hexadecimal digits */
    void *arg;
    /* The canary's arguments after the digest, valid until the next call; their number, 0 without memory. */
    size_t (*canary)(void *arg, const struct slice **ret_args);
    bool (*is_canary_good)(void *arg, const struct redis_reader *reply);
};

struct redis_handshake {
    struct redis_conn *conn;           /* not owned */
    const struct redis_script *script; /* not owned */
    bool without_hello;                /* this server does not know HELLO: stays from one connection to the next */
    bool is_over;
    struct redis_call hello, setname, select, load, canary;
    /* Once, unless the connection is lost before: NULL = good, else what was wrong (valid during the call). */
    void (*on_over)(struct redis_handshake *handshake, const char *fault, enum redis_remedy remedy);
};

/* 0, or -1 without memory. */
int redis_handshake_start(struct redis_handshake *handshake, const struct redis_options *options);

#endif
