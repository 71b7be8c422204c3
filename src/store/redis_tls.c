#include "store/redis_tls.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/alloc.h"
#include "base/assert.h"

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
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    return text != NULL ? text : "unknown error";
}

/* ---- what the files hold ---- */

static BIO *open_text(struct slice text)
{
    return text.len <= INT32_MAX ? BIO_new_mem_buf(text.data, (int)text.len) : NULL;
}

/* The next certificate, for X509_free(). NULL: there is none, or *ret_is_damaged. */
static X509 *next_certificate(BIO *bio, bool *ret_is_damaged)
{
    ERR_clear_error();
    X509 *certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    unsigned long error = ERR_peek_last_error();
    bool is_end = ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
    *ret_is_damaged = certificate == NULL && !is_end;
    return certificate;
}

static bool has_expired(const X509 *certificate)
{
    return X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0;
}

/* "Jan  1 00:00:00 2026 GMT" */
static const char *time_text(const ASN1_TIME *time, char *out, size_t size)
{
    BIO *bio = BIO_new(BIO_s_mem());
    int len = bio != NULL && ASN1_TIME_print(bio, time) == 1 ? BIO_read(bio, out, (int)size - 1) : 0;
    out[len > 0 ? len : 0] = '\0';
    BIO_free(bio);
    return out;
}

static bool trust(SSL_CTX *context, struct slice text, struct redis_tls_fault *fault)
{
    BIO *bio = open_text(text);
    size_t n_valid = 0, n_all = 0;
    bool is_damaged = bio == NULL;
    for (X509 *certificate; !is_damaged && (certificate = next_certificate(bio, &is_damaged)) != NULL; n_all++) {
        n_valid += !has_expired(certificate);
        is_damaged = X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate) != 1;
        X509_free(certificate);
    }
    BIO_free(bio);

    if (is_damaged)
        return refuse(fault, REDIS_TLS_CA_FILE, "certificate %zu in it is damaged: %s", n_all + 1, reason());
    if (n_all == 0) return refuse(fault, REDIS_TLS_CA_FILE, "holds no certificate; write the path of a PEM file");
    if (n_valid == 0)
        return refuse(fault, REDIS_TLS_CA_FILE,
                      "holds only certificates that have expired; write a present one into it");
    return true;
}

/* Our own certificate, for X509_free(), and those behind it. NULL: refused. */
static X509 *use_certificate(SSL_CTX *context, struct slice text, struct redis_tls_fault *fault)
{
    char when[64];
    BIO *bio = open_text(text);
    bool is_damaged = bio == NULL;
    X509 *own = bio != NULL ? next_certificate(bio, &is_damaged) : NULL;
    bool is_good = false;

    if (is_damaged) {
        refuse(fault, REDIS_TLS_CERT_FILE, "the certificate in it is damaged: %s", reason());
    } else if (own == NULL) {
        refuse(fault, REDIS_TLS_CERT_FILE, "holds no certificate; write the path of a PEM file");
    } else if (has_expired(own)) {
        refuse(fault, REDIS_TLS_CERT_FILE, "its certificate expired on %s; write a present one into it",
               time_text(X509_get0_notAfter(own), when, sizeof when));
    } else if (X509_cmp_current_time(X509_get0_notBefore(own)) > 0) {
        refuse(fault, REDIS_TLS_CERT_FILE, "its certificate is not valid before %s; check this host's clock",
               time_text(X509_get0_notBefore(own), when, sizeof when));
    } else if (SSL_CTX_use_certificate(context, own) != 1) {
        refuse(fault, REDIS_TLS_CERT_FILE, "its certificate cannot be used: %s", reason());
    } else {
        for (X509 *next; (next = next_certificate(bio, &is_damaged)) != NULL; X509_free(next))
            is_damaged |= SSL_CTX_add1_chain_cert(context, next) != 1;
        is_good = !is_damaged;
        if (is_damaged) refuse(fault, REDIS_TLS_CERT_FILE, "a certificate behind the first is damaged: %s", reason());
    }

    BIO_free(bio);
    if (is_good) return own;
    X509_free(own);
    return NULL;
}

static int on_passphrase(char *buf, int size, int is_write, void *was_asked)
{
    (void)buf, (void)size, (void)is_write;
    *(bool *)was_asked = true;
    return -1;
}

