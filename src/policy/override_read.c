/*
 * override_read.c: one entry of `overrides:` after another becomes a variant of the policy.
 *
 * An entry says which keys (key or match) and what they get: unlimited: true, or numbers. A number
 * stands by itself where the policy has one limit, else in a map by the limits' names.
 *
 * A limit that other keys share (by) is one counter with several sets of numbers then. That goes for
 * counts, which are what they are whatever the limit; a bucket's level and a window's length mean
 * something only to those with the same rate.
 */
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "policy/policy.h"
#include "policy/reading.h"
#include "policy/value.h"

static const char *const other_names[] = {"key", "match", "unlimited"};

/* One entry while it is read. */
struct entry {
    struct reading *reading; /* of the policy */
    const struct policy *policy;
    const struct tree_node *node;
    const struct tree_node *key, *match, *unlimited;                   /* NULL = not written */
    const struct tree_node *target;                                    /* key or match */
    const struct tree_node *numbers[N_POLICY_FIELDS];                  /* likewise */
    const struct tree_node *given[POLICY_LIMITS_MAX][N_POLICY_FIELDS]; /* of each limit */
    char base[PATH_BASE_MAX + 24];                                     /* "policies.search.overrides[0]" */
    char path[FAULTS_KEY_MAX];                                         /* last asked for */
    struct faults *faults;
};

static bool may_change(size_t field)
{
    return policy_settings[field].uses & USE_OVERRIDE;
}

static const char *path_to(struct entry *entry, const char *field)
{
    snprintf(entry->path, sizeof entry->path, "%s%s%s", entry->base, field != NULL ? "." : "",
             field != NULL ? field : "");
    return entry->path;
}

static const char *path_of(struct entry *entry, enum policy_field field, const struct limit *limit)
{
    snprintf(entry->path, sizeof entry->path, "%s.%s%s%s", entry->base, policy_settings[field].name,
             limit->name[0] != '\0' ? "." : "", limit->name);
    return entry->path;
}

/* What stands in it */

static void refuse_unknown(struct entry *entry, const struct tree_node *node)
{
    struct nearest nearest = nearest_to(node->key);
    path_to(entry, node->key);
    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        if (strcmp(policy_settings[i].name, node->key) != 0) continue;
        faults_add(entry->faults, node->line, entry->path,
                   "is the same for every key; an override has limit, window, burst and max_wait, or unlimited: true");
        return;
    }
    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++) nearest_offer(&nearest, other_names[i]);
    for (size_t i = 0; i < N_POLICY_FIELDS; i++)
        if (may_change(i)) nearest_offer(&nearest, policy_settings[i].name);
    if (nearest.name != NULL)
        faults_add(entry->faults, node->line, entry->path, "no such setting; did you mean %s?", nearest.name);
    else
        faults_add(entry->faults, node->line, entry->path,
                   "no such setting; an override has key or match, and limit, window, burst, max_wait or unlimited");
}

static const struct tree_node **place_of(struct entry *entry, const char *name)
{
    if (strcmp(name, "key") == 0) return &entry->key;
    if (strcmp(name, "match") == 0) return &entry->match;
    if (strcmp(name, "unlimited") == 0) return &entry->unlimited;
    for (size_t i = 0; i < N_POLICY_FIELDS; i++)
        if (may_change(i) && strcmp(name, policy_settings[i].name) == 0) return &entry->numbers[i];
    return NULL;
}

static bool gather(struct entry *entry)
{
    if (entry->node->kind == TREE_REFUSED) return false;
    if (entry->node->kind != TREE_MAP) {
        faults_add(entry->faults, entry->node->line, path_to(entry, NULL),
                   "is not a map; write {key: ..., limit: ...} or {match: ..., unlimited: true}");
        return false;
    }
    for (const struct tree_node *child = entry->node->first; child != NULL; child = child->next) {
        const struct tree_node **place = place_of(entry, child->key);
        if (place == NULL)
            refuse_unknown(entry, child);
        else
            *place = child;
    }
    return true;
}

/* Which keys */

/* The key or pattern; NULL with the fault recorded. */
static const char *read_target(struct entry *entry)
{
    if (entry->key != NULL && entry->match != NULL) {
        faults_add(entry->faults, entry->match->line, path_to(entry, "match"),
                   "does not go with key; keep one of the two");
        return NULL;
    }
    const struct tree_node *node = entry->target = entry->key != NULL ? entry->key : entry->match;
    if (node == NULL) {
        faults_add(entry->faults, entry->node->line, path_to(entry, "key"),
                   "is missing; write the key, e.g. key: \"user:42\", or a pattern, e.g. match: \"partner:*\"");
        return NULL;
    }
    const char *text = value_parse_text(path_to(entry, entry->key != NULL ? "key" : "match"), node, entry->faults);
    if (text == NULL || text[0] != '\0') return text;
    faults_add(entry->faults, node->line, entry->path, "is empty, which no key is; write one");
    return NULL;
}

