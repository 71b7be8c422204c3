/*
 * bucket.c: token bucket, which is also GCRA, and with a wait the leaky bucket, in exact integers; C counterpart of
 * lua/bucket.lua.
 *
 * A bucket of `burst` tokens refills `limit` tokens per `window`, evenly. Divide limit and window
 * (in us) by their greatest common divisor: a tokens per b us. The bucket's emptiness is a *level*
 * in units of token * us: a charge of n adds n * b, each us takes a away, and it may not rise above
 * burst * b. So nothing is ever rounded. If a check may wait m us, it may rise m * a higher: what lies
 * above burst * b has drained when the delay is over.
 *
 * The state is the theoretical arrival time of GCRA with its fraction: the level reaches zero at
 * tat + rem / a us. It does not depend on the policy's b, so a changed limit keeps what was used,
 * as time until full again.
 *
 * Bound: any half-open interval of length t admits at most burst + t * limit / window.
 *
 * The leaky bucket shapes: what a token bucket would deny is admitted with a delay, as long as that is at most the
 * policy's max_wait (or the check's own, smaller one): the units wait in a queue that drains `limit` per `window`.
 * The client waits delay_ms itself; nothing is held here. One check may still not cost more than the burst. The
 * bound holds for what goes ahead after its delay; what is admitted is max_wait * limit / window more. It has a key tag
 * of its own: a token bucket of the same policy would take the queue for a clock that stepped back.
 *
 * Constants: a tokens, b us, c the level up to which this check is admitted, d the highest level that anything of the
 * policy may leave (higher: the clock stepped back). c = d if the check waits as long as the policy lets it; with
 * debt or merge_back, d is that of one burst more.
 * used = level at now, of which a unit takes b.
 * Source: GCRA is ITU-T I.371's virtual scheduling; see lua/ALGORITHMS.md.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/exact.h"
#include "limit/limit.h"

#define BURST_MAX     (INT64_C(1) << 34)
#define REFILL_MAX_US INT64_C(1000000000000000) /* so that now + twice the refill time is exact too */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The largest burst that can be counted exactly at `tokens` per per_us. */
static int64_t largest_burst(int64_t tokens, int64_t per_us)
{
    CHECK(per_us > 0);
    int64_t most = EXACT_MAX / per_us;
    __int128 by_time = (__int128)REFILL_MAX_US * tokens / per_us; /* more than 64 bits hold if tokens are many */
    if (by_time < most) most = (int64_t)by_time;
    return most < BURST_MAX ? most : BURST_MAX;
}

static int configure(struct limit *limit, struct diag *diag)
{
    if (limit->count_denied)
        return diag_invalid(diag, "count_denied", "is not for buckets; leave it out, or use fixed_window");
    if (limit->debt && limit->max_wait_us > 0)
        return diag_invalid(diag, "debt", "is not for policies with max_wait; leave one of them out");
    if (limit->merge_back && limit->max_wait_us > 0)
        return diag_invalid(diag, "merge_back",
                            "is not for policies with max_wait, where later checks wait for the units that are "
                            "charged; leave one of them out");
    if (limit->limit == 0) {
        if (limit->burst != 0)
            return diag_invalid(diag, "burst", "with limit 0 means nothing; leave burst out, or raise limit");
        if (limit->max_wait_us != 0)
            return diag_invalid(diag, "max_wait", "with limit 0 means nothing; leave it out, or raise limit");

        limit->constants = (struct constants){.bucket = {.tokens = 1, .per_us = 1}};
        limit->full = limit->max_cost = 0;
        return 0;
    }
    if (limit->limit < 0 || limit->limit > LIMIT_MAX)
        return 0; /* refused because of the limit, not because of a burst derived from it */

    if (limit->burst == 0) limit->burst = limit->limit;
    int64_t divisor = gcd(limit->limit, limit->window_us);
    int64_t tokens = limit->limit / divisor, per_us = limit->window_us / divisor;
    limit->constants = (struct constants){.bucket = {.tokens = tokens, .per_us = per_us}};
    int64_t largest = largest_burst(tokens, per_us) / limit_depth(limit);
    if (largest < 1)
        return diag_invalid(diag, "window", "is too long for a bucket with %s; write a shorter one, or leave %s out",
                            limit_debt_name(limit), limit_debt_name(limit));
    if (limit->burst < 0 || limit->burst > largest)
        return diag_invalid(diag, "burst",
                            "%" PRId64 " (default: limit) cannot be counted exactly with this limit and window; "
                            "write burst: 1 to %" PRId64 "%s",
                            limit->burst, largest, ", or a rounder limit");

    /* like the burst, whose part is not available for the wait */
    int64_t burst_level = limit->burst * per_us, by_level = (EXACT_MAX - burst_level) / tokens;
    int64_t by_time = REFILL_MAX_US - burst_level / tokens, longest_us = by_level < by_time ? by_level : by_time;
    if (limit->max_wait_us < 0 || limit->max_wait_us > longest_us)
        return diag_invalid(diag, "max_wait",
                            "cannot be counted exactly with this limit, window and burst; write at most %" PRId64 "us",
                            longest_us);

    limit->full = limit->max_cost = limit->burst;
    int64_t admitted = burst_level + limit->max_wait_us * tokens;
    limit->constants.bucket.admitted = admitted;
    limit->constants.bucket.highest = admitted + limit_most_debt(limit) * per_us;
    return 0;
}

