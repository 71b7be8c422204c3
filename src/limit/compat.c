/*
 * compat.c: the presets that share the keys of other limiters; C counterparts of lua/compat_*.lua, which have their
 * Redis commands.
 *
 * They decide like a native algorithm, and use its functions:
 *
 *   window-start-millis, rlaas-fixed   fixed_window, denials counted
 *   first-hit                          first_hit
 *   endpoint-window                    first_hit; of the denials only the first counts
 *   rlaas-sliding                      sliding_log in milliseconds
 *   endpoint-log                       sliding_log in milliseconds, denials counted
 *
 * In Redis the window of a key without one in its name ends when the key expires; the script sends
 * that moment as `extra`. In memory it is the native algorithm's state.
 *
 * Constants: a limit, b window in ms, d 1 = denials are counted. A check costs 0 or 1.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/units.h"
#include "limit/native.h"

#define UNITS_MAX  INT64_C(1000000)         /* of the logs, each an entry */
#define DIGITS_MAX INT64_C(999999999999999) /* of a value that the script takes for a count */

static const struct form {
    int64_t step_us; /* of windows: if the original uses EXPIRE, they are whole seconds */
    int64_t largest; /* limit */
    bool count_denied;
} forms[N_ALGOS] = {
    [ALGO_COMPAT_WINDOW_START] = {MS_US, UINT32_MAX, true},
    [ALGO_COMPAT_RLAAS_FIXED] = {SECOND_US, UINT32_MAX, true},
    [ALGO_COMPAT_RLAAS_SLIDING] = {MS_US, UNITS_MAX, false},
    [ALGO_COMPAT_FIRST_HIT] = {SECOND_US, UINT32_MAX, false},
    [ALGO_COMPAT_ENDPOINT_WINDOW] = {SECOND_US, UINT32_MAX - 1, true},
    [ALGO_COMPAT_ENDPOINT_LOG] = {SECOND_US, UNITS_MAX, true},
};

static int configure(struct limit *limit, struct diag *diag)
{
    const struct form *form = &forms[limit->algo];
    CHECK(form->step_us > 0);
    if (form->step_us == SECOND_US && limit->window_us % SECOND_US != 0)
        return diag_invalid(diag, "window", "must be whole seconds, as its keys expire; write e.g. 1s");
    if (limit->limit > form->largest)
        return diag_invalid(diag, "limit", "must be 0 to %" PRId64 " for %s", form->largest, limit_ops(limit)->name);
    if (limit->window_us % MS_US != 0)
        return diag_invalid(diag, "window", "must be whole milliseconds; write e.g. 1ms");

    limit->count_denied = form->count_denied;
    limit->full = limit->limit;
    limit->max_cost = limit->limit > 0;
    limit->constants = (struct constants){.window = {limit->limit, limit->window_us / MS_US, 0, form->count_denied}};
    return 0;
}

/* A log whose entries are milliseconds: the native one, at the start of this one. */
static void prepare_log(struct view *view)
{
    view->constants.log.window_us = view->limit->window_us;
    view->now = view->now_us - view->now_us % 1000;
    view->start = view->now;
}

/* It counts up to one above the limit and then no more. */
static int64_t endpoint_window_save(const struct view *view, struct state *state)
{
    struct view saved = *view;
    int64_t before = view->used - view->charged, most = view->limit->limit + 1;
    if (saved.used > most) saved.used = before > most ? before : most;
    return first_hit_save(&saved, state);
}

/* As the script does (lua/compat_window_start.lua). */
static void name_window_start(const struct view *view, char *out)
{
    snprintf(out, WINDOW_NAME_MAX, ":%" PRId64, view->number * view->constants.window.window_ms);
}

static void name_window_number(const struct view *view, char *out)
{
    snprintf(out, WINDOW_NAME_MAX, ":%" PRId64, view->number);
}

/* Others may have written any number and any expiry. */
static bool count_plausible(const struct view *view)
{
    return view->used <= DIGITS_MAX;
}

static bool first_hit_plausible(const struct view *view)
{
    return view->extra == 0 ? view->used == 0 : view->used <= DIGITS_MAX && view->extra > view->now;
}

/* And entries up to a window ahead, or between two milliseconds. */
static bool log_plausible(const struct view *view)
{
    int64_t window_us = view->constants.log.window_us;
    return view->used == 0 || (view->extra >= view->now - window_us && view->extra <= view->now + window_us);
}

#define WINDOW_PARTS                                                                                                   \
    .kind = STATE_STRING, .is_compat = true, .configure = configure, .prepare = fixed_window_prepare,                  \
    .view = fixed_window_view, .plausible = count_plausible, .save = fixed_window_save,                                \
    .reset_ms = fixed_window_reset_ms, .retry_ms = fixed_window_retry_ms, .describe = fixed_window_describe

#define FIRST_HIT_PARTS                                                                                                \
    .kind = STATE_STRING, .is_compat = true, .configure = configure, .has_extra = true, .prepare = first_hit_prepare,  \
    .view = first_hit_view, .plausible = first_hit_plausible, .reset_ms = first_hit_reset_ms,                          \
    .retry_ms = first_hit_retry_ms, .describe = first_hit_describe

#define LOG_PARTS                                                                                                      \
    .kind = STATE_OTHER, .is_compat = true, .configure = configure, .has_extra = true, .renews = true,                 \
    .has_wait = true, .wait_us = sliding_log_wait_us, .prepare = prepare_log, .view = sliding_log_view,                \
    .plausible = log_plausible, .reserve = sliding_log_reserve, .save = sliding_log_save,                              \
    .reset_ms = sliding_log_reset_ms, .retry_ms = sliding_log_retry_ms, .describe = sliding_log_describe

const struct algo_ops compat_window_start_ops = {
    .name = "window-start-millis",
    .compat_prefix = "ratelimiter",
    .name_window = name_window_start,
    WINDOW_PARTS,
};

const struct algo_ops compat_rlaas_fixed_ops = {
    .name = "rlaas-fixed",
    .compat_prefix = "rlaas:rate_limit",
    .name_window = name_window_number,
    WINDOW_PARTS,
};

const struct algo_ops compat_rlaas_sliding_ops = {
    .name = "rlaas-sliding",
    .compat_prefix = "rlaas:rate_limit",
    .merges = true,
    LOG_PARTS,
};

const struct algo_ops compat_first_hit_ops = {
    .name = "first-hit",
    .compat_prefix = "rate_limit",
    .merges = true,
    .save = first_hit_save,
    FIRST_HIT_PARTS,
};

const struct algo_ops compat_endpoint_window_ops = {
    .name = "endpoint-window",
    .compat_prefix = "rate_limit",
    .save = endpoint_window_save,
    FIRST_HIT_PARTS,
};

const struct algo_ops compat_endpoint_log_ops = {
    .name = "endpoint-log",
    .compat_prefix = "rate_limit",
    LOG_PARTS,
};
