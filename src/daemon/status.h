/*
 * status.h: what the service manager shows of the daemon in one line.
 */
#ifndef RL_DAEMON_STATUS_H
#define RL_DAEMON_STATUS_H

#include "daemon/daemon.h"

void status_ready(const struct daemon *daemon);  /* sends READY=1: the start or the last reload is over */
void status_change(const struct daemon *daemon); /* the line alone */

#endif
