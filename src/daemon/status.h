/*
 * status.h: what the service manager shows of the daemon in one line.
 */
#ifndef RL_DAEMON_STATUS_H
#define RL_DAEMON_STATUS_H

#include "daemon/daemon.h"

enum { STATUS_WHY_MAX = 1536 };

/* With Redis: does it decide checks? `why`: what is wrong, if only for some checks, printable; "" = nothing is. Since
 * then: CLOCK_MONOTONIC. */
bool status_redis(const struct daemon *daemon, char why[STATUS_WHY_MAX], int64_t *ret_since_us);

/* The daemon's store_trouble_fn (server.h). */
bool status_trouble(void *daemon, char out[STORE_TROUBLE_MAX]);

/* By service_ready(), once it has started or the last reload is over, or by service_status(). */
void status_report(const struct daemon *daemon, void (*report)(const char *status));

#endif
