/*
 * first_hit.c: a window that starts with the first unit charged; C counterpart of lua/first_hit.lua.
 * In the configuration: fixed_window with `start: first_hit`.
 *
 * The window is [t0, t0 + window); later units do not move its end. Bound: at most `limit` units in
 * each such window, twice that in any window of that length.
 *
 * Constants: a limit, b window in ms, d 1 = denied requests are counted. used = count, extra = the end in
 * ms (0 = no window runs). A stored end further ahead than a window is long (the clock stepped back, or the window was
 * shortened) counts as now + window.
 */
#include <inttypes.h>
#include <stdio.h>

#include "limit/native.h"

static int configure(struct limit *limit, struct diag *diag)
{
    if (limit->window_us % 1000 != 0) return diag_invalid(diag, "window", "must be whole milliseconds; write e.g. 1ms");

    int64_t most = UINT32_MAX / limit_depth(limit); /* four bytes in Redis */
    if (limit->limit > most)
        return diag_invalid(diag, "limit", "must be 0 to %" PRId64 " with start: first_hit%s%s", most,
                            limit_depth(limit) > 1 ? " and " : "",
                            limit_depth(limit) > 1 ? limit_debt_name(limit) : "");

    limit->full = limit->max_cost = limit->limit;
    limit->constants = (struct constants){.window = {limit->limit, limit->window_us / 1000, 0, limit->count_denied}};
    return 0;
}

void first_hit_prepare(struct view *view)
{
    view->now = view->now_us / 1000;
    view->edge = view->now + view->constants.window.window_ms; /* the end of a window that starts now */
    view->start = view->edge;
}

void first_hit_view(struct view *view, struct state *state)
{
    int64_t end_ms = state->span.end_ms;
    view->found = end_ms > view->now;
    view->stale = end_ms > view->edge;
    view->used = view->found ? state->span.count : 0;
    view->extra = view->stale ? view->edge : view->found ? end_ms : 0;
    view->since_us = (view->extra - view->constants.window.window_ms) * 1000;
}

static bool plausible(const struct view *view)
{
    if (view->extra == 0) return view->used == 0;
    return view->used <= UINT32_MAX && view->extra > view->now && view->extra <= view->edge;
}

int64_t first_hit_save(const struct view *view, struct state *state)
{
    state->span.count = view->used < UINT32_MAX ? view->used : UINT32_MAX;
    state->span.end_ms = view->extra > 0 ? view->extra : view->edge;
    return state->span.end_ms * 1000;
}

int64_t first_hit_reset_ms(const struct view *view)
{
    return view->used > 0 ? view->extra - view->now : 0;
}

int64_t first_hit_retry_ms(const struct view *view, int64_t cost)
{
    (void)cost;
    return view->extra > 0 ? view->extra - view->now : 0;
}

void first_hit_describe(const struct view *view, struct state_terms *ret)
{
    state_add(ret, "count", view->used);
    state_add(ret, "window_ends_in_ms", view->extra > view->now ? view->extra - view->now : 0); /* 0: none runs */
}

const struct algo_ops first_hit_ops = {
    .name = "fixed_window",
    .key_tag = "fh1",
    .kind = STATE_STRING,
    .has_extra = true,
    .refunds = true,
    .merges = true,
    .configure = configure,
    .prepare = first_hit_prepare,
    .view = first_hit_view,
    .plausible = plausible,
    .save = first_hit_save,
    .reset_ms = first_hit_reset_ms,
    .retry_ms = first_hit_retry_ms,
    .describe = first_hit_describe,
};
