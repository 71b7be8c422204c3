/*
 * account.h: the number of a user or a group of this machine, from its name.
 *
 * Each may ask the network, and wait for it: call them when a configuration is read, never on the loop.
 */
#ifndef RL_BASE_ACCOUNT_H
#define RL_BASE_ACCOUNT_H

#include <stdbool.h>
#include <sys/types.h>

/* Accepts a name or a number. False if there is no such user, or no memory. */
bool account_user(const char *name, uid_t *ret);
/* The same of a group. */
bool account_group(const char *name, gid_t *ret);

#endif
