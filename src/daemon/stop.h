/*
 * stop.h: how the daemon ends.
 *
 *   stop_on_signal ─▶ server_drain ─▶ slots and leased units given back ─▶ stop_now
 *   stop_now       ─▶ admin_close ─▶ server_close ─▶ engine_close (and its store) ─▶ our own handles ─▶ uv_run returns
 *
 * It does not wait for a thread that is still busy with a name lookup or a reload: once everything else is closed,
 * uv_run returns and the process ends.
 *
 * A second signal, the drain timeout and a fatal error go straight to stop_now(). From the first signal on, the
 * socket's path is free for the next daemon.
 */
#ifndef RL_DAEMON_STOP_H
#define RL_DAEMON_STOP_H

#include "daemon/daemon.h"

void stop_on_signal(uv_signal_t *handle, int number);  /* SIGTERM, SIGINT */
void stop_now(struct daemon *daemon, int exit_status); /* the first call counts */
/* Every connection has ended, and some tick is over: end, unless the store has still to take slots or units back. */
void stop_when_left(struct daemon *daemon);

#endif
