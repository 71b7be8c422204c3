/*
 * compat.c: the presets that share the keys of limiters already in place; twins of lua/compat_*.lua,
 * where their Redis commands stand.
 *
 * What they decide is what a native algorithm decides, so its functions are taken over:
 *
 *   window-start-millis, rlaas-fixed   fixed_window, denials counted
 *   first-hit                          first_hit
 *   endpoint-window                    first_hit; of the denials only the first counts
 *   rlaas-sliding                      sliding_log in milliseconds
 *   endpoint-log                       sliding_log in milliseconds, denials counted
 *
 * In Redis the window of a key without one in its name ends when the key expires; the script sends
 * that moment as s2. In memory it is the native algorithm's state.
 *
 * Constants: a limit, b window in ms, d 1 = denials are counted. A check costs 0 or 1.
 */
#include <inttypes.h>
#include <stdio.h>

#include "limit/first_hit.h"
#include "limit/fixed_window.h"
#include "limit/sliding_log.h"

#define UNITS_MAX  INT64_C(1000000)         /* of the logs, each an entry */
#define DIGITS_MAX INT64_C(999999999999999) /* of a value that the script takes for a count */

static int configure(struct limit *limit, int64_t largest, bool count_denied, struct diag *diag)
{
    if (limit->burst != 0) return diag_invalid(diag, FIELD_BURST, "is not for compat policies; leave it out");
    if (limit->limit > largest)
        return diag_invalid(diag, FIELD_LIMIT, "must be 0 to %" PRId64 " for %s", largest, limit_ops(limit)->name);

    if (limit->window_us % 1000 != 0)
        return diag_invalid(diag, FIELD_WINDOW, "must be whole milliseconds; write e.g. 1ms");
    limit->count_denied = count_denied;
    limit->a = limit->full = limit->limit;
    limit->max_cost = limit->limit > 0;
    limit->b = limit->window_us / 1000;
    limit->c = 0;
    limit->d = count_denied;
    return 0;
}

/* Where the original says EXPIRE. */
static int configure_seconds(struct limit *limit, int64_t largest, bool count_denied, struct diag *diag)
{
    if (limit->window_us % 1000000 != 0)
        return diag_invalid(diag, FIELD_WINDOW, "must be whole seconds, as its keys expire; write e.g. 1s");
    return configure(limit, largest, count_denied, diag);
}

static int configure_window_start(struct limit *limit, struct diag *diag)
{
    return configure(limit, UINT32_MAX, true, diag);
}

static int configure_rlaas_fixed(struct limit *limit, struct diag *diag)
{
    return configure_seconds(limit, UINT32_MAX, true, diag);
}

static int configure_rlaas_sliding(struct limit *limit, struct diag *diag)
{
    return configure(limit, UNITS_MAX, false, diag);
}

static int configure_first_hit(struct limit *limit, struct diag *diag)
{
    return configure_seconds(limit, UINT32_MAX, false, diag);
}

static int configure_endpoint_window(struct limit *limit, struct diag *diag)
{
    return configure_seconds(limit, UINT32_MAX - 1, true, diag);
}

static int configure_endpoint_log(struct limit *limit, struct diag *diag)
{
    return configure_seconds(limit, UNITS_MAX, true, diag);
}

/* A log whose entries are milliseconds: the native one, at the start of this one. */
static void prepare_log(struct run *run)
{
    run->b = run->limit->window_us;
    run->now = run->now_us - run->now_us % 1000;
    run->edge = run->now - run->b;
}

/* It counts up to one above the limit and then no more. */
static void endpoint_window_charge(const struct run *run, int64_t *s1, int64_t *s2, int64_t units)
{
    if (*s1 <= run->a && units > 0) first_hit_charge(run, s1, s2, 1);
}

static int endpoint_window_store(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep,
                                 int64_t units)
{
    return first_hit_store(run, raw, s1, s2, keep, s1 <= run->a && units > 0);
}

