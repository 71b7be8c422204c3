/*
 * cut.h: does a file look cut off?
 *
 * A writer that was stopped half way, or that is slow, leaves a file that is correct as far as it goes. What is missing
 * must not open a door: a reload refuses a file without policies, and one without the part of `access` that is in
 * force. What is meant can be written: `rules: []`, and `default: {role: client}`.
 */
#ifndef RL_CONFIG_CUT_H
#define RL_CONFIG_CUT_H

#include <stdbool.h>

#include "config/config.h"

/* True: `next`, read to replace `in_force`, looks so, and the faults have why. If it only may be, that is a warning. */
bool config_is_cut(const struct config *in_force, const struct config *next, struct faults *faults);

#endif
