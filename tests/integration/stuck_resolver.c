/* stuck_resolver.c: a resolver that never answers, loaded before libc. First, it creates STUCK_RESOLVER_MARK. */
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <unistd.h>

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **ret)
{
    (void)name, (void)service, (void)hints, (void)ret;
    close(open(getenv("STUCK_RESOLVER_MARK"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    for (;;) pause();
}
