/* test_redis_tls.c: TLS to Redis: what the files must hold, and a session against a server that misbehaves. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "fakes/tls_peer.h"
#include "redis/tls_session.h"

enum { PATIENCE = 100000, KEYS = 200, BIG = 300 * 1024 };

static struct tls_identity ca, other_ca, server, expired, not_yet, weak, nameless;
static struct tls_peer peer;
static struct redis_tls *tls;
static struct redis_tls_session *session;
static char received[BIG];

/* After a change to the certificate. */
static void sign_again(struct tls_identity *identity)
{
    X509_sign(identity->certificate, ca.key, EVP_sha256());
    BIO *bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, identity->certificate);
    int len = BIO_read(bio, identity->certificate_pem, sizeof identity->certificate_pem - 1);
    assert_true(len > 0);
    identity->certificate_pem[len] = '\0';
    BIO_free(bio);
}

static int set_up_identities(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    tls_identity_init(&ca, "ca", NULL, NULL, 30);
    tls_identity_init(&other_ca, "other-ca", NULL, NULL, 30);
    tls_identity_init(&server, "server", "DNS:redis.example,IP:127.0.0.1,IP:::1", &ca, 30);
    tls_identity_init(&expired, "expired", "DNS:redis.example", &ca, -1);
    tls_identity_init(&not_yet, "not-yet", NULL, &ca, 30);
    X509_gmtime_adj(X509_getm_notBefore(not_yet.certificate), 24 * 3600);
    sign_again(&not_yet);

    tls_identity_init(&nameless, "redis.example", NULL, &ca, 30);
    tls_identity_init(&weak, "weak", NULL, NULL, 30);
    EVP_PKEY_free(weak.key);
    weak.key = EVP_RSA_gen(512);
    X509_set_pubkey(weak.certificate, weak.key);
    X509_set_issuer_name(weak.certificate, X509_get_subject_name(ca.certificate));
    sign_again(&weak);
    return 0;
}

static int tear_down_identities(void **state)
{
    (void)state;
    struct tls_identity *all[] = {&ca, &other_ca, &server, &expired, &not_yet, &weak, &nameless};
    for (size_t i = 0; i < N_OF(all); i++) tls_identity_fini(all[i]);
    return 0;
}

static struct redis_tls_options options_of(const char *ca_pem)
{
    return (struct redis_tls_options){.ca = slice_of(ca_pem), .verify = REDIS_TLS_FULL};
}

static struct redis_tls *must_make(const struct redis_tls_options *options)
{
    struct redis_tls_fault fault;
    struct redis_tls *made = redis_tls_new(options, &fault);
    if (made == NULL) fail_msg("refused: %s", fault.text);
    return made;
}

/* ---- what the files hold ---- */

static void expect_refused(struct redis_tls_options options, enum redis_tls_part part, const char *text)
{
    struct redis_tls_fault fault;
    assert_null(redis_tls_new(&options, &fault));
    assert_int_equal(fault.part, part);
    if (strstr(fault.text, text) == NULL) fail_msg("'%s' is not in: %s", text, fault.text);
}

