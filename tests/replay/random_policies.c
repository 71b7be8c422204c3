/* random_policies.c: see random_policies.h. */
#include "replay/random_policies.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "fakes/natives.h"
#include "limit/calendar.h"
#include "policy/policy_setting.h"
#include "replay/script_call.h"
#include "replay/trace_random.h"

struct policy *trace_policies[TRACE_POLICIES];
int64_t trace_window_us;

static enum algo algos[N_ALGOS];
static size_t n_algos;

/* Windows of a similar length as the others, if the calendar has one. */
static struct calendar *random_calendar(void)
{
    static const char *const zones[] = {"UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York"};
    struct calendar *calendar;
    int64_t units = trace_window_us < 86400000000 ? CALENDAR_WEEK : CALENDAR_YEAR + 1;
    if (calendar_get(zones[below(4)], (enum calendar_unit)below(units), (int)below(7), true, &calendar) != 0)
        die("no time zones here");
    return calendar;
}

/* Often of the length of a window, so that pauses and windows end at about the same time. */
static struct penalty random_penalty(void)
{
    struct penalty penalty = {.time_ms = ONE_OF(1, 2, trace_window_us / 1000, 3 * trace_window_us / 1000),
                              .factor = ONE_OF(1, 2, 5, 1000)};
    penalty.max_ms = penalty.time_ms * ONE_OF(1, 4, 30);
    penalty.forget_ms = ONE_OF(0, penalty.time_ms, penalty.max_ms, 10 * penalty.max_ms);
    return penalty;
}

/* The settings that a reload may change. */
static void fill_numbers(struct limit *limit)
{
    if (limit->algo == ALGO_CONCURRENCY) {
        limit->limit = ONE_OF(1, 1, 2, 3, 7, 30);
        return;
    }
    limit->limit = ONE_OF(1, 2, 3, 5, 7, 10, 30, 100, 1000);
    if (policy_setting_takes(FIELD_BURST, limit))
        limit->burst = ONE_OF(0, 0, 1, limit->limit, 2 * limit->limit, 1 + below(40));
    if (policy_setting_takes(FIELD_COUNT_DENIED, limit)) limit->count_denied = once_in(4);
    if (limit->penalty.time_ms > 0 || once_in(3)) limit->penalty = random_penalty();
}

static void fill_limit(struct limit *limit, enum algo algo)
{
    limit->algo = algo;
    limit->window_us = trace_window_us * ONE_OF(1, 1, 2, 3, 7);
    if ((limit_is_bucket(limit) || algo == ALGO_SLIDING_LOG) && once_in(4)) limit->window_us += 1 + below(999);
    if (algo == ALGO_CONCURRENCY) limit->window_us = between(1000000, limit->window_us, 43200000000);
    fill_numbers(limit);
    if (algo == ALGO_LEAKY_BUCKET)
        limit->max_wait_us = ONE_OF(0, 0, 1, 1000, limit->window_us / limit->limit, 3 * limit->window_us);
    if (algo == ALGO_CALENDAR_WINDOW) limit->calendar = random_calendar();
    if (algo == ALGO_FIXED_WINDOW) limit->phase = once_in(4);
    if (policy_setting_takes(FIELD_COUNTS, limit)) limit->counts_checks = once_in(4);
}

/* The settings refuse a penalty here. */
static void drop_penalties(struct policy *policy)
{
    bool counts_denied = false;
    for (uint16_t i = 0; i < policy->n_limits; i++) counts_denied |= policy->limits[i].count_denied;
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (counts_denied || !policy_setting_takes(FIELD_PENALTY, &policy->limits[i]))
            policy->limits[i].penalty = (struct penalty){0};
}

static void prepare(struct policy *policy, bool debt)
{
    struct diag diag;
    drop_penalties(policy);
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        policy->limits[i].debt = debt;
        if (policy_prepare_limit(&policy->limits[i], NULL, &diag) == 0) continue;
        policy->limits[i].burst = 1; /* a bucket of that size cannot be counted exactly with its limit and window */
        if (policy_prepare_limit(&policy->limits[i], NULL, &diag) != 0) die(diag.text);
    }
}

/* Of a bucket that keys share with other numbers, even a denied check bounds the level by its own; the cache of denials
 * answers without that. */
static bool has_shared_bucket(const struct policy *policy)
{
    bool found = false;
    for (uint16_t i = 0; i < policy->n_limits; i++)
        found |= policy->limits[i].shared && limit_is_bucket(&policy->limits[i]);
    return found;
}

