/*
 * policies.h: the answer of `policies`: each policy and its limits as configured, and what was counted of it.
 *
 * A setting is there where the algorithm has it; what is off is left out (PROTOCOL.md, "policies"). `explain` shows its
 * limits in the same form.
 */
#ifndef RL_SERVER_POLICIES_H
#define RL_SERVER_POLICIES_H

#include <stdint.h>

#include "policy/inline_policies.h"
#include "policy/policy.h"
#include "proto/pack.h"

/* Those of the set, then the inline ones that are kept (NULL: none), the last used first. */
void policies_reply(struct packer *packer, const struct policy_set *set, const struct inline_policies *inlines);
/* One limit, a map that the caller ends with n_more fields, a name and a value each. */
void policies_pack_limit(struct packer *packer, const struct limit *limit, uint32_t n_more);

#endif
