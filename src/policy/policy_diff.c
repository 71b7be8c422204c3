/* policy_diff.c: pairs the policies and limits of two sets, and compares them, for config/config_diff.c. */
#include "policy/policy_diff.h"

#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "limit/limit.h"
#include "policy/override.h"
#include "policy/policy_setting.h"

enum { SHOWN_MAX = KEY_FORMAT_MAX + 1 };
_Static_assert((int)SHOWN_MAX >= (int)PENALTY_TEXT_MAX, "either fits");

/* ---- Settings ---- */

/* A value as in a configuration file, but without quotes. */
static struct slice shown(const struct setting_value *value, const struct policy *policy, char out[SHOWN_MAX])
{
    const struct value_type type = {.kind = value->kind};
    size_t len = 0;
    switch (value->kind) {
    case VALUE_WORD:
    case VALUE_TEXT: return value->text;
    case VALUE_PARTS:
        out[len++] = '[';
        for (int i = 0; i < policy->format->n_parts; i++) {
            const struct slice *name = &policy->format->names[i];
            if (!(value->number & 1U << i)) continue;
            len += (size_t)snprintf(out + len, SHOWN_MAX - len, "%s%.*s", len > 1 ? ", " : "", (int)name->len,
                                    (const char *)name->data);
            if (len >= SHOWN_MAX - 2) len = SHOWN_MAX - 2;
        }
        out[len++] = ']';
        return (struct slice){(const uint8_t *)out, len};
    case VALUE_PENALTY: return slice_of(value_print_penalty(value->penalty, out));
    default: return slice_of(value_print(&type, value->number, out));
    }
}

static const struct setting_value *find_value(const struct setting_value *values, size_t n, enum policy_field field)
{
    for (size_t i = 0; i < n; i++)
        if (values[i].field == field) return &values[i];
    return NULL;
}

/* What a setting is if policy_setting_values() leaves it out. */
static struct slice absent(enum policy_field field)
{
    const struct value_type *type = &policy_settings[field].type;
    if (field == FIELD_BY) return slice_of("the whole key");
    if (type->kind == VALUE_CHOICE) return value_choice(type->choices, 0);
    return slice_of(type->kind == VALUE_BOOL ? "false" : "not set");
}

/* The settings of a limit, or of the policies themselves if `x` and `y` are NULL. With another algorithm most settings
 * are others; only those that both have are compared. */
static void add_settings(struct change *change, const struct policy *before, const struct limit *x,
                         const struct policy *after, const struct limit *y)
{
    struct setting_value old[N_POLICY_FIELDS], new[N_POLICY_FIELDS];
    char old_text[SHOWN_MAX], new_text[SHOWN_MAX];
    size_t n_old = policy_setting_values(before, x, USE_PRINT, old);
    size_t n_new = policy_setting_values(after, y, USE_PRINT, new);
    bool same_algo = x == NULL || x->algo == y->algo, only_unlimited = before->unlimited || after->unlimited;

    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        const enum policy_field field = (enum policy_field)i;
        const struct setting_value *a = find_value(old, n_old, field), *b = find_value(new, n_new, field);
        bool is_one = a == NULL || b == NULL;
        if (field == FIELD_NAME || (a == NULL && b == NULL)) continue;
        if (x == NULL && only_unlimited && field != FIELD_UNLIMITED) continue; /* nothing else means anything */
        if (is_one && field == FIELD_LOCAL_SHARE) continue;                    /* on_failure says it */
        if (is_one && !same_algo && field != FIELD_ALGORITHM && field != FIELD_COMPAT && field != FIELD_BY) continue;

        struct slice from = a != NULL ? shown(a, before, old_text) : absent(field);
        struct slice to = b != NULL ? shown(b, after, new_text) : absent(field);
        if (!slice_eq(from, to)) change_add_value(change, policy_settings[i].name, from, to);
    }
}

/* ---- Counters ---- */

