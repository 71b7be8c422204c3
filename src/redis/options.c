/* redis/options.c: options copied, compared and moved; an address taken apart. For all of redis/ and the wiring. */
#include "redis/options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "redis/tls.h"

/* All strings. */
static const char **string_of(struct redis_options *options, size_t nth)
{
    const char **all[] = {&options->address,          &options->username,    &options->password,
                          &options->key_prefix,       &options->master_name, &options->sentinel_username,
                          &options->sentinel_password};
    return nth < N_OF(all) ? all[nth] : NULL;
}

int redis_options_copy(struct redis_options *ret_copy, const struct redis_options *from)
{
    struct redis_options copy = *from, source = *from;
    bool is_whole = true;
    for (size_t i = 0; string_of(&copy, i) != NULL; i++) {
        const char *text = *string_of(&source, i), *copied = text != NULL ? mem_strdup(text) : NULL;
        *string_of(&copy, i) = copied;
        is_whole &= text == NULL || copied != NULL;
    }
    copy.tls = redis_tls_ref(from->tls);
    copy.sentinel_tls = redis_tls_ref(from->sentinel_tls);
    if (!is_whole) {
        redis_options_fini(&copy);
        return -1;
    }
    *ret_copy = copy;
    return 0;
}

void redis_options_fini(struct redis_options *copy)
{
    const char *const secrets[] = {copy->password, copy->sentinel_password};
    for (size_t i = 0; i < N_OF(secrets); i++)
        if (secrets[i] != NULL) explicit_bzero((char *)(uintptr_t)secrets[i], strlen(secrets[i]));
    for (size_t i = 0; string_of(copy, i) != NULL; i++) {
        mem_free((char *)(uintptr_t)*string_of(copy, i));
        *string_of(copy, i) = NULL;
    }
    redis_tls_unref(copy->tls);
    redis_tls_unref(copy->sentinel_tls);
    copy->tls = copy->sentinel_tls = NULL;
}

static bool same_text(const char *a, const char *b)
{
    if (a == NULL || b == NULL) return a == b;
    return strcmp(a, b) == 0;
}

bool redis_options_same_server(const struct redis_options *a, const struct redis_options *b)
{
    return same_text(a->address, b->address) && same_text(a->username, b->username) &&
           same_text(a->password, b->password) && a->database == b->database && redis_tls_equal(a->tls, b->tls) &&
           same_text(a->master_name, b->master_name) && same_text(a->sentinel_username, b->sentinel_username) &&
           same_text(a->sentinel_password, b->sentinel_password) && redis_tls_equal(a->sentinel_tls, b->sentinel_tls);
}

const char *redis_options_other_part(const struct redis_options *a, const struct redis_options *b)
{
    if (!same_text(a->address, b->address)) return NULL;
    if (!same_text(a->username, b->username)) return "user";
    if (!same_text(a->password, b->password)) return "password";
    return a->database != b->database ? "database" : "TLS settings";
}

bool redis_options_same_place(const struct redis_options *a, const struct redis_options *b)
{
    return same_text(a->address, b->address) && a->database == b->database && same_text(a->master_name, b->master_name);
}

static void take_server(struct redis_options *to, const struct redis_options *from)
{
    to->address = from->address;
    to->topology = from->topology;
    to->username = from->username;
    to->password = from->password;
    to->database = from->database;
    to->tls = from->tls;
    to->master_name = from->master_name;
    to->sentinel_username = from->sentinel_username;
    to->sentinel_password = from->sentinel_password;
    to->sentinel_tls = from->sentinel_tls;
}

void redis_options_swap_server(struct redis_options *a, struct redis_options *b)
{
    const struct redis_options of_a = *a;
    take_server(a, b);
    take_server(b, &of_a);
}

uint32_t redis_address_nth(const char *all, uint32_t nth, char *ret, size_t size)
{
    uint32_t n_all = 1;
    for (const char *at = all; (at = strchr(at, '\n')) != NULL; at++) n_all++;
    const char *at = all;
    for (uint32_t i = nth % n_all; i > 0; i--) at = strchr(at, '\n') + 1;
    snprintf(ret, size, "%.*s", (int)strcspn(at, "\n"), at);
    return n_all;
}

const char *redis_address_parse(const char *text, struct redis_address *ret)
{
    struct redis_address address = {0};
    if (strncmp(text, "unix:", 5) == 0) {
        const char *path = text + 5;
        if (path[0] != '/') return "the path after unix: must be absolute, as in unix:/run/redis/redis.sock";
        if (strlen(path) > REDIS_PATH_MAX) return "the socket's path is longer than 107 bytes; use a shorter one";
        address.is_unix = true;
        memcpy(address.path, path, strlen(path) + 1);
        *ret = address;
        return NULL;
    }

    if (strstr(text, "${") != NULL) return "variables are not replaced here; write host:port or unix:/path";
    const char *colon = strrchr(text, ':');
    if (colon == NULL) return "no port; write host:port or unix:/path";
    char *end = NULL;
    bool has_digit = colon[1] >= '0' && colon[1] <= '9'; /* strtoul() takes blanks and signs, too */
    errno = 0;
    unsigned long port = has_digit ? strtoul(colon + 1, &end, 10) : 0;
    if (port == 0 || errno != 0 || *end != '\0' || port > UINT16_MAX)
        return "the port must be a number from 1 to 65535; write host:port";
    address.port = (uint16_t)port;

    const char *host = text;
    size_t len = (size_t)(colon - text);
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    } else if (memchr(host, ':', len) != NULL) {
        return "an IPv6 address needs brackets, as in [::1]:6379";
    }
    if (len == 0) return "no host before the port; write host:port";
    if (host[0] == '.') return "the host begins with a dot; write its whole name";
    if (len > REDIS_HOST_MAX) return "the host's name is longer than 253 bytes";
    memcpy(address.host, host, len);

    uint8_t numeric[sizeof(struct in6_addr)];
    address.is_v6 = inet_pton(AF_INET6, address.host, numeric) == 1;
    address.is_numeric = address.is_v6 || inet_pton(AF_INET, address.host, numeric) == 1;
    *ret = address;
    return NULL;
}
