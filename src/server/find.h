/*
 * find.h: the method find: the keys of a policy that match a pattern, for an operator who knows a customer but not the
 * exact key; and, if asked to, their reset.
 *
 *   the tables of watch.h, the ring of denials     what was denied
 *   the memory store, by store_walk()              what is counted
 *
 * An answer has some rows, and says where the next one goes on, so that it blocks no tick; as with views.h, nothing is
 * kept between two of them, so that a client that leaves ends it. What an operator's rule of access confines is neither
 * found nor reset.
 */
#ifndef RL_SERVER_FIND_H
#define RL_SERVER_FIND_H

#include "server/params.h"

/* As in the table of methods. */
int find_run(struct params *params);

/* For an operator who explains a key that was never counted: keys of the policy that begin so and were denied in the
 * last windows: "minute: acme:import, acme:web", in `out`, which is returned; "" if there are none, if the key itself
 * is one, or if the session may not find any. */
enum { FIND_DENIED_MAX = 1024 };
const char *find_denied_like(const struct session *session, const struct policy *policy, struct slice key,
                             char out[FIND_DENIED_MAX]);

#endif
