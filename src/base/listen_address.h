/* listen_address.h: the address of a listener for HTTP, as a setting writes it. */
#ifndef RL_BASE_LISTEN_ADDRESS_H
#define RL_BASE_LISTEN_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

struct listen_address {
    const char *unix_path; /* into the text; NULL: an address of IP, which is: */
    struct sockaddr_storage ip;
    socklen_t len;
};

/* `unix:/path`, `127.0.0.1:7429`, `[::1]:7429` or `localhost:7429`; port 0 is any free one. No name is looked up.
 * False: it is none of these. */
bool listen_address_parse(struct listen_address *ret, const char *text);

enum { LISTEN_ADDRESS_TEXT_MAX = 64 };
/* The address that a socket of IP is bound to, as above. */
const char *listen_address_of(int fd, char out[LISTEN_ADDRESS_TEXT_MAX]);

#endif
