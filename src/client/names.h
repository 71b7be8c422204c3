/*
 * names.h: the names of inline policies, as answers have them.
 *
 * A daemon that does not take a policy's name calls it `inline-` and 16 hex digits. The program gave it a name, so what
 * it is shown has this name: the client keeps it with the call, and puts it into the decision.
 */
#ifndef RL_CLIENT_NAMES_H
#define RL_CLIENT_NAMES_H

#include "base/buffer.h"
#include "client/ratelimit.h"

/* `name` is that of item `i`, and `names` has those of the *n first ones, which are fewer; those between have none. 0,
 * or -1 without memory. */
int names_note(struct buffer *names, size_t *n, size_t i, const char *name);

/* In a decision about one policy: the first one. */
void names_put(const struct buffer *names, struct ratelimit_decision *decision);
/* In the decisions of a list, and in what binds all of them together; NULL: they are not together. */
void names_put_members(const struct buffer *names, struct ratelimit_decision *members, size_t n,
                       struct ratelimit_decision *whole);

#endif
