/*
 * twin_policies.h: the policies of a trace of the twins: every native algorithm alone, some with several limits, some
 * with limits that keys share, some with debt, and the last ones with limits of slots.
 */
#ifndef RL_TESTS_TWIN_POLICIES_H
#define RL_TESTS_TWIN_POLICIES_H

#include "policy/policy.h"

enum {
    TWIN_COUNTING = 14, /* policies without slots; the others have some */
    TWIN_POLICIES = TWIN_COUNTING + 4,
    TWIN_LIMITS_MAX = 3,
};

extern struct policy *twin_policies[TWIN_POLICIES]; /* owned, of the present trace */
extern int64_t twin_window_us;                      /* all windows of the trace are near this */

void twin_policies_make(void);
void twin_policies_reload_one(void); /* it has other numbers then */
void twin_policies_free(void);

#endif
