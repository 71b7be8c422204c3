/*
 * policies.c: policies and limits as maps.
 *
 * Overrides are listed with what they change. There may be more of them than anybody wants in one answer, so the list
 * ends where the answer's room for them does; their number is always told.
 */
#include "server/policies.h"

#include <string.h>

#include "limit/calendar.h"

enum {
    OVERRIDES_ROOM = 1 << 20, /* bytes of one answer for the overrides of all policies; a client takes 4 MiB */
    OVERRIDE_SIZE = 48,       /* bytes of one beside its text and its limits, at most */
    CHANGE_SIZE = 176,        /* of one limit that it changes */
};

static bool may_count_denied(const struct limit *limit)
{
    return limit_is_fixed_window(limit) || limit->algo == ALGO_SLIDING_LOG;
}

static void pack_word(struct packer *packer, const char *name, const char *text)
{
    pack_text(packer, name);
    pack_text(packer, text);
}

static void pack_number(struct packer *packer, const char *name, int64_t number)
{
    pack_text(packer, name);
    pack_int(packer, number);
}

static void pack_count(struct packer *packer, const char *name, uint64_t count)
{
    pack_text(packer, name);
    pack_uint(packer, count);
}

static void pack_flag(struct packer *packer, const char *name, bool flag)
{
    pack_text(packer, name);
    pack_bool(packer, flag);
}

static void pack_by(struct packer *packer, const struct limit *limit)
{
    const struct key_format *format = limit->policy->format;
    pack_text(packer, "by");
    pack_array(packer, (uint32_t)__builtin_popcount(limit->parts));
    for (int i = 0; i < format->n_parts; i++)
        if (limit->parts & 1U << i) pack_str_of(packer, &format->names[i], 1);
}

static bool is_week(const struct limit *limit)
{
    return limit->calendar != NULL && calendar_unit(limit->calendar) == CALENDAR_WEEK;
}

static void pack_calendar(struct packer *packer, const struct calendar *calendar)
{
    pack_word(packer, "window", calendar_unit_name(calendar));
    pack_word(packer, "timezone", calendar_zone_name(calendar));
    if (calendar_unit(calendar) != CALENDAR_WEEK) return;
    pack_word(packer, "week_start", calendar_week_start_name(calendar));
}

/* "window_ms", or what a limit has in its place. */
static const char *window_name(const struct limit *limit)
{
    return limit->algo == ALGO_CONCURRENCY ? "slot_ttl_ms" : "window_ms";
}

void policies_pack_limit(struct packer *packer, const struct limit *limit, uint32_t n_more)
{
    const struct algo_ops *ops = limit_ops(limit);
    bool is_named = limit->name[0] != '\0', is_leaky = limit->algo == ALGO_LEAKY_BUCKET;
    pack_map(packer, 3U + is_named + limit->shared + limit_is_bucket(limit) + is_leaky + limit_is_fixed_window(limit) +
                         may_count_denied(limit) + limit->phase + (limit->calendar != NULL) + is_week(limit) + n_more);
    if (is_named) pack_word(packer, "name", limit->name);
    if (limit->shared) pack_by(packer, limit);
    pack_word(packer, ops->is_compat ? "compat" : "algorithm", ops->name);
    pack_number(packer, "limit", limit->limit);
    if (limit->calendar != NULL)
        pack_calendar(packer, limit->calendar);
    else
        pack_number(packer, window_name(limit), div_up(limit->window_us, 1000));
    if (limit_is_bucket(limit)) pack_number(packer, "burst", limit->full);
    if (is_leaky) pack_number(packer, "max_wait_ms", div_up(limit->max_wait_us, 1000));
    if (limit_is_fixed_window(limit))
        pack_word(packer, "start", limit->algo == ALGO_FIRST_HIT ? "first_hit" : "aligned");
    if (may_count_denied(limit)) pack_flag(packer, "count_denied", limit->count_denied);
    if (limit->phase) pack_flag(packer, "phase", true);
}

/* A limit of a variant: its numbers that are not those of the policy's own. */
static void pack_change(struct packer *packer, const struct limit *limit, const struct limit *base)
{
    bool is_named = limit->name[0] != '\0';
    bool has_limit = limit->limit != base->limit, has_window = limit->window_us != base->window_us;
    bool has_burst = limit_is_bucket(limit) && limit->full != base->full,
         has_wait = limit->max_wait_us != base->max_wait_us;
    pack_map(packer, 0U + is_named + has_limit + has_window + has_burst + has_wait);
    if (is_named) pack_word(packer, "name", limit->name);
    if (has_limit) pack_number(packer, "limit", limit->limit);
    if (has_window) pack_number(packer, window_name(limit), div_up(limit->window_us, 1000));
    if (has_burst) pack_number(packer, "burst", limit->full);
    if (has_wait) pack_number(packer, "max_wait_ms", div_up(limit->max_wait_us, 1000));
}

