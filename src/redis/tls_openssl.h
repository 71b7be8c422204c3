/*
 * redis/tls_openssl.h: OpenSSL, which is loaded when a configuration has TLS: a daemon without it does without the
 * memory of two libraries. tls.c and tls_session.c call each function through the table `openssl`.
 */
#ifndef RL_REDIS_TLS_OPENSSL_H
#define RL_REDIS_TLS_OPENSSL_H

#include <stdbool.h>
#include <stddef.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

struct openssl {
#define OPENSSL(name) __typeof__(name) *(name);
#include "redis/tls_openssl.def"
#undef OPENSSL
};

extern struct openssl openssl; /* once openssl_load() has returned true */

/* Macros of OpenSSL's headers call these. */
#define SSL_CTX_ctrl    openssl.SSL_CTX_ctrl
#define SSL_ctrl        openssl.SSL_ctrl
#define SSL_get_ex_data openssl.SSL_get_ex_data
#define SSL_set_ex_data openssl.SSL_set_ex_data

/* For the thread that reads the configuration. False: `fault` says why, and a later call tries again. */
bool openssl_load(char *fault, size_t size);

#endif
