/* methods.h: what a client may ask for; one row of the table in methods.c per method. */
#ifndef RL_SERVER_METHODS_H
#define RL_SERVER_METHODS_H

#include "proto/rpc.h"
#include "server/params.h"
#include "server/session.h"

struct request;

enum { PROTOCOL_VERSION = 1 };

/* Answer the request, now or later: exactly once. */
void methods_run(struct session *session, const struct rpc_request *request);

/* To read parameters of a request of `session`; no fault yet. */
struct params methods_params(struct session *session, struct request_fault *fault);
/* The next member of the list in `params` becomes a check of `request`, or a part of one; -1 with the fault filled. */
int methods_add_member(struct request *request, struct params *params, uint32_t index);

#endif