static void a_wrong_file_is_refused_with_what_is_wrong(void **state)
{
    (void)state;
    struct redis_tls_options options = options_of("no certificate");
    expect_refused(options, REDIS_TLS_CA_FILE, "holds no certificate");
    options.ca = slice_of("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    expect_refused(options, REDIS_TLS_CA_FILE, "certificate 1 in it is damaged");
    options.ca = slice_of(expired.certificate_pem);
    expect_refused(options, REDIS_TLS_CA_FILE, "holds only certificates that have expired");

    options = options_of(ca.certificate_pem);
    options.cert = slice_of(server.key_pem);
    options.key = slice_of(server.key_pem);
    expect_refused(options, REDIS_TLS_CERT_FILE, "holds no certificate");
    options.cert = slice_of(expired.certificate_pem);
    expect_refused(options, REDIS_TLS_CERT_FILE, "its certificate expired on ");
    options.cert = slice_of(not_yet.certificate_pem);
    expect_refused(options, REDIS_TLS_CERT_FILE, "its certificate is not valid before ");
    options.cert = slice_of(server.certificate_pem);
    options.key = slice_of(server.certificate_pem);
    expect_refused(options, REDIS_TLS_KEY_FILE, "holds no private key");
    options.key = slice_of(ca.key_pem);
    expect_refused(options, REDIS_TLS_KEY_FILE, "is the key of another certificate");
}

static void a_key_with_a_passphrase_is_refused_and_none_is_asked_for(void **state)
{
    (void)state;
    char pem[2048];
    BIO *bio = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_PKCS8PrivateKey(bio, server.key, EVP_aes_128_cbc(), "secret", 6, NULL, NULL), 1);
    int len = BIO_read(bio, pem, sizeof pem);
    BIO_free(bio);

    struct redis_tls_options options = options_of(ca.certificate_pem);
    options.cert = slice_of(server.certificate_pem);
    options.key = (struct slice){(const uint8_t *)pem, (size_t)len};
    expect_refused(options, REDIS_TLS_KEY_FILE, "has a passphrase");
}

static void a_certificate_with_a_passphrase_is_refused_and_none_is_asked_for(void **state)
{
    (void)state;
    char pem[4096];
    BIO *bio = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_ASN1_write_bio((i2d_of_void *)i2d_X509, PEM_STRING_X509, bio, server.certificate,
                                        EVP_aes_128_cbc(), (const unsigned char *)"secret", 6, NULL, NULL),
                     1);
    int len = BIO_read(bio, pem, sizeof pem);
    BIO_free(bio);
    const struct slice secret = {(const uint8_t *)pem, (size_t)len};

    struct redis_tls_options options = {.ca = secret};
    expect_refused(options, REDIS_TLS_CA_FILE, "certificate 1 in it has a passphrase");
    options = options_of(ca.certificate_pem);
    options.cert = secret;
    options.key = slice_of(server.key_pem);
    expect_refused(options, REDIS_TLS_CERT_FILE, "certificate 1 in it has a passphrase");

    char chain[sizeof server.certificate_pem + sizeof pem];
    snprintf(chain, sizeof chain, "%s%.*s", server.certificate_pem, len, pem);
    options.cert = slice_of(chain);
    expect_refused(options, REDIS_TLS_CERT_FILE, "certificate 2 in it has a passphrase");
}

static void a_weak_certificate_behind_ours_is_refused_and_not_left_out(void **state)
{
    (void)state;
    char chain[sizeof ca.certificate_pem * 3];
    struct redis_tls_options options = options_of(ca.certificate_pem);
    options.key = slice_of(server.key_pem);
    snprintf(chain, sizeof chain, "%s%s%s", server.certificate_pem, weak.certificate_pem, ca.certificate_pem);
    options.cert = slice_of(chain);
    expect_refused(options, REDIS_TLS_CERT_FILE, "certificate 2 in it cannot be used: ca key too small");
    snprintf(chain, sizeof chain, "%s%s", weak.certificate_pem, ca.certificate_pem);
    expect_refused(options, REDIS_TLS_CERT_FILE, "its certificate cannot be used: ee key too small");
    snprintf(chain, sizeof chain, "%s%s", server.certificate_pem, ca.certificate_pem);
    redis_tls_unref(must_make(&options));
}

static void a_bundle_may_have_an_expired_certificate_and_comments(void **state)
{
    (void)state;
    char bundle[sizeof ca.certificate_pem * 2 + 64];
    snprintf(bundle, sizeof bundle, "# old\n%s\n# new\n%s\n", expired.certificate_pem, ca.certificate_pem);
    struct redis_tls_options options = options_of(bundle);
    redis_tls_unref(must_make(&options));
}

