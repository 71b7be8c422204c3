/*
 * control_methods.h: the methods of those who run the daemon: reload, config.
 */
#ifndef RL_SERVER_CONTROL_METHODS_H
#define RL_SERVER_CONTROL_METHODS_H

#include "server/params.h"

/* As in the table of methods. */
int reload_run(struct params *params);
int config_run(struct params *params);

#endif
