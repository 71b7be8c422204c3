/* policy_read.c: reads a map of policies, or one policy, for config/config.c and inline_policies.c. */
#include "policy/policy_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "policy/reading.h"

/* ---- Settings of the whole policy ---- */

static void read_format(struct reading *reading, struct policy *policy)
{
    char shown[FAULTS_SHOWN_MAX];
    const struct tree_node *node = reading->given[FIELD_KEY_FORMAT];
    if (node == NULL) return;

    policy->format = mem_zalloc(sizeof *policy->format);
    if (policy->format == NULL) {
        reading_no_memory(reading->faults, node->line);
        return;
    }

    const char *text = reading_text(reading, FIELD_KEY_FORMAT);
    const char *wrong = text != NULL ? key_format_parse(policy->format, text) : NULL;
    if (wrong == NULL) return;
    policy->format->n_parts = 0;
    reading_refuse(reading, FIELD_KEY_FORMAT, "%s %s", faults_shown(shown, text), wrong);
}

static void refuse_without_local(struct reading *reading, enum policy_field field, const struct policy *policy)
{
    const struct slice answer = on_failure_name(policy->on_failure);
    reading_refuse(reading, field,
                   "is for on_failure: local, and this policy's is %.*s; leave it out, or write on_failure: local",
                   (int)answer.len, (const char *)answer.data);
}

/* The settings that are stored in a field of the policy. `unlimited` has been read before. */
static void read_policy_fields(struct reading *reading, struct policy *policy)
{
    policy->on_failure = reading->defaults->on_failure;
    policy->local_share = (uint32_t)reading->defaults->local_share;
    policy->deadline_ms = (uint32_t)reading->defaults->deadline_ms;
    policy->idempotency_ms = (uint32_t)reading->defaults->idempotency_ms;
    policy->shadow = reading->defaults->shadow;

    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        const struct setting *setting = &policy_settings[i];
        const struct tree_node *node = reading->given[i];
        bool is_read = i == FIELD_UNLIMITED || i == FIELD_ON_CHANGE; /* before the limits, which depend on it */
        if (setting->holder == HELD_BY_POLICY && !is_read && node != NULL)
            setting_read(setting, reading_path(reading, (enum policy_field)i), node, reading->faults, policy);
    }

    if (policy->on_failure == ON_FAILURE_LOCAL) return;
    if (reading->given[FIELD_LOCAL_SHARE] != NULL) refuse_without_local(reading, FIELD_LOCAL_SHARE, policy);
    if (policy->n_limits > 0 && policy->limits[0].merge_back) refuse_without_local(reading, FIELD_MERGE_BACK, policy);
    policy->local_share = LIVE_SHARE;
}

static void share_warn_at(struct policy *policy, uint32_t percent)
{
    for (uint16_t i = 0; i < policy->n_limits; i++) limit_set_warn_at(&policy->limits[i], percent);
    if (policy->candidate != NULL) share_warn_at(policy->candidate, percent);
}

/* phase: true is for all windows that are aligned to the clock, the candidate's too; there must be one at least. */
static void read_phase(struct reading *reading, struct policy *policy)
{
    struct policy *const both[] = {policy, policy->candidate};
    int64_t phase = 0;
    bool found = false;
    reading_value(reading, FIELD_PHASE, &phase);
    if (phase == 0) return;

    for (size_t i = 0; i < 2 && both[i] != NULL; i++) {
        for (uint16_t j = 0; j < both[i]->n_limits; j++) {
            if (both[i]->limits[j].algo != ALGO_FIXED_WINDOW) continue;
            both[i]->limits[j].phase = true;
            policy_name_keys(&both[i]->limits[j]); /* of which it is a part, with on_change: reset */
            found = true;
        }
    }
    if (!found)
        reading_refuse(reading, FIELD_PHASE,
                       "is for windows that all begin at once, of which this policy has none; leave it out, or write "
                       "algorithm: fixed_window without start: first_hit");
}

/* Does a limit lease units, for some keys? */
static bool leases(const struct policy *policy)
{
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (policy->limits[i].lease_us > 0) return true;
    for (size_t i = 0; policy->overrides != NULL && i < policy->overrides->n; i++)
        if (leases(policy->overrides->items[i].variant)) return true;
    return policy->candidate != NULL && leases(policy->candidate);
}

/* ---- Its limits ---- */

/* The limits of `policy` from a list of the file: `limits`, or `candidate`. */
static void read_limits(struct reading *reading, enum policy_field list, struct policy *policy)
{
    const struct tree_node *node = reading->given[list]->first;
    for (uint16_t i = 0; i < policy->n_limits; i++, node = node->next) {
        struct reading item = {.kind = MAP_LIMIT,
                               .node = node,
                               .is_inline = reading->is_inline,
                               .id = reading->id,
                               .faults = reading->faults};
        snprintf(item.base, sizeof item.base, "%.72s.%.12s[%u]", reading->base, policy_settings[list].name, i);
        if (!reading_gather(&item)) continue;

        limit_read_name(&item, &policy->limits[i]);
        limit_read(&item, &policy->limits[i]);
        if (list == FIELD_LIMITS && item.given[FIELD_BURST] != NULL) reading->own_bursts |= (uint16_t)(1U << i);
    }
}

