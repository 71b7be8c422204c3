/*
 * inline.h: a policy written out in a request, in place of a policy's name: who may, and whoever makes it.
 */
#ifndef RL_SERVER_INLINE_H
#define RL_SERVER_INLINE_H

#include "server/params.h"

/* The map that comes next, and past it. 0 with its set, which is borrowed until the next request, or -1 with the fault
 * filled. */
int inline_read(struct params *params, struct policy_set **ret_set);

#endif
