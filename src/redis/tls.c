/* redis/tls.c: the contexts of TLS, made of the settings' files, for redis/options.c and the wiring. */
#include "redis/tls.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "redis/tls_openssl.h"

enum { DIGEST_SIZE = 32, HOST_SIZE = 256 };

struct redis_tls {
    unsigned n_refs;  /* atomic */
    SSL_CTX *context; /* owned; it counts its references itself */
    enum redis_tls_verify verify;
    char *server_name;           /* owned; NULL = the host of the address */
    uint8_t digest[DIGEST_SIZE]; /* of all options */
};

/* ---- faults ---- */

__attribute__((format(printf, 3, 4))) static bool refuse(struct redis_tls_fault *fault, enum redis_tls_part part,
                                                         const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fault->part = part;
    vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    return false;
}

/* OpenSSL's words for the last error. */
static const char *reason(void)
{
    const char *text = openssl.ERR_reason_error_string(openssl.ERR_peek_last_error());
    return text != NULL ? text : "unknown error";
}

/* ---- what the files hold ---- */

/* PEM is never read without it: OpenSSL's own asks the terminal. */
static int on_passphrase(char *buf, int size, int is_write, void *was_asked)
{
    (void)buf, (void)size, (void)is_write;
    *(bool *)was_asked = true;
    return -1;
}

/* The n-th certificate of a file, for X509_free(). True with NULL: there are no more. */
static bool read_certificate(BIO *bio, size_t nth, enum redis_tls_part part, X509 **ret, struct redis_tls_fault *fault)
{
    bool was_asked = false;
    openssl.ERR_clear_error();
    *ret = openssl.PEM_read_bio_X509(bio, NULL, on_passphrase, &was_asked);
    unsigned long error = openssl.ERR_peek_last_error();
    bool is_end = ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
    if (*ret != NULL || is_end) return true;
    if (was_asked)
        return refuse(fault, part,
                      "certificate %zu in it has a passphrase, which a daemon cannot ask for; write it without one: "
                      "openssl x509 -in OLD -out NEW",
                      nth);
    return refuse(fault, part, "certificate %zu in it is damaged: %s", nth, reason());
}

static bool has_expired(const X509 *certificate)
{
    return openssl.X509_cmp_current_time(openssl.X509_get0_notAfter(certificate)) < 0;
}

/* "Jan  1 00:00:00 2026 GMT" */
static const char *time_text(const ASN1_TIME *time, char *out, size_t size)
{
    BIO *bio = openssl.BIO_new(openssl.BIO_s_mem());
    int len = bio != NULL && openssl.ASN1_TIME_print(bio, time) == 1 ? openssl.BIO_read(bio, out, (int)size - 1) : 0;
    out[len > 0 ? len : 0] = '\0';
    openssl.BIO_free(bio);
    return out;
}

static bool trust(SSL_CTX *context, BIO *bio, struct redis_tls_fault *fault)
{
    const enum redis_tls_part part = REDIS_TLS_CA_FILE;
    size_t n_valid = 0, n_all = 0;
    for (X509 *certificate; read_certificate(bio, n_all + 1, part, &certificate, fault);) {
        if (certificate == NULL && n_all == 0)
            return refuse(fault, part, "holds no certificate; write the path of a PEM file");
        if (certificate == NULL && n_valid == 0)
            return refuse(fault, part, "holds only certificates that have expired; write a present one into it");
        if (certificate == NULL) return true;

        n_all++;
        n_valid += !has_expired(certificate);
        bool is_added = openssl.X509_STORE_add_cert(openssl.SSL_CTX_get_cert_store(context), certificate) == 1;
        openssl.X509_free(certificate);
        if (!is_added) return refuse(fault, part, "certificate %zu in it cannot be used: %s", n_all, reason());
    }
    return false;
}

static bool use_own(SSL_CTX *context, X509 *own, struct redis_tls_fault *fault)
{
    const enum redis_tls_part part = REDIS_TLS_CERT_FILE;
    char when[64];
    if (own == NULL) return refuse(fault, part, "holds no certificate; write the path of a PEM file");
    if (has_expired(own))
        return refuse(fault, part, "its certificate expired on %s; write a present one into it",
                      time_text(openssl.X509_get0_notAfter(own), when, sizeof when));
    if (openssl.X509_cmp_current_time(openssl.X509_get0_notBefore(own)) > 0)
        return refuse(fault, part, "its certificate is not valid before %s; check this host's clock",
                      time_text(openssl.X509_get0_notBefore(own), when, sizeof when));
    if (openssl.SSL_CTX_use_certificate(context, own) == 1) return true;
    return refuse(fault, part, "its certificate cannot be used: %s; write another one into it", reason());
}

