/*
 * redis/batches_private.h: what the two halves of a node's batches share: redis/batches.c, and redis/batches_slots.c
 * for a cluster.
 */
#ifndef RL_REDIS_BATCHES_PRIVATE_H
#define RL_REDIS_BATCHES_PRIVATE_H

#include "redis/batches.h"

enum { BATCH_CALL_OPS_MAX = 1024 }; /* of a call: its reply is handled in one tick */

/* With an empty batch; NULL without memory. */
struct batch_call *redis_batches_begin_call(struct redis_batches *batches);
/* Adds waiting checks that merge with one in the full batch: they cost Redis nothing, and many checks of one key wait
 * no longer than one does. */
void redis_batches_fill_by_merging(struct redis_batches *batches, struct batch_call *call);
/* Its batch is complete. If it is empty or cannot be sent it ends here; it was certainly not executed. */
void redis_batches_send_call(struct batch_call *call);
/* Its ops to `to`; the call is kept for another batch, or freed if a burst has left too many. */
void redis_batches_release_call(struct batch_call *call, struct list *to);
bool redis_batches_has_space(const struct redis_batches *batches); /* the window has, for one more */
/* The op was not sent after all: it waits again, first in the queue. Without memory for that it ends. */
void redis_batches_wait_again(struct redis_batches *batches, struct op *op);
void redis_batches_end_op(struct redis_batches *batches, struct op *op, enum op_outcome outcome);
/* For people. `call`: the ops that end with it. */
void redis_batches_note_error(const struct batch_call *call, const char *text);

/* Its time has passed, or it is about what another server was charged: it is not to be sent. */
static inline bool redis_batches_is_over(const struct redis_batches *batches, const struct op *op)
{
    if (op->is_bound && op->server != batches->options->server) return true;
    return op->deadline_us > 0 && op->deadline_us <= batches->clock->mono_us;
}

/* batch_call_add(), and from then on it is known where the op is done. */
static inline enum batch_status redis_batches_put(struct batch_call *call, struct op *op)
{
    op->server = call->batches->options->server;
    return batch_call_add(call, op);
}

#endif