static void check_target(struct entry *entry, const char *text)
{
    const struct policy *policy = entry->policy;
    const struct tree_node *node = entry->target;
    if (overrides_written(policy->overrides, slice_of(text), entry->match != NULL) != NULL)
        faults_add(entry->faults, node->line, entry->path, "has an override already; keep one of the two");
    if (entry->key == NULL || policy->format == NULL || policy->format->n_parts == 0) return;
    if (key_format_takes(policy->format, slice_of(text))) return;
    faults_add(entry->faults, node->line, entry->path,
               "does not fit key_format %s, so nobody can ask for it; write a key that does", policy->format->text);
}

/* What they get */

/* May keys with another limit share this one's counters? */
static bool counts_for_all(const struct limit *limit)
{
    return !limit_is_bucket(limit) && !(limit->algo == ALGO_SLIDING_LOG && limit->count_denied);
}

static void read_number(struct entry *entry, enum policy_field field, struct limit *limit, const struct tree_node *node)
{
    const size_t index = (size_t)(limit - limit->policy->limits);
    path_of(entry, field, limit);
    entry->given[index][field] = node;
    if (!policy_setting_takes(field, limit)) {
        faults_add(entry->faults, node->line, entry->path, "is not a setting of %s; leave it out (it belongs to %s)",
                   limit_ops(limit)->name, policy_settings[field].takers);
        return;
    }
    if (field == FIELD_WINDOW && limit->calendar != NULL) {
        faults_add(entry->faults, node->line, entry->path,
                   "is the same for every key with calendar_window; override its limit, or write a policy of its own");
        return;
    }

    int64_t value;
    if (!value_parse(&policy_settings[field].form, entry->path, node, entry->faults, &value)) return;
    bool is_same = value == policy_setting_number(field, &entry->policy->limits[index]);
    bool is_free = field == FIELD_LIMIT && (value == 0 || counts_for_all(limit));
    if (limit->shared && !is_same && !is_free)
        faults_add(entry->faults, node->line, entry->path,
                   "would differ for keys that share one %s (by); leave it out, or override a limit of the whole key",
                   limit_ops(limit)->name);
    policy_setting_store(field, limit, value);
}

static struct limit *find_limit(struct policy *variant, const char *name)
{
    for (uint16_t i = 0; i < variant->n_limits; i++)
        if (variant->limits[i].name[0] != '\0' && strcmp(variant->limits[i].name, name) == 0)
            return &variant->limits[i];
    return NULL;
}

static void refuse_limit(struct entry *entry, enum policy_field field, const struct tree_node *node)
{
    char path[FAULTS_KEY_MAX];
    const struct policy *policy = entry->policy;
    struct nearest nearest = nearest_to(node->key);
    for (uint16_t i = 0; i < policy->n_limits; i++) nearest_offer(&nearest, policy->limits[i].name);
    snprintf(path, sizeof path, "%s.%s.%.64s", entry->base, policy_settings[field].name, node->key);
    if (policy->limits[0].name[0] == '\0')
        faults_add(entry->faults, node->line, path, "names a limit, and the policy's one has no name; write %s: %s",
                   policy_settings[field].name, node->kind == TREE_TEXT ? node->text : "and the number");
    else
        faults_add(entry->faults, node->line, path, "is no limit of this policy; %s %s?",
                   nearest.name != NULL ? "did you mean" : "is it",
                   nearest.name != NULL ? nearest.name : policy->limits[0].name);
}

/* For all limits that it names, or the only one. */
static void read_numbers(struct entry *entry, enum policy_field field, struct policy *variant)
{
    const struct tree_node *node = entry->numbers[field];
    if (node == NULL) return;
    if (node->kind != TREE_MAP && variant->n_limits > 1) {
        faults_add(entry->faults, node->line, path_to(entry, policy_settings[field].name),
                   "is one value, and the policy has several limits; write %s: {%s: ...} with the names of those meant",
                   policy_settings[field].name, variant->limits[0].name);
        return;
    }
    if (node->kind != TREE_MAP) {
        read_number(entry, field, &variant->limits[0], node);
        return;
    }
    for (const struct tree_node *child = node->first; child != NULL; child = child->next) {
        struct limit *limit = find_limit(variant, child->key);
        if (limit != NULL)
            read_number(entry, field, limit, child);
        else
            refuse_limit(entry, field, child);
    }
}

