/*
 * calendar_window.c: windows of the calendar (an hour, day, week, month or year of a time zone); twin
 * of lua/calendar_window.lua. When they begin and end is told in calendar.h.
 *
 * The host works out the edges around its own clock, and the store's clock chooses among them: four
 * windows, of which the second is the host's. So a host whose clock is off by less than a window moves
 * no edge. Where the store's clock lies before the first edge, all before it is one window, of which only as much
 * as the host's is long can be given back; behind the last, windows as long as the last one follow.
 *
 * Bound: at most `limit` units in each window, twice that around an edge.
 *
 * Constants: a limit; b begin and c end of the host's window, d end of the next one, in ms. s1 = count,
 * s2 = the end in ms (0 = nothing charged in this window). State: v[0] count, v[1] end. A stored end
 * that is still to come, and not behind the present window's, is kept until it comes (another zone or a
 * shorter window has set it). One behind it (the clock stepped back, or a longer window) counts as none.
 */
#include "limit/calendar.h"
#include "limit/limit.h"

enum { COUNT_BITS = 40 }; /* five bytes in Redis */

static int configure(struct limit *limit, struct diag *diag)
{
    if (limit->calendar == NULL)
        return diag_invalid(diag, FIELD_WINDOW, "must be one of " CALENDAR_UNITS " with calendar_window");
    if (limit->burst != 0)
        return diag_invalid(diag, FIELD_BURST, "is not for windows; leave it out, or use token_bucket");
    if (limit->count_denied)
        return diag_invalid(diag, FIELD_COUNT_DENIED, "is not for calendar_window; leave it out, or use fixed_window");
    limit->window_us = calendar_longest_s(limit->calendar) * 1000000;
    limit->a = limit->full = limit->max_cost = limit->limit;
    limit->b = limit->c = limit->d = 0; /* constants() says */
    return 0;
}

static void constants(const struct limit *limit, int64_t wall_us, struct constants *ret)
{
    const struct calendar_edges *edges = calendar_around(limit->calendar, wall_us / 1000000);
    ret->b = edges->begin_s > 0 ? edges->begin_s * 1000 : 0; /* time is never before the epoch */
    ret->c = edges->end_s * 1000;
    ret->d = edges->next_s * 1000;
}

static void prepare(struct run *run)
{
    int64_t last_ms = run->d - run->c;
    run->now = run->now_us / 1000;
    run->edge = run->now < run->b   ? run->b
                : run->now < run->c ? run->c
                : run->now < run->d ? run->d
                                    : run->d + ((run->now - run->d) / last_ms + 1) * last_ms;
}

static void view(const struct run *run, struct state *raw, int64_t *ret_s1, int64_t *ret_s2, int64_t *ret_keep)
{
    bool too_far = raw->v[1] > run->edge;
    bool runs = raw->v[1] > run->now && !too_far;
    *ret_s1 = runs ? raw->v[0] : 0;
    *ret_s2 = runs ? raw->v[1] : 0;
    *ret_keep = too_far ? -1 : runs;
}

static bool plausible(const struct run *run, int64_t s1, int64_t s2)
{
    if (s2 == 0) return s1 == 0;
    return s1 < INT64_C(1) << COUNT_BITS && s2 > run->now && s2 <= run->edge;
}

static int64_t room(const struct run *run, int64_t s1, int64_t s2)
{
    (void)s2;
    return run->a - s1;
}

static void charge(const struct run *run, int64_t *s1, int64_t *s2, int64_t units)
{
    if (*s2 == 0) *s2 = run->edge;
    *s1 += units;
}

static int store(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep, int64_t units)
{
    (void)keep;
    charge(run, &s1, &s2, units);
    raw->v[0] = s1;
    raw->v[1] = s2;
    return 0;
}

static void answer(const struct run *run, int64_t s1, int64_t s2, bool allowed, int64_t cost, int64_t wait,
                   struct decision *ret)
{
    (void)cost;
    (void)wait;
    int64_t left_ms = s2 > run->now ? s2 - run->now : 0; /* a server may say anything */
    ret->remaining = room(run, s1, s2);
    ret->reset_after_ms = s1 > 0 ? left_ms : 0;
    if (!allowed) ret->retry_after_ms = left_ms;
}

static void describe(const struct run *run, int64_t s1, int64_t s2, struct state_terms *ret)
{
    state_say(ret, "count", s1);
    state_say(ret, "window_ends_in_ms", (s2 > run->now ? s2 : run->edge) - run->now);
}

/* When the window that ends at s2 began; what was charged before it is over. */
static int64_t begin_of(const struct run *run, int64_t s2)
{
    if (s2 <= run->b) return s2 - (run->c - run->b);
    return s2 <= run->c ? run->b : s2 <= run->d ? run->c : s2 - (run->d - run->c);
}

static int64_t refund(const struct run *run, struct state *raw, int64_t *s1, int64_t *s2, int64_t units,
                      int64_t made_us)
{
    (void)raw;
    if (*s2 == 0 || made_us / 1000 < begin_of(run, *s2)) return 0;
    int64_t back = units < *s1 ? units : *s1;
    *s1 -= back;
    if (*s1 == 0) *s2 = 0; /* without a unit no window runs */
    return back;
}

static int64_t expires(const struct run *run, const struct state *raw)
{
    (void)run;
    return raw->v[1] * 1000;
}

const struct algo_ops calendar_window_ops = {
    .name = "calendar_window",
    .key_tag = "cw1",
    .kind = STATE_STRING,
    .has_s2 = true,
    .merges = true,
    .configure = configure,
    .constants = constants,
    .prepare = prepare,
    .view = view,
    .plausible = plausible,
    .room = room,
    .charge = charge,
    .store = store,
    .answer = answer,
    .expires = expires,
    .describe = describe,
    .refund = refund,
};
