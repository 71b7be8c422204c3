#include "server/policies.h"

#include "limit/calendar.h"

static bool is_fixed_window(const struct limit *limit)
{
    return limit->algo == ALGO_FIXED_WINDOW || limit->algo == ALGO_FIRST_HIT;
}

static bool may_count_denied(const struct limit *limit)
{
    return is_fixed_window(limit) || limit->algo == ALGO_SLIDING_LOG;
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
    pack_text(packer, "window");
    pack_text(packer, calendar_unit_name(calendar));
    pack_text(packer, "timezone");
    pack_text(packer, calendar_zone_name(calendar));
    if (calendar_unit(calendar) != CALENDAR_WEEK) return;
    pack_text(packer, "week_start");
    pack_text(packer, calendar_week_start_name(calendar));
}

void policies_pack_limit(struct packer *packer, const struct limit *limit, uint32_t n_more)
{
    const struct algo_ops *ops = limit_ops(limit);
    bool is_named = limit->name[0] != '\0', is_leaky = limit->algo == ALGO_LEAKY_BUCKET;
    bool is_bucket = is_leaky || limit->algo == ALGO_BUCKET;
    pack_map(packer, 3U + is_named + limit->shared + is_bucket + is_leaky + is_fixed_window(limit) +
                         may_count_denied(limit) + limit->phase + (limit->calendar != NULL) + is_week(limit) + n_more);
    if (is_named) {
        pack_text(packer, "name");
        pack_text(packer, limit->name);
    }
    if (limit->shared) pack_by(packer, limit);
    pack_text(packer, ops->is_compat ? "compat" : "algorithm");
    pack_text(packer, ops->name);
    pack_text(packer, "limit");
    pack_int(packer, limit->limit);
    if (limit->calendar != NULL) {
        pack_calendar(packer, limit->calendar);
    } else {
        pack_text(packer, limit->algo == ALGO_CONCURRENCY ? "slot_ttl_ms" : "window_ms");
        pack_int(packer, div_up(limit->window_us, 1000));
    }
    if (is_bucket) {
        pack_text(packer, "burst");
        pack_int(packer, limit->full);
    }
    if (is_leaky) {
        pack_text(packer, "max_wait_ms");
        pack_int(packer, div_up(limit->max_wait_us, 1000));
    }
    if (is_fixed_window(limit)) {
        pack_text(packer, "start");
        pack_text(packer, limit->algo == ALGO_FIRST_HIT ? "first_hit" : "aligned");
    }
    if (may_count_denied(limit)) {
        pack_text(packer, "count_denied");
        pack_bool(packer, limit->count_denied);
    }
    if (limit->phase) {
        pack_text(packer, "phase");
        pack_bool(packer, true);
    }
}

static void pack_count(struct packer *packer, const char *name, uint64_t count)
{
    pack_text(packer, name);
    pack_uint(packer, count);
}

static void pack_policy(struct packer *packer, const struct policy *policy)
{
    bool has_format = policy->format != NULL, has_overrides = policy->overrides != NULL;
    bool debt = policy_has_debt(policy);
    const struct policy *candidate = policy->candidate;
    pack_map(packer, 8U + policy->shadow + debt + has_format + has_overrides + policy->unlimited +
                         (candidate != NULL ? 5U : 0U));
    pack_text(packer, "name");
    pack_text(packer, policy->name);
    pack_text(packer, "version");
    pack_uint(packer, policy->version);
    pack_text(packer, "on_failure");
    pack_text(packer, on_failure_name(policy->on_failure));
    pack_text(packer, "deadline_ms");
    pack_uint(packer, policy->deadline_ms);
    if (debt) {
        pack_text(packer, "debt");
        pack_bool(packer, true);
    }
    if (policy->shadow) {
        pack_text(packer, "shadow");
        pack_bool(packer, true);
    }
    if (policy->unlimited) {
        pack_text(packer, "unlimited");
        pack_bool(packer, true);
    }
    if (has_format) {
        pack_text(packer, "key_format");
        pack_text(packer, policy->format->text);
    }
    if (has_overrides) {
        pack_text(packer, "overrides");
        pack_uint(packer, policy->overrides->n);
    }
    pack_text(packer, "limits");
    pack_array(packer, policy->n_limits);
    for (uint16_t i = 0; i < policy->n_limits; i++) policies_pack_limit(packer, &policy->limits[i], 0);
    pack_count(packer, "allowed", policy->counts->allowed);
    pack_count(packer, "denied", policy->counts->denied);
    pack_count(packer, "shadow_denied", policy->counts->shadow_denied);
    if (candidate == NULL) return;
    pack_text(packer, "candidate");
    pack_array(packer, candidate->n_limits);
    for (uint16_t i = 0; i < candidate->n_limits; i++) policies_pack_limit(packer, &candidate->limits[i], 0);
    pack_count(packer, "candidate_allowed", candidate->counts->candidate_allowed);
    pack_count(packer, "candidate_denied", candidate->counts->candidate_denied);
    pack_count(packer, "candidate_only_allowed", candidate->counts->candidate_only_allowed);
    pack_count(packer, "candidate_only_denied", candidate->counts->candidate_only_denied);
}

void policies_reply(struct packer *packer, const struct policy_set *set)
{
    pack_array(packer, (uint32_t)set->n);
    for (size_t i = 0; i < set->n; i++) pack_policy(packer, set->in_order[i]);
}
