/*
 * tls_peer.h: certificates made for one test, and a server that speaks TLS with OpenSSL on one end of a socket pair.
 */
#ifndef RL_TESTS_TLS_PEER_H
#define RL_TESTS_TLS_PEER_H

#include <stdbool.h>
#include <stddef.h>

#include <openssl/ssl.h>

/* A certificate and its key, both as objects and as PEM text. */
struct tls_identity {
    X509 *certificate;
    EVP_PKEY *key;
    char certificate_pem[4096], key_pem[1024];
};

/* Signed by `issuer`; NULL = by itself, as a CA. `names`: "DNS:localhost,IP:127.0.0.1"; NULL = none. Valid for so many
 * days; less than 0: it expired so many days ago. */
void tls_identity_init(struct tls_identity *identity, const char *subject, const char *names,
                       const struct tls_identity *issuer, int days);
void tls_identity_fini(struct tls_identity *identity);

struct tls_peer {
    SSL_CTX *context;
    SSL *ssl;
    int fd;        /* the server's end */
    int client_fd; /* the other end, for the session under test */
};

/* version: TLS1_2_VERSION or TLS1_3_VERSION. Neither end blocks. */
void tls_peer_init(struct tls_peer *peer, const struct tls_identity *identity, int version);
/* The same on a connection that a test has accepted, and that becomes the peer's; client_fd is -1. */
void tls_peer_accept(struct tls_peer *peer, const struct tls_identity *identity, int version, int fd);
void tls_peer_fini(struct tls_peer *peer);

#endif
