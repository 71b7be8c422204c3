/*
 * calendar_window.c: windows of the calendar (an hour, day, week, month or year of a time zone); C
 * counterpart of lua/calendar_window.lua. calendar.h says when they begin and end.
 *
 * The host works out the edges around its own clock, and the store's clock chooses among them: four
 * windows, of which the second is the host's. So a host whose clock is off by less than a window moves
 * no edge. If the store's clock lies before the first edge, all before it is one window, of which only as much
 * as the host's is long can be given back; behind the last, windows as long as the last one follow.
 *
 * Bound: at most `limit` units in each window, twice that around an edge.
 *
 * Constants: a limit; b begin and c end of the host's window, d end of the next one, in ms. used = count,
 * extra = the end in ms (0 = nothing charged in this window). A stored end
 * that is still to come, and not behind the present window's, is kept until it comes (another zone or a
 * shorter window has set it). One behind it (the clock stepped back, or a longer window) counts as none.
 */
#include "limit/calendar.h"
#include "limit/limit.h"

enum { COUNT_BITS = 40 }; /* five bytes in Redis */

static int configure(struct limit *limit, struct diag *diag)
{
    if (limit->calendar == NULL)
        return diag_invalid(diag, "window", "must be one of " CALENDAR_UNITS " with calendar_window");
    if (limit->count_denied)
        return diag_invalid(diag, "count_denied", "is not for calendar_window; leave it out, or use fixed_window");

    enum calendar_unit unit = calendar_unit(limit->calendar);
    if (limit->anchor != 0) {
        if (unit != CALENDAR_MONTH && unit != CALENDAR_YEAR)
            return diag_invalid(diag, "anchor",
                                "is of no use with this window; leave it out, or write window: month or window: year");
        limit->calendar = calendar_anchored(limit->calendar, limit->anchor / 100 % 100, limit->anchor % 100);
        if (limit->calendar == NULL)
            return diag_invalid(diag, "anchor", "needs memory, which is short; give the daemon more");
    }

    limit->window_us = calendar_longest_s(limit->calendar) * 1000000;
    limit->full = limit->max_cost = limit->limit;
    limit->constants = (struct constants){.calendar = {.limit = limit->limit}}; /* constants() sets the others */
    return 0;
}

static void constants(const struct limit *limit, int64_t wall_us, struct constants *ret)
{
    const struct calendar_edges *edges = calendar_around(limit->calendar, wall_us / 1000000);
    ret->calendar.begin_ms = edges->begin_s > 0 ? edges->begin_s * 1000 : 0; /* time is never before the epoch */
    ret->calendar.end_ms = edges->end_s * 1000;
    ret->calendar.next_ms = edges->next_s * 1000;
}

static void prepare(struct view *view)
{
    int64_t begin_ms = view->constants.calendar.begin_ms, end_ms = view->constants.calendar.end_ms;
    int64_t next_ms = view->constants.calendar.next_ms, last_ms = next_ms - end_ms;
    view->now = view->now_us / 1000;
    view->edge = view->now < begin_ms  ? begin_ms
                 : view->now < end_ms  ? end_ms
                 : view->now < next_ms ? next_ms
                                       : next_ms + ((view->now - next_ms) / last_ms + 1) * last_ms;
    view->start = view->edge;
}

static void view_state(struct view *view, struct state *state)
{
    int64_t end_ms = state->span.end_ms;
    view->stale = end_ms > view->edge;
    bool runs = end_ms > view->now && !view->stale;
    view->used = runs ? state->span.count : 0;
    view->extra = runs ? end_ms : 0;
    view->found = view->stale || runs;

    /* when the window began that ends at `extra` */
    int64_t first_ms = view->constants.calendar.begin_ms, second_ms = view->constants.calendar.end_ms;
    int64_t third_ms = view->constants.calendar.next_ms;
    int64_t began_ms = view->extra <= first_ms    ? view->extra - (second_ms - first_ms)
                       : view->extra <= second_ms ? first_ms
                       : view->extra <= third_ms  ? second_ms
                                                  : view->extra - (third_ms - second_ms);
    view->since_us = began_ms * 1000;
}

static bool plausible(const struct view *view)
{
    if (view->extra == 0) return view->used == 0;
    return view->used < INT64_C(1) << COUNT_BITS && view->extra > view->now && view->extra <= view->edge;
}

static int64_t save(const struct view *view, struct state *state)
{
    state->span.count = view->used;
    state->span.end_ms = view->extra > 0 ? view->extra : view->edge;
    return state->span.end_ms * 1000;
}

static int64_t retry_ms(const struct view *view, int64_t cost)
{
    (void)cost;
    return view->extra > view->now ? view->extra - view->now : 0; /* a server may say anything */
}

static int64_t reset_ms(const struct view *view)
{
    return view->used > 0 ? retry_ms(view, 0) : 0;
}

/* By the store's clock, however wrong the host's is. */
static int64_t window_ms(const struct limit *limit, int64_t now_us)
{
    const struct calendar_edges *edges = calendar_around(limit->calendar, now_us / 1000000);
    return (edges->end_s - edges->begin_s) * 1000;
}

static void describe(const struct view *view, struct state_terms *ret)
{
    state_add(ret, "count", view->used);
    state_add(ret, "window_ends_in_ms", (view->extra > view->now ? view->extra : view->edge) - view->now);
}

const struct algo_ops calendar_window_ops = {
    .name = "calendar_window",
    .key_tag = "cw1",
    .kind = STATE_STRING,
    .has_extra = true,
    .refunds = true,
    .merges = true,
    .configure = configure,
    .constants = constants,
    .prepare = prepare,
    .view = view_state,
    .plausible = plausible,
    .save = save,
    .reset_ms = reset_ms,
    .retry_ms = retry_ms,
    .window_ms = window_ms,
    .describe = describe,
};
