/*
 * link.h: one connection to the daemon: a non-blocking Unix socket, and the bytes that have come in on it.
 *
 * The link knows nothing of calls. It never waits: what cannot happen now is LINK_LATER. A full backlog makes a
 * non-blocking connect() fail at once with EAGAIN (a blocking one would hang without limit), so that is LINK_LATER too,
 * and the caller tries again until its deadline.
 *
 * The connection is this process's, and not that of a child that fork() makes of it. That is asked at each call and
 * each answer, so it must be cheap: `is_ours` is on a page that the kernel fills with zeros for a child
 * (MADV_WIPEONFORK). With a kernel without such pages, it compares process numbers.
 */
#ifndef RL_CLIENT_LINK_H
#define RL_CLIENT_LINK_H

#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buffer.h"
#include "client/ratelimit.h"
#include "proto/rpc.h"
#include "proto/scan.h"

enum { LINK_ERROR_SIZE = 256 };

struct link {
    struct sockaddr_un address;
    int fd;                      /* owned; -1 while there is no connection */
    struct buffer in;            /* owned bytes; begins with a message not read yet */
    struct scanner scanner;      /* of that message */
    int connect_errno;           /* why the last link_connect() failed; 0: it did not, or the daemon is busy */
    char error[LINK_ERROR_SIZE]; /* why the last step failed, for people */
    bool *is_ours;               /* owned page; NULL: there are no such pages */
    pid_t pid;                   /* without such a page */
};

enum link_step { LINK_DONE, LINK_LATER, LINK_FAILED };

/* OK; BAD_ARGUMENT when the path is empty or too long, or NO_MEMORY, and nothing to undo. */
enum ratelimit_status link_init(struct link *link, const char *path);
void link_close(struct link *link); /* drops what came in; may be called twice */
void link_fini(struct link *link);

/* This is a child of the process that it belongs to. */
static inline bool link_is_inherited(const struct link *link)
{
    return link->is_ours != NULL ? !*link->is_ours : link->pid != getpid();
}

/* Leave the connection to the parent: from now on the link is this process's. What came in stays where it is until
 * link_connect(), because a callback may still be reading it. */
void link_disown(struct link *link);

enum link_step link_connect(struct link *link);

/* DONE: *ret_len bytes (maybe not all) were taken; LATER: the socket is full; FAILED: the daemon closed it. */
enum link_step link_send(struct link *link, const struct iovec *parts, size_t n, size_t *ret_len);

/* DONE: bytes came; *ret_more: there may be more. LATER: none now. FAILED: the connection ended. */
enum link_step link_receive(struct link *link, bool *ret_more);

/* Take the next whole response of what came in. DONE: *ret, valid until the next link_next(), link_receive() or
 * link_close(); LATER: none; FAILED: what came is not a response. */
enum link_step link_next(struct link *link, struct rpc_response *ret);

#endif
