/*
 * limit.c: what is common to all algorithms: their table, the completion of a configured limit, and
 * the one way a check is decided on a state that has been viewed.
 */
#include "limit/limit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/units.h"
#include "limit/lease_list.h"
#include "limit/time_ring.h"

/* Redis keys and the script's arithmetic stay exact below these (see algorithm files for their own bounds). */
#define WINDOW_MAX_US INT64_C(1000000000000000) /* 31 years */

#define ALGO(id, name, ops) extern const struct algo_ops ops;
#include "limit/algo.def"
#undef ALGO

const struct algo_ops *const algo_table[N_ALGOS] = {
#define ALGO(id, name, ops) [ALGO_##id] = &ops,
#include "limit/algo.def"
#undef ALGO
};

int algo_of_name(const char *name)
{
    if (strcmp(name, "gcra") == 0) return ALGO_BUCKET; /* its other name */
    for (int i = 0; i < N_ALGOS; i++)                  /* of two with one name (windows) the first is the default */
        if (!algo_table[i]->is_compat && strcmp(algo_table[i]->name, name) == 0) return i;
    return -1;
}

int compat_of_name(const char *name)
{
    for (int i = 0; i < N_ALGOS; i++)
        if (algo_table[i]->is_compat && strcmp(algo_table[i]->name, name) == 0) return i;
    return -1;
}

int diag_invalid(struct diag *diag, const char *setting, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    diag->setting = setting;
    vsnprintf(diag->text, sizeof diag->text, format, args);
    va_end(args);
    return -1;
}

/* A full bucket drains in window * burst / limit, and before that its debt and what waits; a window ends in its length.
 */
static uint32_t life_s(const struct limit *limit)
{
    int64_t most = limit->full + limit_most_debt(limit), life_us;
    int64_t windows = limit->limit > 0 ? div_up(most, limit->limit) : 1;
    bool is_endless = __builtin_mul_overflow(limit->window_us, windows + 1, &life_us) ||
                      __builtin_add_overflow(life_us, limit->max_wait_us, &life_us) ||
                      life_us / SECOND_US >= UINT32_MAX;
    return is_endless ? UINT32_MAX : (uint32_t)(life_us / SECOND_US) + 1;
}

/* More than warn_at percent are used if less than the rest of `full`, rounded up, remains. */
void limit_set_warn_at(struct limit *limit, uint32_t percent)
{
    limit->warn_at = percent;
    limit->near_below = percent > 0 ? div_up(limit->full * (100 - percent), 100) : 0;
}

int limit_prepare(struct limit *limit, struct diag *diag)
{
    const struct algo_ops *ops = limit_ops(limit);
    bool has_window = limit->algo != ALGO_CONCURRENCY; /* that one knows its slot_ttl */
    if (limit->calendar != NULL) limit->window_us = 1; /* it sets its own, see calendar_window.c */
    if (has_window && (limit->window_us < 1 || limit->window_us > WINDOW_MAX_US))
        return diag_invalid(diag, "window", "must be 1us to %" PRId64 "d", WINDOW_MAX_US / 86400 / 1000000);

    limit->window_ms = has_window ? div_up(limit->window_us, 1000) : 0;
    if (limit->burst != 0 && !limit_is_bucket(limit))
        return diag_invalid(diag, "burst", "is for buckets; leave it out, or use token_bucket");
    if (limit->max_wait_us != 0 && limit->algo != ALGO_LEAKY_BUCKET)
        return diag_invalid(diag, "max_wait", "is for leaky_bucket; leave it out");
    if (limit->lease_us > 0 && limit->count_denied)
        return diag_invalid(diag, "lease",
                            "is not for limits with count_denied, whose denials are charged in Redis; leave "
                            "one of them out");
    if (limit->lease_us > 0 && limit->counts_checks)
        return diag_invalid(diag, "counts", "must be units with lease, which takes units ahead; leave one of them out");
    if (limit->lease_us > 0 && limit_has_penalty(limit))
        return diag_invalid(diag, "lease",
                            "is not for limits with a penalty, whose breaches are known in Redis alone; leave one of "
                            "them out");
    if (ops->configure(limit, diag) != 0) return -1;
    if (limit->limit < 0 || limit->limit > LIMIT_MAX) /* an algorithm that takes less has refused it already */
        return diag_invalid(diag, "limit", "must be 0 to %" PRId64, LIMIT_MAX);
    limit->life_s = life_s(limit);
    limit_set_warn_at(limit, limit->warn_at);
    return 0;
}

void limit_set_key_head(struct limit *limit, const char *owner, uint32_t fingerprint)
{
    const struct algo_ops *ops = limit_ops(limit);
    char suffix[sizeof "@01234567"] = ""; /* no name has such a sign */
    if (fingerprint != 0) snprintf(suffix, sizeof suffix, "@%08" PRIx32, fingerprint);
    int len = ops->is_compat ? snprintf(limit->key_head, sizeof limit->key_head, "%s:", owner)
                             : snprintf(limit->key_head, sizeof limit->key_head, "%s:%s%s%s%s:", ops->key_tag, owner,
                                        limit->name[0] != '\0' ? "/" : "", limit->name, suffix);

    CHECK(len > 0 && (size_t)len < sizeof limit->key_head);
    limit->key_head_len = (uint16_t)len;
    limit->head_hash = hash_stable(HASH_STABLE_START + limit->algo, limit->key_head, limit->key_head_len);
}

