/*
 * override_read.c: turns each entry of `overrides:` into a variant of the policy.
 *
 * An entry names its keys (key, or match: a pattern or networks) and what they get: unlimited: true, or numbers. A
 * number is written by itself if the policy has one limit, else in a map by the limits' names.
 *
 * A limit that keys share (by) is then one counter with several sets of numbers. Counts allow that: they
 * mean the same under any limit. A bucket's level and a window's length mean something only to those
 * with the same rate.
 */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/nearest.h"
#include "policy/policy.h"
#include "policy/reading.h"
#include "policy/value.h"

/* One entry while it is read. */
struct entry {
    struct reading map;
    const struct policy *policy;
    enum override_kind kind;
    int part;
    struct buffer networks;                                            /* of the kind: as text, one a line, and a NUL */
    uint16_t own_bursts;                                               /* of the policy: see reading.h */
    const struct tree_node *given[POLICY_LIMITS_MAX][N_POLICY_FIELDS]; /* of each limit; NULL = not written */
};

/* The path of a number: by itself, or in a map by the limits' names. */
static const char *path_of_number(struct entry *entry, enum policy_field field, const struct limit *limit)
{
    snprintf(entry->map.path, sizeof entry->map.path, "%s.%s%s%s", entry->map.base, policy_settings[field].name,
             limit->name[0] != '\0' ? "." : "", limit->name);
    return entry->map.path;
}

/* ---- Which keys ---- */

/* May an address have the literal in it? Then the part ends too early, or only there. */
static bool is_in_addresses(struct slice literal)
{
    for (size_t i = 0; i < literal.len; i++)
        if (strchr("0123456789abcdefABCDEF:.", literal.data[i]) == NULL) return false;
    return literal.len > 0;
}

/* Which part of the key is the address; 0 if it is the whole key. */
static void read_part(struct entry *entry, const struct tree_node *node)
{
    const struct key_format *format = entry->policy->format;
    struct faults *faults = entry->map.faults;
    char shown[FAULTS_SHOWN_MAX], other[FAULTS_SHOWN_MAX];
    if (format != NULL && format->n_parts == 0) return; /* it has a fault */
    if (node == NULL && format != NULL && (format->n_parts > 1 || format->start.len > 0))
        faults_add(faults, entry->map.match->line, reading_path_to(&entry->map, "match.part"),
                   "is missing, and a key has more in it than the address; write which part of key_format %s is one",
                   faults_shown(shown, format->text));
    const char *path = reading_path_to(&entry->map, "match.part");
    const char *name = node != NULL ? value_parse_text(path, node, faults) : NULL;
    if (name == NULL) return;
    if (format == NULL) {
        faults_add(
            faults, node->line, path,
            "needs key_format; write for instance key_format: \"{user}|{ip}\", or leave part out if the whole key "
            "is the address");
        return;
    }

    int part = key_format_find(format, slice_of(name));
    if (part < 0)
        faults_add(faults, node->line, path, "%s is not a part of key_format %s; write one of those",
                   faults_shown(shown, name), faults_shown(other, format->text));
    else if (is_in_addresses(format->literals[part]))
        faults_add(
            faults, node->line, path,
            "%s ends with %.*s in key_format, which an address may have in it; put the part last, or write another "
            "literal behind it, such as |",
            faults_shown(shown, name), (int)format->literals[part].len, (const char *)format->literals[part].data);
    else
        entry->part = part;
}

static void read_network(struct entry *entry, const struct tree_node *node, struct overrides *overrides)
{
    char shown[FAULTS_SHOWN_MAX], wrong[NETWORK_WRONG_MAX], text[NETWORK_TEXT_MAX];
    struct network network;
    struct faults *faults = entry->map.faults;
    const char *path = reading_path_to(&entry->map, "match.cidr"), *written = value_parse_text(path, node, faults);
    if (written == NULL) return;
    if (!network_parse(written, &network, wrong)) {
        faults_add(faults, node->line, path, "%s %s", faults_shown(shown, written), wrong);
        return;
    }

    network.part = (uint8_t)entry->part;
    network.override = (uint32_t)overrides->n;
    network.line = node->line;
    size_t len = strlen(network_print(&network, text));
    if (overrides->networks.n == NETWORKS_MAX)
        faults_add(faults, node->line, path,
                   "%s is one more than the %d networks that a policy may have; join neighbours into larger ones",
                   faults_shown(shown, written), NETWORKS_MAX);
    if (buffer_len(&entry->networks) > 0) buffer_data(&entry->networks)[buffer_len(&entry->networks) - 1] = '\n';
    if (buffer_append(&entry->networks, text, len + 1) < 0 || network_set_add(&overrides->networks, &network) < 0)
        reading_no_memory(faults, node->line);
}

