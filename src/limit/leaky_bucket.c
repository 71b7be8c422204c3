/*
 * leaky_bucket.c: shaping. All of it is bucket.c's, with a wait; the script knows only the bucket (lua/bucket.lua).
 *
 * What a token bucket would deny is admitted with a delay, as long as that is at most the policy's max_wait (or
 * the check's own, smaller one): the units stand in a queue that drains `limit` per `window`. Whoever asks waits
 * delay_ms by himself; nothing is held here. One check may still not cost more than the burst.
 *
 * Bound: what goes ahead after its delay is never more than burst + t * limit / window in any half-open interval of
 * length t; what is admitted, max_wait * limit / window more.
 *
 * A key tag of its own: a token bucket of the same policy would take the queue for a clock that stepped back.
 */
#include "limit/bucket.h"

const struct algo_ops leaky_bucket_ops = {
    .name = "leaky_bucket",
    .key_tag = "lb1",
    .kind = STATE_STRING,
    .refunds = true,
    .merges = true,
    .configure = bucket_configure,
    .prepare = bucket_prepare,
    .view = bucket_view,
    .plausible = bucket_plausible,
    .save = bucket_save,
    .reset_ms = bucket_reset_ms,
    .retry_ms = bucket_retry_ms,
    .delay_ms = bucket_delay_ms,
    .describe = bucket_describe,
};
