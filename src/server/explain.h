/*
 * explain.h: the answer of `explain`: the decision that a check would get, and all that led to it.
 */
#ifndef RL_SERVER_EXPLAIN_H
#define RL_SERVER_EXPLAIN_H

#include "engine/check.h"
#include "proto/pack.h"
#include "server/reply.h"
#include "store/store_key.h"

enum { EXPLAIN_ANSWER_UNITS = 8 }; /* of work with an answer (op_units()) */

struct explain_options {
    struct decision_form decision;
    struct store_key_scheme keys; /* in Redis */
    bool keys_are_bin;            /* as the client's was */
    int64_t share;                /* what the limits would be divided by without the store (failure_share) */
    const char *trouble;          /* of the store (store_trouble_fn); "" = none */
    const char *denied_like;      /* of a key that was never counted: find_denied_like(); "" = none */
};

/* `check` is a peek that was answered, `candidate` the one that asked the policy's candidate (NULL: none did). */
void explain_reply(struct packer *packer, const struct check *check, const struct check *candidate,
                   const struct explain_options *options);

enum { EXPLAIN_FAILURE_MAX = 6400 }; /* with a key's name in Redis */

/* The message about a peek that the store did not answer, in `out`, which is returned: why, and what a check would get.
 * `store_error`: engine_store_error(). */
const char *explain_failure(const struct check *check, const struct explain_options *options, const char *store_error,
                            char out[EXPLAIN_FAILURE_MAX]);

#endif
