/* tls_files.c: reads the certificates and the key for connections to Redis and to Sentinels, for config.c. */
#include "config/tls_files.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "config/secret.h"

static const char *const leaves[] = {
    [REDIS_TLS_CA_FILE] = "ca_file", [REDIS_TLS_CERT_FILE] = "cert_file", [REDIS_TLS_KEY_FILE] = "key_file"};

/* The whole name of a setting in `path`, which is returned. */
static const char *name_of(const struct tls_files *files, const char *leaf, char path[FAULTS_KEY_MAX])
{
    snprintf(path, FAULTS_KEY_MAX, "%s.%s", files->section, leaf);
    return path;
}

/* The file with the CAs of this host: Debian's and Alpine's, Fedora's, others'. OpenSSL's own way is a directory that
 * it reads while it connects. NULL: there is none. */
static const char *system_file(void)
{
    static const char *const files[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                        "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    const char *named = getenv("SSL_CERT_FILE");
    if (named != NULL && named[0] != '\0') return named;
    for (size_t i = 0; i < N_OF(files); i++)
        if (access(files[i], R_OK) == 0) return files[i];
    return NULL;
}

static bool is_pair(const struct tls_files *files, struct faults *faults)
{
    char name[FAULTS_KEY_MAX];
    if ((files->cert.path == NULL) == (files->key.path == NULL)) return true;
    if (files->cert.path != NULL)
        faults_add(faults, files->cert.line, name_of(files, "cert_file", name),
                   "needs its key; write key_file as well");
    else
        faults_add(faults, files->key.line, name_of(files, "key_file", name),
                   "needs its certificate; write cert_file as well");
    return false;
}

/* OpenSSL takes a dot at the start for "and every host below", and a * for a part of the name. */
static bool is_host(const char *name)
{
    uint8_t numeric[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET6, name, numeric) == 1) return true;
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
    return name[len] == '\0' && name[0] != '.' && strstr(name, "..") == NULL;
}

struct redis_tls *tls_files_read(const struct tls_files *files, uint32_t line, struct faults *faults)
{
    char shown[FAULTS_SHOWN_MAX], name[FAULTS_KEY_MAX];
    CHECK(files->section != NULL);
    if (!is_pair(files, faults)) return NULL;
    if (files->server_name != NULL && !is_host(files->server_name)) {
        faults_add(
            faults, files->server_name_line, name_of(files, "server_name", name),
            "%s is no host; write its whole name or its address, without *, port or brackets, as in redis.example",
            faults_shown(shown, files->server_name));
        return NULL;
    }
    const bool checks = files->verify != REDIS_TLS_NONE;
    struct tls_file of[] = {
        [REDIS_TLS_CA_FILE] = files->ca, [REDIS_TLS_CERT_FILE] = files->cert, [REDIS_TLS_KEY_FILE] = files->key};
    char *texts[N_OF(of)] = {NULL};
    bool is_whole = true;
    struct redis_tls *tls = NULL;

    struct tls_file *ca = &of[REDIS_TLS_CA_FILE];
    if (ca->line == 0) ca->line = line;
    if (ca->path == NULL || strcmp(ca->path, "system") == 0) {
        ca->path = checks ? system_file() : NULL;
        if (checks && ca->path == NULL) {
            is_whole = false;
            faults_add(
                faults, ca->line, name_of(files, "ca_file", name),
                "this host has no file with the CAs of the system; install ca-certificates, or write the path of "
                "the CA's certificate");
        }
    }
    if (!checks)
        faults_warn(
            faults, line, name_of(files, "verify", name),
            "none accepts any server, so another host on the way can pose as Redis; write full, and the CA into "
            "ca_file");

    for (size_t i = 0; i < N_OF(of); i++) {
        if (of[i].path == NULL) continue;
        const char *what = i == REDIS_TLS_KEY_FILE ? "PEM file with a key" : "PEM file with certificates";
        texts[i] = secret_read_text(what, of[i].path, i != REDIS_TLS_KEY_FILE, files->is_dry_run, of[i].line,
                                    name_of(files, leaves[i], name), faults);
        is_whole &= texts[i] != NULL;
        if (texts[i] != NULL) *of[i].ret_content = hash_keyed(texts[i], strlen(texts[i]));
    }

    if (is_whole) {
        struct redis_tls_fault fault;
        struct slice slices[N_OF(of)] = {{0}};
        for (size_t i = 0; i < N_OF(of); i++)
            if (texts[i] != NULL) slices[i] = slice_of(texts[i]);
        const struct redis_tls_options options = {.ca = slices[REDIS_TLS_CA_FILE],
                                                  .cert = slices[REDIS_TLS_CERT_FILE],
                                                  .key = slices[REDIS_TLS_KEY_FILE],
                                                  .server_name = files->server_name,
                                                  .verify = files->verify};
        tls = redis_tls_new(&options, &fault);
        if (tls == NULL && fault.part == REDIS_TLS_LIBRARY)
            faults_add(faults, line, files->section, "%s", fault.text);
        else if (tls == NULL)
            faults_add(faults, of[fault.part].line, name_of(files, leaves[fault.part], name), "%s: %s",
                       of[fault.part].path != NULL ? of[fault.part].path : "none", fault.text);
    }
    for (size_t i = 0; i < N_OF(of); i++) secret_free(texts[i]);
    return tls;
}
