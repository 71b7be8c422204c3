/*
 * policies.c: policies and limits as maps.
 *
 * Overrides are listed with what they change. There may be more of them than a client wants in one answer, so the list
 * ends where the answer's space for them does; their number is always there.
 */
#include "server/policies.h"

#include <stdio.h>
#include <string.h>

#include "policy/policy_setting.h"

enum {
    OVERRIDES_SPACE = 1 << 20,        /* bytes of one answer for the overrides of all policies; a client takes 4 MiB */
    INLINE_OVERRIDES_SPACE = 1 << 18, /* the same of inline policies */
    OVERRIDE_SIZE = 48,               /* bytes of one besides its text and its limits, at most */
    CHANGE_SIZE = 176,                /* of one limit that it changes */
    NAME_SIZE = 32,                   /* of a setting, and its unit */
    POLICY_UNITS = 4,                 /* of work, to pack one policy */
    OVERRIDES_AT_ONCE = 16,           /* each about a unit of work */
    NETWORKS_PER_UNIT = 16,
};

/* Durations are in whole milliseconds, rounded up, and their names say so. */
static void pack_value(struct packer *packer, const struct setting_value *value, const struct policy *policy)
{
    char name[NAME_SIZE], text[UNITS_TEXT_MAX];
    const struct value_type type = {.kind = value->kind};
    bool is_span = value->kind == VALUE_SPAN;
    snprintf(name, sizeof name, "%s%s", policy_settings[value->field].name, is_span ? "_ms" : "");
    pack_text(packer, name);

    switch (value->kind) {
    case VALUE_SPAN: pack_int(packer, div_up(value->number, 1000)); break;
    case VALUE_BOOL: pack_bool(packer, value->number != 0); break;
    case VALUE_WORD:
    case VALUE_TEXT: pack_str_of(packer, &value->text, 1); break;
    case VALUE_PARTS: {
        const struct key_format *format = policy->format;
        key_parts parts = (key_parts)value->number;
        pack_array(packer, (uint32_t)__builtin_popcount(parts));
        for (int i = 0; i < format->n_parts; i++)
            if (parts & 1U << i) pack_str_of(packer, &format->names[i], 1);
        break;
    }
    case VALUE_DATE: pack_text(packer, value_print(&type, value->number, text)); break;
    case VALUE_PENALTY:
        pack_map(packer, 4);
        pack_int_field(packer, "time_ms", value->penalty->time_ms);
        pack_int_field(packer, "factor", value->penalty->factor);
        pack_int_field(packer, "max_ms", value->penalty->max_ms);
        pack_int_field(packer, "forget_ms", value->penalty->forget_ms);
        break;
    default: pack_int(packer, value->number);
    }
}

void policies_pack_limit(struct packer *packer, const struct limit *limit, uint32_t n_more)
{
    struct setting_value values[N_POLICY_FIELDS];
    size_t n = policy_setting_values(limit->policy, limit, USE_ANSWER, values);

    pack_map(packer, (uint32_t)n + limit->phase + n_more);
    for (size_t i = 0; i < n; i++) pack_value(packer, &values[i], limit->policy);
    if (limit->phase) pack_bool_field(packer, "phase", true); /* the policy's setting, but only such limits have it */
}

/* The numbers of a variant's limit that are not those of the policy's own. */
static size_t changes(const struct limit *limit, const struct limit *base, struct setting_value ret[N_POLICY_FIELDS])
{
    struct setting_value values[N_POLICY_FIELDS];
    size_t n_values = policy_setting_values(limit->policy, limit, USE_ANSWER, values), n = 0;
    for (size_t i = 0; i < n_values; i++) {
        const enum policy_field field = values[i].field;
        if (!(policy_settings[field].uses & USE_OVERRIDE)) continue;
        if (policy_setting_number(field, limit) != policy_setting_number(field, base)) ret[n++] = values[i];
    }
    return n;
}

/* Each is a line of `text`. Returns their number. */
static uint32_t pack_networks(struct packer *packer, const char *text)
{
    uint32_t n = 1, n_packed;
    for (const char *at = text; *at != '\0'; at++) n += *at == '\n';
    pack_array(packer, n);
    for (n_packed = 0; n_packed < n; n_packed++) {
        const struct slice network = {(const uint8_t *)text, strcspn(text, "\n")};
        pack_str_of(packer, &network, 1);
        text += network.len + 1;
    }
    return n;
}

/* Returns the units of work. */
static uint32_t pack_override(struct packer *packer, const struct override *item)
{
    const struct policy *variant = item->variant;
    struct setting_value values[N_POLICY_FIELDS];
    uint32_t n_changed = 0, units = 1;
    bool has_part = item->kind == OVERRIDE_OF_NETWORKS && variant->format != NULL;
    pack_map(packer, 2U + has_part);
    if (item->kind == OVERRIDE_OF_NETWORKS) {
        pack_text(packer, "cidr");
        units += pack_networks(packer, item->text) / NETWORKS_PER_UNIT;
    } else {
        pack_text_field(packer, item->kind == OVERRIDE_OF_KEY ? "key" : "match", item->text);
    }
    if (has_part) {
        pack_text(packer, "part");
        pack_str_of(packer, &variant->format->names[item->part], 1);
    }
    if (variant->unlimited) {
        pack_bool_field(packer, "unlimited", true);
        return units;
    }

    for (uint16_t i = 0; i < variant->n_limits; i++)
        n_changed += changes(&variant->limits[i], &variant->base->limits[i], values) > 0;
    pack_text(packer, "limits");
    pack_array(packer, n_changed);
    for (uint16_t i = 0; i < variant->n_limits; i++) {
        const struct limit *limit = &variant->limits[i];
        bool is_named = limit->name[0] != '\0';
        size_t n = changes(limit, &variant->base->limits[i], values);
        if (n == 0) continue;
        pack_map(packer, (uint32_t)n + is_named);
        if (is_named) pack_text_field(packer, "name", limit->name);
        for (size_t j = 0; j < n; j++) pack_value(packer, &values[j], variant);
    }
    return units;
}