/* Other numbers for one of the keys, or for all of one tenant. */
static void add_override(struct policy *policy, bool debt)
{
    struct policy *variant = policy_variant(policy, false);
    if (variant == NULL || (policy->overrides = overrides_new(1)) == NULL) die("no memory");
    for (uint16_t i = 0; i < variant->n_limits; i++)
        if (!policy->limits[i].shared || policy->limits[i].penalty.time_ms == 0)
            variant->limits[i].limit = ONE_OF(1, 2, 5, policy->limits[i].limit + 1, 3 * policy->limits[i].limit);
    prepare(variant, debt);
    bool is_pattern = once_in(3);
    enum override_kind kind = is_pattern ? OVERRIDE_OF_PATTERN : OVERRIDE_OF_KEY;
    if (overrides_add(policy->overrides, is_pattern ? "a:*" : "a:b", kind, 0, variant) < 0) die("no memory");
}

/* Limits on trial, next to the policy's own. */
static void add_candidate(struct policy *policy)
{
    if (policy_add_candidate(policy, policy->n_limits) != 0) die("no memory");
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        struct limit *limit = &policy->candidate->limits[i];
        *limit = policy->limits[i];
        limit->policy = policy->candidate;
        fill_numbers(limit);
    }
    prepare(policy->candidate, false);
}

/* Some have debt, but only policies that can reserve. */
static void finish_policy(struct policy *policy, bool has_override, bool has_candidate)
{
    bool debt = once_in(2);
    for (uint16_t i = 0; i < policy->n_limits; i++) debt &= policy->limits[i].max_wait_us == 0;
    if (has_candidate) add_candidate(policy);
    prepare(policy, debt);
    if (has_override && !has_shared_bucket(policy)) add_override(policy, debt);
    policy_seal(policy);
}

static struct policy *new_policy(size_t number, uint16_t n_limits, bool has_format)
{
    char name[32];
    snprintf(name, sizeof name, number % 3 == 0 ? "inline-%016zx" : "p%zu", number);
    struct policy *policy = policy_new(name, n_limits);
    if (policy == NULL) die("no memory");
    if (!has_format) return policy;
    policy->format = mem_zalloc(sizeof *policy->format);
    if (policy->format == NULL || key_format_parse(policy->format, "{t}:{u}") != NULL) die("no key_format");
    return policy;
}

/* It counts all keys of a tenant, or all keys. */
static void share(struct limit *limit)
{
    limit->parts = once_in(4) ? 0 : (key_parts)(1U << key_format_find(limit->policy->format, slice_of("t")));
    limit->shared = true;
}

/* Each algorithm alone once, policies with several limits, and the last ones with concurrency limits, alone or with
 * others. */
static enum algo random_algo(size_t policy, uint16_t limit)
{
    if (policy >= TRACE_COUNTING && (limit == 0 || once_in(4))) return ALGO_CONCURRENCY;
    return policy < n_algos ? algos[policy] : algos[below((int64_t)n_algos)];
}

void trace_policies_make(void)
{
    n_algos = natives(algos);
    trace_window_us = ONE_OF(1000, 7000, 1000000, 10000000, 3600000000, 86400000000);
    for (size_t i = 0; i < TRACE_POLICIES; i++) {
        bool alone = i < n_algos || i == TRACE_COUNTING;
        uint16_t n_limits = (uint16_t)(alone ? 1 : 1 + below(TRACE_LIMITS_MAX));
        bool has_format = !alone && once_in(3);
        trace_policies[i] = new_policy(i, n_limits, has_format);
        for (uint16_t j = 0; j < n_limits; j++) {
            struct limit *limit = &trace_policies[i]->limits[j];
            if (n_limits > 1) snprintf(limit->name, sizeof limit->name, "l%u", (unsigned)j);
            if (has_format && once_in(2)) share(limit);
            fill_limit(limit, random_algo(i, j));
        }
        finish_policy(trace_policies[i], i < TRACE_COUNTING && once_in(3), i < TRACE_COUNTING && once_in(4));
    }
}

/* The same policy with other numbers, or with the same ones, as an inline policy that was given up and sent again; its
 * old reservations can still be settled. */
void trace_policies_reload_one(void)
{
    size_t which = (size_t)below(TRACE_POLICIES);
    bool changes = !once_in(3);
    struct policy *old = trace_policies[which], *made = new_policy(which, old->n_limits, old->format != NULL);
    for (uint16_t i = 0; i < old->n_limits; i++) {
        made->limits[i] = old->limits[i];
        made->limits[i].policy = made;
        if (changes) fill_numbers(&made->limits[i]);
    }
    finish_policy(made, old->overrides != NULL, old->candidate != NULL);
    policy_free(old);
    trace_policies[which] = made;
}

void trace_policies_free(void)
{
    for (size_t i = 0; i < TRACE_POLICIES; i++) policy_free(trace_policies[i]);
}
