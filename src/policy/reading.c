/* reading.c: takes settings out of a map, for policy_read.c, limit_read.c, override_read.c and config/. */
#include "policy/reading.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/nearest.h"
#include "policy/hints.h"
#include "policy/value.h"

const char *reading_path_to(struct reading *reading, const char *field)
{
    snprintf(reading->path, sizeof reading->path, "%s%s%s", reading->base, field != NULL ? "." : "",
             field != NULL ? field : "");
    return reading->path;
}

const char *reading_path(struct reading *reading, enum policy_field field)
{
    return reading_path_to(reading, policy_settings[field].name);
}

void reading_refuse(struct reading *reading, enum policy_field field, const char *format, ...)
{
    const struct tree_node *node = reading->given[field] != NULL ? reading->given[field] : reading->node;
    va_list args;
    va_start(args, format);
    faults_record_va(reading->faults, FAULT_INVALID, node->line, reading_path(reading, field), format, args);
    va_end(args);
}

bool reading_is_name(const char *text)
{
    size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return len > 0 && len <= NAME_MAX_LEN && text[len] == '\0';
}

void reading_no_memory(struct faults *faults, uint32_t line)
{
    faults_no_memory(faults, line, "policies", "out of memory; give the daemon more, or write fewer policies");
}

/* ---- Which settings are there ---- */

static bool may_stand(const struct reading *reading, size_t field)
{
    switch (reading->kind) {
    case MAP_POLICY: return policy_settings[field].level != IN_LIST;
    case MAP_LIMIT: return policy_settings[field].level != IN_POLICY;
    case MAP_OVERRIDE: return policy_settings[field].uses & USE_OVERRIDE || field == FIELD_UNLIMITED;
    default: CHECK(false); return false;
    }
}

static void refuse_unknown(struct reading *reading, const struct tree_node *key)
{
    static const char *const first_of_override[] = {"key", "match", "unlimited"};
    char any[FAULTS_KEY_MAX];
    const bool is_override = reading->kind == MAP_OVERRIDE;
    snprintf(any, sizeof any, "policies.*.%.64s", key->key);
    const char *text = is_override ? NULL : hint_refusal(any, NULL);

    struct nearest nearest = nearest_to(key->key);
    for (size_t i = 0; is_override && i < N_OF(first_of_override); i++) nearest_offer(&nearest, first_of_override[i]);
    for (size_t i = 0; i < N_POLICY_FIELDS; i++)
        if (may_stand(reading, i)) nearest_offer(&nearest, policy_settings[i].name);
    map_refuse_key(reading->kind, key, reading_path_to(reading, key->key), text, nearest.name, reading->faults);
}

/* What no policy with an id may have. Under one id the limit may be another one in the next request. A counter allows
 * that only if all else stays: policy_name_keys() keeps apart what may change with the counter's name, and these would
 * charge or give back units by numbers that the next request does not have. */
static const enum policy_field fixed_numbers[] = {FIELD_BURST,      FIELD_MAX_WAIT, FIELD_LEASE,    FIELD_ON_CHANGE,
                                                  FIELD_MERGE_BACK, FIELD_DEBT,     FIELD_CANDIDATE};

bool reading_gather(struct reading *reading)
{
    const struct tree_node *node = reading->node;
    const bool is_override = reading->kind == MAP_OVERRIDE;
    if (!map_is_one(reading->kind, node, reading_path_to(reading, NULL), reading->faults)) return false;

    for (const struct tree_node *child = node->first; child != NULL; child = child->next) {
        enum policy_field field = policy_field_of(child->key);
        if (is_override && strcmp(child->key, "key") == 0)
            reading->key = child;
        else if (is_override && strcmp(child->key, "match") == 0)
            reading->match = child;
        else if (field == N_POLICY_FIELDS)
            refuse_unknown(reading, child);
        else if (!may_stand(reading, field))
            map_refuse_place(reading->kind, child, reading_path(reading, field), reading->faults);
        else
            reading->given[field] = child; /* if it is written twice, the last one, which the tree has refused */
    }

    /* The limits of a list have settings of their own. */
    for (size_t i = 0; i < N_POLICY_FIELDS && reading->given[FIELD_LIMITS] != NULL; i++) {
        if (reading->given[i] == NULL || policy_settings[i].level == IN_POLICY) continue;
        reading_refuse(reading, (enum policy_field)i, "does not go with limits; write it into the limits of that list");
    }

    for (size_t i = 0; i < N_OF(fixed_numbers) && reading->id != NULL; i++)
        if (reading->given[fixed_numbers[i]] != NULL)
            reading_refuse(reading, fixed_numbers[i],
                           "does not go with id, under which the limit may change; leave one of "
                           "the two out");
    return true;
}

bool reading_has(struct reading *reading, enum policy_field field)
{
    if (reading->given[field] != NULL) return true;
    reading_refuse(reading, field, "is missing; write %s", policy_settings[field].required);
    return false;
}

/* ---- Values ---- */

bool reading_is_list(struct reading *reading, enum policy_field field)
{
    const struct tree_node *node = reading->given[field];
    const struct value_type *type = &policy_settings[field].type;
    return node != NULL && value_parse_list(type, reading_path(reading, field), node, reading->faults);
}

bool reading_value(struct reading *reading, enum policy_field field, int64_t *ret)
{
    const struct tree_node *node = reading->given[field];
    const struct value_type *type = &policy_settings[field].type;
    CHECK(field < N_POLICY_FIELDS);
    return node != NULL && value_parse(type, reading_path(reading, field), node, reading->faults, ret);
}

bool reading_unlimited(struct reading *reading)
{
    int64_t unlimited = 0;
    reading_value(reading, FIELD_UNLIMITED, &unlimited);
    for (size_t i = 0; i < N_POLICY_FIELDS && unlimited != 0; i++)
        if (i != FIELD_UNLIMITED && reading->given[i] != NULL)
            reading_refuse(reading, (enum policy_field)i, "does not go with unlimited: true%s; keep one of the two",
                           reading->kind == MAP_POLICY ? ", which leaves nothing to set" : "");
    return unlimited != 0;
}

int reading_choice(struct reading *reading, enum policy_field field)
{
    int64_t index = 0;
    const struct value_type type = {.kind = VALUE_CHOICE, .choices = policy_settings[field].type.choices};
    const struct tree_node *node = reading->given[field];
    if (node != NULL) value_parse(&type, reading_path(reading, field), node, reading->faults, &index);
    return (int)index;
}

const char *reading_text(struct reading *reading, enum policy_field field)
{
    const struct tree_node *node = reading->given[field];
    return node != NULL ? value_parse_text(reading_path(reading, field), node, reading->faults) : NULL;
}
