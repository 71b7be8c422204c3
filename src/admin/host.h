/*
 * host.h: which names a request's Host may have.
 *
 * A web page of somebody else can lead a browser to this listener under a name of its own (DNS rebinding), and read the
 * answers. So a name must be known; an address is fine, because a page under an address is that host's own.
 */
#ifndef RL_ADMIN_HOST_H
#define RL_ADMIN_HOST_H

#include <stdbool.h>

/* `host` as in the header, with or without a port; `allowed`: one name a line, or NULL. */
bool host_is_known(const char *host, const char *allowed);

#endif
