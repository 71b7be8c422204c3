/*
 * policies.h: policies for tests, from short specifications.
 */
#ifndef RL_TESTS_POLICIES_H
#define RL_TESTS_POLICIES_H

#include "policy/policy.h"

enum { SPEC_LIMITS_MAX = 4, POLICIES_MAX = 64 };

struct limit_spec {
    const char *name; /* NULL = the policy's one limit, without a name */
    enum algo algo;
    int64_t limit;
    int64_t window_us; /* 0 = no such limit */
    int64_t burst, max_wait_us;
    bool count_denied;
    int64_t lease_us;
};

struct policy_spec {
    const char *name;
    enum on_failure on_failure;
    uint32_t deadline_ms; /* 0 = 20 */
    uint32_t local_share;
    bool merge_back;
    bool shadow;
    struct limit_spec limits[SPEC_LIMITS_MAX];
    struct limit_spec candidate[SPEC_LIMITS_MAX]; /* none = no candidate */
};

/* Ends the test with a message if the specification is wrong. */
const struct policy *policies_add(struct policy_set *set, const struct policy_spec *spec);
/* A set of n policies. */
struct policy_set *policies_make(const struct policy_spec *specs, size_t n);
/* The calendar for a calendar_window of about that length: hours, days or months, in a zone whose clocks change by half
 * an hour. */
struct calendar *policies_calendar(int64_t window_us);
const struct policy *policies_get(const struct policy_set *set, const char *name);

#endif
