/*
 * status.h: what the service manager shows of the daemon in one line.
 */
#ifndef RL_DAEMON_STATUS_H
#define RL_DAEMON_STATUS_H

#include "daemon/daemon.h"

/* By service_ready(), once it has started or the last reload is over, or by service_status(). */
void status_report(const struct daemon *daemon, void (*report)(const char *status));

#endif
