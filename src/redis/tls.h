/*
 * redis/tls.h: TLS to Redis as the settings want it: whom we trust, who we are, what is checked of the server.
 *
 * It is made from the contents of the files, by the thread that reads the configuration, and never changes. References
 * are counted atomically: connections begin with it on the loop while a thread frees a configuration that holds it.
 */
#ifndef RL_REDIS_TLS_H
#define RL_REDIS_TLS_H

#include <stdbool.h>

#include "base/slice.h"

/* In the order of store.redis.tls.verify. */
enum redis_tls_verify {
    REDIS_TLS_FULL, /* a CA that we trust has signed the certificate, for the name or address that we connect to */
    REDIS_TLS_CA,   /* likewise, for any name */
    REDIS_TLS_NONE, /* any certificate will do */
};

struct redis_tls_options {
    struct slice ca;         /* PEM: the certificates to trust; not needed with REDIS_TLS_NONE */
    struct slice cert;       /* PEM: our own, then those between it and its CA; empty = none */
    struct slice key;        /* PEM: of our own certificate */
    const char *server_name; /* expected in the certificate, and asked for (SNI); NULL = the host of the address */
    enum redis_tls_verify verify;
};

enum redis_tls_part { REDIS_TLS_CA_FILE, REDIS_TLS_CERT_FILE, REDIS_TLS_KEY_FILE, REDIS_TLS_LIBRARY };

struct redis_tls_fault {
    enum redis_tls_part part; /* whose content is wrong; REDIS_TLS_LIBRARY: OpenSSL is not there */
    char text[256];           /* what is wrong; what to do instead */
};

struct redis_tls;

/* One reference. NULL: `ret_fault` says why. `options` is copied. */
struct redis_tls *redis_tls_new(const struct redis_tls_options *options, struct redis_tls_fault *ret_fault);
struct redis_tls *redis_tls_ref(struct redis_tls *tls); /* NULL stays NULL */
void redis_tls_unref(struct redis_tls *tls);            /* NULL is fine */

/* Would a connection begin in the same way? By the contents of the files; NULL = without TLS. */
bool redis_tls_equal(const struct redis_tls *a, const struct redis_tls *b);

struct ssl_st; /* of OpenSSL */

/* What a connection to `host` begins with; NULL without memory. */
struct ssl_st *redis_tls_connection(const struct redis_tls *tls, const char *host);

#endif
