/*
 * first_hit.c: a window that starts with the first unit charged; twin of lua/first_hit.lua.
 * In the configuration: fixed_window with `start: first_hit`.
 *
 * The window is [t0, t0 + window); later units do not move its end. Bound: at most `limit` units in
 * each such window, twice that in any window of that length.
 *
 * Constants: a limit, b window in ms, d 1 = denied requests are counted. s1 = count, s2 = the end in
 * ms (0 = no window runs). State: v[0] count, v[1] end. A stored end further ahead than a window is
 * long (the clock stepped back, or the window was shortened) counts as now + window.
 */
#include <inttypes.h>
#include <stdio.h>

#include "limit/first_hit.h"

static int configure(struct limit *limit, struct diag *diag)
{
    if (limit->burst != 0)
        return diag_invalid(diag, FIELD_BURST, "is not for windows; leave it out, or use token_bucket");
    if (limit->window_us % 1000 != 0)
        return diag_invalid(diag, FIELD_WINDOW, "must be whole milliseconds; write e.g. 1ms");
    int64_t most = UINT32_MAX / (limit->debt ? 2 : 1); /* four bytes in Redis */
    if (limit->limit > most)
        return diag_invalid(diag, FIELD_LIMIT, "must be 0 to %" PRId64 " with start: first_hit%s", most,
                            limit->debt ? " and debt" : "");

    limit->a = limit->full = limit->max_cost = limit->limit;
    limit->b = limit->window_us / 1000;
    limit->c = 0;
    limit->d = limit->count_denied;
    return 0;
}

void first_hit_prepare(struct run *run)
{
    run->now = run->now_us / 1000;
    run->edge = run->now + run->b; /* the end of a window that starts now */
}

void first_hit_view(const struct run *run, struct state *raw, int64_t *ret_s1, int64_t *ret_s2, int64_t *ret_keep)
{
    bool runs = raw->v[1] > run->now;
    bool too_far = raw->v[1] > run->edge;
    *ret_s1 = runs ? raw->v[0] : 0;
    *ret_s2 = too_far ? run->edge : runs ? raw->v[1] : 0;
    *ret_keep = too_far ? -1 : runs;
}

static bool plausible(const struct run *run, int64_t s1, int64_t s2)
{
    if (s2 == 0) return s1 == 0;
    return s1 <= UINT32_MAX && s2 > run->now && s2 <= run->edge;
}

int64_t first_hit_room(const struct run *run, int64_t s1, int64_t s2)
{
    (void)s2;
    return run->a - s1;
}

void first_hit_charge(const struct run *run, int64_t *s1, int64_t *s2, int64_t units)
{
    if (*s2 == 0) *s2 = run->edge;
    *s1 = units < UINT32_MAX - *s1 ? *s1 + units : UINT32_MAX;
}

int first_hit_store(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep, int64_t units)
{
    (void)keep;
    first_hit_charge(run, &s1, &s2, units);
    raw->v[0] = s1;
    raw->v[1] = s2;
    return 0;
}

void first_hit_answer(const struct run *run, int64_t s1, int64_t s2, bool allowed, int64_t cost, int64_t wait,
                      struct decision *ret)
{
    (void)cost;
    (void)wait;
    ret->remaining = s1 < run->a ? run->a - s1 : 0;
    ret->reset_after_ms = s1 > 0 ? s2 - run->now : 0;
    if (!allowed && s2 > 0) ret->retry_after_ms = s2 - run->now;
}

void first_hit_describe(const struct run *run, int64_t s1, int64_t s2, struct state_terms *ret)
{
    state_say(ret, "count", s1);
    state_say(ret, "window_ends_in_ms", s2 > run->now ? s2 - run->now : 0); /* 0: none runs */
}

static int64_t refund(const struct run *run, struct state *raw, int64_t *s1, int64_t *s2, int64_t units,
                      int64_t made_us)
{
    (void)raw;
    if (*s2 == 0 || made_us / 1000 < *s2 - run->b) return 0; /* of a window that is over */
    int64_t back = units < *s1 ? units : *s1;
    *s1 -= back;
    if (*s1 == 0) *s2 = 0; /* without a unit no window runs */
    return back;
}

int64_t first_hit_expires(const struct run *run, const struct state *raw)
{
    (void)run;
    return raw->v[1] * 1000;
}

const struct algo_ops first_hit_ops = {
    .name = "fixed_window",
    .key_tag = "fh1",
    .kind = STATE_STRING,
    .has_s2 = true,
    .merges = true,
    .configure = configure,
    .prepare = first_hit_prepare,
    .view = first_hit_view,
    .plausible = plausible,
    .room = first_hit_room,
    .charge = first_hit_charge,
    .store = first_hit_store,
    .answer = first_hit_answer,
    .expires = first_hit_expires,
    .describe = first_hit_describe,
    .refund = refund,
};
