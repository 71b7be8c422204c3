/*
 * explain.h: the answer of `explain`: the decision that a check would get, and all that led to it.
 */
#ifndef RL_SERVER_EXPLAIN_H
#define RL_SERVER_EXPLAIN_H

#include "engine/check.h"
#include "proto/pack.h"

/* Of a peek that was answered. `key_prefix` is that of the keys in Redis; they are bin where the client's was. */
void explain_reply(struct packer *packer, const struct check *check, bool as_array, const char *key_prefix,
                   bool keys_are_bin);

#endif
