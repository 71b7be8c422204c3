/*
 * policy_limit.h: one limit of the file: a policy's only one, or one of its list.
 */
#ifndef RL_CONFIG_POLICY_LIMIT_H
#define RL_CONFIG_POLICY_LIMIT_H

#include "config/reading.h"

/* Fill and prepare `limit`, whose policy and name stand; faults are recorded. */
void policy_limit_read(struct reading *reading, struct limit *limit);
/* The name of a limit in a list, which none of the policy's limits before it has. */
void policy_limit_read_name(struct reading *reading, struct limit *limit);

#endif
