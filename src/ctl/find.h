/*
 * find.h: `explain --match` and `reset --match`: the keys of a policy that match a pattern, of which the daemon answers
 * with some rows at a time, from all places where it knows keys.
 */
#ifndef RL_CTL_FIND_H
#define RL_CTL_FIND_H

#include "base/buffer.h"
#include "client/ratelimit.h"
#include "ctl/complain.h"
#include "ctl/options.h"

/* `policy`: packed, an array of that one. Prints each key once; or how many counters were removed. */
enum exit_code find_print(struct ratelimit *client, const struct buffer *policy, const struct options *options,
                          bool resets);

#endif