/* Our own certificate, which the context keeps, and those behind it. */
static bool use_certificates(SSL_CTX *context, BIO *bio, struct redis_tls_fault *fault)
{
    const enum redis_tls_part part = REDIS_TLS_CERT_FILE;
    X509 *certificate;
    if (!read_certificate(bio, 1, part, &certificate, fault)) return false;
    bool is_good = use_own(context, certificate, fault);
    openssl.X509_free(certificate);

    for (size_t nth = 2; is_good && read_certificate(bio, nth, part, &certificate, fault); nth++) {
        if (certificate == NULL) return true;
        is_good = SSL_CTX_add1_chain_cert(context, certificate) == 1;
        openssl.X509_free(certificate);
        if (!is_good)
            refuse(fault, part, "certificate %zu in it cannot be used: %s; write another one into it", nth, reason());
    }
    return false;
}

static bool use_key(SSL_CTX *context, BIO *bio, struct redis_tls_fault *fault)
{
    bool was_asked = false, is_good = false;
    openssl.ERR_clear_error();
    EVP_PKEY *key = openssl.PEM_read_bio_PrivateKey(bio, NULL, on_passphrase, &was_asked);

    if (was_asked)
        refuse(
            fault, REDIS_TLS_KEY_FILE,
            "its key has a passphrase, which a daemon cannot ask for; write the key without one: openssl pkey -in OLD "
            "-out NEW");
    else if (key == NULL)
        refuse(fault, REDIS_TLS_KEY_FILE, "holds no private key; write the path of a PEM file");
    else if (openssl.X509_check_private_key(openssl.SSL_CTX_get0_certificate(context), key) != 1)
        refuse(fault, REDIS_TLS_KEY_FILE,
               "is the key of another certificate than that of cert_file; write the two that "
               "belong together");
    else if (openssl.SSL_CTX_use_PrivateKey(context, key) != 1)
        refuse(fault, REDIS_TLS_KEY_FILE, "its key cannot be used: %s; write another pair", reason());
    else
        is_good = true;
    openssl.EVP_PKEY_free(key);
    return is_good;
}

/* ---- the object ---- */

/* The bytes of every option, each after its length. */
static bool digest_options(const struct redis_tls_options *options, uint8_t digest[DIGEST_SIZE])
{
    const struct slice name = options->server_name != NULL ? slice_of(options->server_name) : (struct slice){0};
    const struct slice parts[] = {
        options->ca, options->cert, options->key, name, {(const uint8_t *)&options->verify, sizeof options->verify}};
    EVP_MD_CTX *context = openssl.EVP_MD_CTX_new();
    bool is_good = context != NULL && openssl.EVP_DigestInit_ex(context, openssl.EVP_sha256(), NULL) == 1;
    for (size_t i = 0; i < N_OF(parts) && is_good; i++)
        is_good = openssl.EVP_DigestUpdate(context, &parts[i].len, sizeof parts[i].len) == 1 &&
                  openssl.EVP_DigestUpdate(context, parts[i].data, parts[i].len) == 1;
    is_good = is_good && openssl.EVP_DigestFinal_ex(context, digest, NULL) == 1;
    openssl.EVP_MD_CTX_free(context);
    return is_good;
}