static void equal_files_are_equal_and_others_are_not(void **state)
{
    (void)state;
    struct redis_tls_options options = options_of(ca.certificate_pem);
    struct redis_tls *same[2] = {must_make(&options), must_make(&options)};
    assert_true(redis_tls_equal(same[0], same[1]) && redis_tls_equal(NULL, NULL));
    assert_false(redis_tls_equal(same[0], NULL) || redis_tls_equal(NULL, same[0]));

    struct redis_tls_options changed[5];
    for (size_t i = 0; i < N_OF(changed); i++) changed[i] = options;
    changed[0].ca = slice_of(other_ca.certificate_pem);
    changed[1].verify = REDIS_TLS_CA;
    changed[2].verify = REDIS_TLS_NONE;
    changed[3].server_name = "redis.example";
    changed[4].cert = slice_of(server.certificate_pem);
    changed[4].key = slice_of(server.key_pem);
    for (size_t i = 0; i < N_OF(changed); i++) {
        struct redis_tls *other = must_make(&changed[i]);
        assert_false(redis_tls_equal(same[0], other));
        redis_tls_unref(other);
    }
    redis_tls_unref(same[0]);
    redis_tls_unref(same[1]);
}

static void without_memory_nothing_is_made(void **state)
{
    (void)state;
    struct redis_tls_options options = options_of(ca.certificate_pem);
    struct redis_tls_fault fault;
    options.server_name = "redis.example";
    for (uint64_t nth = 1; nth <= 2; nth++) {
        mem_fail_nth(nth);
        assert_null(redis_tls_new(&options, &fault));
        mem_fail_nth(0);
        assert_non_null(strstr(fault.text, "out of memory"));
    }
}

/* ---- a session ---- */

static void open_session(const struct redis_tls_options *options, const struct tls_identity *identity, int version,
                         const char *host)
{
    tls_peer_init(&peer, identity, version);
    tls = must_make(options);
    session = redis_tls_session_new(tls, peer.client_fd, host);
    assert_non_null(session);
}

static void close_session(void)
{
    redis_tls_session_free(session);
    redis_tls_unref(tls);
    tls_peer_fini(&peer);
}

/* Reads once. The bytes so far; -1 with errno at an error. */
static ssize_t read_once(size_t *len)
{
    char piece[REDIS_TLS_RECORD];
    ssize_t n = redis_tls_read(session, piece, sizeof piece);
    if (n > 0) {
        assert_in_range(*len + (size_t)n, 1, sizeof received);
        memcpy(received + *len, piece, (size_t)n);
        *len += (size_t)n;
    }
    return n;
}

/* Until the handshake is over or one of both gives up: 1 or what the client's read returned. */
static ssize_t shake_hands(void)
{
    size_t len = 0;
    for (int i = 0; i < PATIENCE; i++) {
        ssize_t n = read_once(&len);
        if (n == 0 || (n < 0 && errno != EAGAIN)) return n;
        ERR_clear_error();
        int accepted = SSL_accept(peer.ssl);
        if (accepted == 1 && redis_tls_is_open(session)) return 1;
    }
    fail_msg("the handshake does not end");
    return -1;
}

static void open_healthy(int version)
{
    struct redis_tls_options options = options_of(ca.certificate_pem);
    open_session(&options, &server, version, "redis.example");
    assert_int_equal(shake_hands(), 1);
}

static void send_from_server(const char *text)
{
    ERR_clear_error();
    assert_int_equal(SSL_write(peer.ssl, text, (int)strlen(text)), strlen(text));
}

static void expect_from_server(const char *text)
{
    size_t len = 0;
    for (int i = 0; i < PATIENCE && len < strlen(text); i++) {
        ssize_t n = read_once(&len);
        if (n == 0 || (n < 0 && errno != EAGAIN)) fail_msg("%s", n < 0 ? session->fault : "closed");
    }
    assert_int_equal(len, strlen(text));
    assert_memory_equal(received, text, len);
}

static void expect_at_server(const char *text)
{
    char bytes[256];
    ERR_clear_error();
    int n = SSL_read(peer.ssl, bytes, sizeof bytes);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(bytes, text, strlen(text));
}

static void expect_both_ways(void)
{
    send_from_server("+OK\r\n");
    expect_from_server("+OK\r\n");
    assert_int_equal(redis_tls_write(session, "PING\r\n", 6), 6);
    expect_at_server("PING\r\n");
}

