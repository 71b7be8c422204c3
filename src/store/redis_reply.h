/*
 * redis_reply.h: what an error reply of Redis or Valkey means for us; pure.
 *
 * The texts differ between versions, so the class comes from the first word, or, where a script
 * failed inside, from the token the older servers wrap ("ERR Error running script ...: -READONLY").
 */
#ifndef RL_STORE_REDIS_REPLY_H
#define RL_STORE_REDIS_REPLY_H

#include <stddef.h>

enum redis_error {
    REDIS_ERROR_NOSCRIPT,      /* not executed: the script cache is empty */
    REDIS_ERROR_MOVED,         /* not executed: a cluster, and the key lives elsewhere */
    REDIS_ERROR_ASK,           /* not executed: as MOVED, for this once */
    REDIS_ERROR_TRYAGAIN,      /* not executed: the slot is on its way */
    REDIS_ERROR_CROSSSLOT,     /* not executed: our keys are built wrongly for a cluster */
    REDIS_ERROR_AWAY,          /* not executed: the server is there but cannot serve now */
    REDIS_ERROR_ROLE,          /* a replica: the master is somewhere else */
    REDIS_ERROR_BUSY,          /* not executed: another script runs for too long */
    REDIS_ERROR_CAPACITY,      /* a write was refused: memory, disk or replicas */
    REDIS_ERROR_AUTH,          /* user or password */
    REDIS_ERROR_NOPERM,        /* not executed: the user may not use this command or one of its keys */
    REDIS_ERROR_NOPERM_INSIDE, /* our script may not use some command or key; maybe partly done */
    REDIS_ERROR_CLIENTS,       /* too many clients */
    REDIS_ERROR_UNKNOWN_COMMAND,
    REDIS_ERROR_SCRIPT, /* our script failed while running; maybe partly done */
    REDIS_ERROR_OTHER,
};

/* What to do with the connection that gave the error to a batch. Its ops end with a store error in any case but RELOAD
 * and APART. */
enum redis_remedy {
    REMEDY_KEEP,           /* go on */
    REMEDY_RELOAD,         /* load the script, send the call again, once */
    REMEDY_APART,          /* send each policy's ops again, apart from the others', once */
    REMEDY_RECONNECT,      /* close, look for the server anew */
    REMEDY_RECONNECT_LATE, /* close; asking again soon cannot help */
};

enum redis_error redis_error_of(const char *text, size_t len);
enum redis_remedy redis_error_remedy(enum redis_error error);

#endif
