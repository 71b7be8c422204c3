/*
 * http.h: one request and its answer, on one connection that then ends; for admin.c alone.
 *
 * llhttp reads the request as it comes. Its head stays in one buffer, whose size bounds it; a body is read and dropped,
 * because a peer that is still writing would lose the answer. The page of metrics is made while it is sent. An answer
 * that comes before the end of its request (a bad one, or one that asks whether to go on) is followed by the end of our
 * side, and what still comes is dropped until the peer ends its own.
 */
#ifndef RL_ADMIN_HTTP_H
#define RL_ADMIN_HTTP_H

#include <llhttp.h>

#include "admin/routes.h"
#include "base/buffer.h"

enum http_state { HTTP_IN_HEAD, HTTP_IN_BODY, HTTP_ANSWERING, HTTP_DRAINING };

struct http {
    const struct routes *routes; /* not owned */
    int fd;                      /* not owned; does not block */
    llhttp_t parser;
    char *head; /* owned; what was read of the request, without its body */
    size_t len; /* of it */
    struct visit visit;
    struct slice name, value; /* of the field that is being read */
    enum http_state state;
    bool has_url;
    bool expects;            /* it asks whether to send its body */
    bool is_whole;           /* it was read to its end */
    struct metrics *metrics; /* owned: what is left of the answer's body; NULL: nothing */
    struct buffer out;       /* of the answer, to be sent */
};

/* 0, or -1 without memory. */
int http_init(struct http *http, const struct routes *routes, int fd);
void http_fini(struct http *http);

enum http_next {
    HTTP_GOES_ON, /* it can do more now */
    HTTP_READS,   /* it waits for bytes, or for the peer's end */
    HTTP_WRITES,  /* it waits for space in the socket */
    HTTP_OVER,    /* the connection is to be closed */
};

/* One piece of work: a read, or a part of an answer. */
enum http_next http_run(struct http *http);

#endif