static void both_versions_pass_bytes_both_ways(void **state)
{
    (void)state;
    const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (size_t i = 0; i < N_OF(versions); i++) {
        open_healthy(versions[i]);
        assert_string_equal(redis_tls_version_text(session), i == 0 ? "TLSv1.2" : "TLSv1.3");
        expect_both_ways();
        close_session();
    }
}

static void an_old_version_of_tls_is_refused(void **state)
{
    (void)state;
    struct redis_tls_options options = options_of(ca.certificate_pem);
    open_session(&options, &server, TLS1_1_VERSION, "redis.example");
    SSL_set_security_level(peer.ssl, 0);
    assert_int_equal(shake_hands(), -1);
    assert_int_equal(errno, EPROTO);
    close_session();
}

static const struct {
    const struct tls_identity *ca, *server;
    const char *host, *server_name;
    enum redis_tls_verify verify;
    const char *fault; /* NULL = accepted */
} who[] = {
    {&ca, &server, "redis.example", NULL, REDIS_TLS_FULL, NULL},
    {&ca, &server, "redis.example.", NULL, REDIS_TLS_FULL, NULL},
    {&ca, &server, "127.0.0.1", NULL, REDIS_TLS_FULL, NULL},
    {&ca, &server, "127.1", NULL, REDIS_TLS_FULL, NULL},
    {&ca, &server, "::1", NULL, REDIS_TLS_FULL, NULL},
    {&ca, &server, "::1%eth0", NULL, REDIS_TLS_FULL, NULL},
    {&ca, &server, "10.0.0.7", "redis.example", REDIS_TLS_FULL, NULL},
    {&ca, &server, "redis.example", "127.0.0.1", REDIS_TLS_FULL, NULL},
    {&server, &server, "redis.example", NULL, REDIS_TLS_FULL, NULL}, /* the certificate itself is trusted */
    {&ca, &server, "elsewhere.example", NULL, REDIS_TLS_CA, NULL},
    {&other_ca, &server, "elsewhere.example", NULL, REDIS_TLS_NONE, NULL},
    {&ca, &expired, "redis.example", NULL, REDIS_TLS_NONE, NULL},
    {&ca, &server, "elsewhere.example", NULL, REDIS_TLS_FULL, "has another name"},
    {&ca, &server, "example", NULL, REDIS_TLS_FULL, "has another name"},
    {&ca, &server, "127.0.0.2", NULL, REDIS_TLS_FULL, "has another name"},
    {&ca, &server, "::2%eth0", NULL, REDIS_TLS_FULL, "has another name"},
    {&ca, &server, "redis.example", "127.0.0.2", REDIS_TLS_FULL, "has another name"},
    {&other_ca, &server, "redis.example", NULL, REDIS_TLS_FULL, "is not trusted"},
    {&other_ca, &server, "redis.example", NULL, REDIS_TLS_CA, "is not trusted"},
    {&ca, &expired, "redis.example", NULL, REDIS_TLS_FULL,
     "the certificate of the server (CN=expired) has expired; renew it there"},
    {&ca, &expired, "redis.example", NULL, REDIS_TLS_CA, "the certificate of the server (CN=expired) has expired"},
    {&ca, &not_yet, "redis.example", NULL, REDIS_TLS_CA,
     "the certificate of the server (CN=not-yet) is not valid yet; check the clocks of both hosts"},
    {&ca, &nameless, "redis.example", NULL, REDIS_TLS_CA, NULL},
    {&ca, &nameless, "redis.example", NULL, REDIS_TLS_FULL, "has no subjectAltName"}, /* its CN is that name */
    {&ca, &nameless, "127.0.0.1", NULL, REDIS_TLS_FULL, "has no subjectAltName"},
};

static void a_server_is_accepted_or_refused_by_its_certificate(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(who); i++) {
        struct redis_tls_options options = options_of(who[i].ca->certificate_pem);
        options.verify = who[i].verify;
        options.server_name = who[i].server_name;
        open_session(&options, who[i].server, TLS1_3_VERSION, who[i].host);
        ssize_t result = shake_hands();
        if ((result == 1) != (who[i].fault == NULL)) fail_msg("row %zu: %s", i, session->fault);
        if (who[i].fault != NULL) {
            assert_int_equal(errno, EPROTO);
            assert_true(session->is_refused);
            if (strstr(session->fault, who[i].fault) == NULL) fail_msg("row %zu: %s", i, session->fault);
        }
        close_session();
    }
}

