/*
 * policy_overrides.h: the overrides of a policy of the file.
 */
#ifndef RL_CONFIG_POLICY_OVERRIDES_H
#define RL_CONFIG_POLICY_OVERRIDES_H

#include "config/reading.h"

/* Once the policy's limits stand. `is_sound`: they do without faults; else what depends on them is not looked at. */
void policy_overrides_read(struct reading *reading, struct policy *policy, bool is_sound);

#endif