static bool is_changed(const struct limit *limit, const struct limit *base)
{
    return limit->limit != base->limit || limit->window_us != base->window_us || limit->full != base->full ||
           limit->max_wait_us != base->max_wait_us;
}

static void pack_override(struct packer *packer, const struct override *item)
{
    const struct policy *variant = item->variant;
    uint32_t n_changed = 0;
    pack_map(packer, 2);
    pack_word(packer, item->is_pattern ? "match" : "key", item->text);
    if (variant->unlimited) {
        pack_flag(packer, "unlimited", true);
        return;
    }
    for (uint16_t i = 0; i < variant->n_limits; i++)
        n_changed += is_changed(&variant->limits[i], &variant->base->limits[i]);
    pack_text(packer, "limits");
    pack_array(packer, n_changed);
    for (uint16_t i = 0; i < variant->n_limits; i++) {
        if (is_changed(&variant->limits[i], &variant->base->limits[i]))
            pack_change(packer, &variant->limits[i], &variant->base->limits[i]);
    }
}

/* As many as there is room for. */
static void pack_overrides(struct packer *packer, const struct overrides *overrides, size_t *room)
{
    size_t n = 0;
    for (; n < overrides->n; n++) {
        const struct override *item = &overrides->items[n];
        size_t len = OVERRIDE_SIZE + strlen(item->text) + item->variant->n_limits * CHANGE_SIZE;
        if (len > *room) break;
        *room -= len;
    }
    pack_count(packer, "overrides", overrides->n);
    pack_text(packer, "override_list");
    pack_array(packer, (uint32_t)n);
    for (size_t i = 0; i < n; i++) pack_override(packer, &overrides->items[i]);
}

static void pack_limits(struct packer *packer, const char *name, const struct policy *policy)
{
    pack_text(packer, name);
    pack_array(packer, policy->n_limits);
    for (uint16_t i = 0; i < policy->n_limits; i++) policies_pack_limit(packer, &policy->limits[i], 0);
}

static void pack_policy(struct packer *packer, const struct policy *policy, size_t *overrides_room)
{
    bool has_format = policy->format != NULL, has_overrides = policy->overrides != NULL;
    bool debt = policy_has_debt(policy);
    const struct policy *candidate = policy->candidate;
    pack_map(packer, 8U + policy->shadow + debt + has_format + (has_overrides ? 2U : 0U) + policy->unlimited +
                         (candidate != NULL ? 5U : 0U));
    pack_word(packer, "name", policy->name);
    pack_count(packer, "version", policy->version);
    pack_word(packer, "on_failure", on_failure_name(policy->on_failure));
    pack_count(packer, "deadline_ms", policy->deadline_ms);
    if (debt) pack_flag(packer, "debt", true);
    if (policy->shadow) pack_flag(packer, "shadow", true);
    if (policy->unlimited) pack_flag(packer, "unlimited", true);
    if (has_format) pack_word(packer, "key_format", policy->format->text);
    if (has_overrides) pack_overrides(packer, policy->overrides, overrides_room);
    pack_limits(packer, "limits", policy);
    pack_count(packer, "allowed", policy->counts->allowed);
    pack_count(packer, "denied", policy->counts->denied);
    pack_count(packer, "shadow_denied", policy->counts->shadow_denied);
    if (candidate == NULL) return;
    pack_limits(packer, "candidate", candidate);
    pack_count(packer, "candidate_allowed", candidate->counts->candidate_allowed);
    pack_count(packer, "candidate_denied", candidate->counts->candidate_denied);
    pack_count(packer, "candidate_only_allowed", candidate->counts->candidate_only_allowed);
    pack_count(packer, "candidate_only_denied", candidate->counts->candidate_only_denied);
}

void policies_reply(struct packer *packer, const struct policy_set *set)
{
    size_t overrides_room = OVERRIDES_ROOM;
    pack_array(packer, (uint32_t)set->n);
    for (size_t i = 0; i < set->n; i++) pack_policy(packer, set->in_order[i], &overrides_room);
}
