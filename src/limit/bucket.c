/*
 * bucket.c: token bucket, which is also GCRA, in exact integers; twin of lua/bucket.lua.
 *
 * A bucket of `burst` tokens refills `limit` tokens per `window`, evenly. Divide limit and window
 * (in us) by their greatest common divisor: a tokens per b us. The bucket's emptiness is a *level*
 * in units of token * us: a charge of n adds n * b, each us takes a away, and it may not rise above
 * most = burst * b. So nothing is ever rounded.
 *
 * The state is the theoretical arrival time of GCRA with its fraction: the level reaches zero at
 * tat + rem / a us. It does not depend on the policy's b, so a changed limit keeps what was used,
 * as time until full again.
 *
 * Bound: any half-open interval of length t admits at most burst + t * limit / window.
 *
 * Constants: a tokens, b us, c burst. s1 = level at now; s2 is not used. State: v[0] tat, v[1] rem.
 * Source: GCRA is ITU-T I.371's virtual scheduling; see lua/ALGORITHMS.md.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "limit/limit.h"

#define EXACT_MAX     ((INT64_C(1) << 53) - 1) /* Lua counts in doubles */
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

static int64_t largest_burst(int64_t a, int64_t b)
{
    CHECK(b > 0);
    int64_t most = EXACT_MAX / b;
    int64_t by_time = (int64_t)((__int128)REFILL_MAX_US * a / b);
    if (by_time < most) most = by_time;
    return most < BURST_MAX ? most : BURST_MAX;
}

static const char *configure(struct limit *limit, char *text, size_t size)
{
    if (limit->count_denied) return "count_denied is not for token buckets; leave it out, or use fixed_window";
    if (limit->limit == 0) {
        if (limit->burst != 0) return "burst with limit 0 means nothing; leave burst out, or raise limit";
        limit->a = limit->b = 1;
        limit->c = limit->full = limit->max_cost = 0;
        return NULL;
    }
    if (limit->burst == 0) limit->burst = limit->limit;
    int64_t common = gcd(limit->limit, limit->window_us);
    limit->a = limit->limit / common;
    limit->b = limit->window_us / common;
    int64_t largest = largest_burst(limit->a, limit->b);
    if (limit->burst < 0 || limit->burst > largest) {
        snprintf(text, size,
                 "burst %" PRId64 " (default: limit) cannot be counted exactly with this limit and window; "
                 "write burst: 1 to %" PRId64 "%s",
                 limit->burst, largest, ", or a rounder limit");
        return text;
    }
    limit->c = limit->full = limit->max_cost = limit->burst;
    return NULL;
}

static void prepare(struct run *run)
{
    run->edge = run->b * run->c / run->a; /* us until an empty bucket is full, rounded down */
}

static void view(const struct run *run, struct state *raw, int64_t *ret_s1, int64_t *ret_s2, int64_t *ret_keep)
{
    int64_t most = run->b * run->c;
    int64_t ahead = raw->v[0] - run->now;
    int64_t rem = raw->v[1] < run->a ? raw->v[1] : run->a - 1; /* of a policy with another limit */
    int64_t level = ahead < 0 ? 0 : ahead > run->edge ? most + 1 : ahead * run->a + rem;
    *ret_keep = level > most ? -1 : level > 0;
    *ret_s1 = level > most ? most : level;
    *ret_s2 = 0;
}

static int64_t room(const struct run *run, int64_t s1, int64_t s2)
{
    (void)s2;
    return (run->b * run->c - s1) / run->b;
}

static void charge(const struct run *run, int64_t *s1, int64_t *s2, int64_t units)
{
    (void)s2;
    *s1 += units * run->b;
}

static int store(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep, int64_t units)
{
    (void)s2;
    (void)keep;
    int64_t level = s1 + units * run->b;
    raw->v[0] = run->now + level / run->a;
    raw->v[1] = level % run->a;
    return 0;
}

static void answer(const struct run *run, int64_t s1, int64_t s2, bool allowed, int64_t cost, int64_t wait,
                   struct decision *ret)
{
    (void)wait;
    ret->remaining = room(run, s1, s2);
    ret->reset_after_ms = div_up(div_up(s1, run->a), 1000);
    if (allowed || cost > run->c) return;
    ret->retry_after_ms = div_up(div_up(s1 - (run->c - cost) * run->b, run->a), 1000);
}

static int64_t expires(const struct run *run, const struct state *raw)
{
    (void)run;
    return raw->v[0] + (raw->v[1] > 0);
}

const struct algo_ops bucket_ops = {
    .name = "token_bucket",
    .key_tag = "tb1",
    .kind = STATE_STRING,
    .merges = true,
    .configure = configure,
    .prepare = prepare,
    .view = view,
    .room = room,
    .charge = charge,
    .store = store,
    .answer = answer,
    .expires = expires,
};
