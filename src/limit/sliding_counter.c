/*
 * sliding_counter.c: two counts in place of a log; C counterpart of lua/sliding_counter.lua.
 *
 * Windows are aligned to the epoch. What the previous one admitted is taken to have come evenly, so
 * that at e ms into the present one a share of (window - e) / window of it still counts: a check
 * passes if that share and the present count leave space. The share is never rounded down, so the
 * estimate itself never goes above the limit.
 *
 * Bound: at most 2 * limit - 1 in any half-open interval of the window's length, but within y
 * windows after an edge at most limit * (1 + y): no double burst at an instant.
 *
 * Constants: a limit, b window in ms, c the largest count whose product with the window is exact.
 * used = count of the present window, extra = count of the previous one, whose share is not there to be used. A stored
 * window ahead of the present one (the clock stepped back) counts as the present one.
 * Source: Cloudflare's "How we built rate limiting capable of scaling to millions of domains".
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/exact.h"
#include "limit/limit.h"

static int configure(struct limit *limit, struct diag *diag)
{
    if (limit->count_denied)
        return diag_invalid(diag, "count_denied", "is not for sliding_counter; leave it out, or use sliding_log");
    if (limit->window_us % 1000 != 0) return diag_invalid(diag, "window", "must be whole milliseconds; write e.g. 1ms");

    int64_t window_ms = limit->window_us / 1000, count_max = EXACT_MAX / window_ms;
    if (count_max > UINT32_MAX) count_max = UINT32_MAX; /* four bytes in Redis */
    int64_t most = count_max / limit_depth(limit);
    if (limit->limit > most)
        return diag_invalid(diag, "limit",
                            "%" PRId64 " cannot be counted exactly with this window; write limit: 0 to %" PRId64
                            ", or a shorter window",
                            limit->limit, most);

    limit->full = limit->max_cost = limit->limit;
    limit->constants = (struct constants){.counter = {limit->limit, window_ms, count_max, 0}};
    return 0;
}

static void prepare(struct view *view)
{
    int64_t window_ms = view->constants.counter.window_ms;
    view->now = view->now_us / 1000;
    view->number = view->now / window_ms;
    view->edge = (view->number + 1) * window_ms;
    view->since_us = (view->edge - window_ms) * 1000;
}

static void view_state(struct view *view, struct state *state)
{
    int64_t number = state->counter.number, count_max = view->constants.counter.count_max, count = 0, previous = 0;
    if (number >= view->number) {
        count = state->counter.count;
        previous = state->counter.previous;
    } else if (number == view->number - 1) {
        previous = state->counter.count;
    }

    view->used = count < count_max ? count : count_max; /* more: of a policy with a larger limit */
    view->extra = previous < count_max ? previous : count_max;
    view->stale = number > view->number;
    view->found = view->stale || count > 0 || previous > 0;
}

static bool plausible(const struct view *view)
{
    return view->used <= view->constants.counter.count_max && view->extra <= view->constants.counter.count_max;
}

/* What of the previous window still counts, rounded up. */
static int64_t share(const struct view *view)
{
    int64_t count_max = view->constants.counter.count_max;
    int64_t previous = view->extra < count_max ? view->extra : count_max; /* a server may say anything */
    return div_up(previous * (view->edge - view->now), view->constants.counter.window_ms);
}

static int64_t capacity(const struct view *view)
{
    return view->extra > 0 ? view->limit->limit - share(view) : view->limit->limit;
}

static int64_t save(const struct view *view, struct state *state)
{
    state->counter.number = view->number;
    state->counter.previous = view->extra;
    state->counter.count = view->used;
    return (view->number + 2) * view->constants.counter.window_ms * 1000;
}

static int64_t reset_ms(const struct view *view)
{
    int64_t left_ms = view->edge - view->now;
    return view->used > 0 ? left_ms + view->constants.counter.window_ms : view->extra > 0 ? left_ms : 0;
}

/* When the estimate leaves `cost` units free: in this window, while the previous count's share shrinks, or in the next
 * one, while this count's share does. */
static int64_t retry_ms(const struct view *view, int64_t cost)
{
    int64_t window_ms = view->constants.counter.window_ms, left_ms = view->edge - view->now;
    int64_t spare = view->limit->limit - cost - view->used;
    if (spare >= 0) return left_ms - spare * window_ms / view->extra;
    int64_t until_ms = window_ms - (view->limit->limit - cost) * window_ms / view->used;
    return left_ms + (until_ms > 0 ? until_ms : 0);
}

static void describe(const struct view *view, struct state_terms *ret)
{
    state_add(ret, "count", view->used);
    state_add(ret, "previous_count", view->extra);
    state_add(ret, "previous_still_counts", share(view));
    state_add(ret, "window_ends_in_ms", view->edge - view->now);
}

/* Units of the previous window cannot be given back: only a share of them still counts. */
const struct algo_ops sliding_counter_ops = {
    .name = "sliding_counter",
    .key_tag = "sc1",
    .kind = STATE_STRING,
    .has_extra = true,
    .refunds = true,
    .merges = true,
    .configure = configure,
    .prepare = prepare,
    .view = view_state,
    .plausible = plausible,
    .capacity = capacity,
    .save = save,
    .reset_ms = reset_ms,
    .retry_ms = retry_ms,
    .describe = describe,
};
