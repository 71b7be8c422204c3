/*
 * admin_door.h: the listener for HTTP (admin/admin.h) in the daemon: its socket, and what it is shown of the rest.
 *
 * Checks do not depend on it: if its address is taken, the daemon says so once, serves its clients, and tries again
 * each second. So a successor starts while its predecessor still drains.
 */
#ifndef RL_DAEMON_ADMIN_DOOR_H
#define RL_DAEMON_ADMIN_DOOR_H

#include <stdbool.h>

#include "admin/admin.h"
#include "daemon/listener.h"

struct config;
struct daemon;

struct admin_door {
    struct admin *admin;      /* owned; NULL: admin.listen is not set */
    struct listener listener; /* of a Unix socket: its file and its lock */
    bool is_open;
    bool is_reported; /* why it is not */
};

/* Opens it if admin.listen is set. 0, or -1 without memory. */
int admin_door_start(struct daemon *daemon);
void admin_door_look(struct daemon *daemon); /* each second */
void admin_door_set_options(struct daemon *daemon, const struct config *config);
/* Closes it, at once; on_closed once, perhaps within this call. */
void admin_door_close(struct daemon *daemon, void (*on_closed)(void *arg));

#endif