/* Of a server whose certificate `of` has issued. */
static void expect_fault_of_ca(const struct redis_tls_options *options, const struct tls_identity *of, bool is_sent,
                               const char *fault)
{
    struct tls_identity below;
    tls_identity_init(&below, "server", "DNS:redis.example", of, 30);
    open_session(options, &below, TLS1_3_VERSION, "redis.example");
    SSL_set_security_level(peer.ssl, 0);
    if (is_sent) assert_int_equal(SSL_add1_chain_cert(peer.ssl, of->certificate), 1);
    assert_int_equal(shake_hands(), -1);
    assert_string_equal(session->fault, fault);
    assert_true(session->is_refused);
    close_session();
    tls_identity_fini(&below);
}

static void a_certificate_at_fault_is_named_and_a_cas_not_taken_for_the_servers(void **state)
{
    (void)state;
    struct tls_identity old_ca, between;
    char bundle[sizeof ca.certificate_pem * 2];
    tls_identity_init(&old_ca, "old-ca", NULL, NULL, -1);
    tls_identity_init(&between, "between", NULL, NULL, -1);
    X509_set_issuer_name(between.certificate, X509_get_subject_name(ca.certificate));
    sign_again(&between);

    snprintf(bundle, sizeof bundle, "%s%s", old_ca.certificate_pem, ca.certificate_pem);
    const struct redis_tls_options both = options_of(bundle), present = options_of(ca.certificate_pem);
    expect_fault_of_ca(
        &both, &old_ca, false,
        "TLS: a certificate in store.redis.tls.ca_file (CN=old-ca) has expired; write its successor into "
        "the file");
    expect_fault_of_ca(
        &present, &between, true,
        "TLS: a certificate that the server sends with its own (CN=between) has expired; renew it there");
    expect_fault_of_ca(
        &present, &weak, true,
        "TLS: a certificate that the server sends with its own (CN=weak) is too weak (CA certificate key "
        "too weak); make a stronger one");
    tls_identity_fini(&old_ca);
    tls_identity_fini(&between);
}

static const char *asked_name; /* SNI, as the server has seen it */

static int on_name(SSL *ssl, int *alert, void *arg)
{
    static char name[256];
    (void)alert, (void)arg;
    const char *sent = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    snprintf(name, sizeof name, "%s", sent != NULL ? sent : "");
    asked_name = name;
    return SSL_TLSEXT_ERR_OK;
}

static void the_server_is_asked_for_a_name_and_never_for_an_address(void **state)
{
    (void)state;
    const char *const cases[][3] = {{"redis.example", NULL, "redis.example"},
                                    {"redis.example.", NULL, "redis.example"},
                                    {"127.0.0.1", NULL, ""},
                                    {"127.1", NULL, ""},
                                    {"::1", NULL, ""},
                                    {"::1%eth0", NULL, ""},
                                    {"127.0.0.1", "redis.example", "redis.example"}};
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct redis_tls_options options = options_of(ca.certificate_pem);
        options.server_name = cases[i][1];
        open_session(&options, &server, TLS1_3_VERSION, cases[i][0]);
        SSL_CTX_set_tlsext_servername_callback(peer.context, on_name);
        assert_int_equal(shake_hands(), 1);
        assert_string_equal(asked_name, cases[i][2]);
        close_session();
    }
}

static void an_error_of_another_connection_does_not_end_a_healthy_one(void **state)
{
    (void)state;
    open_healthy(TLS1_3_VERSION);
    size_t len = 0;
    for (int i = 0; i < 100; i++) {
        ERR_raise(ERR_LIB_SSL, SSL_R_CERTIFICATE_VERIFY_FAILED);
        assert_int_equal(read_once(&len), -1);
        assert_int_equal(errno, EAGAIN);
        ERR_raise(ERR_LIB_SSL, SSL_R_CERTIFICATE_VERIFY_FAILED);
        assert_int_equal(redis_tls_write(session, "x", 1), 1);
    }
    close_session();
}

