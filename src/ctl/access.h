/*
 * access.h: why this user may not connect to the daemon's socket, and what to do about it.
 */
#ifndef RL_CTL_ACCESS_H
#define RL_CTL_ACCESS_H

#include <stdbool.h>
#include <stdio.h>

/* `error` is the library's: where it says that permission was denied, print it with the owner of the socket or
 * directory that refuses this user, without the newline. False, and nothing printed, where it says something else. */
bool access_explain(FILE *out, const char *error);

#endif
