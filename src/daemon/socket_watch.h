/*
 * socket_watch.h: the socket that clients connect to, and the watch over its file.
 *
 * An activation socket beats -s, which beats listen.socket. The file of our own socket may be deleted or replaced while
 * the daemon runs. Then no client could connect any more, and nothing would report it. So this looks once a second: it
 * makes a deleted file again, leaves a replaced one alone, and logs either once.
 */
#ifndef RL_DAEMON_SOCKET_WATCH_H
#define RL_DAEMON_SOCKET_WATCH_H

#include "config/config.h"
#include "daemon/listener.h"

enum socket_watch_view { SOCKET_FINE, SOCKET_DELETED, SOCKET_REPLACED, SOCKET_CHMODDED };

struct socket_watch {
    struct listener listener;
    struct listener_options options; /* texts of the configuration that was started with, or argv's */
    bool is_own;                     /* not passed by the service manager */
    enum socket_watch_view seen;     /* at the last look */
};

/* 0, or -1 with the reason logged; watch->listener.fd is listening. `path` NULL = listen.socket. */
int socket_watch_open(struct socket_watch *watch, const struct config *config, const char *path);
/* Looks at the file. True: it was deleted and made again, and the caller must listen on watch->listener.fd. */
bool socket_watch_look(struct socket_watch *watch);
void socket_watch_close(struct socket_watch *watch); /* may be called twice */

#endif
