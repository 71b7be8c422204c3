/*
 * policy_print.h: a policy as it would be written, every setting said, below `policies:`.
 */
#ifndef RL_CONFIG_POLICY_PRINT_H
#define RL_CONFIG_POLICY_PRINT_H

#include <stdio.h>

#include "limit/policy.h"

void policy_print(FILE *out, const struct policy *policy);

#endif
