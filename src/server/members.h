/*
 * members.h: the members of a check_many or check_all, each a [policy, key [, cost or options]].
 *
 * A member of a check_many is a check of its own. Those of a check_all are parts of one check, which the store charges
 * all or none; but one in shadow is a check of its own there too (check.h).
 */
#ifndef RL_SERVER_MEMBERS_H
#define RL_SERVER_MEMBERS_H

#include "server/params.h"
#include "server/request.h"

/* Read the next member of the list in `params`, its index-th, into `request`. 0, or -1 with the fault filled. */
int members_add(struct request *request, struct params *params, uint32_t index);

#endif
