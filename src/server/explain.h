/*
 * explain.h: the answer of `explain`: the decision that a check would get, and all that led to it.
 */
#ifndef RL_SERVER_EXPLAIN_H
#define RL_SERVER_EXPLAIN_H

#include "engine/check.h"
#include "proto/pack.h"
#include "server/reply.h"

struct explain_options {
    struct decision_form decision;
    const char *key_prefix; /* of the keys in Redis */
    bool keys_are_bin;      /* as the client's was */
    int64_t share;          /* what the limits would be divided by without the store (failure_share) */
};

/* `check` is a peek that was answered, `candidate` the one that asked the policy's candidate (NULL: none did). */
void explain_reply(struct packer *packer, const struct check *check, const struct check *candidate,
                   const struct explain_options *options);

/* A peek that the store could not answer: writes a sentence into `out` that names the key with a value of another type
 * and the way out, or has the words in which the store refused it (`store_error`). False: the store said nothing. */
bool explain_failure(const struct check *check, const char *key_prefix, const char *store_error, char *out,
                     size_t size);

#endif