/*
 * What becomes of the states that exist when a limit's settings change (lua/ALGORITHMS.md, "Settings changed"). Nothing
 * here lists what keeps and what starts afresh. Keys are compared by the names that limit_set_key_head() gave them, and
 * a state is made under the old settings and viewed under the new ones, by the functions that decide checks.
 */

/* A key of its own never meets another one, so any will do. */
static const struct slice any_key = {(const uint8_t *)"", 0};

/* Have the limits the same keys, for states of one form, in the store that has them? In Redis presets of two systems
 * may share a key; in memory each algorithm has its own. */
static bool same_keys(const struct changes *changes, const struct limit *x, const struct limit *y)
{
    const struct policy *before = x->policy, *after = y->policy;
    const struct algo_ops *a = limit_ops(x), *b = limit_ops(y);
    bool same_form = x->algo == y->algo || (changes->in_redis && a->is_compat && b->is_compat && a->kind == b->kind &&
                                            a->name_window == b->name_window);
    if (!same_form || strcmp(x->key_head, y->key_head) != 0) return false;

    key_parts parts_x = x->shared ? x->parts : before->format != NULL ? key_format_all(before->format) : 0;
    key_parts parts_y = y->shared ? y->parts : after->format != NULL ? key_format_all(after->format) : 0;
    if (!key_format_same_ids(before->format, parts_x, after->format, parts_y)) return false;
    return !changes->in_redis || a->is_compat ||
           key_format_same_ids(before->format, before->plan.shard_parts, after->format, after->plan.shard_parts);
}

/* Slots are held or not, whatever the limit is; a limit of 0 has never counted anything. */
static bool has_states(const struct limit *limit)
{
    return limit->algo != ALGO_CONCURRENCY && limit->limit > 0;
}

/* A state at now_us of a key that has used everything. False without memory. Returns in `ret_ends_us` when it equals a
 * fresh one again. */
static bool charge_all(const struct limit *limit, int64_t now_us, struct state *state, int64_t *ret_ends_us)
{
    const struct algo_ops *ops = limit_ops(limit);
    struct view view;
    limit_here(&view, limit, any_key, limit->max_wait_us, now_us);
    limit_view(&view, state);

    /* A list's last entry says it all, and the others would take memory. */
    int64_t units = ops->reserve != NULL ? 1 : limit->full;
    if (ops->reserve != NULL && ops->reserve(&view, state, units) < 0) return false;
    limit_charge(&view, units);
    *ret_ends_us = ops->save(&view, state);
    return true;
}

/* Notes when the last state that is charged now has ended; -1: unknown. */
static void set_old_keys(const struct changes *changes, struct change *change, const struct limit *limit)
{
    int64_t end_us = INT64_MAX, now_us = changes->wall_us;
    struct state state = {0};
    bool is_calendar = limit->calendar != NULL; /* its longest window is much longer than most */
    bool is_charged = is_calendar && has_states(limit) && charge_all(limit, now_us, &state, &end_us);
    if (!is_charged) end_us = limit->life_s != UINT32_MAX ? now_us + limit->life_s * (int64_t)SECOND_US : INT64_MAX;
    state_fini(&state);

    int64_t left_ms = end_us != INT64_MAX ? (end_us - now_us + 999) / 1000 : -1;
    bool is_first = !change->has_old_keys;
    change->has_old_keys = true;
    if (is_first || left_ms < 0 || (change->old_keys_ms >= 0 && left_ms > change->old_keys_ms))
        change->old_keys_ms = left_ms;
}

/* Do the states that were charged under `x` count under `y`, which has the same keys? */
static enum change_counts counts_of(const struct changes *changes, const struct limit *x, const struct limit *y)
{
    struct state state = {0};
    struct view view;
    int64_t ends_us;
    if (!has_states(x) || !has_states(y)) return COUNTS_KEPT;
    /* Not of all keys: their windows begin at moments of their own. */
    if (x->phase != y->phase && x->window_us == y->window_us) return COUNTS_SOME;

