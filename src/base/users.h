/*
 * users.h: which number of a user stands for no user.
 *
 * Inside a user namespace every user that the namespace does not have is seen as 65534. Outside of one this is the
 * number of Debian's `nobody`.
 */
#ifndef RL_BASE_USERS_H
#define RL_BASE_USERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { USERS_OVERFLOW_ID = 65534 };

/* Once, at start: looks at a file in the form of /proc/self/uid_map. If it cannot be read, the number stands for no
 * user. */
void users_look(const char *uid_map);
/* Can this number stand for a user or a group? Before users_look(), 65534 does. */
bool users_is_ambiguous(uint32_t id);

#endif
