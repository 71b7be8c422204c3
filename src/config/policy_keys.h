/*
 * policy_keys.h: key_format of a policy, and by of its limits.
 */
#ifndef RL_CONFIG_POLICY_KEYS_H
#define RL_CONFIG_POLICY_KEYS_H

#include "config/reading.h"

/* Before the limits are read. Where there is a fault the format has no parts. */
void policy_keys_read_format(struct reading *reading, struct policy *policy);
void policy_keys_read_by(struct reading *reading, struct limit *limit);

#endif
