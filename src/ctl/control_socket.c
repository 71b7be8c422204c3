/* control_socket.c: chooses between the data socket and the control socket next to it, for ratelimitctl.c. */
#include "ctl/control_socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "client/ratelimit.h"

const char *control_socket(const char *socket, char space[CONTROL_SOCKET_MAX])
{
    struct stat status;
    if (socket == NULL) {
        socket = secure_getenv("RATELIMIT_SOCKET");
        if (socket == NULL || socket[0] == '\0') socket = RATELIMIT_DEFAULT_SOCKET;
    }
    if (socket[0] == '\0') return socket; /* an empty -s: the library refuses it */

    int len = snprintf(space, CONTROL_SOCKET_MAX, "%s" CONTROL_SOCKET_SUFFIX, socket);
    return len < CONTROL_SOCKET_MAX && stat(space, &status) == 0 ? space : socket;
}
