/*
 * doubtful_policies.h: policies whose ops Redis has refused (a right that the user lacks for their keys), or others
 * together with them: their ops go in batches of their own until Redis takes one of the policy, so that a good policy
 * is not refused with a bad one. Bounded: the oldest is forgotten, and found out again.
 */
#ifndef RL_REDIS_DOUBTFUL_POLICIES_H
#define RL_REDIS_DOUBTFUL_POLICIES_H

#include <stdbool.h>
#include <stdint.h>

struct op;

enum { DOUBTFUL_POLICIES_MAX = 64 };

struct doubtful_policies {
    uint64_t names[DOUBTFUL_POLICIES_MAX]; /* hashes, oldest first */
    uint32_t n;
};

/* Is one of the policies that the op asks among them? */
bool doubtful_policies_has(const struct doubtful_policies *doubtful, const struct op *op);
void doubtful_policies_add(struct doubtful_policies *doubtful, const struct op *op);    /* Redis refused it */
void doubtful_policies_remove(struct doubtful_policies *doubtful, const struct op *op); /* Redis has taken it */

#endif
