/*
 * policy_field.h: a number for each setting of a policy, by which an algorithm says which one it refuses.
 */
#ifndef RL_LIMIT_POLICY_FIELD_H
#define RL_LIMIT_POLICY_FIELD_H

enum policy_field {
#define POLICY_SETTING(NAME, ...) FIELD_##NAME,
#include "limit/policy_settings.def"
#undef POLICY_SETTING
    N_POLICY_FIELDS
};

#endif
