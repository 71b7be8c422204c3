/*
 * gate.h: the socket that clients connect to, and the watch over its file.
 *
 * An activation socket beats -s, which beats listen.socket. A socket of our own has a file that
 * somebody may delete or replace while the daemon runs; nobody could connect any more, and nothing
 * would tell. So it is looked at once a second: a deleted one is made again, a replaced one is left
 * to whoever did it, and either is logged once.
 */
#ifndef RL_DAEMON_GATE_H
#define RL_DAEMON_GATE_H

#include "config/config.h"
#include "server/listener.h"

enum gate_view { GATE_FINE, GATE_DELETED, GATE_REPLACED, GATE_CHMODDED };

struct gate {
    struct listener listener;
    struct listener_options options; /* texts of the configuration that was started with, or argv's */
    bool is_own;                     /* not passed by the service manager */
    enum gate_view seen;             /* at the last look */
};

/* 0, or -1 with the reason logged; gate->listener.fd is listening. `path` NULL = listen.socket. */
int gate_open(struct gate *gate, const struct config *config, const char *path);
/* Look at the file. True: it was deleted and has been made again, and gate->listener.fd is to be listened on. */
bool gate_look(struct gate *gate);
void gate_close(struct gate *gate); /* may be called twice */

#endif
