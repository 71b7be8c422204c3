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
    faults_record_va(reading->faults, DIAG_INVALID, node->line, reading_path(reading, field), format, args);
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

static const struct {
    const char *not_a_map, *misplaced, *unknown;
} refusals[] = {
    [READING_POLICY] =
        {
            "is not a map of settings; write algorithm, limit and window below it, indented",
            "names one of several limits; leave it out, or write the limit into a list limits",
            "no such setting; a policy has algorithm (or compat), limit, window and others of ratelimitd.yaml(5)",
        },
    [READING_LIMIT] =
        {
            "is not a map; write {name: ..., algorithm: ..., limit: ..., window: ...}",
            "is the policy's, not a limit's; write it next to limits",
            "no such setting; a limit has name, algorithm, limit, window and others of ratelimitd.yaml(5)",
        },
    [READING_OVERRIDE] =
        {
            "is not a map; write {key: ..., limit: ...} or {match: ..., unlimited: true}",
            "is the same for every key; an override has limit, window, burst and max_wait, or unlimited: true",
            "no such setting; an override has key or match, and limit, window, burst, max_wait or unlimited",
        },
};

static bool may_stand(const struct reading *reading, size_t field)
{
    switch (reading->kind) {
    case READING_POLICY: return policy_settings[field].place != IN_LIST;
    case READING_LIMIT: return policy_settings[field].place != IN_POLICY;
    case READING_OVERRIDE: return policy_settings[field].uses & USE_OVERRIDE || field == FIELD_UNLIMITED;
    }
    return false;
}

static void refuse_unknown(struct reading *reading, const struct tree_node *node)
{
    static const char *const first_of_override[] = {"key", "match", "unlimited"};
    char any[FAULTS_KEY_MAX];
    const bool is_override = reading->kind == READING_OVERRIDE;
    snprintf(any, sizeof any, "policies.*.%.64s", node->key);
    const char *advice = is_override ? NULL : hint_not_built(any, NULL);

    struct nearest nearest = nearest_to(node->key);
    for (size_t i = 0; is_override && i < N_OF(first_of_override); i++) nearest_offer(&nearest, first_of_override[i]);
    for (size_t i = 0; i < N_POLICY_FIELDS; i++)
        if (may_stand(reading, i)) nearest_offer(&nearest, policy_settings[i].name);

    reading_path_to(reading, node->key);
    if (advice != NULL)
        faults_add(reading->faults, node->line, reading->path, "not built yet; %s", advice);
    else if (nearest.name != NULL)
        faults_add(reading->faults, node->line, reading->path, "no such setting; did you mean %s?", nearest.name);
    else
        faults_add(reading->faults, node->line, reading->path, "%s", refusals[reading->kind].unknown);
}

bool reading_gather(struct reading *reading)
{
    const struct tree_node *node = reading->node;
    const bool is_override = reading->kind == READING_OVERRIDE;
    if (node->kind == TREE_REFUSED) return false;
    if (node->kind != TREE_MAP) {
        faults_add(reading->faults, node->line, reading_path_to(reading, NULL), "%s",
                   refusals[reading->kind].not_a_map);
        return false;
    }

    for (const struct tree_node *child = node->first; child != NULL; child = child->next) {
        size_t i = 0;
        while (i < N_POLICY_FIELDS && strcmp(policy_settings[i].name, child->key) != 0) i++;
        if (is_override && strcmp(child->key, "key") == 0)
            reading->key = child;
        else if (is_override && strcmp(child->key, "match") == 0)
            reading->match = child;
        else if (i == N_POLICY_FIELDS)
            refuse_unknown(reading, child);
        else if (!may_stand(reading, i))
            faults_add(reading->faults, child->line, reading_path_to(reading, child->key), "%s",
                       refusals[reading->kind].misplaced);
        else
            reading->given[i] = child; /* if it is written twice, the last one, which the tree has refused */
    }

    /* The limits of a list have settings of their own. */
    for (size_t i = 0; i < N_POLICY_FIELDS && reading->given[FIELD_LIMITS] != NULL; i++) {
        if (reading->given[i] == NULL || policy_settings[i].place == IN_POLICY) continue;
        reading_refuse(reading, (enum policy_field)i, "does not go with limits; write it into the limits of that list");
    }
    return true;
}

bool reading_has(struct reading *reading, enum policy_field field)
{
    if (reading->given[field] != NULL) return true;
    reading_refuse(reading, field, "is missing; write %s", policy_settings[field].required);
    return false;
}

/* ---- Values ---- */

bool reading_value(struct reading *reading, enum policy_field field, int64_t *ret)
{
    char rate[HINT_MAX], shown[FAULTS_SHOWN_MAX];
    const struct tree_node *node = reading->given[field];
    if (node == NULL) return false;
    reading_path(reading, field);

    const char *meant = field == FIELD_LIMIT && node->kind == TREE_TEXT ? hint_rate(node->text, rate) : NULL;
    if (meant == NULL) return value_parse(&policy_settings[field].form, reading->path, node, reading->faults, ret);
    reading_refuse(reading, field, "%s is a rate; write %s", faults_shown(shown, node->text), meant);
    return false;
}

bool reading_unlimited(struct reading *reading)
{
    int64_t unlimited = 0;
    reading_value(reading, FIELD_UNLIMITED, &unlimited);
    for (size_t i = 0; i < N_POLICY_FIELDS && unlimited != 0; i++)
        if (i != FIELD_UNLIMITED && reading->given[i] != NULL)
            reading_refuse(reading, (enum policy_field)i, "does not go with unlimited: true%s; keep one of the two",
                           reading->kind == READING_POLICY ? ", which leaves nothing to set" : "");
    return unlimited != 0;
}

int reading_choice(struct reading *reading, enum policy_field field)
{
    int64_t place = 0;
    const struct value_form form = {.kind = VALUE_CHOICE, .choices = policy_settings[field].form.choices};
    const struct tree_node *node = reading->given[field];
    if (node != NULL) value_parse(&form, reading_path(reading, field), node, reading->faults, &place);
    return (int)place;
}

const char *reading_text(struct reading *reading, enum policy_field field)
{
    const struct tree_node *node = reading->given[field];
    return node != NULL ? value_parse_text(reading_path(reading, field), node, reading->faults) : NULL;
}