static bool use_key(SSL_CTX *context, const X509 *certificate, struct slice text, struct redis_tls_fault *fault)
{
    BIO *bio = open_text(text);
    bool was_asked = false, is_good = false;
    ERR_clear_error();
    EVP_PKEY *key = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, on_passphrase, &was_asked) : NULL;

    if (was_asked)
        refuse(
            fault, REDIS_TLS_KEY_FILE,
            "its key has a passphrase, which a daemon cannot ask for; write the key without one: openssl pkey -in OLD "
            "-out NEW");
    else if (key == NULL)
        refuse(fault, REDIS_TLS_KEY_FILE, "holds no private key; write the path of a PEM file");
    else if (X509_check_private_key(certificate, key) != 1)
        refuse(fault, REDIS_TLS_KEY_FILE,
               "is the key of another certificate than that of cert_file; write the two that "
               "belong together");
    else if (SSL_CTX_use_PrivateKey(context, key) != 1)
        refuse(fault, REDIS_TLS_KEY_FILE, "its key cannot be used: %s", reason());
    else
        is_good = true;

    EVP_PKEY_free(key);
    BIO_free(bio);
    return is_good;
}

/* ---- the object ---- */

/* The bytes of every option, each after its length. */
static bool digest_options(const struct redis_tls_options *options, uint8_t digest[DIGEST_SIZE])
{
    const struct slice name = options->server_name != NULL ? slice_of(options->server_name) : (struct slice){0};
    const struct slice parts[] = {
        options->ca, options->cert, options->key, name, {(const uint8_t *)&options->verify, sizeof options->verify}};
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool is_good = context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    for (size_t i = 0; i < N_OF(parts) && is_good; i++)
        is_good = EVP_DigestUpdate(context, &parts[i].len, sizeof parts[i].len) == 1 &&
                  EVP_DigestUpdate(context, parts[i].data, parts[i].len) == 1;
    is_good = is_good && EVP_DigestFinal_ex(context, digest, NULL) == 1;
    EVP_MD_CTX_free(context);
    return is_good;
}

static SSL_CTX *new_context(enum redis_tls_verify verify)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL) return NULL;
    if (SSL_CTX_get_min_proto_version(context) < TLS1_2_VERSION) /* the system's policy may ask for more */
        (void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);

    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
    /* A record that holds no reply (a ticket, a new key) ends a read: a server that sends nothing else would keep the
     * loop for itself. */
    SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
    /* The output buffer moves and grows between two tries of one write. */
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(context, verify == REDIS_TLS_NONE ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    X509_VERIFY_PARAM *param = SSL_CTX_get0_param(context);
    X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_PARTIAL_CHAIN); /* what ca_file holds is trusted, a root or not */
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return context;
}

static bool use_files(SSL_CTX *context, const struct redis_tls_options *options, struct redis_tls_fault *fault)
{
    if (options->verify != REDIS_TLS_NONE && !trust(context, options->ca, fault)) return false;
    if (options->cert.len == 0) return true;
    X509 *certificate = use_certificate(context, options->cert, fault);
    bool is_good = certificate != NULL && use_key(context, certificate, options->key, fault);
    X509_free(certificate);
    return is_good;
}

struct redis_tls *redis_tls_new(const struct redis_tls_options *options, struct redis_tls_fault *ret_fault)
{
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
    is_good = is_good && use_files(tls->context, options, ret_fault);
    ERR_clear_error();
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
    SSL_CTX_free(tls->context);
    mem_free(tls->server_name);
    mem_free(tls);
}

bool redis_tls_equal(const struct redis_tls *a, const struct redis_tls *b)
{
    if (a == NULL || b == NULL) return a == b;
    return memcmp(a->digest, b->digest, DIGEST_SIZE) == 0;
}

struct ssl_st *redis_tls_connection(const struct redis_tls *tls, const char *host)
{
    char name[HOST_SIZE];
    uint8_t numeric[sizeof(struct in6_addr)];
    snprintf(name, sizeof name, "%s", tls->server_name != NULL ? tls->server_name : host);
    size_t len = strlen(name);
    if (len > 1 && name[len - 1] == '.') name[len - 1] = '\0'; /* absolute in the DNS, but not so in certificates */

    ERR_clear_error();
    SSL *ssl = SSL_new(tls->context);
    if (ssl == NULL) return NULL;
    SSL_set_connect_state(ssl);
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
    bool is_address = inet_pton(AF_INET, name, numeric) == 1 || inet_pton(AF_INET6, name, numeric) == 1;
    bool is_good = is_address || SSL_set_tlsext_host_name(ssl, name) == 1; /* addresses are not for SNI */
    if (is_good && tls->verify == REDIS_TLS_FULL)
        is_good = is_address ? X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1
                             : X509_VERIFY_PARAM_set1_host(param, name, 0) == 1;
    if (is_good) return ssl;
    SSL_free(ssl);
    return NULL;
}
