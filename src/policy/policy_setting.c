/* policy_setting.c: the table's rows and what they show, for all that read or print a policy. */
#include "policy/policy_setting.h"

#include "base/assert.h"
#include "limit/calendar.h"
#include "policy/policy.h"

/* Which algorithms take a setting. One that is in none of the masks takes what every native limit takes. */
#define BIT(algo)     (1u << ALGO_##algo)
#define SHAPERS       BIT(LEAKY_BUCKET)
#define BUCKETS       (BIT(BUCKET) | SHAPERS)
#define FIXED_WINDOWS (BIT(FIXED_WINDOW) | BIT(FIRST_HIT))
#define COUNTERS      (FIXED_WINDOWS | BIT(SLIDING_LOG))
#define LEASED        (FIXED_WINDOWS | BIT(CALENDAR_WINDOW) | BIT(SLIDING_COUNTER) | BIT(BUCKET))
#define CALENDARS     BIT(CALENDAR_WINDOW)
#define SLOTTED       BIT(CONCURRENCY)
#define COMPATS                                                                                                        \
    (BIT(COMPAT_WINDOW_START) | BIT(COMPAT_RLAAS_FIXED) | BIT(COMPAT_RLAAS_SLIDING) | BIT(COMPAT_FIRST_HIT) |          \
     BIT(COMPAT_ENDPOINT_WINDOW) | BIT(COMPAT_ENDPOINT_LOG))
#define NATIVES     (EVERY & ~COMPATS)
#define PENALIZED   (NATIVES & ~SLOTTED & ~SHAPERS)
#define WINDOWED    (EVERY & ~SLOTTED)
#define OWN_WINDOWS (NATIVES & WINDOWED)
#define EVERY       ((1u << N_ALGOS) - 1)

#define FIELD(type, field) .offset = offsetof(type, field), .size = sizeof((type *)0)->field
#define BY_LIMIT(field)    .holder = HELD_BY_LIMIT, FIELD(struct limit, field)
#define BY_POLICY(field)   .holder = HELD_BY_POLICY, FIELD(struct policy, field)
#define DERIVED            .holder = HELD_DERIVED
#define PENALTY_TIME       penalty.time_ms /* 0: none of it is set */

#define PRINT      USE_PRINT
#define PRINT_SET  USE_PRINT_SET
#define ANSWER     USE_ANSWER
#define ANSWER_SET USE_ANSWER_SET
#define HASH       USE_HASH
#define HASH_SET   USE_HASH_SET
#define OVERRIDE   USE_OVERRIDE

const struct setting policy_settings[N_POLICY_FIELDS] = {
#define POLICY_SETTING(NAME, name_, level_, kind_, held, algos_, min_, max_, fallback_, words, uses_, required_,       \
                       takers_, help)                                                                                  \
    {.name = name_,                                                                                                    \
     .level = level_,                                                                                                  \
     .type = {.kind = VALUE_##kind_, .min = min_, .max = max_, words},                                                 \
     held,                                                                                                             \
     .algos = algos_,                                                                                                  \
     .fallback = fallback_,                                                                                            \
     .uses = uses_,                                                                                                    \
     .required = required_,                                                                                            \
     .takers = takers_},
#include "policy/policy_settings.def"
#undef POLICY_SETTING
};

enum policy_field policy_field_of(const char *name)
{
    size_t i = 0;
    while (i < N_POLICY_FIELDS && strcmp(policy_settings[i].name, name) != 0) i++;
    return (enum policy_field)i;
}

enum policy_field policy_field_at_fault(const struct diag *diag)
{
    enum policy_field field = policy_field_of(diag->setting);
    CHECK(field < N_POLICY_FIELDS);
    return field;
}

bool policy_setting_takes(enum policy_field field, const struct limit *limit)
{
    return policy_settings[field].algos >> limit->algo & 1U;
}

int64_t policy_setting_number(enum policy_field field, const void *holder)
{
    CHECK(field < N_POLICY_FIELDS);
    return setting_number(&policy_settings[field], holder);
}

