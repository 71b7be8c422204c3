/*
 * group.h: the number of a group of this machine, from its name.
 */
#ifndef RL_BASE_GROUP_H
#define RL_BASE_GROUP_H

#include <stdbool.h>
#include <sys/types.h>

/* Accepts a name or a number. False if there is no such group, or no memory. May ask the network, and wait for it.
 */
bool group_find(const char *name, gid_t *ret);

#endif
