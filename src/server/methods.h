/* methods.h: what a client may ask for; one row of the table in methods.c per method. */
#ifndef RL_SERVER_METHODS_H
#define RL_SERVER_METHODS_H

#include "base/counters.h"
#include "proto/rpc.h"
#include "server/session.h"

enum { PROTOCOL_VERSION = 1 };

extern const struct counter_family methods_asked; /* requests, by method */
void methods_count_other(void);                   /* a request that methods_run() does not get */

/* Answer the request, now or later: exactly once. */
void methods_run(struct session *session, const struct rpc_request *request);
/* Does what the notification asks for: `abandon`; any other one, and one with wrong parameters, does nothing. */
void methods_notify(struct session *session, const struct rpc_request *notification);

#endif