void limit_share(struct limit *ret, const struct limit *limit, int64_t n)
{
    struct diag diag;
    *ret = *limit;
    if (n <= 1 || limit->limit == 0) return;

    ret->limit = div_up(limit->limit, n);
    ret->burst = div_up(limit->burst, n);
    if (limit_prepare(ret, &diag) == 0) return;

    /* Only a bucket refuses a smaller number: one that has no divisor in common with the window. */
    __int128 windows_us = (__int128)limit->window_us * n;
    ret->limit = limit->limit;
    ret->window_us = windows_us <= WINDOW_MAX_US ? (int64_t)windows_us : 0;
    if (limit_prepare(ret, &diag) == 0) return;

    /* Then a window of one unit, rounded up, and as much of the burst as it can count: one unit always. */
    __int128 unit_us = (windows_us + limit->limit - 1) / limit->limit;
    int64_t most_us = (WINDOW_MAX_US - limit->max_wait_us) / 2;
    ret->limit = 1;
    ret->window_us = unit_us < most_us ? (int64_t)unit_us : most_us > 0 ? most_us : 1;
    while (limit_prepare(ret, &diag) != 0 && ret->burst > 1) ret->burst /= 2;
}

int64_t limit_phase(const struct limit *limit, struct slice key)
{
    if (!limit->phase) return 0;

    uint64_t hash = hash_stable(HASH_STABLE_START, limit->key_head, limit->key_head_len);
    return (int64_t)(hash_stable(hash, key.data, key.len) % (uint64_t)limit->constants.window.window_ms);
}

void limit_constants(struct constants *ret, const struct limit *limit, int64_t phase_ms, int64_t max_wait_us,
                     int64_t wall_us)
{
    *ret = limit->constants;
    if (max_wait_us < limit->max_wait_us)
        ret->bucket.admitted -= (limit->max_wait_us - max_wait_us) * ret->bucket.tokens;
    if (phase_ms > 0) ret->window.offset_ms = ret->window.window_ms - phase_ms;
    if (limit_ops(limit)->constants != NULL) limit_ops(limit)->constants(limit, wall_us, ret);
}

/* Each field once: this is done for every limit that is asked about. The constants are the caller's. */
static void start_view(struct view *view, const struct limit *limit, int64_t now_us)
{
    view->limit = limit;
    view->now_us = view->now = now_us;
    view->number = view->edge = view->queue = view->start = view->since_us = 0;
    view->step = 1;
    view->capacity = limit->limit;

    view->used = view->extra = view->wait_us = view->charged = 0;
    view->state = NULL;
    view->found = view->stale = false;
    view->pause = (struct pause){0};
    view->pause_ms = 0;
    view->begins_pause = false;
    view->slot = NULL;
}

void limit_at(struct view *view, const struct limit *limit, const struct constants *constants, int64_t now_us)
{
    start_view(view, limit, now_us);
    view->constants = *constants;
    limit_ops(limit)->prepare(view);
}

void limit_here(struct view *view, const struct limit *limit, struct slice key, int64_t max_wait_us, int64_t now_us)
{
    start_view(view, limit, now_us);
    limit_constants(&view->constants, limit, limit_phase(limit, key), max_wait_us, now_us);
    limit_ops(limit)->prepare(view);
}

void limit_view(struct view *view, struct state *state)
{
    const struct algo_ops *ops = limit_ops(view->limit);
    view->state = state;
    view->wait_us = view->charged = 0;
    ops->view(view, state);
    if (ops->capacity != NULL) view->capacity = ops->capacity(view);
}

void limit_report(struct view *view, int64_t used, int64_t extra, int64_t wait_us)
{
    const struct algo_ops *ops = limit_ops(view->limit);
    view->state = NULL;
    view->used = used;
    view->extra = extra;
    view->wait_us = wait_us;
    view->charged = 0;
    if (ops->capacity != NULL) view->capacity = ops->capacity(view);
}

int64_t limit_fits_used(const struct view *view, int64_t debt)
{
    int64_t most = view->capacity + debt * view->step;
    return view->used < most ? (most - view->used) / view->step : 0;
}

/* A unit that is partly back counts as one: the answer is by how much `remaining` rises. */
int64_t limit_refund(struct view *view, struct state *state, int64_t units, int64_t charged_us)
{
    const struct algo_ops *ops = limit_ops(view->limit);
    if (ops->refund != NULL) return ops->refund(view, state, units, charged_us);
    if (charged_us < view->since_us) return 0;

    int64_t most = div_up(view->used, view->step), back = units < most ? units : most;
    view->used = view->used > back * view->step ? view->used - back * view->step : 0;
    if (view->used == 0 && view->start != 0) view->extra = 0; /* without a unit no window runs */
    return back;
}

