/*
 * sliding_log.c: the time of every unit admitted; C counterpart of lua/sliding_log.lua.
 *
 * A unit of time t counts while t + window > now. At most `limit` units in *every* half-open window
 * of that length; the price is memory for up to `limit` times per key.
 *
 * Only the newest `limit` times are kept, expired or not: an older one can never decide anything,
 * because the newest ones alone already fill the limit whenever it would count. So nothing has to
 * be dropped when it expires, and a clock that steps back finds the log as it was. Times ahead of
 * now (the clock stepped back) are lowered to now, for good.
 *
 * Counted denials are pushed like admissions. Then one time more than the limit is kept: it shows that denials are
 * among the units that count. How many is not known, so a refund gives nothing back until the limit or less counts: it
 * must not free what a denial has taken.
 *
 * Constants: a limit, b window in us, d 1 = denied requests are counted. used = units that count now,
 * extra = the newest time (meaningless if used is 0).
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/assert.h"
#include "limit/native.h"
#include "limit/time_ring.h"

#define UNITS_MAX INT64_C(10000)
#define COST_MAX  INT64_C(1000)

static int configure(struct limit *limit, struct diag *diag)
{
    if (limit->limit > UNITS_MAX)
        return diag_invalid(diag, "limit", "must be 0 to %" PRId64 " for sliding_log, which stores each unit's time",
                            UNITS_MAX);

    limit->full = limit->limit;
    limit->max_cost = limit->limit < COST_MAX ? limit->limit : COST_MAX;
    limit->constants = (struct constants){.log = {limit->limit, limit->window_us, 0, limit->count_denied}};
    return 0;
}

static void prepare(struct view *view)
{
    view->start = view->now;
}

/* Times up to here have expired. */
static int64_t expired_us(const struct view *view)
{
    return view->now - view->constants.log.window_us;
}

void sliding_log_view(struct view *view, struct state *state)
{
    size_t len = time_ring_len(state->log);
    int64_t newest = len > 0 ? time_ring_at(state->log, len - 1) : 0;
    view->stale = len > 0 && newest > view->now;
    if (view->stale) time_ring_lower(state->log, view->now);

    view->used = (int64_t)(len - time_ring_count_until(state->log, expired_us(view)));
    view->extra = view->stale ? view->now : newest;
    view->found = view->stale || view->used > 0;
}

/* More than the limit are there if it was higher; the newest of them counts, and none lies ahead of now. */
static bool plausible(const struct view *view)
{
    return view->used == 0 || (view->extra > expired_us(view) && view->extra <= view->now);
}

/* So many times are kept. */
static size_t n_kept_at_most(const struct limit *limit)
{
    return (size_t)limit->limit + limit->count_denied;
}

static size_t pushed(const struct view *view, int64_t units)
{
    return (size_t)units < n_kept_at_most(view->limit) ? (size_t)units : n_kept_at_most(view->limit);
}

int sliding_log_reserve(const struct view *view, struct state *state, int64_t units)
{
    return time_ring_reserve(&state->log, pushed(view, units), n_kept_at_most(view->limit));
}

int64_t sliding_log_save(const struct view *view, struct state *state)
{
    size_t n = pushed(view, view->charged);
    if (n > 0) CHECK(time_ring_push(&state->log, view->now, n, n_kept_at_most(view->limit)) == 0);
    size_t len = time_ring_len(state->log);
    return len == 0 ? 0 : time_ring_at(state->log, len - 1) + view->constants.log.window_us;
}

int64_t sliding_log_reset_ms(const struct view *view)
{
    return view->used > 0 ? div_up(view->extra - expired_us(view), 1000) : 0;
}

/* The cost fits once all but limit - cost of the units in use have expired; those charged now are not in the log. */
int64_t sliding_log_wait_us(const struct view *view, int64_t cost)
{
    const struct time_ring *log = view->state->log;
    size_t expired = time_ring_count_until(log, expired_us(view));
    size_t nth = (size_t)(view->used + cost - view->limit->limit); /* 1-based, oldest first */
    bool stored = nth <= time_ring_len(log) - expired;
    int64_t opens = stored ? time_ring_at(log, expired + nth - 1) : view->now;
    return opens - expired_us(view);
}

int64_t sliding_log_retry_ms(const struct view *view, int64_t cost)
{
    (void)cost;
    return div_up(view->wait_us, 1000);
}

void sliding_log_describe(const struct view *view, struct state_terms *ret)
{
    int64_t left_us = view->extra - expired_us(view);
    bool shows_denied = view->limit->count_denied && view->used > view->limit->limit; /* but not how many there are */
    state_add(ret, "count", shows_denied ? view->limit->limit : view->used);
    if (view->used > 0) state_add(ret, "newest_expires_in_ms", div_up(left_us > 0 ? left_us : 0, 1000));
}

/* The newest go first, of those not later than the charge was: a unit used since must count to its end. */
static int64_t refund(struct view *view, struct state *state, int64_t units, int64_t charged_us)
{
    if (view->limit->count_denied && view->used > view->limit->limit) return 0;

    struct time_ring *log = state->log;
    size_t until = time_ring_count_until(log, charged_us), expired = time_ring_count_until(log, expired_us(view));
    size_t live = until > expired ? until - expired : 0;
    size_t back = (uint64_t)units < live ? (size_t)units : live, len = time_ring_len(log);
    if (back == 0) return 0;

    time_ring_remove(log, until - back, back);
    view->used -= (int64_t)back;
    view->extra = len > back ? time_ring_at(log, len - back - 1) : 0;
    return (int64_t)back;
}

const struct algo_ops sliding_log_ops = {
    .name = "sliding_log",
    .key_tag = "sl1",
    .kind = STATE_OTHER,
    .has_extra = true,
    .renews = true,
    .has_wait = true,
    .wait_us = sliding_log_wait_us,
    .refunds = true,
    .merges = true,
    .configure = configure,
    .prepare = prepare,
    .view = sliding_log_view,
    .plausible = plausible,
    .reserve = sliding_log_reserve,
    .save = sliding_log_save,
    .reset_ms = sliding_log_reset_ms,
    .retry_ms = sliding_log_retry_ms,
    .describe = sliding_log_describe,
    .refund = refund,
};
