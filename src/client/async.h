/* async.h: what the blocking client needs of the asynchronous one beside its public functions. */
#ifndef RL_CLIENT_ASYNC_H
#define RL_CLIENT_ASYNC_H

#include "base/clock.h"
#include "client/ratelimit.h"

/* From the next connection on hello asks for maps. */
void async_use_maps(struct ratelimit_async *client);

/* Why the last call that was a BAD_ARGUMENT was one, for people. */
const char *async_fault(const struct ratelimit_async *client);

/* No call is under way, and nobody knows when the next will be: what a timed-out acquire or reserve may yet be given is
 * given up with the connection, unless slots are held on it. Then the next call takes it back first. */
void async_drop_orphans(struct ratelimit_async *client);

/* The client's time; a test freezes it. */
struct clock *async_clock(struct ratelimit_async *client);

#endif