/* The number of limits in a list, at most `most`; 0 with the fault recorded. */
static uint16_t count_list(struct reading *reading, enum policy_field field, uint16_t most)
{
    size_t n = tree_count(reading->given[field]);
    if (reading->given[field]->kind == TREE_LIST && n > most && most < POLICY_LIMITS_MAX)
        reading_refuse(
            reading, field,
            "has %zu entries; write 1 to %u, because a policy has at most %d limits, including those of its candidate",
            n, most, POLICY_LIMITS_MAX);
    else if (reading_is_list(reading, field))
        return (uint16_t)n;
    return 0;
}

/* ---- One policy ---- */

/* `n_limits` is 0 if the list of limits has a fault: then the policy has one limit, which is not read. */
static void read_contents(struct reading *reading, struct policy *policy, uint16_t n_limits)
{
    const struct tree_node *candidate = reading->given[FIELD_CANDIDATE], *lease = reading->given[FIELD_LEASE];
    size_t n_errors = reading->faults->n_errors;
    int64_t debt = 0, merge_back = 0;

    /* First what the limits are checked against. */
    read_format(reading, policy);
    policy->on_change = (uint32_t)reading_choice(reading, FIELD_ON_CHANGE);
    reading_value(reading, FIELD_DEBT, &debt);
    reading_value(reading, FIELD_MERGE_BACK, &merge_back);
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        policy->limits[i].debt = debt != 0;
        policy->limits[i].merge_back = merge_back != 0;
    }

    if (reading->given[FIELD_LIMITS] == NULL) {
        limit_read(reading, &policy->limits[0]);
        reading->own_bursts = reading->given[FIELD_BURST] != NULL;
    } else if (n_limits > 0) {
        read_limits(reading, FIELD_LIMITS, policy);
    }

    uint16_t most = (uint16_t)(POLICY_LIMITS_MAX - policy->n_limits);
    uint16_t n = candidate != NULL ? count_list(reading, FIELD_CANDIDATE, most) : 0;
    if (n > 0 && policy_add_candidate(policy, n) < 0)
        reading_no_memory(reading->faults, candidate->line);
    else if (n > 0)
        read_limits(reading, FIELD_CANDIDATE, policy->candidate);

    if (n_limits > 0) read_phase(reading, policy);
    read_policy_fields(reading, policy);
    share_warn_at(policy, policy->warn_at);
    override_read_all(reading, policy, n_limits > 0 && reading->faults->n_errors == n_errors);

    if (reading->faults->n_errors == n_errors && leases(policy)) {
        /* Units are leased for checks that one limit alone decides. */
        if (policy->n_limits > 1)
            reading_refuse(reading, FIELD_LIMITS,
                           "has several limits, and lease is for policies of one; leave lease out, or write a "
                           "policy for each limit");
        if (policy->shadow && !reading->defaults->shadow)
            reading_refuse(reading, FIELD_SHADOW,
                           "is not for policies with lease, whose units are charged before a check uses them; "
                           "leave one of the two out");
        if (policy->candidate != NULL)
            reading_refuse(reading, FIELD_CANDIDATE,
                           "is not for policies with lease, because a candidate is asked in Redis with every "
                           "check; leave one of the two out");
    }

    if (reading->faults->n_errors == n_errors && policy->n_limits == 1 && policy->limits[0].lease_us > 0 &&
        policy->limits[0].full < LEASE_LEFT_MIN)
        faults_warn(
            reading->faults, (lease != NULL ? lease : reading->node)->line, reading_path(reading, FIELD_LEASE),
            "can do nothing: no units are leased while fewer than %d are left, and there are never more than %" PRId64,
            LEASE_LEFT_MIN, policy->limits[0].full);
}

/* The policy, or NULL with the fault recorded. */
static struct policy *read_one_policy(struct reading *reading)
{
    const struct tree_node *node = reading->node;
    size_t n_errors = reading->faults->n_errors;
    bool is_named = reading->is_inline || reading_is_name(node->key);
    if (reading->base[0] == '\0') snprintf(reading->base, sizeof reading->base, "policies.%.64s", node->key);
    if (!is_named)
        faults_add(reading->faults, node->line, reading_path_to(reading, NULL),
                   "is not a name for a policy; write 1 to %d letters, digits, dots, dashes or underscores",
                   NAME_MAX_LEN);
    if (!reading_gather(reading)) return NULL;

