/*
 * sliding_counter.c: two counts in place of a log; twin of lua/sliding_counter.lua.
 *
 * Windows are aligned to the epoch. What the previous one admitted is taken to have come evenly, so
 * that at e ms into the present one a share of (window - e) / window of it still counts: a check
 * passes where that share and the present count leave room. The share is never rounded down, so the
 * estimate itself never goes above the limit.
 *
 * Bound: at most 2 * limit - 1 in any half-open interval of the window's length, but within y
 * windows after an edge at most limit * (1 + y): no double burst at an instant.
 *
 * Constants: a limit, b window in ms, c the largest count whose product with the window is exact.
 * s1 = count of the present window, s2 = count of the previous one. State: v[0] number of the window,
 * v[1] previous count, v[2] count. edge = end of the present window in ms. A stored window ahead of
 * the present one (the clock stepped back) counts as the present one.
 * Source: Cloudflare's "How we built rate limiting capable of scaling to millions of domains".
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/exact.h"
#include "limit/limit.h"

static int configure(struct limit *limit, struct diag *diag)
{
    if (limit->count_denied)
        return diag_invalid(diag, FIELD_COUNT_DENIED, "is not for sliding_counter; leave it out, or use sliding_log");
    if (limit->burst != 0)
        return diag_invalid(diag, FIELD_BURST, "is not for windows; leave it out, or use token_bucket");
    if (limit->window_us % 1000 != 0)
        return diag_invalid(diag, FIELD_WINDOW, "must be whole milliseconds; write e.g. 1ms");
    limit->b = limit->window_us / 1000;
    limit->c = EXACT_MAX / limit->b;
    if (limit->c > UINT32_MAX) limit->c = UINT32_MAX; /* four bytes in Redis */
    int64_t most = limit->c / (limit->debt ? 2 : 1);
    if (limit->limit > most)
        return diag_invalid(diag, FIELD_LIMIT,
                            "%" PRId64 " cannot be counted exactly with this window; write limit: 0 to %" PRId64
                            ", or a shorter window",
                            limit->limit, most);

    limit->a = limit->full = limit->max_cost = limit->limit;
    limit->d = 0;
    return 0;
}

static void prepare(struct run *run)
{
    run->now = run->now_us / 1000;
    run->edge = (run->now / run->b + 1) * run->b;
}

static void view(const struct run *run, struct state *raw, int64_t *ret_s1, int64_t *ret_s2, int64_t *ret_keep)
{
    int64_t window = run->now / run->b, count = 0, previous = 0;
    if (raw->v[0] >= window) {
        count = raw->v[2];
        previous = raw->v[1];
    } else if (raw->v[0] == window - 1) {
        previous = raw->v[2];
    }
    *ret_s1 = count < run->c ? count : run->c; /* more: of a policy with a larger limit */
    *ret_s2 = previous < run->c ? previous : run->c;
    *ret_keep = raw->v[0] > window ? -1 : count > 0 || previous > 0;
}

static bool plausible(const struct run *run, int64_t s1, int64_t s2)
{
    return s1 <= run->c && s2 <= run->c;
}

/* What of the previous window still counts, rounded up. */
static int64_t share(const struct run *run, int64_t s2)
{
    int64_t previous = s2 < run->c ? s2 : run->c; /* a server may say anything */
    return div_up(previous * (run->edge - run->now), run->b);
}

static int64_t room(const struct run *run, int64_t s1, int64_t s2)
{
    return run->a - s1 - share(run, s2);
}

static void charge(const struct run *run, int64_t *s1, int64_t *s2, int64_t units)
{
    (void)run;
    (void)s2;
    *s1 += units;
}

static int store(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep, int64_t units)
{
    (void)keep;
    raw->v[0] = run->now / run->b;
    raw->v[1] = s2;
    raw->v[2] = s1 + units;
    return 0;
}

/* When the estimate has fallen to what leaves room for `cost`: in this window, as the previous count's share shrinks,
 * or in the next one, as this count's does. */
static int64_t retry_ms(const struct run *run, int64_t s1, int64_t s2, int64_t cost)
{
    int64_t left = run->edge - run->now, spare = run->a - s1 - cost;
    if (spare >= 0) return left - spare * run->b / s2;
    int64_t until = run->b - (run->a - cost) * run->b / s1;
    return left + (until > 0 ? until : 0);
}

static void answer(const struct run *run, int64_t s1, int64_t s2, bool allowed, int64_t cost, int64_t wait,
                   struct decision *ret)
{
    (void)wait;
    int64_t left = run->edge - run->now;
    ret->remaining = room(run, s1, s2);
    ret->reset_after_ms = s1 > 0 ? left + run->b : s2 > 0 ? left : 0;
    if (!allowed && cost <= run->a) ret->retry_after_ms = retry_ms(run, s1, s2, cost);
}

static void describe(const struct run *run, int64_t s1, int64_t s2, struct state_terms *ret)
{
    state_say(ret, "count", s1);
    state_say(ret, "previous_count", s2);
    state_say(ret, "previous_still_counts", share(run, s2));
    state_say(ret, "window_ends_in_ms", run->edge - run->now);
}

/* Of the present window alone: what the previous one admitted is only a share by now. */
static int64_t refund(const struct run *run, struct state *raw, int64_t *s1, int64_t *s2, int64_t units,
                      int64_t made_us)
{
    (void)raw;
    (void)s2;
    if (made_us / 1000 < run->edge - run->b) return 0;
    int64_t back = units < *s1 ? units : *s1;
    *s1 -= back;
    return back;
}

static int64_t expires(const struct run *run, const struct state *raw)
{
    return (raw->v[0] + 2) * run->b * 1000;
}

const struct algo_ops sliding_counter_ops = {
    .name = "sliding_counter",
    .key_tag = "sc1",
    .kind = STATE_STRING,
    .has_s2 = true,
    .merges = true,
    .configure = configure,
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
