/*
 * hold.h: ratelimitctl acquire: a slot for as long as something lasts.
 *
 *   acquire POLICY KEY -- COMMAND ...   while COMMAND runs; its exit status is ours
 *   acquire POLICY KEY                  until standard input ends, or SIGINT, SIGTERM or SIGHUP comes
 *
 * The slot is the connection's, so it is gone with this process however that ends. If it is killed, the kernel sends
 * COMMAND a SIGTERM, so that no job goes on without its slot.
 */
#ifndef RL_CTL_HOLD_H
#define RL_CTL_HOLD_H

#include "ctl/command.h"

/* `arguments` are POLICY and KEY and, if n > 3, `--` and the command (NULL at its end). The exit status. */
int hold_run(const struct options *options, int n, char **arguments);

#endif
