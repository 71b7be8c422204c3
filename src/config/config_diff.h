/*
 * config_diff.h: what a reload changes, settings of the daemon first, then policies (policy_diff.h).
 */
#ifndef RL_CONFIG_CONFIG_DIFF_H
#define RL_CONFIG_CONFIG_DIFF_H

#include "config/config.h"
#include "policy/changes.h"

/*
 * A setting of `store` that needs a restart holds back all of store.redis: an address, a login and a topology belong
 * together, and halves of two servers make none.
 */

/* Adds the differences between the configuration in force and `next`. What needs a restart is compared with `started`,
 * which stays in force until then. It takes a while if there are many policies: not on the event loop. */
void config_diff(struct changes *changes, const struct config *in_force, const struct config *started,
                 const struct config *next);

/* Gives `next` the store.redis that is in force, if a change holds it back. 0, or -1 without memory. */
int config_hold_store(struct config *next, const struct config *in_force, const struct config *started);

#endif
