/* one_limit.c: see one_limit.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "fakes/one_limit.h"
#include "fakes/policies.h"

static int make(struct policy **ret_policy, enum algo algo, int64_t limit, int64_t window_us, int64_t burst,
                bool count_denied, int64_t max_wait_us, struct diag *diag)
{
    struct policy *policy = policy_new("p", 1);
    assert_non_null(policy);
    struct limit *only = &policy->limits[0];
    only->algo = algo;
    only->limit = limit;
    only->window_us = window_us;
    if (algo == ALGO_CALENDAR_WINDOW) only->calendar = policies_calendar(window_us);
    only->burst = burst;
    only->count_denied = count_denied;
    only->max_wait_us = max_wait_us;
    int status = policy_prepare_limit(only, NULL, diag);
    policy_seal(policy);
    *ret_policy = policy;
    return status;
}

static struct one_limit one_of(enum algo algo, int64_t limit, int64_t window_us, int64_t burst, bool count_denied,
                               int64_t max_wait_us)
{
    struct diag diag;
    struct one_limit one = {0};
    if (make(&one.policy, algo, limit, window_us, burst, count_denied, max_wait_us, &diag) != 0)
        fail_msg("%s %s", diag.setting, diag.text);
    one.limit = &one.policy->limits[0];
    return one;
}

struct one_limit one_limit(enum algo algo, int64_t limit, int64_t window_us, int64_t burst, bool count_denied)
{
    return one_of(algo, limit, window_us, burst, count_denied, 0);
}

struct one_limit one_leaky_bucket(int64_t limit, int64_t window_us, int64_t burst, int64_t max_wait_us)
{
    return one_of(ALGO_LEAKY_BUCKET, limit, window_us, burst, false, max_wait_us);
}

void one_limit_fini(struct one_limit *one)
{
    state_fini(&one->state);
    policy_free(one->policy);
}

void one_limit_change(struct one_limit *one, int64_t limit, int64_t window_us, int64_t burst)
{
    struct one_limit changed = one_limit(one->limit->algo, limit, window_us, burst, one->limit->count_denied);
    policy_free(one->policy);
    one->policy = changed.policy;
    one->limit = changed.limit;
}

static const char *fault_of(enum algo algo, int64_t limit, int64_t window_us, int64_t burst, bool count_denied,
                            int64_t max_wait_us, char *text, size_t size)
{
    struct policy *policy;
    struct diag diag;
    int status = make(&policy, algo, limit, window_us, burst, count_denied, max_wait_us, &diag);
    policy_free(policy);
    if (status == 0) return NULL;
    snprintf(text, size, "%s %s", diag.setting, diag.text);
    return text;
}

const char *one_limit_fault(enum algo algo, int64_t limit, int64_t window_us, int64_t burst, bool count_denied,
                            char *text, size_t size)
{
    return fault_of(algo, limit, window_us, burst, count_denied, 0, text, size);
}

const char *one_leaky_bucket_fault(int64_t limit, int64_t window_us, int64_t burst, int64_t max_wait_us, char *text,
                                   size_t size)
{
    return fault_of(ALGO_LEAKY_BUCKET, limit, window_us, burst, false, max_wait_us, text, size);
}

static struct decision ask(struct one_limit *one, int64_t now_us, int64_t cost, int64_t max_wait_us, bool charge)
{
    const struct algo_ops *ops = limit_ops(one->limit);
    struct view view;
    struct decision decision;
    limit_here(&view, one->limit, slice_of("k"), limit_max_wait(one->limit, max_wait_us), now_us);
    limit_view(&view, &one->state);
    bool admitted = limit_fits(&view, cost, 1) > 0;
    int64_t units = limit_decide(&view, cost, admitted, admitted, &decision);
    if (!charge) limit_view(&view, &one->state); /* the state before the peek */
    if (!view.stale && (!charge || units == 0)) return decision;
    if (charge && ops->reserve != NULL) assert_int_equal(ops->reserve(&view, &one->state, units), 0);
    ops->save(&view, &one->state);
    return decision;
}

struct decision one_check(struct one_limit *one, int64_t now_us, int64_t cost)
{
    return ask(one, now_us, cost, INT64_MAX, true);
}

struct decision one_peek(struct one_limit *one, int64_t now_us, int64_t cost)
{
    return ask(one, now_us, cost, INT64_MAX, false);
}

struct decision one_check_within(struct one_limit *one, int64_t now_us, int64_t cost, int64_t max_wait_us)
{
    return ask(one, now_us, cost, max_wait_us, true);
}

struct decision one_peek_within(struct one_limit *one, int64_t now_us, int64_t cost, int64_t max_wait_us)
{
    return ask(one, now_us, cost, max_wait_us, false);
}
