/*
 * concurrency.c: so many at once. Every slot taken has a lease; twin of lua/concurrency.lua.
 *
 * A slot counts while its lease ends after now. Its owner's daemon renews the lease as long as the owner is connected,
 * so a lease that ends belonged to a daemon that is gone. Only the next slot taken removes leases that have ended:
 * until then nobody has their place, and a daemon that was late may still renew them. A lease that is not there any
 * more is never put back. Leases that end later than a whole slot_ttl from now (the clock stepped back, or slot_ttl
 * was lowered) are shortened to that, for good.
 *
 * A check takes one slot, whose id is in run->slot; costs are 0 and 1. As owners renew, retry and reset say what holds
 * if none of them did: the longest it can take.
 *
 * Constants: a limit, b slot_ttl in ms. Time in ms. s1 = leases that count now; s2 = wait * SHIFT + last: ms until a
 * slot comes free (0 while one is free) and until the last lease ends. State: leases.
 */
#include "limit/concurrency.h"

#include <inttypes.h>
#include <stdio.h>

#define SHIFT      (INT64_C(1) << 26) /* above TTL_MAX_US in ms */
#define SLOTS_MAX  INT64_C(10000)
#define TTL_MIN_US INT64_C(1000000)
#define TTL_MAX_US INT64_C(43200000000)

static int configure(struct limit *limit, struct diag *diag)
{
    if (limit->burst != 0) return diag_invalid(diag, FIELD_BURST, "is not for concurrency; leave it out");
    if (limit->limit > SLOTS_MAX)
        return diag_invalid(diag, FIELD_LIMIT, "must be 0 to %" PRId64 " for concurrency, which stores each slot",
                            SLOTS_MAX);

    if (limit->debt)
        return diag_invalid(diag, FIELD_DEBT, "is not for policies with a concurrency limit; leave one of them out");
    if (limit->window_us < TTL_MIN_US || limit->window_us > TTL_MAX_US || limit->window_us % 1000 != 0)
        return diag_invalid(diag, FIELD_SLOT_TTL, "must be 1s to 12h, in whole milliseconds");
    limit->a = limit->full = limit->limit;
    limit->max_cost = limit->limit > 0 ? 1 : 0;
    limit->b = limit->window_us / 1000;
    limit->c = limit->d = 0;
    return 0;
}

static void prepare(struct run *run)
{
    run->now = run->now_us / 1000;
    run->edge = run->now + run->b; /* no lease ends later */
}

static void view(const struct run *run, struct state *raw, int64_t *ret_s1, int64_t *ret_s2, int64_t *ret_keep)
{
    size_t len = lease_list_len(raw->leases), live = lease_list_count_after(raw->leases, run->now);
    bool ahead = len > 0 && lease_list_end(raw->leases, len - 1) > run->edge;
    if (ahead) lease_list_lower(raw->leases, run->edge);
    int64_t wait = 0, last = live > 0 ? lease_list_end(raw->leases, len - 1) - run->now : 0;
    if (run->a > 0 && (int64_t)live >= run->a) wait = lease_list_end(raw->leases, len - (size_t)run->a) - run->now;
    *ret_s1 = (int64_t)live;
    *ret_s2 = wait * SHIFT + last;
    *ret_keep = ahead ? -1 : live > 0;
}

/* More slots than there are now are taken where the limit was higher: then as many leases must end as are too many. */
static bool plausible(const struct run *run, int64_t s1, int64_t s2)
{
    int64_t wait = s2 / SHIFT, last = s2 % SHIFT;
    if (s1 == 0) return s2 == 0;
    return last >= 1 && last <= run->b && wait <= last && (wait >= 1) == (s1 >= run->a);
}

static int64_t room(const struct run *run, int64_t s1, int64_t s2)
{
    (void)s2;
    return run->a - s1;
}

static void charge(const struct run *run, int64_t *s1, int64_t *s2, int64_t units)
{
    *s1 += units;
    *s2 = run->b; /* the new lease ends last; how long to wait is asked before a charge only */
}

static int reserve(const struct run *run, struct state *raw, int64_t units)
{
    (void)units;
    if (lease_list_count_after(raw->leases, run->now) < lease_list_len(raw->leases)) return 0; /* one goes first */
    return lease_list_reserve(&raw->leases);
}

static int store(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep, int64_t units)
{
    (void)s1;
    (void)s2;
    (void)keep;
    if (units == 0) return 0;
    lease_list_drop_until(raw->leases, run->now);
    if (lease_list_reserve(&raw->leases) < 0) return -1;
    lease_list_insert(raw->leases, run->slot, run->edge);
    return 0;
}

static void answer(const struct run *run, int64_t s1, int64_t s2, bool allowed, int64_t cost, int64_t waits,
                   struct decision *ret)
{
    (void)cost;
    (void)waits;
    ret->remaining = s1 < run->a ? run->a - s1 : 0;
    ret->reset_after_ms = s2 % SHIFT;
    if (!allowed) ret->retry_after_ms = s2 / SHIFT;
}

static void describe(const struct run *run, int64_t s1, int64_t s2, struct state_terms *ret)
{
    (void)run;
    state_say(ret, "slots", s1);
    if (s1 > 0) state_say(ret, "last_lease_ends_in_ms", s2 % SHIFT);
}

/* A whole slot_ttl after the last lease has ended: as long a late daemon may renew it. */
static int64_t expires(const struct run *run, const struct state *raw)
{
    size_t len = lease_list_len(raw->leases);
    return len == 0 ? 0 : (lease_list_end(raw->leases, len - 1) + run->b) * 1000;
}

bool concurrency_release(struct state *raw, const char *id)
{
    return lease_list_remove(raw->leases, id);
}

bool concurrency_renew(const struct run *run, struct state *raw, const char *id)
{
    return lease_list_move(raw->leases, id, run->edge);
}

bool concurrency_is_empty(const struct state *raw)
{
    return lease_list_len(raw->leases) == 0;
}

const struct algo_ops concurrency_ops = {
    .name = "concurrency",
    .key_tag = "co1",
    .kind = STATE_OTHER,
    .has_s2 = true,
    .configure = configure,
    .prepare = prepare,
    .view = view,
    .plausible = plausible,
    .room = room,
    .charge = charge,
    .reserve = reserve,
    .store = store,
    .answer = answer,
    .expires = expires,
    .describe = describe,
};