    bool is_carried = true;
    if (charge_all(x, changes->wall_us, &state, &ends_us)) {
        limit_here(&view, y, any_key, y->max_wait_us, changes->wall_us);
        limit_view(&view, &state);
        is_carried = view.used > 0;
    }
    state_fini(&state);
    return is_carried ? COUNTS_KEPT : COUNTS_AFRESH;
}

/* ---- Limits ---- */

static struct change change_of(const struct policy *policy, enum change_subject subject, enum change_kind kind)
{
    struct change change = {.subject = subject, .kind = kind, .is_candidate = policy->is_candidate, .old_keys_ms = -1};
    snprintf(change.policy, sizeof change.policy, "%s", policy->name);
    return change;
}

static struct change change_of_limit(const struct limit *limit, enum change_kind kind)
{
    struct change change = change_of(limit->policy, CHANGE_OF_LIMIT, kind);
    snprintf(change.limit, sizeof change.limit, "%s", limit->name);
    return change;
}

static void compare_limits(struct changes *changes, const struct limit *x, const struct limit *y)
{
    bool is_renamed = strcmp(x->name, y->name) != 0;
    struct change change = change_of_limit(y, is_renamed ? CHANGE_RENAMED : CHANGE_CHANGED);
    snprintf(change.renamed_from, sizeof change.renamed_from, "%s", x->name);
    add_settings(&change, x->policy, x, y->policy, y);

    if (!same_keys(changes, x, y)) {
        change.counts = COUNTS_AFRESH;
        change.keys_moved = !is_renamed && change.n_values == 0;
        set_old_keys(changes, &change, x);
    } else {
        change.counts = counts_of(changes, x, y);
        bool is_same = !is_renamed && change.n_values == 0 && change.counts == COUNTS_KEPT;
        if (is_same) return;
    }
    changes_add(changes, &change);
}

/* The limit that `limit`, number i of the other policy, goes on from: that of its name; else the one in its place, if
 * the other policy has no limit of that one's name. */
static const struct limit *partner(const struct policy *policy, const struct limit *limit, uint16_t i)
{
    const struct limit *same = policy_find_limit(policy, slice_of(limit->name));
    const struct limit *there = i < policy->n_limits ? &policy->limits[i] : NULL;
    if (same != NULL || there == NULL) return same;
    return policy_find_limit(limit->policy, slice_of(there->name)) == NULL ? there : NULL;
}

/* Those of two policies, or of two candidates. */
static void compare_all_limits(struct changes *changes, const struct policy *before, const struct policy *after)
{
    for (uint16_t i = 0; i < after->n_limits; i++) {
        const struct limit *limit = &after->limits[i], *old = partner(before, limit, i);
        struct change added = change_of_limit(limit, CHANGE_ADDED);
        if (old != NULL)
            compare_limits(changes, old, limit);
        else if (before->n_limits > 0) /* else it was unlimited, which is reported already */
            changes_add(changes, &added);
    }
    for (uint16_t i = 0; i < before->n_limits; i++) {
        const struct limit *limit = &before->limits[i];
        struct change removed = change_of_limit(limit, CHANGE_REMOVED);
        if (after->n_limits == 0 || partner(after, limit, i) != NULL) continue;
        set_old_keys(changes, &removed, limit);
        changes_add(changes, &removed);
    }
}

/* ---- Overrides ---- */

/* Does its entry give the field a value of its own? */
static bool is_own(enum policy_field field, const struct policy *variant, uint16_t i)
{
    return policy_setting_number(field, &variant->limits[i]) != policy_setting_number(field, &variant->base->limits[i]);
}

/* What follows from the policy's own limits is no change of the override. */
static bool same_override(const struct policy *a, const struct policy *b)
{
    if (a->unlimited != b->unlimited || a->n_limits != b->n_limits) return false;
    for (uint16_t i = 0; i < a->n_limits; i++) {
        for (size_t j = 0; j < N_POLICY_FIELDS; j++) {
            const enum policy_field field = (enum policy_field)j;
            if (!(policy_settings[field].uses & USE_OVERRIDE) || (!is_own(field, a, i) && !is_own(field, b, i)))
                continue;
            if (policy_setting_number(field, &a->limits[i]) != policy_setting_number(field, &b->limits[i]))
                return false;
        }
    }
    return true;
}

