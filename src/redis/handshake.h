/*
 * redis/handshake.h: from a connection to a proof that checks will work on it.
 *
 * One pipelined write: HELLO (user, password, name), SELECT, SCRIPT LOAD, and an EVALSHA of an empty
 * batch, the canary. The connection is good only once the canary's reply is: an accepted connect says
 * nothing (a hung server's kernel accepts), nor does HELLO (it answers while every script gets BUSY).
 * The canary names a key. A node of a cluster that answers that it does not have it is good.
 */
#ifndef RL_REDIS_HANDSHAKE_H
#define RL_REDIS_HANDSHAKE_H

#include "redis/conn.h"
#include "redis/options.h"

/*
 * What an error reply of Redis or Valkey means for us. The texts differ between versions, so the class comes from the
 * first word, or, if a script failed inside, from the token the older servers wrap ("ERR Error running script ...:
 * -READONLY").
 */
enum redis_error {
    REDIS_ERROR_NOSCRIPT, /* not executed: the script cache is empty */
    REDIS_ERROR_REFUSED,  /* the server executes nothing now, or writes nothing: it loads, is busy, lacks its master,
                             its replicas, memory or disk */
    REDIS_ERROR_ROLE,     /* a replica: the master is somewhere else */
    REDIS_ERROR_AUTH,     /* user, password or database */
    REDIS_ERROR_NOPERM,   /* not executed: the user may not use this command or one of its keys */
    REDIS_ERROR_NOPERM_INSIDE, /* our script may not use some command or key; maybe partly done */
    REDIS_ERROR_CLIENTS,       /* too many clients */
    REDIS_ERROR_UNKNOWN_COMMAND,
    REDIS_ERROR_OTHER, /* maybe partly done */
};

/* What to do with the connection that gave the error to a batch. Its ops end with a store error in any case but RELOAD
 * and SEPARATE. */
enum redis_remedy {
    REMEDY_KEEP,           /* go on */
    REMEDY_RELOAD,         /* load the script, send its ops again, once */
    REMEDY_SEPARATE,       /* send each policy's ops again, separate from the others', once */
    REMEDY_RECONNECT,      /* close, look for the server anew */
    REMEDY_RECONNECT_LATE, /* close; asking again soon cannot help */
};

enum redis_error redis_error_of(struct slice text);
enum redis_remedy redis_error_remedy(enum redis_error error);

/* Of a NOPERM, is it the key that the user may not use? Else it is the command. */
bool redis_error_is_about_key(const char *text);

/* The script and the empty call that proves it. */
struct redis_script {
    struct slice text;
    struct slice sha1; /* 40 lower-case hexadecimal digits */
    void *arg;
    /* The canary's arguments after the digest, valid until the next call; their number, 0 without memory. */
    size_t (*canary)(void *arg, const struct slice **ret_args);
    bool (*is_canary_good)(void *arg, const struct redis_reader *reply);
};

/* The whole call of the canary, into args, which it may need all of. Their number, 0 without memory. */
enum { CANARY_ARGS_MAX = 8 };
size_t redis_script_canary(const struct redis_script *script, struct slice args[CANARY_ARGS_MAX]);

/* What this daemon is called in CLIENT LIST: "ratelimitd:HOST:PID". Returns `out`. */
enum { REDIS_CLIENT_NAME_MAX = 128 };
const char *redis_client_name(char out[REDIS_CLIENT_NAME_MAX]);

/* HELLO with that name, and with user and password unless both are NULL: then redis_conn_guard() holds for `n_behind`
 * bytes behind it, too. As redis_conn_send(). */
int redis_hello_send(struct redis_conn *conn, struct redis_call *call, const char *username, const char *password,
                     size_t n_behind);

struct redis_handshake {
    struct redis_conn *conn;           /* not owned */
    const struct redis_script *script; /* not owned */
    bool is_cluster;                   /* it must be a node of one; else it must not */
    bool without_hello;                /* this server does not know HELLO: stays from one connection to the next */
    bool authenticates;                /* HELLO, or AUTH, brings a password */
    bool is_answered;                  /* something has been: it is connected */
    bool is_replica;                   /* this server has reported it */
    bool is_over;
    char server[32]; /* its name and version, as HELLO has them; "" = it says neither */
    struct redis_call hello, setname, select, load, canary;
    /* Once, unless the connection is lost before: NULL = good, else what was wrong (valid during the call). */
    void (*on_over)(struct redis_handshake *handshake, const char *fault, enum redis_remedy remedy);
};

/* 0, or -1 without memory. */
int redis_handshake_start(struct redis_handshake *handshake, const struct redis_options *options);

#endif