    bool unlimited = reading_unlimited(reading);
    uint16_t n_limits = !unlimited;
    if (!unlimited && reading->given[FIELD_LIMITS] != NULL)
        n_limits = count_list(reading, FIELD_LIMITS, POLICY_LIMITS_MAX);
    struct policy *policy = policy_new(is_named ? node->key : "unnamed", n_limits > 0 || unlimited ? n_limits : 1);
    if (policy == NULL || (reading->id != NULL && (policy->id = mem_strdup(reading->id)) == NULL)) {
        policy_free(policy);
        reading_no_memory(reading->faults, node->line);
        return NULL;
    }

    if (unlimited)
        read_policy_fields(reading, policy);
    else
        read_contents(reading, policy, n_limits);
    if (reading->faults->n_errors == n_errors) {
        policy_seal(policy);
        return policy;
    }
    policy_free(policy);
    return NULL;
}

/* ---- All policies ---- */

struct foreign {
    const struct limit *limit;
    uint32_t line;
};

static int by_prefix(const void *left, const void *right)
{
    const struct foreign *a = left, *b = right;
    int order = strcmp(a->limit->key_head, b->limit->key_head);
    if (order != 0) return order;
    return a->line < b->line ? -1 : a->line > b->line;
}

/*
 * On one prefix a key is either a string or a sorted set: what one policy writes would be WRONGTYPE to the other. The
 * original of rlaas-fixed and rlaas-sliding has both on one prefix, apart by `:window` behind the keys of the former.
 */
static bool may_share_prefix(enum algo a, enum algo b)
{
    if (algo_table[a]->kind == algo_table[b]->kind) return true;
    return (a == ALGO_COMPAT_RLAAS_FIXED && b == ALGO_COMPAT_RLAAS_SLIDING) ||
           (a == ALGO_COMPAT_RLAAS_SLIDING && b == ALGO_COMPAT_RLAAS_FIXED);
}

static void refuse_mixed_prefixes(struct foreign *foreign, size_t n, struct faults *faults)
{
    const struct limit *first[N_ALGOS] = {0}; /* of each algorithm, on the prefix at hand */
    char key[FAULTS_KEY_MAX];
    if (n > 1) qsort(foreign, n, sizeof *foreign, by_prefix);

    for (size_t i = 0; i < n; i++) {
        const struct limit *limit = foreign[i].limit, *other = NULL;
        if (i > 0 && strcmp(foreign[i - 1].limit->key_head, limit->key_head) != 0) memset(first, 0, sizeof first);
        for (int algo = 0; algo < N_ALGOS && other == NULL; algo++)
            if (first[algo] != NULL && !may_share_prefix((enum algo)algo, limit->algo)) other = first[algo];
        if (first[limit->algo] == NULL) first[limit->algo] = limit;
        if (other == NULL) continue;

        snprintf(key, sizeof key, "policies.%s", limit->policy->name);
        faults_add(
            faults, foreign[i].line, key,
            "shares the prefix %s with policy %s, but one keeps strings in Redis and the other sorted sets; give "
            "one of them another key_prefix",
            limit->key_head, other->policy->name);
    }
}

struct policy_set *policy_read_all(const struct tree_node *policies, const struct policy_defaults *defaults,
                                   struct faults *faults)
{
    size_t n = tree_count(policies), n_foreign = 0;
    bool is_map = !policies->is_null && map_is_one(MAP_POLICIES, policies, "policies", faults);
    struct policy_set *set = policy_set_new(n);
    struct foreign *foreign = mem_alloc(n * sizeof *foreign);
    if (set == NULL || foreign == NULL) {
        reading_no_memory(faults, policies->line);
        mem_free(foreign);
        policy_set_unref(set);
        return NULL;
    }

    const struct tree_node *first = is_map ? policies->first : NULL;
    for (const struct tree_node *node = first; node != NULL; node = node->next) {
        struct reading reading = {.kind = MAP_POLICY, .node = node, .defaults = defaults, .faults = faults};
        struct policy *policy = read_one_policy(&reading);
        if (policy == NULL) continue;

        policy_set_add(set, policy); /* the tree refuses duplicate keys */
        if (!policy->unlimited && limit_ops(&policy->limits[0])->is_compat)
            foreign[n_foreign++] = (struct foreign){&policy->limits[0], node->line};
    }
    refuse_mixed_prefixes(foreign, n_foreign, faults);
    mem_free(foreign);
    policy_set_sort(set);
    return set;
}

struct policy_set *policy_read_inline(struct tree_node *tree, const char *name, const char *id,
                                      const struct policy_defaults *defaults, struct faults *faults)
{
    struct reading reading = {.kind = MAP_POLICY,
                              .node = tree,
                              .defaults = defaults,
                              .faults = faults,
                              .base = "policy",
                              .is_inline = true,
                              .id = id};
    struct policy_set *set = policy_set_new(1);
    tree->key = mem_strdup(name);
    struct policy *policy = set != NULL && tree->key != NULL ? read_one_policy(&reading) : NULL;
    if (policy != NULL) {
        policy_set_add(set, policy);
        return set;
    }

    policy_set_unref(set);
    return NULL;
}