/* ---- Values ---- */

/* Fills in the limit's value of ret->field. False: the limit has no such value. */
static bool value_of_limit(const struct limit *limit, struct setting_value *ret)
{
    const struct setting *setting = &policy_settings[ret->field];

    switch (ret->field) {
    case FIELD_NAME: ret->text = slice_of(limit->name); return ret->text.len > 0;
    case FIELD_BY: ret->number = limit->parts; return limit->shared;
    case FIELD_ALGORITHM: ret->text = slice_of(limit_ops(limit)->name); return !limit_ops(limit)->is_compat;
    case FIELD_COMPAT: ret->text = slice_of(limit_ops(limit)->name); return limit_ops(limit)->is_compat;
    case FIELD_KEY_PREFIX:
        ret->text = (struct slice){(const uint8_t *)limit->key_head, limit->key_head_len - 1U};
        return true;
    case FIELD_WINDOW:
        if (limit->calendar == NULL) break;
        ret->kind = VALUE_WORD;
        ret->text = slice_of(calendar_unit_name(limit->calendar));
        return true;
    case FIELD_TIMEZONE: ret->text = slice_of(calendar_zone_name(limit->calendar)); return true;
    case FIELD_WEEK_START:
        ret->text = slice_of(calendar_week_start_name(limit->calendar));
        return calendar_unit(limit->calendar) == CALENDAR_WEEK;
    case FIELD_START: ret->text = value_choice(setting->type.choices, limit->algo == ALGO_FIRST_HIT); return true;
    default: break;
    }

    CHECK(setting->holder == HELD_BY_LIMIT);
    ret->number = policy_setting_number(ret->field, limit);
    ret->penalty = &limit->penalty;
    return true;
}

/* Does one of the policy's limits, or of its candidate's, have the flag? */
static bool has_flag(enum policy_field field, const struct policy *policy)
{
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (policy_setting_number(field, &policy->limits[i]) != 0) return true;
    return policy->candidate != NULL && has_flag(field, policy->candidate);
}

/* The same for a setting of the policy itself. */
static bool value_of_policy(const struct policy *policy, struct setting_value *ret)
{
    switch (policy_settings[ret->field].holder) {
    case HELD_BY_LIMIT: ret->number = has_flag(ret->field, policy); return true;
    case HELD_BY_POLICY:
        ret->number = policy_setting_number(ret->field, policy);
        return ret->field != FIELD_LOCAL_SHARE || (policy->on_failure == ON_FAILURE_LOCAL && !policy->unlimited);
    case HELD_DERIVED: break;
    }
    if (ret->field != FIELD_KEY_FORMAT || policy->format == NULL) return false; /* lists are shown by their entries */
    ret->text = slice_of(policy->format->text);
    return true;
}

size_t policy_setting_values(const struct policy *policy, const struct limit *limit, enum setting_use use,
                             struct setting_value ret[N_POLICY_FIELDS])
{
    const unsigned use_set = (unsigned)use << 1;
    size_t n = 0;

    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        const struct setting *setting = &policy_settings[i];
        if ((setting->level == IN_POLICY) != (limit == NULL)) continue;
        if (limit != NULL && !policy_setting_takes((enum policy_field)i, limit)) continue;

        struct setting_value *value = &ret[n];
        *value = (struct setting_value){.field = (enum policy_field)i, .kind = setting->type.kind};
        if (limit != NULL ? !value_of_limit(limit, value) : !value_of_policy(policy, value)) continue;

        if (value->kind == VALUE_DURATION) {
            value->kind = VALUE_SPAN;
            value->number *= 1000;
        } else if (value->kind == VALUE_CHOICE) {
            value->kind = VALUE_WORD;
            value->text = value_choice(setting->type.choices, value->number);
        } else if (value->number == 0 && setting->type.zero_word != NULL) {
            value->kind = VALUE_WORD;
            value->text = slice_of(setting->type.zero_word);
        }
        n += setting->uses & use || (setting->uses & use_set && value->number != 0);
    }
    return n;
}
