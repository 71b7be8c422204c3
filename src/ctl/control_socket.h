/*
 * control_socket.h: which socket a command goes to that only the daemon's control socket serves.
 *
 * -s and $RATELIMIT_SOCKET name the data socket or the control socket, whichever the caller has at hand. By default the
 * control socket is the data socket's path with .control at its end. So that one is taken if it is there, and else the
 * socket as named: it may be a control socket, under whatever path control.socket has. If it is not, the daemon says
 * so.
 */
#ifndef RL_CTL_CONTROL_SOCKET_H
#define RL_CTL_CONTROL_SOCKET_H

#define CONTROL_SOCKET_SUFFIX ".control"

enum { CONTROL_SOCKET_MAX = 116 }; /* a socket's path, its suffix, and the 0 */

/* For `socket` as of -s; NULL: $RATELIMIT_SOCKET, or the default. The path is in `space`, `socket`, or static. */
const char *control_socket(const char *socket, char space[CONTROL_SOCKET_MAX]);

#endif