/* Do the keys of an override start afresh in a limit whose keys are named as before? */
static bool starts_afresh(const struct changes *changes, const struct policy *before, const struct policy *after)
{
    for (uint16_t i = 0; i < after->n_limits; i++) {
        const struct limit *limit = &after->limits[i], *old = policy_find_limit(before, slice_of(limit->name));
        if (old != NULL && same_keys(changes, old, limit) && counts_of(changes, old, limit) == COUNTS_AFRESH)
            return true;
    }
    return false;
}

static const struct override *find_override(const struct policy *policy, const struct override *like)
{
    if (policy->overrides == NULL) return NULL;
    return overrides_written(policy->overrides, slice_of(like->text), like->kind, like->part);
}

static void compare_overrides(struct changes *changes, const struct policy *before, const struct policy *after)
{
    struct change change = change_of(after, CHANGE_OF_OVERRIDES, CHANGE_CHANGED);
    for (size_t i = 0; after->overrides != NULL && i < after->overrides->n; i++) {
        const struct override *item = &after->overrides->items[i], *old = find_override(before, item);
        if (old != NULL && same_override(old->variant, item->variant)) continue;
        *(old != NULL ? &change.n_changed : &change.n_added) += 1;
        change.n_afresh += starts_afresh(changes, old != NULL ? old->variant : before, item->variant);
    }
    for (size_t i = 0; before->overrides != NULL && i < before->overrides->n; i++) {
        const struct override *item = &before->overrides->items[i];
        if (find_override(after, item) != NULL) continue;
        change.n_removed++;
        change.n_afresh += starts_afresh(changes, item->variant, after);
    }

    if (change.n_added + change.n_changed + change.n_removed == 0) return;
    change.counts = change.n_afresh > 0 ? COUNTS_SOME : COUNTS_KEPT;
    changes_add(changes, &change);
}

/* ---- Policies ---- */

static void add_policy(struct changes *changes, const struct policy *policy, enum change_kind kind)
{
    struct change change = change_of(policy, CHANGE_OF_POLICY, kind);
    if (kind == CHANGE_REMOVED && !policy->is_candidate) change.n_asked = policy->counts->asked_lately;
    for (uint16_t i = 0; i < policy->n_limits && kind == CHANGE_REMOVED; i++)
        set_old_keys(changes, &change, &policy->limits[i]);
    changes_add(changes, &change);
}

static void compare_policies(struct changes *changes, const struct policy *before, const struct policy *after)
{
    struct change change = change_of(after, CHANGE_OF_POLICY, CHANGE_CHANGED);
    add_settings(&change, before, NULL, after, NULL);
    if (change.n_values > 0) changes_add(changes, &change);
    compare_all_limits(changes, before, after);
    if (before->candidate != NULL && after->candidate != NULL)
        compare_all_limits(changes, before->candidate, after->candidate);
    else if (after->candidate != NULL)
        add_policy(changes, after->candidate, CHANGE_ADDED);
    else if (before->candidate != NULL)
        add_policy(changes, before->candidate, CHANGE_REMOVED);
    compare_overrides(changes, before, after);
}

void policy_diff(struct changes *changes, const struct policy_set *before, const struct policy_set *after)
{
    for (size_t i = 0; i < after->n; i++) {
        const struct policy *policy = after->in_order[i], *old = policy_find(before, slice_of(policy->name));
        if (old == NULL)
            add_policy(changes, policy, CHANGE_ADDED);
        else if (old->version != policy->version) /* the fingerprint of all that is compared */
            compare_policies(changes, old, policy);
    }
    for (size_t i = 0; i < before->n; i++) {
        const struct policy *policy = before->in_order[i];
        if (policy_find(after, slice_of(policy->name)) == NULL) add_policy(changes, policy, CHANGE_REMOVED);
    }
}
