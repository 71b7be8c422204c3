/*
 * policy_setting.h: policy_settings.def as a table, and what a policy or a limit has for each of its settings.
 *
 * Whoever shows settings (--print-config, the answers, the fingerprint) walks over the table; nobody lists them again.
 */
#ifndef RL_POLICY_POLICY_SETTING_H
#define RL_POLICY_POLICY_SETTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "limit/policy_field.h"

enum setting_place { IN_POLICY, IN_LIMIT, IN_LIST };
enum setting_holder { HELD_BY_LIMIT, HELD_BY_POLICY, HELD_DERIVED };

/* Of every setting, a policy's or not. */
enum value_kind {
    VALUE_COUNT,
    VALUE_SIZE,     /* bytes */
    VALUE_MODE,     /* permission bits */
    VALUE_DURATION, /* milliseconds */
    VALUE_SPAN,     /* microseconds */
    VALUE_BOOL,
    VALUE_CHOICE, /* the place in choices, from 0 */
    VALUE_WORD,   /* one that needs no quotes */
    VALUE_TEXT,
    VALUE_PARTS, /* of the policy's key_format: a key_parts */
    VALUE_LIST,
};

struct value_form {
    enum value_kind kind;
    int64_t min, max;    /* of a number; of a text its length, of a list its entries */
    const char *choices; /* separated by one space each */
};

/* The name number `index` of choices. */
struct slice value_choice(const char *choices, int64_t index);

enum setting_use {
    USE_PRINT = 1,
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

enum algo;
struct limit;
struct policy;

bool policy_setting_takes(enum policy_field field, const struct limit *limit); /* does its algorithm? */

/* The field of a setting that has one, in the limit or the policy that holds it. */
int64_t policy_setting_number(enum policy_field field, const void *holder);
void policy_setting_store(enum policy_field field, void *holder, int64_t number);

/* What a limit or a policy has for one setting. */
struct setting_value {
    enum policy_field field;
    enum value_kind kind; /* SPAN for DURATION, WORD for CHOICE; a window may be a WORD */
    int64_t number;
    struct slice text; /* valid as long as the policy */
};

/* Those of a limit that stand in its map, or of a policy that stand next to its limits, for USE_PRINT or USE_ANSWER; in
 * the table's order. Returns how many. */
size_t policy_setting_limit_values(const struct limit *limit, enum setting_use use,
                                   struct setting_value ret[N_POLICY_FIELDS]);
size_t policy_setting_policy_values(const struct policy *policy, enum setting_use use,
                                    struct setting_value ret[N_POLICY_FIELDS]);

/* The settings in `holder`, a limit or a policy, that have this use (USE_HASH or USE_HASH_SET), added to `hash`. */
uint64_t policy_setting_hash(uint64_t hash, enum setting_holder held_by, const void *holder, enum setting_use use);

#endif
