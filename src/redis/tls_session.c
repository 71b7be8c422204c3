/* redis/tls_session.c: TLS on one connection, and what each of its errors means, for redis/conn.c. */
#include "redis/tls_session.h"

#include <errno.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "redis/tls_openssl.h"

_Static_assert(REDIS_TLS_RECORD >= SSL3_RT_MAX_PLAIN_LENGTH, "a read takes a whole record");

enum {
    RECORDS_AT_ONCE = 16, /* that one write encrypts, at most */
    SUBJECT_SIZE = 64,
};

/* ---- what goes wrong ---- */

/* "CN=redis,O=Example", escaped. */
static const char *subject_text(const X509 *certificate, char *out, size_t size)
{
    BIO *bio = openssl.BIO_new(openssl.BIO_s_mem());
    if (bio != NULL)
        (void)openssl.X509_NAME_print_ex(bio, openssl.X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
    int len = bio != NULL ? openssl.BIO_read(bio, out, (int)size - 1) : 0;
    openssl.BIO_free(bio);
    out[len > 0 ? len : 0] = '\0';
    return len > 0 ? out : "no subject";
}

/* Which certificate, and what is wrong with it. */
static void describe_certificate(struct redis_tls_session *session, X509_STORE_CTX *store)
{
    char subject[SUBJECT_SIZE];
    const X509 *certificate = openssl.X509_STORE_CTX_get_current_cert(store);
    int error = openssl.X509_STORE_CTX_get_error(store), depth = openssl.X509_STORE_CTX_get_error_depth(store);
    const char *text = openssl.X509_verify_cert_error_string(error), *which = "the certificate of the server";
    const char *way_out = "renew it there";
    if (depth > 0 && depth < openssl.X509_STORE_CTX_get_num_untrusted(store)) {
        which = "a certificate that the server sends with its own";
    } else if (depth > 0) {
        which = "a certificate in store.redis.tls.ca_file";
        way_out = "write its successor into the file";
    }

    switch (error) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        if (openssl.X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1) < 0)
            snprintf(
                session->fault, sizeof session->fault,
                "TLS: the certificate of the server has no subjectAltName, which names its hosts; make one that has");
        else
            snprintf(session->fault, sizeof session->fault,
                     "TLS: the certificate of the server has another name (%s); write a name that it has into "
                     "store.redis.tls.server_name",
                     text);
        break;
    case X509_V_ERR_CERT_HAS_EXPIRED:
        snprintf(session->fault, sizeof session->fault, "TLS: %s (%s) has expired; %s", which,
                 subject_text(certificate, subject, sizeof subject), way_out);
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        snprintf(session->fault, sizeof session->fault, "TLS: %s (%s) is not valid yet; check the clocks of both hosts",
                 which, subject_text(certificate, subject, sizeof subject));
        break;
    case X509_V_ERR_EE_KEY_TOO_SMALL:
    case X509_V_ERR_CA_KEY_TOO_SMALL:
    case X509_V_ERR_CA_MD_TOO_WEAK:
        snprintf(session->fault, sizeof session->fault, "TLS: %s (%s) is too weak (%s); make a stronger one", which,
                 subject_text(certificate, subject, sizeof subject), text);
        break;
    default:
        snprintf(session->fault, sizeof session->fault,
                 "TLS: the certificate of the server is not trusted (%s); write its CA into the file of "
                 "store.redis.tls.ca_file",
                 text);
    }
}

/* While the certificates are checked, for only then is it known which of them is at fault. */
static int on_verified(int is_good, X509_STORE_CTX *store)
{
    if (is_good) return is_good;
    SSL *ssl = openssl.X509_STORE_CTX_get_ex_data(store, openssl.SSL_get_ex_data_X509_STORE_CTX_idx());
    struct redis_tls_session *session = SSL_get_app_data(ssl);
    session->is_refused = true;
    describe_certificate(session, store);
    return 0;
}

