/* listen_address.c: reads 'host:port', for the settings (config/) and the sockets that follow from them (daemon/). */
#include "base/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A whole number up to 65535, and nothing behind it. */
static bool parse_port(const char *text, uint16_t *ret)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 5 || text[n] != '\0') return false;
    long port = strtol(text, NULL, 10);
    *ret = htons((uint16_t)port);
    return port <= UINT16_MAX;
}

bool listen_address_parse(struct listen_address *ret, const char *text)
{
    *ret = (struct listen_address){0};
    if (strncmp(text, "unix:/", 6) == 0) {
        ret->unix_path = text + 5;
        return true;
    }

    char host[INET6_ADDRSTRLEN];
    const char *colon = strrchr(text, ':');
    bool in_brackets = text[0] == '[' && colon != NULL && colon > text && colon[-1] == ']';
    const char *start = in_brackets ? text + 1 : text;
    size_t len = colon != NULL ? (size_t)(colon - start) - in_brackets : 0;
    uint16_t port;
    if (len == 0 || len >= sizeof host || !parse_port(colon + 1, &port)) return false;
    memcpy(host, start, len);
    host[len] = '\0';

    if (in_brackets) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)&ret->ip;
        *in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port};
        ret->len = sizeof *in6;
        return inet_pton(AF_INET6, host, &in6->sin6_addr) == 1;
    }
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&ret->ip;
    *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
    ret->len = sizeof *in;
    return inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &in->sin_addr) == 1;
}

const char *listen_address_of(int fd, char out[LISTEN_ADDRESS_TEXT_MAX])
{
    char host[INET6_ADDRSTRLEN] = "?";
    struct sockaddr_storage ip = {0};
    socklen_t len = sizeof ip;
    getsockname(fd, (struct sockaddr *)&ip, &len);
    if (ip.ss_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, &ip, sizeof in6);
        inet_ntop(AF_INET6, &in6.sin6_addr, host, sizeof host);
        snprintf(out, LISTEN_ADDRESS_TEXT_MAX, "[%s]:%u", host, ntohs(in6.sin6_port));
    } else {
        struct sockaddr_in in;
        memcpy(&in, &ip, sizeof in);
        inet_ntop(AF_INET, &in.sin_addr, host, sizeof host);
        snprintf(out, LISTEN_ADDRESS_TEXT_MAX, "%s:%u", host, ntohs(in.sin_port));
    }
    return out;
}
