#include "fakes/tls_peer.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

enum { DAY_S = 24 * 3600, BACKLOG_DAYS = 30 };

static void add_extension(X509 *certificate, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static void print_pem(BIO *bio, char *out, size_t size)
{
    int len = BIO_read(bio, out, (int)size - 1);
    assert_in_range(len, 1, size - 2);
    out[len] = '\0';
    BIO_free(bio);
}

void tls_identity_init(struct tls_identity *identity, const char *subject, const char *names,
                       const struct tls_identity *issuer, int days)
{
    static long serial = 1;
    identity->key = EVP_EC_gen("P-256");
    identity->certificate = X509_new();
    X509 *certificate = identity->certificate;
    assert_non_null(identity->key);
    assert_non_null(certificate);

    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -(long)DAY_S * BACKLOG_DAYS);
    X509_gmtime_adj(X509_getm_notAfter(certificate), (long)DAY_S * days);
    X509_set_pubkey(certificate, identity->key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC, (const unsigned char *)subject,
                               -1, -1, 0);
    if (issuer == NULL) add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE");
    if (names != NULL) add_extension(certificate, NID_subject_alt_name, names);
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer != NULL ? issuer->certificate : certificate));
    assert_true(X509_sign(certificate, issuer != NULL ? issuer->key : identity->key, EVP_sha256()) > 0);

    BIO *bio = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_X509(bio, certificate), 1);
    print_pem(bio, identity->certificate_pem, sizeof identity->certificate_pem);
    bio = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_PrivateKey(bio, identity->key, NULL, NULL, 0, NULL, NULL), 1);
    print_pem(bio, identity->key_pem, sizeof identity->key_pem);
}

void tls_identity_fini(struct tls_identity *identity)
{
    X509_free(identity->certificate);
    EVP_PKEY_free(identity->key);
}

void tls_peer_init(struct tls_peer *peer, const struct tls_identity *identity, int version)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    tls_peer_accept(peer, identity, version, fds[0]);
    peer->client_fd = fds[1];
}

void tls_peer_accept(struct tls_peer *peer, const struct tls_identity *identity, int version, int fd)
{
    peer->fd = fd;
    peer->client_fd = -1;
    peer->context = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_set_min_proto_version(peer->context, version), 1);
    assert_int_equal(SSL_CTX_set_max_proto_version(peer->context, version), 1);
    assert_int_equal(SSL_CTX_use_certificate(peer->context, identity->certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(peer->context, identity->key), 1);
    peer->ssl = SSL_new(peer->context);
    SSL_set_fd(peer->ssl, peer->fd);
    SSL_set_accept_state(peer->ssl);
}

void tls_peer_fini(struct tls_peer *peer)
{
    SSL_free(peer->ssl);
    SSL_CTX_free(peer->context);
    close(peer->fd);
    if (peer->client_fd >= 0) close(peer->client_fd);
}
