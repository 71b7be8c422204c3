/*
 * admin_door.h: HTTP (admin/admin.h) in the daemon: what it is shown of the rest. endpoints.h opens its socket.
 */
#ifndef RL_DAEMON_ADMIN_DOOR_H
#define RL_DAEMON_ADMIN_DOOR_H

#include <stdint.h>

#include "base/buffer.h"

struct config;
struct daemon;

/* The page of metrics part by part, for the method of that name (server.h), without a listener; arg: the daemon. */
int admin_door_metrics(void *arg, uint64_t *from, struct buffer *text);

/* Opens it if admin.listen is set. 0, or -1 without memory. */
int admin_door_start(struct daemon *daemon);
void admin_door_set_options(struct daemon *daemon, const struct config *config);
/* Closes it, if it is open; on_closed once, perhaps within this call. */
void admin_door_close(struct daemon *daemon, void (*on_closed)(void *arg));

#endif
