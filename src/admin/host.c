#include "admin/host.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

enum { HOST_MAX = 255 };

static bool is_listed(const char *name, size_t len, const char *allowed)
{
    while (allowed != NULL && *allowed != '\0') {
        size_t n = strcspn(allowed, "\n");
        if (n == len && strncasecmp(allowed, name, len) == 0) return true;
        allowed += n + (allowed[n] == '\n');
    }
    return false;
}

bool host_is_known(const char *host, const char *allowed)
{
    char name[HOST_MAX + 1];
    struct in6_addr address;
    bool in_brackets = host[0] == '[';
    size_t len = in_brackets ? strcspn(host, "]") : strcspn(host, ":");
    const char *port = host + len + (in_brackets && host[len] == ']');
    if (len > HOST_MAX || (*port != '\0' && (*port != ':' || port[1 + strspn(port + 1, "0123456789")] != '\0')))
        return false;

    memcpy(name, host, len);
    name[len] = '\0';
    if (in_brackets) return host[len] == ']' && inet_pton(AF_INET6, name + 1, &address) == 1;
    return inet_pton(AF_INET, name, &address) == 1 || is_listed(name, len, "localhost") ||
           is_listed(name, len, allowed);
}
