#include "fakes/policies.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "limit/calendar.h"

struct calendar *policies_calendar(int64_t window_us)
{
    struct calendar *calendar;
    enum calendar_unit unit = window_us <= INT64_C(3600000000)    ? CALENDAR_HOUR
                              : window_us <= INT64_C(86400000000) ? CALENDAR_DAY
                                                                  : CALENDAR_MONTH;
    CHECK(calendar_get("Australia/Lord_Howe", unit, 0, true, &calendar) == 0);
    return calendar;
}

static void fill(struct limit *limit, const struct limit_spec *spec, bool merge_back)
{
    struct diag diag;
    snprintf(limit->name, sizeof limit->name, "%s", spec->name != NULL ? spec->name : "");
    limit->algo = spec->algo;
    limit->limit = spec->limit;
    limit->window_us = spec->window_us;
    if (spec->algo == ALGO_CALENDAR_WINDOW) limit->calendar = policies_calendar(spec->window_us);
    limit->burst = spec->burst;
    limit->max_wait_us = spec->max_wait_us;
    limit->count_denied = spec->count_denied;
    limit->lease_us = spec->lease_us;
    limit->merge_back = merge_back;
    int status = policy_prepare_limit(limit, NULL, &diag);
    if (status != 0) fprintf(stderr, "policies: %s %s\n", diag.setting, diag.text);
    CHECK(status == 0);
}

static uint16_t count(const struct limit_spec *limits)
{
    uint16_t n = 0;
    while (n < SPEC_LIMITS_MAX && limits[n].window_us > 0) n++;
    return n;
}

const struct policy *policies_add(struct policy_set *set, const struct policy_spec *spec)
{
    uint16_t n_limits = count(spec->limits), n_candidate = count(spec->candidate);
    struct policy *policy = policy_new(spec->name, n_limits);
    CHECK(policy != NULL);
    policy->on_failure = spec->on_failure;
    policy->deadline_ms = spec->deadline_ms > 0 ? spec->deadline_ms : 20;
    policy->local_share = spec->local_share;
    policy->idempotency_ms = 60000;
    policy->shadow = spec->shadow;
    for (uint16_t i = 0; i < n_limits; i++) fill(&policy->limits[i], &spec->limits[i], spec->merge_back);
    if (n_candidate > 0) CHECK(policy_add_candidate(policy, n_candidate) == 0);
    for (uint16_t i = 0; i < n_candidate; i++) fill(&policy->candidate->limits[i], &spec->candidate[i], false);
    policy_seal(policy);
    policy_set_add(set, policy);
    return policy;
}

struct policy_set *policies_make(const struct policy_spec *specs, size_t n)
{
    struct policy_set *set = policy_set_new(POLICIES_MAX);
    CHECK(set != NULL);
    for (size_t i = 0; i < n; i++) policies_add(set, &specs[i]);
    policy_set_sort(set);
    return set;
}

const struct policy *policies_get(const struct policy_set *set, const char *name)
{
    const struct policy *policy = policy_find(set, slice_of(name));
    CHECK(policy != NULL);
    return policy;
}
