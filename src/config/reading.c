#include "config/reading.h"

#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "config/not_built.h"

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

bool reading_is_name(const char *text)
{
    size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return len > 0 && len <= NAME_MAX_LEN && text[len] == '\0';
}

void reading_no_memory(struct faults *faults, uint32_t line)
{
    faults_no_memory(faults, line, "policies", "out of memory; give the daemon more, or write fewer policies");
}

/* Which settings are there */

/* Whether `field` is the policy's own, whatever limits it has. */
static bool is_of_policy(enum policy_field field)
{
    switch (field) {
    case FIELD_LIMITS:
    case FIELD_DEBT:
    case FIELD_KEY_FORMAT:
    case FIELD_OVERRIDES:
    case FIELD_UNLIMITED:
    case FIELD_PHASE:
    case FIELD_CANDIDATE:
    case FIELD_SHADOW:
    case FIELD_ON_FAILURE:
    case FIELD_IDEMPOTENCY_WINDOW:
    case FIELD_DEADLINE: return true;
    default: return false;
    }
}

static bool may_stand(const struct reading *reading, enum policy_field field)
{
    return reading->in_list ? !is_of_policy(field) : field != FIELD_NAME;
}

static void refuse_field(struct reading *reading, const struct tree_node *node)
{
    char any[FAULTS_KEY_MAX];
    snprintf(any, sizeof any, "policies.*.%.64s", node->key);
    const char *advice = not_built(any, NULL);
    reading_path_to(reading, node->key);
    if (advice != NULL) {
        faults_add(reading->faults, node->line, reading->path, "not built yet; %s", advice);
        return;
    }
    struct nearest nearest = nearest_to(node->key);
    for (size_t i = 0; i < N_POLICY_FIELDS; i++)
        if (may_stand(reading, i)) nearest_offer(&nearest, policy_settings[i].name);
    if (nearest.name != NULL)
        faults_add(reading->faults, node->line, reading->path, "no such setting; did you mean %s?", nearest.name);
    else
        faults_add(reading->faults, node->line, reading->path,
                   "no such setting; a %s, limit, window and others of ratelimitd.yaml(5)",
                   reading->in_list ? "limit has name, algorithm" : "policy has algorithm (or compat)");
}

static void refuse_place(struct reading *reading, const struct tree_node *node)
{
    faults_add(reading->faults, node->line, reading_path_to(reading, node->key), "%s",
               reading->in_list ? "is the policy's, not a limit's; write it beside limits"
                                : "names one of several limits; leave it out, or write the limit into a list limits");
}

/* The limits of a list have settings of their own. */
static void refuse_beside_list(struct reading *reading)
{
    for (size_t i = 0; i < N_POLICY_FIELDS && reading->given[FIELD_LIMITS] != NULL; i++) {
        if (reading->given[i] == NULL || is_of_policy(i)) continue;
        faults_add(reading->faults, reading->given[i]->line, reading_path(reading, i),
                   "stands beside limits; write it into the limits of that list");
    }
}

bool reading_gather(struct reading *reading)
{
    const struct tree_node *node = reading->node;
    if (node->kind == TREE_REFUSED) return false;
    if (node->kind != TREE_MAP) {
        faults_add(reading->faults, node->line, reading_path_to(reading, NULL),
                   reading->in_list ? "is no map; write {name: ..., algorithm: ..., limit: ..., window: ...}"
                                    : "is no map of settings; write algorithm, limit and window below it, indented");
        return false;
    }
    for (const struct tree_node *child = node->first; child != NULL; child = child->next) {
        size_t i = 0;
        while (i < N_POLICY_FIELDS && strcmp(policy_settings[i].name, child->key) != 0) i++;
        if (i == N_POLICY_FIELDS)
            refuse_field(reading, child);
        else if (!may_stand(reading, i))
            refuse_place(reading, child);
        else if (reading->given[i] == NULL)
            reading->given[i] = child;
    }
    refuse_beside_list(reading);
    return true;
}

bool reading_has(struct reading *reading, enum policy_field field)
{
    if (reading->given[field] != NULL) return true;
    const char *advice = field == FIELD_LIMIT ? "how many units a window has, e.g. limit: 100"
                         : field == FIELD_WINDOW
                             ? "how long a window is, e.g. window: 10s, or window: day with calendar_window"
                             : "what this limit is called in answers, e.g. name: day";
    faults_add(reading->faults, reading->node->line, reading_path(reading, field), "is missing; write %s", advice);
    return false;
}
