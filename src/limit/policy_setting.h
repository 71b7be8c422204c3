/*
 * policy_setting.h: policy_settings.def as a table: what may stand in a policy, and which algorithms take it.
 */
#ifndef RL_LIMIT_POLICY_SETTING_H
#define RL_LIMIT_POLICY_SETTING_H

#include <stdint.h>

enum policy_field {
#define POLICY_SETTING(NAME, ...) FIELD_##NAME,
#include "limit/policy_settings.def"
#undef POLICY_SETTING
    N_POLICY_FIELDS
};

struct policy_setting {
    const char *name;
    uint32_t algos;     /* bits: who takes it */
    const char *takers; /* the same, for people */
};

extern const struct policy_setting policy_settings[N_POLICY_FIELDS];

#endif
