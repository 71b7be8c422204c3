/*
 * policy_diff.h: what a reload does to each policy and to its counters.
 *
 * Whether counters go on follows from their keys' names, which are compared as policy_prepare_limit() and
 * plan_make() made them, and from the states that the functions of the algorithms make.
 */
#ifndef RL_POLICY_POLICY_DIFF_H
#define RL_POLICY_POLICY_DIFF_H

#include "policy/changes.h"
#include "policy/policy.h"

/* Adds the differences, in the order of `after`; then what is only in `before`. It takes a while if there are many
 * policies: not on the event loop. */
void policy_diff(struct changes *changes, const struct policy_set *before, const struct policy_set *after);

#endif
