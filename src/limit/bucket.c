/*
 * bucket.c: token bucket, which is also GCRA, in exact integers; twin of lua/bucket.lua. With a wait it is the leaky
 * bucket of leaky_bucket.c.
 *
 * A bucket of `burst` tokens refills `limit` tokens per `window`, evenly. Divide limit and window
 * (in us) by their greatest common divisor: a tokens per b us. The bucket's emptiness is a *level*
 * in units of token * us: a charge of n adds n * b, each us takes a away, and it may not rise above
 * burst * b. So nothing is ever rounded. Where a check may wait m us, it may rise m * a higher: what lies
 * above burst * b has drained when the delay is over.
 *
 * The state is the theoretical arrival time of GCRA with its fraction: the level reaches zero at
 * tat + rem / a us. It does not depend on the policy's b, so a changed limit keeps what was used,
 * as time until full again.
 *
 * Bound: any half-open interval of length t admits at most burst + t * limit / window.
 *
 * Constants: a tokens, b us, c the level up to which this check is admitted, d the highest level that anything of the
 * policy may leave (higher: the clock stepped back). c = d where the check waits as long as the policy lets it; with
 * debt, d is that of one burst more.
 * s1 = level at now; s2 is not used. State: v[0] tat, v[1] rem.
 * Source: GCRA is ITU-T I.371's virtual scheduling; see lua/ALGORITHMS.md.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/exact.h"
#include "limit/bucket.h"

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
    __int128 by_time = (__int128)REFILL_MAX_US * a / b; /* more than 64 bits hold where a is large */
    if (by_time < most) most = (int64_t)by_time;
    return most < BURST_MAX ? most : BURST_MAX;
}

/* As largest_burst; what the burst has taken is not there for the wait. */
static int64_t largest_wait_us(const struct limit *limit)
{
    int64_t burst_level = limit->burst * limit->b;
    int64_t by_level = (EXACT_MAX - burst_level) / limit->a, by_time = REFILL_MAX_US - burst_level / limit->a;
    return by_level < by_time ? by_level : by_time;
}

int bucket_configure(struct limit *limit, struct diag *diag)
{
    if (limit->count_denied)
        return diag_invalid(diag, FIELD_COUNT_DENIED, "is not for buckets; leave it out, or use fixed_window");
    if (limit->debt && limit->max_wait_us > 0)
        return diag_invalid(diag, FIELD_DEBT, "is not for policies with max_wait; leave one of them out");
    if (limit->limit == 0) {
        if (limit->burst != 0)
            return diag_invalid(diag, FIELD_BURST, "with limit 0 means nothing; leave burst out, or raise limit");
        if (limit->max_wait_us != 0)
            return diag_invalid(diag, FIELD_MAX_WAIT, "with limit 0 means nothing; leave it out, or raise limit");
        limit->a = limit->b = 1;
        limit->c = limit->d = limit->full = limit->max_cost = 0;
        return 0;
    }
    if (limit->limit < 0 || limit->limit > LIMIT_MAX)
        return 0; /* is refused for that, not for a burst that follows from it */
    if (limit->burst == 0) limit->burst = limit->limit;
    int64_t common = gcd(limit->limit, limit->window_us);
    limit->a = limit->limit / common;
    limit->b = limit->window_us / common;
    int64_t largest = largest_burst(limit->a, limit->b) / (limit->debt ? 2 : 1);
    if (largest < 1)
        return diag_invalid(diag, FIELD_WINDOW,
                            "is too long for a bucket with debt; write a shorter one, or leave debt out");
    if (limit->burst < 0 || limit->burst > largest)
        return diag_invalid(diag, FIELD_BURST,
                            "%" PRId64 " (default: limit) cannot be counted exactly with this limit and window; "
                            "write burst: 1 to %" PRId64 "%s",
                            limit->burst, largest, ", or a rounder limit");

    int64_t longest_us = largest_wait_us(limit);
    if (limit->max_wait_us < 0 || limit->max_wait_us > longest_us)
        return diag_invalid(diag, FIELD_MAX_WAIT,
                            "cannot be counted exactly with this limit, window and burst; write at most %" PRId64 "us",
                            longest_us);

    limit->full = limit->max_cost = limit->burst;
    limit->c = limit->burst * limit->b + limit->max_wait_us * limit->a;
    limit->d = limit->c + limit_debt(limit) * limit->b;
    return 0;
}

