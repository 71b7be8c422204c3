/*
 * policy_setting.h: policy_settings.def as a table, and the value that a policy or a limit has for each setting.
 *
 * All code that reads or shows settings (a file, --print-config, the answers, the fingerprint) walks over the table;
 * nothing lists the settings again.
 */
#ifndef RL_POLICY_POLICY_SETTING_H
#define RL_POLICY_POLICY_SETTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "policy/setting.h"

enum policy_field {
#define POLICY_SETTING(NAME, ...) FIELD_##NAME,
#include "policy/policy_settings.def"
#undef POLICY_SETTING
    N_POLICY_FIELDS
};

extern const struct setting policy_settings[N_POLICY_FIELDS];

struct diag;
struct limit;
struct penalty;
struct policy;

/* The field of that name, or N_POLICY_FIELDS. */
enum policy_field policy_field_of(const char *name);
enum policy_field policy_field_at_fault(const struct diag *diag); /* an algorithm names none but the table's */
bool policy_setting_takes(enum policy_field field, const struct limit *limit); /* does its algorithm? */
int64_t policy_setting_number(enum policy_field field, const void *holder);    /* a limit's, or a policy's */

/* What a limit or a policy has for one setting. */
struct setting_value {
    enum policy_field field;
    enum value_kind kind; /* SPAN for DURATION, WORD for CHOICE; a window or a COUNT may be a WORD */
    int64_t number;
    struct slice text;             /* valid as long as the policy */
    const struct penalty *penalty; /* of a PENALTY; as long, too */
};

/* The values of a limit's settings, or with `limit` NULL of the policy's own, for USE_PRINT or USE_ANSWER, in the
 * table's order. Returns their number. */
size_t policy_setting_values(const struct policy *policy, const struct limit *limit, enum setting_use use,
                             struct setting_value ret[N_POLICY_FIELDS]);

#endif
