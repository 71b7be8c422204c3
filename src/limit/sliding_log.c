/*
 * sliding_log.c: the time of every unit admitted; twin of lua/sliding_log.lua.
 *
 * A unit of time t counts while t + window > now. At most `limit` units in *every* half-open window
 * of that length; the price is memory for up to `limit` times per key.
 *
 * Only the newest `limit` times are kept, expired or not: an older one can never decide anything,
 * because the newest ones alone already fill the limit whenever it would count. So nothing has to
 * be dropped when it expires, and a clock that steps back finds the log as it was. Times ahead of
 * now (the clock stepped back) are lowered to now, for good.
 *
 * Counted denials are pushed like admissions: of a cost above the limit only `limit` times matter.
 *
 * Constants: a limit, b window in us, d 1 = denied requests are counted. s1 = units that count now,
 * s2 = the newest time (meaningless where s1 is 0). State: log.
 */
#include <inttypes.h>
#include <stdio.h>

#include "limit/sliding_log.h"
#include "limit/time_ring.h"

#define UNITS_MAX INT64_C(10000)
#define COST_MAX  INT64_C(1000)

static int configure(struct limit *limit, struct diag *diag)
{
    if (limit->burst != 0) return diag_invalid(diag, FIELD_BURST, "is not for logs; leave it out, or use token_bucket");
    if (limit->limit > UNITS_MAX)
        return diag_invalid(diag, FIELD_LIMIT,
                            "must be 0 to %" PRId64 " for sliding_log, which stores each unit's time", UNITS_MAX);

    limit->a = limit->full = limit->limit;
    limit->max_cost = limit->limit < COST_MAX ? limit->limit : COST_MAX;
    limit->b = limit->window_us;
    limit->c = 0;
    limit->d = limit->count_denied;
    return 0;
}

static void prepare(struct run *run)
{
    run->edge = run->now - run->b; /* times up to here have expired */
}

void sliding_log_view(const struct run *run, struct state *raw, int64_t *ret_s1, int64_t *ret_s2, int64_t *ret_keep)
{
    size_t len = time_ring_len(raw->log);
    int64_t newest = len > 0 ? time_ring_at(raw->log, len - 1) : 0;
    bool ahead = len > 0 && newest > run->now;
    if (ahead) time_ring_lower(raw->log, run->now);
    *ret_s1 = (int64_t)(len - time_ring_count_until(raw->log, run->edge));
    *ret_s2 = ahead ? run->now : newest;
    *ret_keep = ahead ? -1 : *ret_s1 > 0;
}

/* More than the limit count where it was higher; the newest of them counts, and none lies ahead of now. */
static bool plausible(const struct run *run, int64_t s1, int64_t s2)
{
    return s1 == 0 || (s2 > run->edge && s2 <= run->now);
}

int64_t sliding_log_room(const struct run *run, int64_t s1, int64_t s2)
{
    (void)s2;
    return run->a - s1;
}

static int64_t pushed(const struct run *run, int64_t units)
{
    return units < run->a ? units : run->a;
}

void sliding_log_charge(const struct run *run, int64_t *s1, int64_t *s2, int64_t units)
{
    *s1 += pushed(run, units);
    *s2 = run->now; /* not before the newest: view lowered that to now */
}

/* With s1 units counting, the denied cost included where it is counted, the cost fits once all but limit - cost of
 * them have expired. */
int64_t sliding_log_wait(const struct run *run, const struct state *raw, int64_t s1, int64_t cost)
{
    int64_t counting = s1 + (run->d ? cost : 0);
    size_t expired = time_ring_count_until(raw->log, run->edge);
    size_t nth = (size_t)(counting + cost - run->a); /* 1-based, oldest first */
    bool stored = nth <= time_ring_len(raw->log) - expired;
    int64_t opens = stored ? time_ring_at(raw->log, expired + nth - 1) : run->now;
    return opens + run->b - run->now;
}

int sliding_log_reserve(const struct run *run, struct state *raw, int64_t units)
{
    return time_ring_reserve(&raw->log, (size_t)pushed(run, units), (size_t)run->a);
}

int sliding_log_store(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep, int64_t units)
{
    (void)s1;
    (void)s2;
    (void)keep;
    int64_t n = pushed(run, units);
    return n == 0 ? 0 : time_ring_push(&raw->log, run->now, (size_t)n, (size_t)run->a);
}

void sliding_log_answer(const struct run *run, int64_t s1, int64_t s2, bool allowed, int64_t cost, int64_t waits,
                        struct decision *ret)
{
    (void)cost;
    ret->remaining = s1 < run->a ? run->a - s1 : 0;
    ret->reset_after_ms = s1 > 0 ? div_up(s2 + run->b - run->now, 1000) : 0;
    if (!allowed) ret->retry_after_ms = div_up(waits, 1000);
}

void sliding_log_describe(const struct run *run, int64_t s1, int64_t s2, struct state_terms *ret)
{
    state_say(ret, "count", s1);
    if (s1 > 0) state_say(ret, "newest_expires_in_ms", div_up(s2 > run->edge ? s2 - run->edge : 0, 1000));
}

/* The newest go first, of those not later than the charge was: a unit used since must count to its end. */
static int64_t refund(const struct run *run, struct state *raw, int64_t *s1, int64_t *s2, int64_t units,
                      int64_t made_us)
{
    size_t until = time_ring_count_until(raw->log, made_us), expired = time_ring_count_until(raw->log, run->edge);
    size_t live = until > expired ? until - expired : 0;
    size_t back = (uint64_t)units < live ? (size_t)units : live, len = time_ring_len(raw->log);
    if (back == 0) return 0;
    time_ring_remove(raw->log, until - back, back);
    *s1 -= (int64_t)back;
    *s2 = len > back ? time_ring_at(raw->log, len - back - 1) : 0;
    return (int64_t)back;
}

int64_t sliding_log_expires(const struct run *run, const struct state *raw)
{
    size_t len = time_ring_len(raw->log);
    return len == 0 ? 0 : time_ring_at(raw->log, len - 1) + run->b;
}

const struct algo_ops sliding_log_ops = {
    .name = "sliding_log",
    .key_tag = "sl1",
    .kind = STATE_OTHER,
    .has_s2 = true,
    .has_wait = true,
    .merges = true,
    .configure = configure,
    .prepare = prepare,
    .view = sliding_log_view,
    .plausible = plausible,
    .room = sliding_log_room,
    .charge = sliding_log_charge,
    .wait = sliding_log_wait,
    .reserve = sliding_log_reserve,
    .store = sliding_log_store,
    .answer = sliding_log_answer,
    .expires = sliding_log_expires,
    .describe = sliding_log_describe,
    .refund = refund,
};
