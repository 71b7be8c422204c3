/* async.h: what the blocking client needs of the asynchronous one, besides its public functions. */
#ifndef RL_CLIENT_ASYNC_H
#define RL_CLIENT_ASYNC_H

#include "base/clock.h"
#include "client/ratelimit.h"

/* From the next connection on hello asks for maps. */
void async_use_maps(struct ratelimit_async *client);

/* The reason of the last BAD_ARGUMENT, for people. */
const char *async_fault(const struct ratelimit_async *client);

/* No call is in flight, and nobody knows when the next one will be made. A timed-out acquire or reserve may still be
 * granted: close the connection, which gives up the grant, unless slots are held on it. Then the next call undoes the
 * grant first. */
void async_drop_orphans(struct ratelimit_async *client);

/* The client's time; a test freezes it. */
struct clock *async_clock(struct ratelimit_async *client);

#endif
