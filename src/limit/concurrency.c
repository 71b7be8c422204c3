/*
 * concurrency.c: so many at once. Every slot taken has a lease; C counterpart of lua/concurrency.lua.
 *
 * A slot counts while its lease ends after now. Its owner's daemon renews the lease as long as the owner is connected,
 * so a lease that ends belonged to a daemon that is gone. Only the next slot taken removes leases that have ended:
 * until then their place is free, and a daemon that was late may still renew them. A lease that is not there any
 * more is never put back. Leases that end later than a whole slot_ttl from now (the clock stepped back, or slot_ttl
 * was lowered) are shortened to that, for good.
 *
 * A check takes one slot, whose id is in view->slot; costs are 0 and 1. As owners renew, retry and reset say what holds
 * if none of them did: the longest it can take.
 *
 * Constants: a limit, b slot_ttl in ms. Time in ms. used = leases that count now; extra = wait * SHIFT + last: ms until
 * a slot comes free (0 while one is free) and until the last lease ends.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/assert.h"
#include "limit/lease_list.h"
#include "limit/limit.h"

#define SHIFT      (INT64_C(1) << 26) /* above TTL_MAX_US in ms */
#define SLOTS_MAX  INT64_C(10000)
#define TTL_MIN_US INT64_C(1000000)
#define TTL_MAX_US INT64_C(43200000000)

static int configure(struct limit *limit, struct diag *diag)
{
    if (limit->limit > SLOTS_MAX)
        return diag_invalid(diag, "limit", "must be 0 to %" PRId64 " for concurrency, which stores each slot",
                            SLOTS_MAX);

    if (limit->merge_back)
        return diag_invalid(diag, "merge_back",
                            "is not for policies with a concurrency limit, whose slots are held and not used up; leave "
                            "one of them out");
    if (limit->window_us < TTL_MIN_US || limit->window_us > TTL_MAX_US || limit->window_us % 1000 != 0)
        return diag_invalid(diag, "slot_ttl", "must be 1s to 12h, in whole milliseconds");

    limit->full = limit->limit;
    limit->max_cost = limit->limit > 0 ? 1 : 0;
    limit->constants = (struct constants){.slots = {.limit = limit->limit, .ttl_ms = limit->window_us / 1000}};
    return 0;
}

static void prepare(struct view *view)
{
    view->now = view->now_us / 1000;
    view->edge = view->now + view->constants.slots.ttl_ms; /* no lease ends later */
    view->start = view->constants.slots.ttl_ms;            /* the wait is only asked for before a charge */
}

static void view_state(struct view *view, struct state *state)
{
    size_t limit = (size_t)view->limit->limit, len = lease_list_len(state->leases);
    size_t live = lease_list_count_after(state->leases, view->now);
    view->stale = len > 0 && lease_list_end(state->leases, len - 1) > view->edge;
    if (view->stale) lease_list_lower(state->leases, view->edge);

    int64_t wait = 0, last = live > 0 ? lease_list_end(state->leases, len - 1) - view->now : 0;
    if (limit > 0 && live >= limit) wait = lease_list_end(state->leases, len - limit) - view->now;
    view->used = (int64_t)live;
    view->extra = wait * SHIFT + last;
    view->found = view->stale || live > 0;
}

/* If the limit was lowered, more slots may be taken than it allows: then the surplus leases must end first. */
static bool plausible(const struct view *view)
{
    int64_t wait = view->extra / SHIFT, last = view->extra % SHIFT;
    if (view->used == 0) return view->extra == 0;
    bool is_last = last >= 1 && last <= view->constants.slots.ttl_ms && wait <= last;
    return is_last && (wait >= 1) == (view->used >= view->limit->limit);
}

static int reserve(const struct view *view, struct state *state, int64_t units)
{
    (void)units;
    if (lease_list_count_after(state->leases, view->now) < lease_list_len(state->leases)) return 0; /* one goes first */
    return lease_list_reserve(&state->leases);
}

/* It expires a whole slot_ttl after the last lease has ended, because until then a late daemon may renew it. */
static int64_t save(const struct view *view, struct state *state)
{
    if (view->charged > 0) {
        lease_list_drop_until(state->leases, view->now);
        CHECK(lease_list_reserve(&state->leases) == 0);
        lease_list_insert(state->leases, view->slot, view->edge);
    }
    size_t len = lease_list_len(state->leases);
    return len == 0 ? 0 : (lease_list_end(state->leases, len - 1) + view->constants.slots.ttl_ms) * 1000;
}

static int64_t reset_ms(const struct view *view)
{
    return view->extra % SHIFT;
}

static int64_t retry_ms(const struct view *view, int64_t cost)
{
    (void)cost;
    return view->extra / SHIFT;
}

static void describe(const struct view *view, struct state_terms *ret)
{
    state_add(ret, "slots", view->used);
    if (view->used > 0) state_add(ret, "last_lease_ends_in_ms", view->extra % SHIFT);
}

const struct algo_ops concurrency_ops = {
    .name = "concurrency",
    .key_tag = "co1",
    .kind = STATE_OTHER,
    .has_extra = true,
    .renews = true,
    .configure = configure,
    .prepare = prepare,
    .view = view_state,
    .plausible = plausible,
    .reserve = reserve,
    .save = save,
    .reset_ms = reset_ms,
    .retry_ms = retry_ms,
    .describe = describe,
};
