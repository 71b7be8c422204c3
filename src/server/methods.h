/* methods.h: what a client may ask for; one row of the table in methods.c per method. */
#ifndef RL_SERVER_METHODS_H
#define RL_SERVER_METHODS_H

#include "limit/limit.h"
#include "proto/pack.h"
#include "proto/rpc.h"
#include "server/session.h"

enum { PROTOCOL_VERSION = 1 };

/* A limit as `policies` shows it, a map that the caller ends with n_more fields. */
void methods_pack_limit(struct packer *packer, const struct limit *limit, uint32_t n_more);

/* Answer the request, now or later: exactly once. */
void methods_run(struct session *session, const struct rpc_request *request);

#endif