/* As the script does (lua/compat_window_start.lua). */
static void name_window_start(const struct run *run, char *out)
{
    snprintf(out, WINDOW_NAME_MAX, ":%" PRId64, run->now / run->b * run->b);
}

static void name_window_number(const struct run *run, char *out)
{
    snprintf(out, WINDOW_NAME_MAX, ":%" PRId64, run->now / run->b);
}

/* Anybody may have written a number, or set an expiry as far away as he likes. */
static bool count_plausible(const struct run *run, int64_t s1, int64_t s2)
{
    (void)run;
    (void)s2;
    return s1 <= DIGITS_MAX;
}

static bool first_hit_plausible(const struct run *run, int64_t s1, int64_t s2)
{
    return s2 == 0 ? s1 == 0 : s1 <= DIGITS_MAX && s2 > run->now;
}

/* And entries up to a window ahead, or between two milliseconds. */
static bool log_plausible(const struct run *run, int64_t s1, int64_t s2)
{
    return s1 == 0 || (s2 >= run->edge && s2 <= run->now + run->b);
}

#define WINDOW_PARTS                                                                                                   \
    .kind = STATE_STRING, .is_compat = true, .prepare = fixed_window_prepare, .view = fixed_window_view,               \
    .plausible = count_plausible, .room = fixed_window_room, .charge = fixed_window_charge,                            \
    .store = fixed_window_store, .answer = fixed_window_answer, .expires = fixed_window_expires,                       \
    .describe = fixed_window_describe

#define FIRST_HIT_PARTS                                                                                                \
    .kind = STATE_STRING, .is_compat = true, .has_s2 = true, .prepare = first_hit_prepare, .view = first_hit_view,     \
    .plausible = first_hit_plausible, .room = first_hit_room, .answer = first_hit_answer,                              \
    .expires = first_hit_expires, .describe = first_hit_describe

#define LOG_PARTS                                                                                                      \
    .kind = STATE_OTHER, .is_compat = true, .has_s2 = true, .has_wait = true, .prepare = prepare_log,                  \
    .view = sliding_log_view, .plausible = log_plausible, .room = sliding_log_room, .charge = sliding_log_charge,      \
    .wait = sliding_log_wait, .reserve = sliding_log_reserve, .store = sliding_log_store,                              \
    .answer = sliding_log_answer, .expires = sliding_log_expires, .describe = sliding_log_describe

const struct algo_ops compat_window_start_ops = {
    .name = "window-start-millis",
    .compat_prefix = "ratelimiter",
    .configure = configure_window_start,
    .name_window = name_window_start,
    WINDOW_PARTS,
};

const struct algo_ops compat_rlaas_fixed_ops = {
    .name = "rlaas-fixed",
    .compat_prefix = "rlaas:rate_limit",
    .configure = configure_rlaas_fixed,
    .name_window = name_window_number,
    WINDOW_PARTS,
};

const struct algo_ops compat_rlaas_sliding_ops = {
    .name = "rlaas-sliding",
    .compat_prefix = "rlaas:rate_limit",
    .configure = configure_rlaas_sliding,
    .merges = true,
    LOG_PARTS,
};

const struct algo_ops compat_first_hit_ops = {
    .name = "first-hit",
    .compat_prefix = "rate_limit",
    .configure = configure_first_hit,
    .merges = true,
    .charge = first_hit_charge,
    .store = first_hit_store,
    FIRST_HIT_PARTS,
};

const struct algo_ops compat_endpoint_window_ops = {
    .name = "endpoint-window",
    .compat_prefix = "rate_limit",
    .configure = configure_endpoint_window,
    .charge = endpoint_window_charge,
    .store = endpoint_window_store,
    FIRST_HIT_PARTS,
};

const struct algo_ops compat_endpoint_log_ops = {
    .name = "endpoint-log",
    .compat_prefix = "rate_limit",
    .configure = configure_endpoint_log,
    LOG_PARTS,
};
