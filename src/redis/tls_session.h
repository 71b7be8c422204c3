/*
 * redis/tls_session.h: TLS on one connection to Redis: its bytes in and out, through a socket that does not block.
 *
 * The handshake is part of the first reads and writes. Each of the two may have to wait for the other direction, which
 * the two flags report. The error queue of OpenSSL is cleared before each call: it is the thread's, and the error of
 * one connection would end others.
 */
#ifndef RL_REDIS_TLS_SESSION_H
#define RL_REDIS_TLS_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "redis/tls.h"

/* Bytes of one record, at most. A read of so many leaves nothing decrypted behind, for which no event would come. */
enum { REDIS_TLS_RECORD = 16 * 1024 };

struct redis_tls_session {
    struct ssl_st *ssl;    /* owned */
    bool read_wants_write; /* the read goes on when the socket is writable */
    bool write_wants_read;
    bool is_refused; /* a certificate is not accepted, theirs or ours: asking again soon cannot help */
    char fault[200]; /* what went wrong, after EPROTO */
};

/* `fd` is connected, or will be; `host` as the address has it. NULL without memory. */
struct redis_tls_session *redis_tls_session_new(const struct redis_tls *tls, int fd, const char *host);
void redis_tls_session_free(struct redis_tls_session *session); /* NULL is fine */

/* As recv() and send(): 0 = the server has closed, -1 = errno: EAGAIN = later, EPROTO = session->fault. `cap` is
 * REDIS_TLS_RECORD or more. */
ssize_t redis_tls_read(struct redis_tls_session *session, void *to, size_t cap);
ssize_t redis_tls_write(struct redis_tls_session *session, const void *bytes, size_t len);

bool redis_tls_is_open(const struct redis_tls_session *session);             /* the handshake is over */
const char *redis_tls_version_text(const struct redis_tls_session *session); /* "TLSv1.3" */

#endif