static void prepare(struct view *view)
{
    view->step = view->constants.bucket.per_us;
    view->capacity = view->constants.bucket.admitted;
    view->queue = view->capacity - view->limit->full * view->step;
}

static void view_state(struct view *view, struct state *state)
{
    int64_t tokens = view->constants.bucket.tokens, highest = view->constants.bucket.highest;
    int64_t ahead_us = state->bucket.tat_us - view->now;
    int64_t rest = state->bucket.rest < tokens ? state->bucket.rest : tokens - 1; /* of a policy with another limit */
    int64_t drained_us = highest / tokens;

    int64_t level = ahead_us < 0 ? 0 : ahead_us > drained_us ? highest + 1 : ahead_us * tokens + rest;
    view->found = level > 0;
    view->stale = level > highest;
    view->used = view->stale ? highest : level;
}

/* Of a policy with a higher burst or wait, and of a clock that stepped back, view leaves the highest level at most. */
static bool plausible(const struct view *view)
{
    return view->used <= view->constants.bucket.highest;
}

static int64_t save(const struct view *view, struct state *state)
{
    int64_t tokens = view->constants.bucket.tokens;
    state->bucket.tat_us = view->now + view->used / tokens;
    state->bucket.rest = view->used % tokens;
    return state->bucket.tat_us + (state->bucket.rest > 0);
}

static int64_t drain_ms(const struct view *view, int64_t level)
{
    return div_up(div_up(level, view->constants.bucket.tokens), 1000);
}

static int64_t reset_ms(const struct view *view)
{
    return drain_ms(view, view->used);
}

static int64_t retry_ms(const struct view *view, int64_t cost)
{
    return drain_ms(view, view->used + cost * view->step - view->capacity);
}

static int64_t delay_ms(const struct view *view)
{
    int64_t queued = view->used - (view->capacity - view->queue);
    return queued > 0 && view->limit->max_wait_us > 0 ? drain_ms(view, queued) : 0; /* without a wait it is a debt */
}

/* In whole tokens: those available, and those already owed, for which a check waits. */
static void describe(const struct view *view, struct state_terms *ret)
{
    state_add(ret, "tokens", limit_remaining(view));
    if (view->limit->max_wait_us > 0) state_add(ret, "queue_drains_in_ms", delay_ms(view));
    state_add(ret, "full_in_ms", reset_ms(view));
}

#define BUCKET_PARTS                                                                                                   \
    .kind = STATE_STRING, .refunds = true, .merges = true, .configure = configure, .prepare = prepare,                 \
    .view = view_state, .plausible = plausible, .save = save, .reset_ms = reset_ms, .retry_ms = retry_ms,              \
    .describe = describe

const struct algo_ops bucket_ops = {.name = "token_bucket", .key_tag = "tb1", BUCKET_PARTS};
const struct algo_ops leaky_bucket_ops = {.name = "leaky_bucket", .key_tag = "lb1", .delay_ms = delay_ms, BUCKET_PARTS};