/* -1 with EPROTO; 0: it is only the end of the connection. */
static ssize_t describe(struct redis_tls_session *session)
{
    unsigned long error = openssl.ERR_peek_error();
    int reason = ERR_GET_REASON(error);
    const char *text = openssl.ERR_reason_error_string(error);
    bool is_tls = ERR_GET_LIB(error) == ERR_LIB_SSL;
    if (text == NULL) text = "unknown error";
    if (is_tls && reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) return 0;

    errno = EPROTO;
    if (is_tls && reason == SSL_R_CERTIFICATE_VERIFY_FAILED && session->is_refused) return -1; /* on_verified() did */
    if (is_tls && reason >= SSL_AD_REASON_OFFSET) {
        /* The server reports why it gives up. */
        const char *way_out = "";
        switch (reason) {
        case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED: way_out = "; set store.redis.tls.cert_file and key_file"; break;
        case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
            way_out = "; it may ask for a certificate: set store.redis.tls.cert_file and key_file";
            break;
        case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
        case SSL_R_TLSV1_ALERT_UNKNOWN_CA: way_out = "; correct the certificate in store.redis.tls.cert_file"; break;
        case SSL_R_TLSV1_UNRECOGNIZED_NAME: way_out = "; correct store.redis.tls.server_name"; break;
        default: break;
        }
        session->is_refused = way_out[0] != '\0';
        snprintf(session->fault, sizeof session->fault, "TLS: the server refuses (%s)%s", text, way_out);
    } else if (is_tls && !openssl.SSL_is_init_finished(session->ssl) && reason == SSL_R_WRONG_VERSION_NUMBER) {
        snprintf(session->fault, sizeof session->fault,
                 "TLS: the server does not speak it here (%s); write its port for TLS into store.redis.addresses, or "
                 "leave store.redis.tls out",
                 text);
    } else {
        snprintf(session->fault, sizeof session->fault, "TLS: %s", text);
    }
    return -1;
}

/* What a call that returned `n` <= 0 comes to. *ret_wants: it must wait for `other`, the other direction's event. */
static ssize_t not_now(struct redis_tls_session *session, int n, int other, bool *ret_wants)
{
    int of_system = errno;
    int error = openssl.SSL_get_error(session->ssl, n);
    *ret_wants = error == other;
    switch (error) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL: errno = of_system; return of_system == 0 ? 0 : -1;
    default: return describe(session);
    }
}

/* ---- the session ---- */

struct redis_tls_session *redis_tls_session_new(const struct redis_tls *tls, int fd, const char *host)
{
    struct redis_tls_session *session = mem_zalloc(sizeof *session);
    if (session == NULL) return NULL;
    session->ssl = redis_tls_connection(tls, host);
    if (session->ssl != NULL && openssl.SSL_set_fd(session->ssl, fd) == 1 &&
        SSL_set_app_data(session->ssl, session) == 1) {
        if (openssl.SSL_get_verify_mode(session->ssl) != SSL_VERIFY_NONE)
            openssl.SSL_set_verify(session->ssl, SSL_VERIFY_PEER, on_verified);
        return session;
    }
    redis_tls_session_free(session);
    return NULL;
}

void redis_tls_session_free(struct redis_tls_session *session)
{
    if (session == NULL) return;
    openssl.SSL_free(session->ssl);
    mem_free(session);
}

/* ---- the bytes ---- */

ssize_t redis_tls_read(struct redis_tls_session *session, void *to, size_t cap)
{
    CHECK(cap >= REDIS_TLS_RECORD);
    openssl.ERR_clear_error();
    errno = 0;
    int n = openssl.SSL_read(session->ssl, to, (int)cap);
    session->read_wants_write = false;
    return n > 0 ? n : not_now(session, n, SSL_ERROR_WANT_WRITE, &session->read_wants_write);
}

ssize_t redis_tls_write(struct redis_tls_session *session, const void *bytes, size_t len)
{
    size_t n_written = 0;
    session->write_wants_read = false;
    for (int i = 0; i < RECORDS_AT_ONCE && n_written < len; i++) {
        size_t left = len - n_written;
        openssl.ERR_clear_error();
        errno = 0;
        int n =
            openssl.SSL_write(session->ssl, (const char *)bytes + n_written, (int)(left < INT_MAX ? left : INT_MAX));
        if (n <= 0) {
            ssize_t result = not_now(session, n, SSL_ERROR_WANT_READ, &session->write_wants_read);
            if (n_written == 0 || result == 0 || errno != EAGAIN) return result;
            break;
        }
        n_written += (size_t)n;
    }
    return (ssize_t)n_written;
}

bool redis_tls_is_open(const struct redis_tls_session *session)
{
    return openssl.SSL_is_init_finished(session->ssl) == 1;
}

const char *redis_tls_version_text(const struct redis_tls_session *session)
{
    return openssl.SSL_get_version(session->ssl);
}
