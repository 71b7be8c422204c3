/*
 * link.h: one connection to the daemon: a non-blocking Unix socket, and the bytes that have come in on it.
 *
 * The link knows nothing of calls. It never waits: what cannot happen now is LINK_LATER. A full backlog makes a
 * non-blocking connect() fail at once with EAGAIN (a blocking one would hang without limit), so that is LINK_LATER too,
 * and the caller tries again until its deadline.
 */
#ifndef RL_CLIENT_LINK_H
#define RL_CLIENT_LINK_H

#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "base/buffer.h"
#include "proto/rpc.h"
#include "proto/scan.h"

enum { LINK_ERROR_SIZE = 256 };

struct link {
    struct sockaddr_un address;
    int fd;                      /* owned; -1 while there is no connection */
    struct buffer in;            /* owned bytes; begins with a message not read yet */
    struct scanner scanner;      /* of that message */
    char error[LINK_ERROR_SIZE]; /* why the last step failed, for people */
};

enum link_step { LINK_DONE, LINK_LATER, LINK_FAILED };

int link_init(struct link *link, const char *path); /* 0, or -1 when the path is empty or too long */
void link_close(struct link *link);                 /* drops what came in; may be called twice */
void link_leave(struct link *link); /* the same, but what came in stays where it is until link_connect() */
void link_fini(struct link *link);

enum link_step link_connect(struct link *link);

/* DONE: *ret_len bytes (maybe not all) were taken; LATER: the socket is full; FAILED: the daemon closed it. */
enum link_step link_send(struct link *link, const struct iovec *parts, size_t n, size_t *ret_len);

/* DONE: bytes came; *ret_more: there may be more. LATER: none now. FAILED: the connection ended. */
enum link_step link_receive(struct link *link, bool *ret_more);

/* The next whole response of what came in. DONE: *ret, valid until link_consume(link, *ret_len); LATER: none;
 * FAILED: what came is not a response. */
enum link_step link_next(struct link *link, struct rpc_response *ret, size_t *ret_len);
void link_consume(struct link *link, size_t len);

#endif
