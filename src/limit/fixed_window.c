/*
 * fixed_window.c: windows aligned to the epoch; C counterpart of lua/fixed_window.lua.
 *
 * Window number w = floor(now / window). At most `limit` units are admitted in each; the count
 * starts at 0 with the next. Bound: 2 * limit in any window of that length (around an edge). With a
 * phase the windows of a key begin that much later, so that not all keys begin a new window at once.
 *
 * In Redis the state is one integer, (w mod 2^16) * 2^36 + count, so that one INCRBY still does the
 * common case; here the number is stored as a whole. A count saturates far above any limit.
 *
 * Constants: a limit, b window in ms, c 0 or b - phase (so that nothing is negative; w is one higher
 * then), d 1 = denied requests are counted. used = count.
 */
#include "limit/native.h"

#define COUNT_MAX  (INT64_C(1) << 35)
#define COUNT_BITS 36 /* that the value in Redis has for it */

static int configure(struct limit *limit, struct diag *diag)
{
    if (limit->window_us % 1000 != 0) return diag_invalid(diag, "window", "must be whole milliseconds; write e.g. 1ms");

    limit->full = limit->max_cost = limit->limit;
    limit->constants = (struct constants){.window = {limit->limit, limit->window_us / 1000, 0, limit->count_denied}};
    return 0;
}

void fixed_window_prepare(struct view *view)
{
    int64_t window_ms = view->constants.window.window_ms, offset_ms = view->constants.window.offset_ms;
    view->now = view->now_us / 1000;
    view->number = (view->now + offset_ms) / window_ms;
    view->edge = (view->number + 1) * window_ms - offset_ms;
    view->since_us = (view->edge - window_ms) * 1000;
}

void fixed_window_view(struct view *view, struct state *state)
{
    bool is_present = state->window.number == view->number;
    view->used = is_present ? state->window.count : 0;
    view->stale = state->window.number > view->number;
    view->found = is_present || view->stale;
}

static bool plausible(const struct view *view)
{
    return view->used < INT64_C(1) << COUNT_BITS;
}

int64_t fixed_window_save(const struct view *view, struct state *state)
{
    state->window.number = view->number;
    state->window.count = view->used < COUNT_MAX ? view->used : COUNT_MAX;
    return view->edge * 1000;
}

int64_t fixed_window_reset_ms(const struct view *view)
{
    return view->used > 0 ? view->edge - view->now : 0;
}

int64_t fixed_window_retry_ms(const struct view *view, int64_t cost)
{
    (void)cost;
    return view->edge - view->now;
}

void fixed_window_describe(const struct view *view, struct state_terms *ret)
{
    state_add(ret, "count", view->used);
    state_add(ret, "window_ends_in_ms", view->edge - view->now);
}

const struct algo_ops fixed_window_ops = {
    .name = "fixed_window",
    .key_tag = "fw1",
    .kind = STATE_STRING,
    .refunds = true,
    .merges = true,
    .plain = true,
    .configure = configure,
    .prepare = fixed_window_prepare,
    .view = fixed_window_view,
    .plausible = plausible,
    .save = fixed_window_save,
    .reset_ms = fixed_window_reset_ms,
    .retry_ms = fixed_window_retry_ms,
    .describe = fixed_window_describe,
};