void bucket_prepare(struct run *run)
{
    run->edge = run->d / run->a; /* us until the highest level is drained, rounded down */
}

void bucket_view(const struct run *run, struct state *raw, int64_t *ret_s1, int64_t *ret_s2, int64_t *ret_keep)
{
    int64_t ahead = raw->v[0] - run->now;
    int64_t rem = raw->v[1] < run->a ? raw->v[1] : run->a - 1; /* of a policy with another limit */
    int64_t level = ahead < 0 ? 0 : ahead > run->edge ? run->d + 1 : ahead * run->a + rem;
    *ret_keep = level > run->d ? -1 : level > 0;
    *ret_s1 = level > run->d ? run->d : level;
    *ret_s2 = 0;
}

/* Of a policy with a higher burst or wait, and of a clock that stepped back, view leaves d at most. */
bool bucket_plausible(const struct run *run, int64_t s1, int64_t s2)
{
    (void)s2;
    return s1 <= run->d;
}

int64_t bucket_room(const struct run *run, int64_t s1, int64_t s2)
{
    (void)s2;
    int64_t spare = run->c - s1;
    return spare >= 0 ? spare / run->b : -div_up(-spare, run->b);
}

void bucket_charge(const struct run *run, int64_t *s1, int64_t *s2, int64_t units)
{
    (void)s2;
    *s1 += units * run->b;
}

int bucket_store(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep, int64_t units)
{
    (void)s2;
    (void)keep;
    int64_t level = s1 + units * run->b;
    raw->v[0] = run->now + level / run->a;
    raw->v[1] = level % run->a;
    return 0;
}

/* What is above the burst is waited for. The remaining units are those without a wait. */
void bucket_answer(const struct run *run, int64_t s1, int64_t s2, bool allowed, int64_t cost, int64_t wait,
                   struct decision *ret)
{
    (void)wait;
    (void)s2;
    int64_t burst_level = run->limit->burst * run->b;
    ret->remaining = (burst_level - s1) / run->b;
    ret->reset_after_ms = div_up(div_up(s1, run->a), 1000);
    bool waits = s1 > burst_level && run->limit->max_wait_us > 0; /* else it is a debt */
    if (allowed && waits) ret->delay_ms = div_up(div_up(s1 - burst_level, run->a), 1000);
    if (allowed || cost > run->limit->burst) return;
    ret->retry_after_ms = div_up(div_up(s1 + cost * run->b - run->c, run->a), 1000);
}

/* In whole tokens: those that are there, and those that are owed already, which are waited for. */
void bucket_describe(const struct run *run, int64_t s1, int64_t s2, struct state_terms *ret)
{
    (void)s2;
    int64_t burst_level = run->limit->burst * run->b, above = s1 > burst_level ? s1 - burst_level : 0;
    state_say(ret, "tokens", above > 0 ? 0 : (burst_level - s1) / run->b);
    if (run->limit->max_wait_us > 0) state_say(ret, "queue_drains_in_ms", div_up(div_up(above, run->a), 1000));
    state_say(ret, "full_in_ms", div_up(div_up(s1, run->a), 1000));
}

/* A unit that is partly back already counts as one: what is answered is by how much `remaining` rises. */
int64_t bucket_refund(const struct run *run, struct state *raw, int64_t *s1, int64_t *s2, int64_t units,
                      int64_t made_us)
{
    (void)raw;
    (void)s2;
    (void)made_us;
    int64_t missing = div_up(*s1, run->b), back = units < missing ? units : missing;
    *s1 = *s1 > back * run->b ? *s1 - back * run->b : 0;
    return back;
}

int64_t bucket_expires(const struct run *run, const struct state *raw)
{
    (void)run;
    return raw->v[0] + (raw->v[1] > 0);
}

const struct algo_ops bucket_ops = {
    .name = "token_bucket",
    .key_tag = "tb1",
    .kind = STATE_STRING,
    .merges = true,
    .configure = bucket_configure,
    .prepare = bucket_prepare,
    .view = bucket_view,
    .plausible = bucket_plausible,
    .room = bucket_room,
    .charge = bucket_charge,
    .store = bucket_store,
    .answer = bucket_answer,
    .expires = bucket_expires,
    .describe = bucket_describe,
    .refund = bucket_refund,
};