/* A limit of 0 has no capacity and no queue; a capacity that was not written follows the limit. */
static void settle(struct entry *entry, struct limit *limit, size_t index)
{
    const struct tree_node *const *given = entry->given[index];
    for (size_t i = 0; i < N_POLICY_FIELDS && limit->limit == 0; i++) {
        const enum policy_field field = (enum policy_field)i;
        if (!may_change(i) || field == FIELD_LIMIT || field == FIELD_WINDOW) continue;
        if (given[i] != NULL)
            faults_add(entry->faults, given[i]->line, path_of(entry, field, limit),
                       "means nothing with limit: 0, which denies always; leave it out");
        policy_setting_store(field, limit, 0);
    }
    bool is_default = given[FIELD_BURST] == NULL && !(entry->reading->own_bursts & 1U << index);
    if (limit_is_bucket(limit) && limit->limit > 0 && is_default) limit->burst = limit->limit;
}

/* What only the algorithm knows. */
static void prepare(struct entry *entry, struct limit *limit, size_t index)
{
    char prefix[KEY_HEAD_MAX];
    struct diag diag;
    snprintf(prefix, sizeof prefix, "%.*s", (int)limit->key_head_len - 1, limit->key_head);
    if (limit_prepare(limit, limit_ops(limit)->is_compat ? prefix : NULL, &diag) == 0) return;

    const struct tree_node *node = entry->given[index][diag.field];
    if (node != NULL)
        faults_add(entry->faults, node->line, path_of(entry, diag.field, limit), "%s", diag.text);
    else
        faults_add(entry->faults, entry->node->line, path_to(entry, NULL), "%s %s", policy_settings[diag.field].name,
                   diag.text);
}

static void read_variant(struct entry *entry, struct policy *variant)
{
    size_t n_errors = entry->faults->n_errors;
    for (size_t i = 0; i < N_POLICY_FIELDS; i++) read_numbers(entry, (enum policy_field)i, variant);
    for (uint16_t i = 0; i < variant->n_limits; i++) settle(entry, &variant->limits[i], i);
    for (uint16_t i = 0; i < variant->n_limits && entry->faults->n_errors == n_errors; i++)
        prepare(entry, &variant->limits[i], i);
}

/* unlimited: true, which excludes numbers; one of the two there must be. */
static bool read_unlimited(struct entry *entry)
{
    bool any = false;
    int64_t unlimited = 0;
    if (entry->unlimited != NULL)
        value_parse(&policy_settings[FIELD_UNLIMITED].form, path_to(entry, "unlimited"), entry->unlimited,
                    entry->faults, &unlimited);
    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        if (entry->numbers[i] == NULL) continue;
        any |= entry->numbers[i]->kind != TREE_MAP || entry->numbers[i]->first != NULL;
        if (unlimited != 0)
            faults_add(entry->faults, entry->numbers[i]->line, path_to(entry, policy_settings[i].name),
                       "does not go with unlimited: true; keep one of the two");
    }
    if (unlimited == 0 && !any)
        faults_add(entry->faults, entry->node->line, path_to(entry, NULL),
                   "changes nothing; write what is other for these keys, e.g. limit: 100 or unlimited: true");
    return unlimited != 0;
}

static void read_entry(struct entry *entry, struct policy *policy, bool is_sound)
{
    size_t n_errors = entry->faults->n_errors;
    if (!gather(entry)) return;
    const char *text = read_target(entry);
    if (text != NULL) check_target(entry, text);
    bool unlimited = read_unlimited(entry);
    if (!is_sound) return;
    struct policy *variant = policy_variant(policy, unlimited);
    if (variant != NULL && !unlimited) read_variant(entry, variant);

    /* Of a target that the file's reader has refused (twice there, an alias), there is no text and no fault of ours. */
    bool is_bad = entry->faults->n_errors > n_errors || text == NULL;
    if (!is_bad && variant != NULL && overrides_add(policy->overrides, text, entry->match != NULL, variant) == 0)
        return;
    policy_free(variant);
    if (!is_bad) reading_no_memory(entry->faults, entry->node->line);
}

void override_read_all(struct reading *reading, struct policy *policy, bool is_sound)
{
    const struct tree_node *list = reading->given[FIELD_OVERRIDES];
    size_t n = 0;
    if (list == NULL || list->kind == TREE_REFUSED) return;
    if (list->kind != TREE_LIST) {
        faults_add(reading->faults, list->line, reading_path(reading, FIELD_OVERRIDES),
                   "is not a list; write a line below it for each, - {key: ..., limit: ...}");
        return;
    }
    for (const struct tree_node *node = list->first; node != NULL; node = node->next) n++;
    if (n == 0) return;
    policy->overrides = overrides_new(n);
    if (policy->overrides == NULL) {
        reading_no_memory(reading->faults, list->line);
        return;
    }
    n = 0;
    for (const struct tree_node *node = list->first; node != NULL; node = node->next) {
        struct entry entry = {.reading = reading, .policy = policy, .node = node, .faults = reading->faults};
        snprintf(entry.base, sizeof entry.base, "%s.overrides[%zu]", reading->base, n++);
        read_entry(&entry, policy, is_sound);
    }
}
