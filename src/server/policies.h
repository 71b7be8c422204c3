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

enum { POLICIES_PAGE_MAX = 1000 };

/* A part of the list in the order of names. */
struct policies_page {
    struct slice after; /* begins behind this name; empty: with the first one */
    uint32_t max;       /* policies of the set; 0: no page but the whole set, in the order of the file */
};

/* Those of the set, then the inline ones that are kept (NULL: none), the last used first. These are on the last page:
 * one with less than page->max of the set. Returns how many are in the answer. */
uint32_t policies_reply(struct packer *packer, const struct policy_set *set, const struct inline_policies *inlines,
                        const struct policies_page *page);
/* One limit, a map that the caller ends with n_more fields, a name and a value each. */
void policies_pack_limit(struct packer *packer, const struct limit *limit, uint32_t n_more);

#endif
