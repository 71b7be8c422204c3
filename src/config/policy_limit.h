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
/* A duration to the microsecond, finer than the settings elsewhere. False: the fault is recorded. */
bool policy_limit_duration(const char *path, bool may_be_none, const struct tree_node *node, struct faults *faults,
                           int64_t *ret_us);

#endif