/* match: {cidr: [...], part: ...}. The networks as text; NULL with the fault recorded. */
static const char *read_networks(struct entry *entry)
{
    static const struct value_type type = {
        .kind = VALUE_LIST, .max = INT64_MAX, INSTEAD("networks in brackets, e.g. cidr: [10.0.0.0/8]")};
    const struct tree_node *cidr = NULL, *part = NULL;
    struct faults *faults = entry->map.faults;
    for (const struct tree_node *child = entry->map.match->first; child != NULL; child = child->next) {
        if (strcmp(child->key, "cidr") == 0)
            cidr = child;
        else if (strcmp(child->key, "part") == 0)
            part = child;
        else
            faults_add(faults, child->line, reading_path_to(&entry->map, "match"),
                       "has %.64s, and a map here has cidr and part alone; write {cidr: [10.0.0.0/8]}, or a pattern",
                       child->key);
    }

    entry->kind = OVERRIDE_OF_NETWORKS;
    read_part(entry, part);
    const char *path = reading_path_to(&entry->map, "match.cidr");
    if (cidr == NULL || (cidr->kind == TREE_LIST && cidr->first == NULL))
        faults_add(faults, cidr != NULL ? cidr->line : entry->map.match->line, path,
                   "has no network; write some, e.g. cidr: [10.0.0.0/8]");
    else if (value_parse_list(&type, path, cidr, faults))
        for (const struct tree_node *node = cidr->first; node != NULL; node = node->next)
            read_network(entry, node, entry->policy->overrides);
    return buffer_len(&entry->networks) > 0 ? (const char *)buffer_data(&entry->networks) : NULL;
}

/* The key, the pattern or the networks; NULL with the fault recorded. */
static const char *read_target(struct entry *entry)
{
    struct reading *map = &entry->map;
    const struct policy *policy = entry->policy;
    const struct tree_node *node = map->key != NULL ? map->key : map->match;
    struct faults *faults = map->faults;
    if (map->key != NULL && map->match != NULL) {
        faults_add(faults, map->match->line, reading_path_to(map, "match"),
                   "does not go with key; keep one of the two");
        return NULL;
    }
    if (node == NULL) {
        faults_add(faults, map->node->line, reading_path_to(map, "key"),
                   "is missing; write the key, e.g. key: \"user:42\", or a pattern, e.g. match: \"partner:*\"");
        return NULL;
    }

    if (map->match != NULL && node->kind == TREE_MAP) return read_networks(entry);
    entry->kind = map->match != NULL ? OVERRIDE_OF_PATTERN : OVERRIDE_OF_KEY;
    const char *text = value_parse_text(reading_path_to(map, map->key != NULL ? "key" : "match"), node, faults);
    if (text == NULL) return NULL;
    if (text[0] == '\0') {
        faults_add(faults, node->line, map->path, "is empty; write a key, or a pattern");
        return NULL;
    }

    size_t len = strlen(text);
    if (map->match != NULL && (text[0] == '^' || text[len - 1] == '$' || strstr(text, ".*") != NULL))
        faults_warn(faults, node->line, map->path,
                    "looks like a regular expression, and patterns are globs: * stands for any characters, and all "
                    "others, ^, $ and . too, for themselves");

    const struct key_format *format = policy->format;
    if (overrides_written(policy->overrides, slice_of(text), entry->kind, 0) != NULL)
        faults_add(faults, node->line, map->path, "has an override already; keep one of the two");
    char shown[FAULTS_SHOWN_MAX];
    if (map->key != NULL && format != NULL && format->n_parts > 0 && !key_format_takes(format, slice_of(text)))
        faults_add(faults, node->line, map->path,
                   "does not fit key_format %s, so no client can ask for it; write a key that does",
                   faults_shown(shown, format->text));
    return text;
}

/* ---- What they get ---- */

