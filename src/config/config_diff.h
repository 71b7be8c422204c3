/*
 * config_diff.h: what a reload changes, settings of the daemon first, then policies (policy_diff.h).
 */
#ifndef RL_CONFIG_CONFIG_DIFF_H
#define RL_CONFIG_CONFIG_DIFF_H

#include "config/config.h"
#include "policy/changes.h"

/* Adds the differences between the configuration in force and `next`. What needs a restart is compared with `started`,
 * which stays in force until then. It takes a while if there are many policies: not on the event loop. */
void config_diff(struct changes *changes, const struct config *in_force, const struct config *started,
                 const struct config *next);

#endif
