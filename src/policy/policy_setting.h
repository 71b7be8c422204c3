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
#include "limit/policy_field.h"
#include "policy/value.h"

enum setting_place { IN_POLICY, IN_LIMIT, IN_LIST };
enum setting_holder { HELD_BY_LIMIT, HELD_BY_POLICY, HELD_DERIVED };

enum setting_use {
    USE_PRINT = 1, /* each followed by the bit for: only where it is not 0 */
    USE_PRINT_SET = 2,
    USE_ANSWER = 4,
    USE_ANSWER_SET = 8,
    USE_HASH = 16,
    USE_HASH_SET = 32,
    USE_OVERRIDE = 64,
};

struct policy_setting {
    const char *name;
    enum setting_place place;
    struct value_form form;
    enum setting_holder holder;
    size_t offset, size; /* of the field in its holder */
    uint32_t algos;      /* bits: who takes it */
    int64_t fallback;
    unsigned uses;
    const char *required; /* "" = it may be missing */
    const char *takers;   /* algos, for people */
};

extern const struct policy_setting policy_settings[N_POLICY_FIELDS];

struct limit;
struct policy;

bool policy_setting_takes(enum policy_field field, const struct limit *limit); /* does its algorithm? */

/* Read or write the field of a setting in its holder: a limit or a policy. */
int64_t policy_setting_number(enum policy_field field, const void *holder);
void policy_setting_store(enum policy_field field, void *holder, int64_t number);

/* What a limit or a policy has for one setting. */
struct setting_value {
    enum policy_field field;
    enum value_kind kind; /* SPAN for DURATION, WORD for CHOICE; a window may be a WORD */
    int64_t number;
    struct slice text; /* valid as long as the policy */
};

/* The values of a limit's settings, or with `limit` NULL of the policy's own, for USE_PRINT or USE_ANSWER, in the
 * table's order. Returns their number. */
size_t policy_setting_values(const struct policy *policy, const struct limit *limit, enum setting_use use,
                             struct setting_value ret[N_POLICY_FIELDS]);

#endif
