/*
 * concurrency.h: operations on one slot of a key, in addition to the algorithm's own (limit.h).
 */
#ifndef RL_LIMIT_CONCURRENCY_H
#define RL_LIMIT_CONCURRENCY_H

#include <stdbool.h>

#include "limit/lease_list.h"
#include "limit/limit.h"

#define SLOT_TTL_DEFAULT_US INT64_C(30000000)

/* Gives back the slot of this id (SLOT_ID_LEN bytes). False if its lease is gone. */
bool concurrency_release(struct state *state, const char *id);
/* Renews its lease: it ends a whole slot_ttl from now. False if it is gone: it is not taken again. */
bool concurrency_renew(const struct view *view, struct state *state, const char *id);
bool concurrency_is_empty(const struct state *state); /* it holds no lease at all, ended or not */

#endif