int64_t limit_undo(struct view *view, struct state *state, int64_t units, int64_t charged_us, int64_t level)
{
    if (!limit_is_bucket(view->limit)) return limit_refund(view, state, units, charged_us);

    if (level > 0) {
        __int128 expected = level + (__int128)(charged_us - view->now_us) * view->constants.bucket.tokens;
        int64_t most = view->used == expected ? view->used / view->step : 0, back = units < most ? units : most;
        view->used -= back * view->step;
        return back;
    }

    int64_t passed_us = view->now_us > charged_us ? view->now_us - charged_us : 0;
    __int128 left = (__int128)units * view->step - (__int128)passed_us * view->constants.bucket.tokens;
    int64_t off = left < 0 ? 0 : left < view->used ? (int64_t)left : view->used;
    view->used -= off;
    return div_up(off, view->step);
}

int64_t limit_window_ms(const struct limit *limit, int64_t now_us)
{
    const struct algo_ops *ops = limit_ops(limit);
    return ops->window_ms != NULL ? ops->window_ms(limit, now_us) : limit->window_ms;
}

bool limit_pause(struct view *view, struct pause stored)
{
    int64_t now_ms = view->now_us / 1000;
    bool is_ahead = penalty_view(&view->limit->penalty, &stored, now_ms);
    view->pause = stored;
    view->pause_ms = stored.end_ms > now_ms ? stored.end_ms - now_ms : 0;
    view->begins_pause = false;
    return is_ahead;
}

/* A denied check that found nothing available while no pause ran. */
static __attribute__((noinline)) void begin_pause(struct view *view)
{
    view->pause = penalty_next(&view->limit->penalty, &view->pause, view->now_us / 1000);
    view->pause_ms = view->pause.end_ms - view->now_us / 1000;
    view->begins_pause = true;
}

void limit_answer(const struct view *view, int64_t granted, struct decision *ret)
{
    const struct algo_ops *ops = limit_ops(view->limit);
    int64_t reset_ms = ops->reset_ms(view), remaining = limit_remaining(view);
    if (limit_has_penalty(view->limit) && view->pause_ms > 0) {
        remaining = 0;
        if (reset_ms < view->pause_ms) reset_ms = view->pause_ms;
    }

    *ret = (struct decision){
        .allowed = true,
        .shadow_denied = false,
        .near = remaining < view->limit->near_below,
        .limit = view->limit->full,
        .remaining = remaining,
        .retry_after_ms = 0,
        .reset_after_ms = reset_ms,
        .delay_ms = ops->delay_ms != NULL ? ops->delay_ms(view) : 0,
        .granted = granted,
        .bound_by = NULL,
        .of = view->limit,
        .window_ms = limit_window_ms(view->limit, view->now_us),
        .of_reset_ms = reset_ms,
        .source = SOURCE_REDIS,
        .reason = REASON_NONE,
        .policy_version = 0,
    };
}

/* After limit_answer(). Apart, so that an admission saves no registers for it. */
static __attribute__((noinline)) void deny(struct view *view, int64_t cost, bool fits, int64_t units,
                                           struct decision *ret)
{
    ret->allowed = fits;
    ret->delay_ms = 0;

    /* counting a denial of another limit may have filled this one: then it denies the next check */
    bool passes_next = fits && (units == 0 || limit_fits(view, cost, 1) > 0);
    if (passes_next) return;

    const struct algo_ops *ops = limit_ops(view->limit);
    bool is_paused = limit_has_penalty(view->limit) && view->pause_ms > 0;
    ret->retry_after_ms = RETRY_NEVER;
    if (is_paused) ret->reason = REASON_PENALTY;
    if (cost > view->limit->full) return;

    if (is_paused && view->used + cost * view->step <= view->capacity) { /* the pause alone denies it */
        ret->retry_after_ms = view->pause_ms;
        return;
    }
    if (ops->has_wait && view->state != NULL) view->wait_us = ops->wait_us(view, cost);
    ret->retry_after_ms = ops->retry_ms(view, cost);
    if (is_paused && ret->retry_after_ms < view->pause_ms) ret->retry_after_ms = view->pause_ms;
}

int64_t limit_decide(struct view *view, int64_t cost, bool fits, bool admitted, struct decision *ret)
{
    CHECK(fits || !admitted);

    int64_t units = admitted || view->limit->count_denied ? cost : 0;
    if (units > 0) limit_charge(view, units);
    bool may_pause = !admitted && limit_has_penalty(view->limit) && cost > 0 && view->pause_ms == 0;
    if (may_pause && limit_remaining(view) < 1) begin_pause(view);
    limit_answer(view, admitted ? cost : 0, ret);
    if (!admitted) deny(view, cost, fits, units, ret);
    return units;
}

void state_fini(struct state *state)
{
    time_ring_free(state->log);
    lease_list_free(state->leases);
    *state = (struct state){0};
}