static SSL_CTX *new_context(enum redis_tls_verify verify)
{
    SSL_CTX *context = openssl.SSL_CTX_new(openssl.TLS_client_method());
    if (context == NULL) return NULL;
    if (SSL_CTX_get_min_proto_version(context) < TLS1_2_VERSION) /* the system's policy may ask for more */
        (void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);

    openssl.SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
    /* A record that holds no reply (a ticket, a new key) ends a read: a server that sends nothing else would keep the
     * loop for itself. */
    SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
    /* The output buffer moves and grows between two tries of one write. */
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    openssl.SSL_CTX_set_verify(context, verify == REDIS_TLS_NONE ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    X509_VERIFY_PARAM *param = openssl.SSL_CTX_get0_param(context);
    openssl.X509_VERIFY_PARAM_set_flags(param,
                                        X509_V_FLAG_PARTIAL_CHAIN); /* what ca_file holds is trusted, a root or not */
    openssl.X509_VERIFY_PARAM_set_hostflags(param,
                                            X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return context;
}

/* Passes the text of a file on. */
static bool use(bool (*part)(SSL_CTX *, BIO *, struct redis_tls_fault *), SSL_CTX *context, struct slice text,
                struct redis_tls_fault *fault)
{
    BIO *bio = text.len <= INT32_MAX ? openssl.BIO_new_mem_buf(text.data, (int)text.len) : NULL;
    bool is_good = bio != NULL && part(context, bio, fault);
    openssl.BIO_free(bio);
    return is_good;
}

struct redis_tls *redis_tls_new(const struct redis_tls_options *options, struct redis_tls_fault *ret_fault)
{
    ret_fault->part = REDIS_TLS_LIBRARY;
    if (!openssl_load(ret_fault->text, sizeof ret_fault->text)) return NULL;
    refuse(ret_fault, REDIS_TLS_CA_FILE, "out of memory; give the daemon more");
    struct redis_tls *tls = mem_zalloc(sizeof *tls);
    if (tls == NULL) return NULL;
    tls->n_refs = 1;
    tls->verify = options->verify;
    tls->context = new_context(options->verify);

    bool is_good = tls->context != NULL && digest_options(options, tls->digest);
    if (is_good && options->server_name != NULL) {
        tls->server_name = mem_strdup(options->server_name);
        is_good = tls->server_name != NULL;
    }
    if (options->verify != REDIS_TLS_NONE) is_good = is_good && use(trust, tls->context, options->ca, ret_fault);
    if (options->cert.len > 0)
        is_good = is_good && use(use_certificates, tls->context, options->cert, ret_fault) &&
                  use(use_key, tls->context, options->key, ret_fault);
    openssl.ERR_clear_error();
    if (is_good) return tls;
    redis_tls_unref(tls);
    return NULL;
}

struct redis_tls *redis_tls_ref(struct redis_tls *tls)
{
    if (tls != NULL) __atomic_add_fetch(&tls->n_refs, 1, __ATOMIC_RELAXED);
    return tls;
}

void redis_tls_unref(struct redis_tls *tls)
{
    if (tls == NULL || __atomic_sub_fetch(&tls->n_refs, 1, __ATOMIC_ACQ_REL) > 0) return;
    openssl.SSL_CTX_free(tls->context);
    mem_free(tls->server_name);
    mem_free(tls);
}

bool redis_tls_equal(const struct redis_tls *a, const struct redis_tls *b)
{
    if (a == NULL || b == NULL) return a == b;
    return memcmp(a->digest, b->digest, DIGEST_SIZE) == 0;
}

/* A numeric address comes out as certificates have it: without its zone, and 127.1 in full. */
static bool normalize_address(char *name, size_t size)
{
    struct in_addr v4;
    struct in6_addr v6;
    char plain[HOST_SIZE];
    snprintf(plain, sizeof plain, "%.*s", (int)strcspn(name, "%"), name);
    if (inet_pton(AF_INET6, plain, &v6) == 1) return inet_ntop(AF_INET6, &v6, name, (socklen_t)size) != NULL;
    return inet_aton(name, &v4) == 1 && inet_ntop(AF_INET, &v4, name, (socklen_t)size) != NULL;
}

struct ssl_st *redis_tls_connection(const struct redis_tls *tls, const char *host)
{
    char name[HOST_SIZE];
    snprintf(name, sizeof name, "%s", tls->server_name != NULL ? tls->server_name : host);
    size_t len = strlen(name);
    if (len > 1 && name[len - 1] == '.') name[len - 1] = '\0'; /* absolute in the DNS, but not so in certificates */

    openssl.ERR_clear_error();
    SSL *ssl = openssl.SSL_new(tls->context);
    if (ssl == NULL) return NULL;
    openssl.SSL_set_connect_state(ssl);
    X509_VERIFY_PARAM *param = openssl.SSL_get0_param(ssl);
    bool is_address = normalize_address(name, sizeof name);
    bool is_good = is_address || SSL_set_tlsext_host_name(ssl, name) == 1; /* addresses are not for SNI */
    if (is_good && tls->verify == REDIS_TLS_FULL)
        is_good = is_address ? openssl.X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1
                             : openssl.X509_VERIFY_PARAM_set1_host(param, name, 0) == 1;
    if (is_good) return ssl;
    openssl.SSL_free(ssl);
    return NULL;
}
