/*
 * concurrency.h: what is done with one slot of a key, besides the algorithm's own operations (limit.h).
 */
#ifndef RL_LIMIT_CONCURRENCY_H
#define RL_LIMIT_CONCURRENCY_H

#include <stdbool.h>

#include "limit/lease_list.h"
#include "limit/limit.h"

#define SLOT_TTL_DEFAULT_US INT64_C(30000000)

/* Give back the slot of this id (SLOT_ID_LEN bytes). False where its lease is not there any more. */
bool concurrency_release(struct state *state, const char *id);
/* Let its lease end a whole slot_ttl from now. False where it is not there any more: it is not taken again. */
bool concurrency_renew(const struct view *view, struct state *state, const char *id);
bool concurrency_is_empty(const struct state *state); /* it holds no lease at all, ended or not */

#endif