/* How many of them the answer has space for. */
static size_t count_overrides(const struct overrides *overrides, size_t *space)
{
    size_t n = 0;
    for (; n < overrides->n; n++) {
        const struct override *item = &overrides->items[n];
        size_t text_len = strlen(item->text), len = OVERRIDE_SIZE + text_len + item->variant->n_limits * CHANGE_SIZE;
        if (item->kind == OVERRIDE_OF_NETWORKS) len += text_len / 32 + KEY_FORMAT_MAX; /* longer heads, the part */
        if (len > *space) break;
        *space -= len;
    }
    return n;
}

static void pack_limits(struct packer *packer, const char *name, const struct policy *policy)
{
    pack_text(packer, name);
    pack_array(packer, policy->n_limits);
    for (uint16_t i = 0; i < policy->n_limits; i++) policies_pack_limit(packer, &policy->limits[i], 0);
}

/* What comes before its overrides, of which so many are listed. */
static void pack_head(struct packer *packer, const struct policy *policy, bool is_inline, size_t n_overrides)
{
    struct setting_value values[N_POLICY_FIELDS];
    size_t n = policy_setting_values(policy, NULL, USE_ANSWER, values);
    bool has_overrides = policy->overrides != NULL;
    bool has_label = strcmp(policy->label, policy->name) != 0, has_id = policy->id != NULL;

    pack_map(packer, (uint32_t)n + 6U + is_inline + has_label + has_id + (has_overrides ? 2U : 0U) +
                         (policy->candidate != NULL ? 5U : 0U));
    pack_text_field(packer, "name", policy->name);
    if (is_inline) pack_bool_field(packer, "inline", true);
    if (has_label) pack_text_field(packer, "label", policy->label);
    if (has_id) pack_text_field(packer, "id", policy->id);
    pack_uint_field(packer, "version", policy->version);
    for (size_t i = 0; i < n; i++) pack_value(packer, &values[i], policy);
    if (!has_overrides) return;

    pack_uint_field(packer, "overrides", policy->overrides->n);
    pack_text(packer, "override_list");
    pack_array(packer, (uint32_t)n_overrides);
}

static void pack_tail(struct packer *packer, const struct policy *policy)
{
    const struct policy *candidate = policy->candidate;
    pack_limits(packer, "limits", policy);
    pack_uint_field(packer, "allowed", policy_counts_allowed(policy->counts));
    pack_uint_field(packer, "denied", policy_counts_denied(policy->counts));
    pack_uint_field(packer, "shadow_denied", policy->counts->all.shadow_denied);
    if (candidate == NULL) return;

    pack_limits(packer, "candidate", candidate);
    pack_uint_field(packer, "candidate_allowed", candidate->counts->candidate_allowed);
    pack_uint_field(packer, "candidate_denied", candidate->counts->candidate_denied);
    pack_uint_field(packer, "candidate_only_allowed", candidate->counts->candidate_only_allowed);
    pack_uint_field(packer, "candidate_only_denied", candidate->counts->candidate_only_denied);
}

uint32_t policies_pack_inline(struct policies_pieces *pieces, struct packer *packer, const struct policy *policy)
{
    const struct overrides *overrides = policy->overrides;
    size_t n = overrides != NULL ? count_overrides(overrides, &pieces->inline_overrides_space) : 0;
    uint32_t units = POLICY_UNITS;
    pack_head(packer, policy, true, n);
    for (size_t i = 0; i < n; i++) units += pack_override(packer, &overrides->items[i]);
    pack_tail(packer, policy);
    return units;
}

/* ---- in pieces ---- */

bool policies_begin(struct policies_pieces *pieces, const struct policy_set *set, const struct policies_page *page)
{
    bool is_page = page->max > 0;
    size_t first = is_page ? policy_set_after(set, page->after) : 0;
    *pieces = (struct policies_pieces){.policies = (is_page ? set->by_bytes : set->in_order) + first,
                                       .n = set->n - first,
                                       .overrides_space = OVERRIDES_SPACE,
                                       .inline_overrides_space = INLINE_OVERRIDES_SPACE};
    if (!is_page || pieces->n < page->max) return true;
    pieces->n = page->max;
    return false;
}

uint32_t policies_next(struct policies_pieces *pieces, struct packer *packer)
{
    if (pieces->next == pieces->n) return 0;
    const struct policy *policy = pieces->policies[pieces->next];

    if (pieces->n_overrides > 0) {
        /* Some of the overrides, and with the last one what comes after them. */
        size_t end = pieces->next_override + OVERRIDES_AT_ONCE;
        uint32_t units = 0;
        if (end > pieces->n_overrides) end = pieces->n_overrides;
        for (; pieces->next_override < end; pieces->next_override++)
            units += pack_override(packer, &policy->overrides->items[pieces->next_override]);
        if (end < pieces->n_overrides) return units;

        pack_tail(packer, policy);
        pieces->next++;
        pieces->next_override = pieces->n_overrides = 0;
        return units + POLICY_UNITS;
    }

    if (policy->overrides != NULL) pieces->n_overrides = count_overrides(policy->overrides, &pieces->overrides_space);
    pack_head(packer, policy, false, pieces->n_overrides);
    if (pieces->n_overrides > 0) return POLICY_UNITS + (uint32_t)pieces->n_overrides / OVERRIDES_AT_ONCE;

    pack_tail(packer, policy);
    pieces->next++;
    return POLICY_UNITS;
}
