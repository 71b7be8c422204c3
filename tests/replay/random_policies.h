/*
 * random_policies.h: the policies of a random trace: every native algorithm alone, some policies with several limits,
 * some with limits that keys share, some with debt, and the last ones with concurrency limits.
 */
#ifndef RL_TESTS_RANDOM_POLICIES_H
#define RL_TESTS_RANDOM_POLICIES_H

#include "policy/policy.h"

enum {
    TRACE_COUNTING = 14, /* policies without slots; the others have slots */
    TRACE_POLICIES = TRACE_COUNTING + 4,
    TRACE_LIMITS_MAX = 3,
};

extern struct policy *trace_policies[TRACE_POLICIES]; /* owned, of the present trace */
extern int64_t trace_window_us;                       /* all windows of the trace are near this */

void trace_policies_make(void);
void trace_policies_reload_one(void); /* gives it other numbers */
void trace_policies_free(void);

#endif
