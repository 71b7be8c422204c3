/*
 * fixed_window.c: windows aligned to the epoch; twin of lua/fixed_window.lua.
 *
 * Window number w = floor(now / window). At most `limit` units are admitted in each; the count
 * starts at 0 with the next. Bound: 2 * limit in any window of that length (around an edge). With a
 * phase the windows of a key begin that much later, so that not all keys start afresh at once.
 *
 * In Redis the state is one integer, (w mod 2^16) * 2^36 + count, so that one INCRBY still does the
 * common case; here the number stands whole. A count saturates far above any limit.
 *
 * Constants: a limit, b window in ms, c 0 or b - phase (so that nothing is negative; w is one higher
 * then), d 1 = denied requests are counted. s1 = count; s2 is not used.
 * State: v[0] w, v[1] count. edge = end of the present window in ms.
 */
#include "limit/fixed_window.h"

#define COUNT_MAX  (INT64_C(1) << 35)
#define COUNT_BITS 36 /* that the value in Redis has for it */

static int configure(struct limit *limit, struct diag *diag)
{
    if (limit->burst != 0)
        return diag_invalid(diag, FIELD_BURST, "is not for windows; leave it out, or use token_bucket");
    if (limit->window_us % 1000 != 0)
        return diag_invalid(diag, FIELD_WINDOW, "must be whole milliseconds; write e.g. 1ms");
    limit->a = limit->full = limit->max_cost = limit->limit;
    limit->b = limit->window_us / 1000;
    limit->c = 0;
    limit->d = limit->count_denied;
    return 0;
}

static int64_t number(const struct run *run)
{
    return (run->now + run->c) / run->b;
}

static int64_t end_of(const struct run *run, int64_t window)
{
    return (window + 1) * run->b - run->c;
}

void fixed_window_prepare(struct run *run)
{
    run->now = run->now_us / 1000;
    run->edge = end_of(run, number(run));
}

void fixed_window_view(const struct run *run, struct state *raw, int64_t *ret_s1, int64_t *ret_s2, int64_t *ret_keep)
{
    int64_t window = number(run);
    *ret_s1 = raw->v[0] == window ? raw->v[1] : 0;
    *ret_s2 = 0;
    *ret_keep = raw->v[0] > window ? -1 : raw->v[0] == window;
}

static bool plausible(const struct run *run, int64_t s1, int64_t s2)
{
    (void)run;
    (void)s2;
    return s1 < INT64_C(1) << COUNT_BITS;
}

int64_t fixed_window_room(const struct run *run, int64_t s1, int64_t s2)
{
    (void)s2;
    return run->a - s1;
}

void fixed_window_charge(const struct run *run, int64_t *s1, int64_t *s2, int64_t units)
{
    (void)run;
    (void)s2;
    *s1 = units < COUNT_MAX - *s1 ? *s1 + units : COUNT_MAX;
}

int fixed_window_store(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep, int64_t units)
{
    (void)keep;
    fixed_window_charge(run, &s1, &s2, units);
    raw->v[0] = number(run);
    raw->v[1] = s1;
    return 0;
}

void fixed_window_answer(const struct run *run, int64_t s1, int64_t s2, bool allowed, int64_t cost, int64_t wait,
                         struct decision *ret)
{
    (void)s2;
    (void)cost;
    (void)wait;
    ret->remaining = s1 < run->a ? run->a - s1 : 0;
    ret->reset_after_ms = s1 > 0 ? run->edge - run->now : 0;
    if (!allowed) ret->retry_after_ms = run->edge - run->now;
}

void fixed_window_describe(const struct run *run, int64_t s1, int64_t s2, struct state_terms *ret)
{
    (void)s2;
    state_say(ret, "count", s1);
    state_say(ret, "window_ends_in_ms", run->edge - run->now);
}

static int64_t refund(const struct run *run, struct state *raw, int64_t *s1, int64_t *s2, int64_t units,
                      int64_t made_us)
{
    (void)raw;
    (void)s2;
    if (made_us / 1000 < run->edge - run->b) return 0; /* of a window that is over */
    int64_t back = units < *s1 ? units : *s1;
    *s1 -= back;
    return back;
}

int64_t fixed_window_expires(const struct run *run, const struct state *raw)
{
    return end_of(run, raw->v[0]) * 1000;
}

const struct algo_ops fixed_window_ops = {
    .name = "fixed_window",
    .key_tag = "fw1",
    .kind = STATE_STRING,
    .merges = true,
    .plain = true,
    .configure = configure,
    .prepare = fixed_window_prepare,
    .view = fixed_window_view,
    .plausible = plausible,
    .room = fixed_window_room,
    .charge = fixed_window_charge,
    .store = fixed_window_store,
    .answer = fixed_window_answer,
    .expires = fixed_window_expires,
    .describe = fixed_window_describe,
    .refund = refund,
};
