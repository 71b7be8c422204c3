/* blocking.h: what ratelimitctl sees of a blocking client beyond ratelimit.h. */
#ifndef RL_CLIENT_BLOCKING_H
#define RL_CLIENT_BLOCKING_H

#include "client/link.h"

const struct link *blocking_link(const struct ratelimit *client); /* its connection; borrowed */

#endif
