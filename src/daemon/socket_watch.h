/*
 * socket_watch.h: the socket that clients connect to, and the watch over its file.
 *
 * An activation socket beats -s, which beats listen.socket. A socket of our own has a file that
 * somebody may delete or replace while the daemon runs; nobody could connect any more, and nothing
 * would report it. So it is looked at once a second: a deleted one is made again, a replaced one is left
 * to whoever did it, and either is logged once.
 */
#ifndef RL_DAEMON_SOCKET_WATCH_H
#define RL_DAEMON_SOCKET_WATCH_H

#include "config/config.h"
#include "server/listener.h"

enum socket_watch_view { SOCKET_FINE, SOCKET_DELETED, SOCKET_REPLACED, SOCKET_CHMODDED };

struct socket_watch {
    struct listener listener;
    struct listener_options options; /* texts of the configuration that was started with, or argv's */
    bool is_own;                     /* not passed by the service manager */
    enum socket_watch_view seen;     /* at the last look */
};

/* 0, or -1 with the reason logged; watch->listener.fd is listening. `path` NULL = listen.socket. */
int socket_watch_open(struct socket_watch *watch, const struct config *config, const char *path);
/* Look at the file. True: it was deleted and has been made again, and watch->listener.fd is to be listened on. */
bool socket_watch_look(struct socket_watch *watch);
void socket_watch_close(struct socket_watch *watch); /* may be called twice */

#endif
