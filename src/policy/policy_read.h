/*
 * policy_read.h: policies as they are written, in a file or in a request, from tree to policy_set.
 */
#ifndef RL_POLICY_POLICY_READ_H
#define RL_POLICY_POLICY_READ_H

#include "policy/faults.h"
#include "policy/policy.h"
#include "policy/tree.h"

struct policy_defaults {
    int64_t deadline_ms;
    enum on_failure on_failure;
    int64_t local_share;
    int64_t idempotency_ms;
    bool shadow;
};

/* The set under `policies:`; NULL without memory (recorded). Policies with faults are left out of it. */
struct policy_set *policy_read_all(const struct tree_node *policies, const struct policy_defaults *defaults,
                                   struct faults *faults);

/* A set with the one policy that `tree` describes, under this name; `tree` gets the name as its key, and faults begin
 * with `policy`. With an `id` (NULL: none) its limits may move. NULL with a fault recorded, or without memory. */
struct policy_set *policy_read_inline(struct tree_node *tree, const char *name, const char *id,
                                      const struct policy_defaults *defaults, struct faults *faults);

#endif
