/*
 * reload.h: the configuration's file, read again while the daemon runs.
 *
 * What is correct is handed to every part at once; what is not changes nothing, and is logged. A setting that only a
 * start can change stays as it was started with, and the log says so.
 */
#ifndef RL_DAEMON_RELOAD_H
#define RL_DAEMON_RELOAD_H

#include "daemon/daemon.h"

void reload_file(struct daemon *daemon); /* arguments.config_path, which there is */

#endif