static void override_number(struct entry *entry, enum policy_field field, struct limit *limit,
                            const struct tree_node *node)
{
    const size_t index = (size_t)(limit - limit->policy->limits);
    struct faults *faults = entry->map.faults;
    const char *path = path_of_number(entry, field, limit);
    entry->given[index][field] = node;
    if (!policy_setting_takes(field, limit)) {
        faults_add(faults, node->line, path, "is not a setting of %s; leave it out (it belongs to %s)",
                   limit_ops(limit)->name, policy_settings[field].takers);
        return;
    }
    if (field == FIELD_WINDOW && limit->calendar != NULL) {
        faults_add(faults, node->line, path,
                   "is the same for every key with calendar_window; override its limit, or write a policy of its own");
        return;
    }

    int64_t value;
    if (!value_parse(&policy_settings[field].type, path, node, faults, &value)) return;
    bool is_same = value == policy_setting_number(field, &entry->policy->limits[index]);
    /* May keys with another limit share this one's counters? Not its pauses. */
    bool counts_for_all = !limit_is_bucket(limit) && !(limit->algo == ALGO_SLIDING_LOG && limit->count_denied) &&
                          !limit_has_penalty(limit);
    bool is_free = field == FIELD_LEASE || (field == FIELD_LIMIT && (value == 0 || counts_for_all));
    if (limit->shared && !is_same && !is_free)
        faults_add(faults, node->line, path,
                   "would differ for keys that share one %s (by); leave it out, or override a limit of the whole key",
                   limit_ops(limit)->name);
    setting_store(&policy_settings[field], limit, value);
}

static void refuse_limit(struct entry *entry, enum policy_field field, const struct tree_node *node)
{
    char path[FAULTS_KEY_MAX];
    const struct policy *policy = entry->policy;
    struct nearest nearest = nearest_to(node->key);
    for (uint16_t i = 0; i < policy->n_limits; i++) nearest_offer(&nearest, policy->limits[i].name);

    snprintf(path, sizeof path, "%s.%s.%.64s", entry->map.base, policy_settings[field].name, node->key);
    if (policy->limits[0].name[0] == '\0')
        faults_add(entry->map.faults, node->line, path, "names a limit, and the policy's one has no name; write %s: %s",
                   policy_settings[field].name, node->kind == TREE_TEXT ? node->text : "and the number");
    else
        faults_add(entry->map.faults, node->line, path, "is no limit of this policy; %s %s?",
                   nearest.name != NULL ? "did you mean" : "is it",
                   nearest.name != NULL ? nearest.name : policy->limits[0].name);
}

/* For all limits that the entry names, or for the only one. */
static void read_numbers(struct entry *entry, enum policy_field field, struct policy *variant)
{
    const struct tree_node *node = entry->map.given[field];
    if (node->kind != TREE_MAP && variant->n_limits > 1) {
        reading_refuse(
            &entry->map, field,
            "is one value, and the policy has several limits; write %s: {%s: ...} with the names of those meant",
            policy_settings[field].name, variant->limits[0].name);
        return;
    }
    if (node->kind != TREE_MAP) {
        override_number(entry, field, &variant->limits[0], node);
        return;
    }

    for (const struct tree_node *child = node->first; child != NULL; child = child->next) {
        uint16_t i = 0;
        while (i < variant->n_limits && strcmp(variant->limits[i].name, child->key) != 0) i++;
        if (i < variant->n_limits && child->key[0] != '\0')
            override_number(entry, field, &variant->limits[i], child);
        else
            refuse_limit(entry, field, child);
    }
}

/* A limit of 0 has no capacity and no queue; a capacity that was not written follows the limit. */
static void complete_limit(struct entry *entry, struct limit *limit, size_t index)
{
    const struct tree_node *const *given = entry->given[index];
    for (size_t i = 0; i < N_POLICY_FIELDS && limit->limit == 0; i++) {
        const enum policy_field field = (enum policy_field)i;
        if (!(policy_settings[i].uses & USE_OVERRIDE) || field == FIELD_LIMIT || field == FIELD_WINDOW) continue;
        if (given[i] != NULL)
            faults_add(entry->map.faults, given[i]->line, path_of_number(entry, field, limit),
                       "means nothing with limit: 0, which denies always; leave it out");
        setting_store(&policy_settings[i], limit, 0);
    }

    bool is_default = given[FIELD_BURST] == NULL && !(entry->own_bursts & 1U << index);
    if (limit_is_bucket(limit) && limit->limit > 0 && is_default) limit->burst = limit->limit;
}