static void a_new_key_asked_for_by_the_server_loses_no_byte(void **state)
{
    (void)state;
    open_healthy(TLS1_3_VERSION);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(SSL_key_update(peer.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        expect_both_ways();
    }
    close_session();
}

/* The socket is full, so the answer to a request for a new key cannot be written, either. */
static void a_new_key_asked_for_while_a_write_waits_loses_no_byte(void **state)
{
    (void)state;
    static char big[BIG];
    memset(big, 'x', sizeof big);
    open_healthy(TLS1_3_VERSION);
    size_t n_sent = 0, n_read = 0, len = 0;
    for (ssize_t n; n_sent < sizeof big; n_sent += (size_t)n)
        if ((n = redis_tls_write(session, big + n_sent, sizeof big - n_sent)) < 0) break;
    assert_in_range(n_sent, 1, sizeof big - 1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(SSL_key_update(peer.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
    send_from_server("+OK\r\n");

    for (int i = 0; i < PATIENCE && (n_read < sizeof big || len < 5); i++) {
        ssize_t n = read_once(&len);
        if (n == 0 || (n < 0 && errno != EAGAIN)) fail_msg("read: %s", session->fault);
        n = n_sent < sizeof big ? redis_tls_write(session, big + n_sent, sizeof big - n_sent) : 0;
        if (n < 0 && errno != EAGAIN) fail_msg("write: %s", session->fault);
        if (n > 0) n_sent += (size_t)n;
        char piece[4096];
        ERR_clear_error();
        int taken = SSL_read(peer.ssl, piece, sizeof piece);
        if (taken > 0) n_read += (size_t)taken;
    }
    assert_int_equal(n_read, sizeof big);
    assert_int_equal(len, 5);
    close_session();
}

static void a_server_that_begins_a_second_handshake_is_not_followed(void **state)
{
    (void)state;
    open_healthy(TLS1_2_VERSION);
    expect_both_ways();
    ERR_clear_error();
    assert_int_equal(SSL_renegotiate(peer.ssl), 1);
    (void)SSL_do_handshake(peer.ssl); /* sends its request */
    size_t len = 0;
    for (int i = 0; i < 100; i++) {
        ssize_t n = read_once(&len);
        if (n == 0 || (n < 0 && errno != EAGAIN)) break; /* the end of this connection is fine as well */
        assert_true(redis_tls_is_open(session));
    }
    assert_int_equal(len, 0);
    close_session();
}

/* A new key is a record without a byte for us. One read that took them all could go on for as long as they come. */
static void a_flood_of_new_keys_does_not_keep_one_read_going(void **state)
{
    (void)state;
    open_healthy(TLS1_3_VERSION);
    for (int i = 0; i < KEYS; i++) {
        ERR_clear_error();
        assert_int_equal(SSL_key_update(peer.ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(peer.ssl), 1);
    }
    send_from_server("+OK\r\n");
    size_t len = 0, n_reads = 0;
    while (len < 5) {
        ssize_t n = read_once(&len);
        if (n == 0 || (n < 0 && errno != EAGAIN)) fail_msg("%s", session->fault);
        n_reads++;
    }
    assert_in_range(n_reads, KEYS, KEYS + 10);
    close_session();
}

static void plain_text_in_place_of_a_handshake_says_so(void **state)
{
    (void)state;
    struct redis_tls_options options = options_of(ca.certificate_pem);
    const char *const texts[] = {"-ERR unknown command\r\n", "-ERR max number of clients reached\r\n",
                                 "HTTP/1.1 400 Bad Request\r\n\r\n"};
    for (size_t i = 0; i < N_OF(texts); i++) {
        open_session(&options, &server, TLS1_3_VERSION, "redis.example");
        size_t len = 0;
        assert_int_equal(read_once(&len), -1);
        assert_int_equal(errno, EAGAIN);
        assert_int_equal(send(peer.fd, texts[i], strlen(texts[i]), 0), strlen(texts[i]));
        assert_int_equal(read_once(&len), -1);
        assert_int_equal(errno, EPROTO);
        if (strstr(session->fault, "does not speak it here") == NULL) fail_msg("%s", session->fault);
        close_session();
    }
}

/* Passes what there is from one socket to another; from the server at most *left bytes. */
static void relay(int from, int to, size_t *left)
{
    char bytes[4096];
    size_t most = left == NULL || *left > sizeof bytes ? sizeof bytes : *left;
    ssize_t n = most > 0 ? recv(from, bytes, most, 0) : 0;
    if (n > 0) assert_int_equal(send(to, bytes, (size_t)n, 0), n);
    if (n > 0 && left != NULL) *left -= (size_t)n;
}

/* The server's bytes up to the n-th, and then the end. True: the reply had come by then. */
static bool survives_a_cut_after(size_t n_bytes)
{
    int between[2];
    struct redis_tls_options options = options_of(ca.certificate_pem);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, between), 0);
    tls_peer_init(&peer, &server, TLS1_3_VERSION);
    tls = must_make(&options);
    session = redis_tls_session_new(tls, between[0], "redis.example");
    bool is_cut = false;
    ssize_t n = -1;
    size_t len = 0;
    errno = EAGAIN;
    for (int i = 0; n < 0 && errno == EAGAIN; i++) {
        assert_in_range(i, 0, PATIENCE);
        if (!is_cut) relay(between[1], peer.client_fd, NULL);
        ERR_clear_error();
        if (SSL_accept(peer.ssl) == 1 && i % 2 == 0) (void)SSL_write(peer.ssl, "+OK\r\n", 5);
        if (!is_cut) relay(peer.client_fd, between[1], &n_bytes);
        if (n_bytes == 0 && !is_cut) is_cut = shutdown(between[1], SHUT_RDWR) == 0;
        n = read_once(&len);
    }
    bool has_come = n > 0;
    close_session();
    close(between[0]);
    close(between[1]);
    return has_come;
}

static void the_servers_bytes_may_end_anywhere(void **state)
{
    (void)state;
    size_t n_bytes = 0;
    while (!survives_a_cut_after(n_bytes)) n_bytes += n_bytes < 16 ? 1 : 7;
    assert_in_range(n_bytes, 500, 4000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_file_is_refused_with_what_is_wrong),
        cmocka_unit_test(a_key_with_a_passphrase_is_refused_and_none_is_asked_for),
        cmocka_unit_test(a_certificate_with_a_passphrase_is_refused_and_none_is_asked_for),
        cmocka_unit_test(a_weak_certificate_behind_ours_is_refused_and_not_left_out),
        cmocka_unit_test(a_bundle_may_have_an_expired_certificate_and_comments),
        cmocka_unit_test(equal_files_are_equal_and_others_are_not),
        cmocka_unit_test(without_memory_nothing_is_made),
        cmocka_unit_test(both_versions_pass_bytes_both_ways),
        cmocka_unit_test(an_old_version_of_tls_is_refused),
        cmocka_unit_test(a_server_is_accepted_or_refused_by_its_certificate),
        cmocka_unit_test(a_certificate_at_fault_is_named_and_a_cas_not_taken_for_the_servers),
        cmocka_unit_test(the_server_is_asked_for_a_name_and_never_for_an_address),
        cmocka_unit_test(an_error_of_another_connection_does_not_end_a_healthy_one),
        cmocka_unit_test(a_new_key_asked_for_by_the_server_loses_no_byte),
        cmocka_unit_test(a_new_key_asked_for_while_a_write_waits_loses_no_byte),
        cmocka_unit_test(a_server_that_begins_a_second_handshake_is_not_followed),
        cmocka_unit_test(a_flood_of_new_keys_does_not_keep_one_read_going),
        cmocka_unit_test(plain_text_in_place_of_a_handshake_says_so),
        cmocka_unit_test(the_servers_bytes_may_end_anywhere),
    };
    return cmocka_run_group_tests(tests, set_up_identities, tear_down_identities);
}
