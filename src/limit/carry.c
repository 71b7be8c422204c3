/* carry.c: compares the states of a limit before and after a change, for policy/policy_diff.c. */
#include "limit/carry.h"

#include <string.h>

#include "base/units.h"
#include "limit/limit.h"

/* A key of its own never meets another one, so any will do. */
static const struct slice any_key = {(const uint8_t *)"", 0};

bool limit_same_head(const struct limit *before, const struct limit *after, bool in_redis)
{
    const struct algo_ops *x = limit_ops(before), *y = limit_ops(after);
    bool same_form = before->algo == after->algo || (in_redis && x->is_compat && y->is_compat && x->kind == y->kind &&
                                                     x->name_window == y->name_window);
    return same_form && strcmp(before->key_head, after->key_head) == 0;
}

/* A state at now_us of a key that has used everything. False without memory. Returns in `ret_ends_us` when it equals a
 * fresh one again. */
static bool charge_all(const struct limit *limit, int64_t now_us, struct state *state, int64_t *ret_ends_us)
{
    const struct algo_ops *ops = limit_ops(limit);
    struct view view;
    limit_here(&view, limit, any_key, limit->max_wait_us, now_us);
    limit_view(&view, state);

    /* A list's last entry says it all, and the others would take memory. */
    int64_t units = ops->reserve != NULL ? 1 : limit->full;
    if (ops->reserve != NULL && ops->reserve(&view, state, units) < 0) return false;
    limit_charge(&view, units);
    *ret_ends_us = ops->save(&view, state);
    return true;
}

/* Slots are held or not, whatever the limit is; a limit of 0 has never counted anything. */
static bool has_states(const struct limit *limit)
{
    return limit->algo != ALGO_CONCURRENCY && limit->limit > 0;
}

enum carry limit_carry(const struct limit *before, const struct limit *after, int64_t now_us)
{
    struct state state = {0};
    struct view view;
    int64_t ends_us;
    if (!has_states(before) || !has_states(after)) return CARRY_ALL;
    if (before->phase != after->phase && before->window_us == after->window_us) return CARRY_SOME;

    bool is_carried = true;
    if (charge_all(before, now_us, &state, &ends_us)) {
        limit_here(&view, after, any_key, after->max_wait_us, now_us);
        limit_view(&view, &state);
        is_carried = view.used > 0;
    }
    state_fini(&state);
    return is_carried ? CARRY_ALL : CARRY_NONE;
}

int64_t limit_states_end_us(const struct limit *limit, int64_t now_us)
{
    struct state state = {0};
    int64_t ends_us = now_us;
    bool is_calendar = limit->calendar != NULL; /* its longest window is much longer than most */
    if (is_calendar && has_states(limit) && charge_all(limit, now_us, &state, &ends_us)) {
        state_fini(&state);
        return ends_us;
    }
    state_fini(&state);
    return limit->life_s != UINT32_MAX ? now_us + limit->life_s * (int64_t)SECOND_US : INT64_MAX;
}