static void read_variant(struct entry *entry, struct policy *variant)
{
    struct faults *faults = entry->map.faults;
    size_t n_errors = faults->n_errors;
    for (size_t i = 0; i < N_POLICY_FIELDS; i++)
        if (entry->map.given[i] != NULL && i != FIELD_UNLIMITED) read_numbers(entry, (enum policy_field)i, variant);
    for (uint16_t i = 0; i < variant->n_limits; i++) complete_limit(entry, &variant->limits[i], i);

    /* What only the algorithm knows. */
    for (uint16_t i = 0; i < variant->n_limits && faults->n_errors == n_errors; i++) {
        struct limit *limit = &variant->limits[i];
        struct diag diag;
        if (limit_prepare(limit, &diag) == 0) {
            if (variant->id != NULL) policy_name_keys(limit); /* else its keys begin as the base's */
            continue;
        }

        const enum policy_field field = policy_field_at_fault(&diag);
        const struct tree_node *node = entry->given[i][field];
        if (node != NULL)
            faults_add(faults, node->line, path_of_number(entry, field, limit), "%s", diag.text);
        else
            faults_add(faults, entry->map.node->line, reading_path_to(&entry->map, NULL), "%s %s", diag.setting,
                       diag.text);
    }
}

static void read_override(struct entry *entry, struct policy *policy, bool is_sound)
{
    struct reading *map = &entry->map;
    size_t n_errors = map->faults->n_errors;
    if (!reading_gather(map)) return;
    const char *text = read_target(entry);
    bool unlimited = reading_unlimited(map), any = unlimited;
    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        const struct tree_node *node = i != FIELD_UNLIMITED ? map->given[i] : NULL;
        any |= node != NULL && (node->kind != TREE_MAP || node->first != NULL);
    }
    if (!any)
        faults_add(map->faults, map->node->line, reading_path_to(map, NULL),
                   "changes nothing; write what is other for these keys, e.g. limit: 100 or unlimited: true");
    if (!is_sound) return;

    struct policy *variant = policy_variant(policy, unlimited);
    if (variant != NULL && !unlimited) read_variant(entry, variant);

    /* The reader of the file may have refused the key (written twice, an alias). Then it has no text, and its fault is
     * already recorded. */
    bool is_bad = map->faults->n_errors > n_errors || text == NULL;
    if (!is_bad && variant != NULL && overrides_add(policy->overrides, text, entry->kind, entry->part, variant) == 0)
        return;
    policy_free(variant);
    if (!is_bad) reading_no_memory(map->faults, map->node->line);
}

void override_read_all(struct reading *reading, struct policy *policy, bool is_sound)
{
    const struct tree_node *list = reading->given[FIELD_OVERRIDES];
    size_t n = reading_is_list(reading, FIELD_OVERRIDES) ? tree_count(list) : 0, i = 0;
    if (n == 0) return;
    policy->overrides = overrides_new(n);
    if (policy->overrides == NULL) {
        reading_no_memory(reading->faults, list->line);
        return;
    }
    for (const struct tree_node *node = list->first; node != NULL; node = node->next) {
        struct entry entry = {.map = {.kind = MAP_OVERRIDE, .node = node, .id = reading->id, .faults = reading->faults},
                              .policy = policy,
                              .own_bursts = reading->own_bursts};
        snprintf(entry.map.base, sizeof entry.map.base, "%.88s.overrides[%zu]", reading->base, i++);
        read_override(&entry, policy, is_sound);
        buffer_fini(&entry.networks);
    }

    /* Which of the networks are the same shows once they are in order. */
    char text[NETWORK_TEXT_MAX];
    struct network_set *set = &policy->overrides->networks;
    if (network_set_seal(set) < 0) reading_no_memory(reading->faults, list->line);
    for (size_t k = 1; k < set->n; k++) {
        const struct network *network = &set->networks[k], *first = network - 1;
        if (network_is_same(first, network))
            faults_add(reading->faults, network->line, reading_path(reading, FIELD_OVERRIDES),
                       "%s is written twice, first on line %u; keep one of the two", network_print(network, text),
                       first->line);
    }
}
