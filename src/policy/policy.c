/*
 * policy.c: making, sealing and finding policies. See policy.h for who holds a set how long.
 */
#include "policy/policy.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/exact.h"
#include "base/hash.h"
#include "limit/calendar.h"
#include "policy/policy_setting.h"

struct slice on_failure_name(enum on_failure on_failure)
{
    return value_choice(policy_settings[FIELD_ON_FAILURE].type.choices, on_failure);
}

struct policy *policy_new(const char *name, uint16_t n_limits)
{
    CHECK(n_limits <= POLICY_LIMITS_MAX && strlen(name) <= NAME_MAX_LEN);
    struct policy *policy = mem_zalloc(sizeof *policy + n_limits * sizeof policy->limits[0]);
    if (policy == NULL) return NULL;
    policy->counts = mem_zalloc(sizeof *policy->counts);
    if (policy->counts == NULL) {
        mem_free(policy);
        return NULL;
    }

    policy->counts->n_refs = 1;
    snprintf(policy->name, sizeof policy->name, "%s", name);
    snprintf(policy->label, sizeof policy->label, "%s", name);
    policy->n_limits = n_limits;
    policy->unlimited = n_limits == 0;
    policy->name_hash = hash_stable(HASH_STABLE_START, name, strlen(name));
    for (uint16_t i = 0; i < n_limits; i++) policy->limits[i].policy = policy;
    return policy;
}

struct policy_counts policy_counts_inline, policy_counts_other;

static uint64_t n_decisions(const struct policy_counts *counts, bool allowed)
{
    uint64_t n = 0;
    for (int source = 0; source < N_SOURCES; source++) n += counts->all.decisions[source][allowed];
    return n;
}

uint64_t policy_counts_allowed(const struct policy_counts *counts)
{
    return n_decisions(counts, true);
}

uint64_t policy_counts_denied(const struct policy_counts *counts)
{
    return n_decisions(counts, false);
}

bool policy_counts_recovered(const struct policy_counts *counts)
{
    uint64_t n = n_decisions(counts, true) + n_decisions(counts, false);
    return n > counts->decided_before + counts->failed;
}

/* to += from, or -= */
static void add_counts(struct decision_counts *to, const struct decision_counts *from, bool is_less)
{
    uint64_t sign = is_less ? UINT64_MAX : 1;
    for (int source = 0; source < N_SOURCES; source++)
        for (int allowed = 0; allowed < 2; allowed++)
            to->decisions[source][allowed] += sign * from->decisions[source][allowed];
    to->shadow_denied += sign * from->shadow_denied;
    to->granted += sign * from->granted;
    to->near += sign * from->near;
}

struct decision_counts policy_counts_of_name(const struct policy_counts *counts)
{
    struct decision_counts ret = counts->all;
    if (counts->in_other != NULL) add_counts(&ret, counts->in_other, true);
    return ret;
}

uint64_t policy_limit_denied_of_name(const struct limit *limit)
{
    if (limit->n_denied == NULL) return 0;
    const struct limit_counts *counts = CONTAINER_OF(limit->n_denied, struct limit_counts, denied);
    return counts->denied - counts->in_other;
}

static void counts_unref(struct policy_counts *counts)
{
    CHECK(counts->n_refs > 0);
    if (--counts->n_refs > 0) return;
    for (struct limit_counts *one = counts->limits, *next; one != NULL; one = next) {
        next = one->next;
        mem_free(one);
    }
    mem_free(counts->in_other);
    mem_free(counts);
}

/* Where the denials by limits of a name are counted; NULL without memory: then they are not. A thread may add to the
 * list while the loop counts in what it has. */
static uint64_t *count_of_limit(struct policy_counts *counts, const char *name)
{
    uint64_t hash = hash_stable(HASH_STABLE_START, name, strlen(name));
    for (struct limit_counts *one = counts->limits; one != NULL; one = one->next)
        if (one->name_hash == hash) return &one->denied;

    struct limit_counts *one = mem_zalloc(sizeof *one);
    if (one == NULL) return NULL;
    one->name_hash = hash;
    one->next = counts->limits;
    counts->limits = one;
    return &one->denied;
}

/* Its limits count where its counts are. A candidate denies nothing. */
static void count_limits(struct policy *policy)
{
    for (uint16_t i = 0; i < policy->n_limits && !policy->is_candidate; i++)
        policy->limits[i].n_denied = count_of_limit(policy->counts, policy->limits[i].name);
}

static void share_counts(struct policy *policy, struct policy_counts *counts)
{
    counts->n_refs++;
    counts_unref(policy->counts);
    policy->counts = counts;
    count_limits(policy);
    if (policy->candidate != NULL) share_counts(policy->candidate, counts);
    for (size_t i = 0; policy->overrides != NULL && i < policy->overrides->n; i++)
        share_counts(policy->overrides->items[i].variant, counts);
}

int policy_add_candidate(struct policy *policy, uint16_t n_limits)
{
    CHECK(policy->candidate == NULL);
    struct policy *candidate = policy_new(policy->name, n_limits);
    if (candidate == NULL) return -1;

    candidate->is_candidate = true;
    candidate->format = policy->format;
    candidate->on_change = policy->on_change;
    policy->candidate = candidate;
    share_counts(candidate, policy->counts);
    return 0;
}

void policy_set_label(struct policy *policy, const char *label)
{
    snprintf(policy->label, sizeof policy->label, "%s", label);
    if (policy->candidate != NULL) policy_set_label(policy->candidate, label);
    for (size_t i = 0; policy->overrides != NULL && i < policy->overrides->n; i++)
        policy_set_label(policy->overrides->items[i].variant, label);
}

void policy_free(struct policy *policy)
{
    if (policy == NULL) return;
    for (size_t i = 0; policy->overrides != NULL && i < policy->overrides->n; i++)
        policy_free(policy->overrides->items[i].variant);
    overrides_free(policy->overrides);
    if (policy->base == NULL && !policy->is_candidate) mem_free(policy->format);
    if (policy->base == NULL) mem_free(policy->id);
    policy_free(policy->candidate);
    counts_unref(policy->counts);
    mem_free(policy);
}

int policy_prepare_limit(struct limit *limit, const char *compat_prefix, struct diag *diag)
{
    const struct algo_ops *ops = limit_ops(limit);

    CHECK(compat_prefix == NULL || ops->is_compat);
    if (limit_prepare(limit, diag) != 0) return -1;
    if (ops->is_compat)
        limit_set_key_head(limit, compat_prefix != NULL ? compat_prefix : ops->compat_prefix, 0);
    else
        policy_name_keys(limit);
    return 0;
}

struct policy *policy_variant(const struct policy *base, bool unlimited)
{
    CHECK(base->base == NULL);
    uint16_t n_limits = unlimited ? 0 : base->n_limits;
    struct policy *variant = mem_alloc(sizeof *variant + n_limits * sizeof variant->limits[0]);
    if (variant == NULL) return NULL;

    *variant = *base;
    variant->base = base;
    variant->overrides = NULL;
    variant->candidate = NULL; /* else an override would replace the candidate's limits too */
    variant->counts->n_refs++;
    variant->n_limits = n_limits;
    variant->unlimited = unlimited;

    for (uint16_t i = 0; i < n_limits; i++) {
        variant->limits[i] = base->limits[i];
        variant->limits[i].policy = variant;
    }
    return variant;
}

/* ---- Fingerprint ---- */

/* Every piece begins with a bar. */
static uint64_t hash_piece(uint64_t hash, struct slice piece)
{
    return hash_stable(hash_stable(hash, "|", 1), piece.data, piece.len);
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return hash_stable(hash, text, strlen(text) + 1); /* with the final NUL, so that "a", "bc" and "ab", "c" differ */
}

/* Hashes the settings of `holder` (a limit or a policy) that have this use: USE_HASH as "|value"; USE_HASH_SET, if it
 * is set, as "|name", and then "|value" unless it is a flag. Text gives the same hash on every machine. */
static uint64_t hash_settings(uint64_t hash, enum setting_holder held_by, const void *holder, enum setting_use use)
{
    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        const struct setting *setting = &policy_settings[i];
        if (setting->holder != held_by || !(setting->uses & use)) continue;

        int64_t number = policy_setting_number((enum policy_field)i, holder);
        if (use == USE_HASH_SET) {
            if (number == 0) continue;
            hash = hash_piece(hash, slice_of(setting->name));
            if (setting->type.kind == VALUE_BOOL) continue;
        }

        char text[32];
        snprintf(text, sizeof text, "%" PRId64, number);
        bool is_choice = setting->type.kind == VALUE_CHOICE;
        hash = hash_piece(hash, is_choice ? value_choice(setting->type.choices, number) : slice_of(text));
    }
    return hash;
}

static uint64_t hash_numbers(uint64_t hash, const struct limit *limit)
{
    hash = hash_settings(hash, HELD_BY_LIMIT, limit, USE_HASH);
    if (limit->calendar == NULL) return hash;
    hash = hash_piece(hash, slice_of(calendar_unit_name(limit->calendar)));
    hash = hash_piece(hash, slice_of(calendar_zone_name(limit->calendar)));
    hash = hash_piece(hash, slice_of(calendar_week_start_name(limit->calendar)));
    if (limit->anchor == 0) return hash;
    char day[32];
    snprintf(day, sizeof day, "%02d-%02d", limit->anchor / 100 % 100, limit->anchor % 100);
    return hash_piece(hash_piece(hash, slice_of("anchor")), slice_of(day));
}

static uint64_t hash_parts(uint64_t hash, const struct limit *limit)
{
    char parts[16];
    if (!limit->shared) return hash;
    snprintf(parts, sizeof parts, "by %x", (unsigned)limit->parts);
    return hash_piece(hash, slice_of(parts));
}

static uint64_t hash_limits(uint64_t hash, const struct policy *policy)
{
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        const struct limit *limit = &policy->limits[i];
        hash = hash_piece(hash_piece(hash, slice_of(limit->name)), slice_of(limit_ops(limit)->name));
        hash = hash_numbers(hash, limit);
        hash = hash_settings(hash, HELD_BY_LIMIT, limit, USE_HASH_SET);
        if (limit->penalty.time_ms != 0) { /* what its setting's hash leaves out: all but its time */
            char text[96];
            snprintf(text, sizeof text, "%" PRId64 " %" PRId64 " %" PRId64, limit->penalty.factor,
                     limit->penalty.max_ms, limit->penalty.forget_ms);
            hash = hash_piece(hash, slice_of(text));
        }
        hash = hash_piece(hash, slice_of(limit->key_head)); /* distinguishes first-hit windows from aligned ones */
        hash = hash_parts(hash, limit);
    }
    return hash;
}

/* Of what is the limit's own but its algorithm, which its keys name anyway; not 0. It is in the names of keys, so it
 * must never change: a new setting counts only if it is set. */
static uint32_t limit_fingerprint(const struct limit *limit)
{
    uint64_t hash = hash_parts(hash_numbers(HASH_STABLE_START, limit), limit);
    if (limit->phase) hash = hash_text(hash, "|phase");
    if (limit->counts_checks) hash = hash_text(hash, "|checks");
    uint32_t folded = (uint32_t)(hash ^ hash >> 32);
    return folded != 0 ? folded : 1;
}

void policy_name_keys(struct limit *limit)
{
    const struct policy *policy = limit->policy;
    char owner[NAME_MAX_LEN + sizeof "+candidate"]; /* no policy's name has a plus sign */
    bool is_reset = policy->on_change == ON_CHANGE_RESET && limit->algo != ALGO_CONCURRENCY;
    snprintf(owner, sizeof owner, "%s%s", policy->name, policy->is_candidate ? "+candidate" : "");

    struct limit fixed = *limit; /* without what may move */
    if (policy->id != NULL) fixed.limit = fixed.burst = 0;
    limit_set_key_head(limit, owner, is_reset || policy->id != NULL ? limit_fingerprint(&fixed) : 0);
}

static uint32_t fingerprint(const struct policy *policy)
{
    static const char *const kinds[] = {
        [OVERRIDE_OF_KEY] = "|key", [OVERRIDE_OF_PATTERN] = "|match", [OVERRIDE_OF_NETWORKS] = "|cidr"};
    uint64_t hash = hash_stable(HASH_STABLE_START, policy->name, strlen(policy->name));
    hash = hash_settings(hash, HELD_BY_POLICY, policy, USE_HASH);
    hash = hash_settings(hash, HELD_BY_POLICY, policy, USE_HASH_SET);
    hash = hash_limits(hash, policy);
    if (policy->unlimited) hash = hash_text(hash, "|unlimited");
    if (policy->format != NULL) hash = hash_text(hash_text(hash, "|key_format"), policy->format->text);

    for (size_t i = 0; policy->overrides != NULL && i < policy->overrides->n; i++) {
        const struct override *item = &policy->overrides->items[i];
        hash = hash_text(hash, kinds[item->kind]);
        if (item->kind == OVERRIDE_OF_NETWORKS && policy->format != NULL)
            hash = hash_piece(hash, policy->format->names[item->part]);
        hash = hash_text(hash, item->text);
        if (item->variant->unlimited) hash = hash_text(hash, "unlimited");
        hash = hash_limits(hash, item->variant);
    }

    /* Its limits have other key heads than the enforced ones. */
    if (policy->candidate != NULL) hash = hash_limits(hash, policy->candidate);
    return (uint32_t)(hash ^ hash >> 32);
}

/* ---- What follows from the settings ---- */

/* The parts that all limits count by: the keys of the policy with equal parts are in one shard. A candidate has a shard
 * of its own, so that adding one never changes the names of the enforced limits' keys. */
static key_parts find_shard_parts(const struct policy *policy)
{
    if (policy->format == NULL) return 0;
    key_parts shard_parts = key_format_all(policy->format);
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (policy->limits[i].shared) shard_parts &= policy->limits[i].parts;
    return shard_parts;
}

void plan_make(struct plan *plan, const struct policy *policy, const struct limit *limits, key_parts shard_parts)
{
    const struct key_format *format = policy->format;
    bool is_unlimited = policy->n_limits == 0, enforces = !is_unlimited && !policy->shadow;
    *plan = (struct plan){
        .policy = policy,
        .limits = limits,
        .n_limits = policy->n_limits,
        .decider = is_unlimited ? ALLOWED_ALWAYS : DECIDED_BY_LIMITS,
        .shadow = policy->shadow,
        .reserves = !policy->is_candidate, /* which is charged by checks alone */
        .has_slots = policy->base != NULL && policy->base->plan.has_slots,
        .takes_one = policy->base != NULL && policy->base->plan.takes_one,
        .shares = format != NULL && shard_parts != key_format_all(format),
        .n_joined = format != NULL && key_format_is_joined(format, shard_parts),
        .shard_parts = shard_parts,
        .on_failure = policy->on_failure,
        .deadline_ms = is_unlimited ? UINT32_MAX : policy->deadline_ms,
        .max_cost = EXACT_MAX,
        .candidate = policy->candidate != NULL ? &policy->candidate->plan : NULL,
    };
    /* what nothing is enforced by is no error */
    if (is_unlimited || (!enforces && policy->on_failure == ON_FAILURE_ERROR)) plan->on_failure = ON_FAILURE_ALLOW;

    for (uint16_t i = 0; i < plan->n_limits; i++) {
        const struct limit *limit = &limits[i];
        if (limit->limit == 0 && plan->zero_limit == NULL) plan->zero_limit = limit;
        bool is_first = plan->least == NULL || (limit_takes_one(plan->least) && !limit_takes_one(limit));
        bool is_other = plan->least != NULL && limit_takes_one(limit) && !limit_takes_one(plan->least);
        if (is_first || (!is_other && limit->full < plan->least->full)) plan->least = limit;
        plan->takes_one |= limit_takes_one(limit);
        plan->takes_units |= !limit_takes_one(limit);
        if (limit->max_cost < plan->max_cost) plan->max_cost = limit->max_cost;
        plan->has_slots |= limit->algo == ALGO_CONCURRENCY;
        plan->merges_back |= limit->merge_back;
        plan->owns_state |= !limit->shared;
        /* Units charged with a delay cannot be given back, because later checks have been delayed because of them. */
        plan->reserves &= (limit_ops(limit)->refunds || limit->algo == ALGO_CONCURRENCY) && limit->max_wait_us == 0;
        if (format == NULL || !limit->shared) continue;
        plan->shares = true;
        plan->n_joined += key_format_is_joined(format, limit->parts);
    }
    plan->merges_back &= plan->reserves && plan->on_failure == ON_FAILURE_LOCAL;
    if (plan->zero_limit != NULL) plan->decider = DENIED_ALWAYS;
    bool leases = plan->n_limits == 1 && limits[0].lease_us > 0;
    plan->is_plain =
        plan->decider == DECIDED_BY_LIMITS && enforces && plan->candidate == NULL && !leases && !plan->takes_one;
}

/* For a policy, its variants and its candidate. */
static void seal_plan(struct policy *policy, key_parts shard_parts, uint32_t version)
{
    policy->version = version;
    plan_make(&policy->plan, policy, policy->limits, shard_parts);
}

void policy_seal(struct policy *policy)
{
    struct policy *candidate = policy->candidate;
    CHECK(policy->base == NULL && policy->unlimited == (policy->n_limits == 0));
    if (policy->overrides != NULL) pattern_set_seal(&policy->overrides->patterns);

    key_parts shard_parts = find_shard_parts(policy);
    seal_plan(policy, shard_parts, fingerprint(policy));
    count_limits(policy);
    for (size_t i = 0; policy->overrides != NULL && i < policy->overrides->n; i++) {
        seal_plan(policy->overrides->items[i].variant, shard_parts, policy->version);
        count_limits(policy->overrides->items[i].variant);
    }

    if (candidate == NULL) return;
    candidate->idempotency_ms = policy->idempotency_ms;
    candidate->deadline_ms = policy->deadline_ms;
    seal_plan(candidate, find_shard_parts(candidate), policy->version);
}

/* ---- Questions about one ---- */

const struct limit *policy_conflict(const struct policy *a, struct slice key_a, const struct policy *b,
                                    struct slice key_b)
{
    if (!policy_is_same(a, b)) return NULL;

    for (uint16_t i = 0; i < a->n_limits * b->n_limits; i++) {
        const struct limit *x = &a->limits[i / b->n_limits], *y = &b->limits[i % b->n_limits];
        bool same_numbers = x->limit == y->limit && x->window_us == y->window_us && x->burst == y->burst &&
                            x->max_wait_us == y->max_wait_us && penalty_same(&x->penalty, &y->penalty);
        if (same_numbers || strcmp(x->key_head, y->key_head) != 0) continue;

        struct key_split split_a, split_b;
        bool same_counter = !x->shared ? slice_eq(key_a, key_b)
                                       : key_format_split(a->format, key_a, &split_a) &&
                                             key_format_split(a->format, key_b, &split_b) &&
                                             key_format_same(&split_a, &split_b, x->parts);
        if (same_counter) return x;
    }
    return NULL;
}

const struct limit *policy_find_limit(const struct policy *policy, struct slice name)
{
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (slice_is(name, policy->limits[i].name)) return &policy->limits[i];
    return NULL;
}

const char *limit_path(const struct limit *limit, char out[LIMIT_PATH_MAX])
{
    snprintf(out, LIMIT_PATH_MAX, "%s%s%s", limit->policy->label, limit->name[0] != '\0' ? "/" : "", limit->name);
    return out;
}

const char *policy_cost_fault(const struct policy *policy, int64_t cost)
{
    if (cost < 0) return "cost: must not be negative";
    if (cost > EXACT_MAX) return "cost: must not be above 2^53 - 1";
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        const struct limit *limit = &policy->limits[i];
        if (limit_takes_one(limit)) continue;
        if (limit_ops(limit)->is_compat && cost > 1) return "cost: a compat policy takes only 0 and 1";

        if (cost > limit->max_cost && cost <= limit->full)
            return "cost: one check may charge a sliding_log at most 1000";
    }
    return NULL;
}

/* ---- Sets ---- */

struct policy_set *policy_set_new(size_t cap)
{
    struct policy_set *set = mem_zalloc(sizeof *set + 2 * cap * sizeof set->in_order[0]);
    if (set == NULL) return NULL;
    if (map_init(&set->by_name, cap) < 0) {
        mem_free(set);
        return NULL;
    }

    set->n_refs = 1;
    set->cap = cap;
    set->by_bytes = set->in_order + cap;
    return set;
}

void policy_set_add(struct policy_set *set, struct policy *policy)
{
    struct slice name = slice_of(policy->name);
    CHECK(set->n < set->cap && policy_find(set, name) == NULL);
    policy->index = (uint32_t)set->n;
    set->in_order[set->n++] = policy;
    map_insert(&set->by_name, &policy->node, hash_keyed(name.data, name.len));
    if (policy->unlimited) return;
    set->n_on_failure[policy->plan.on_failure]++;
    set->n_live_shares += policy->plan.on_failure == ON_FAILURE_LOCAL && policy->local_share == LIVE_SHARE;
}

void policy_set_free(struct policy_set *set)
{
    for (size_t i = 0; i < set->n; i++) policy_free(set->in_order[i]);
    map_fini(&set->by_name);
    mem_free(set);
}

static int by_name(const void *left, const void *right)
{
    const struct policy *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

void policy_set_sort(struct policy_set *set)
{
    if (set->n == 0) return;
    memcpy(set->by_bytes, set->in_order, set->n * sizeof set->in_order[0]);
    qsort(set->by_bytes, set->n, sizeof set->by_bytes[0], by_name);
}

static bool comes_after(const char *policy_name, struct slice name)
{
    size_t len = strlen(policy_name), n = len < name.len ? len : name.len;
    int order = n > 0 ? memcmp(policy_name, name.data, n) : 0;
    return order > 0 || (order == 0 && len > name.len);
}

size_t policy_set_after(const struct policy_set *set, struct slice name)
{
    size_t low = 0, high = set->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (comes_after(set->by_bytes[middle]->name, name))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void policy_set_share_counts(struct policy_set *set, const struct policy_set *before)
{
    if (set->counts_with == before) return;
    set->counts_with = before;
    for (size_t i = 0; i < set->n; i++) {
        const struct policy *same = policy_find(before, slice_of(set->in_order[i]->name));
        if (same != NULL) share_counts(set->in_order[i], same->counts);
    }
}

void policy_set_name(struct policy_set *set, size_t n_named)
{
    set->moved = NULL;
    for (size_t i = 0; i < set->n; i++) {
        struct policy_counts *counts = set->in_order[i]->counts;
        if ((counts->sum == NULL) == (i < n_named)) continue;
        counts->next_moved = set->moved;
        set->moved = counts;
    }
}

void policy_set_move_counts(struct policy_set *set)
{
    for (struct policy_counts *counts = set->moved; counts != NULL; counts = counts->next_moved) {
        bool joins = counts->sum == NULL;
        counts->sum = joins ? &policy_counts_other : NULL;
        if (n_decisions(counts, true) + n_decisions(counts, false) == 0) continue;

        /* What is counted while it is in the sum. Without memory for that a policy that gets a name is counted twice. */
        if (counts->in_other == NULL) counts->in_other = mem_zalloc(sizeof *counts->in_other);
        if (counts->in_other != NULL) add_counts(counts->in_other, &counts->all, joins);
        for (struct limit_counts *one = counts->limits; one != NULL; one = one->next)
            one->in_other += joins ? -one->denied : one->denied;
    }
    set->moved = NULL;
}

void policy_set_note_asked(struct policy_set *set, size_t *cursor, size_t max, int64_t minute)
{
    if (max > set->n) max = set->n;
    for (size_t i = 0; i < max; i++) {
        if (*cursor >= set->n) *cursor = 0;
        struct policy_counts *counts = set->in_order[(*cursor)++]->counts;
        int64_t n_new = minute - counts->minute < ASKED_MINUTES ? minute - counts->minute : ASKED_MINUTES;
        for (int64_t k = 0; k < n_new; k++) counts->asked[(minute - k) % ASKED_MINUTES] = 0;

        uint64_t n = policy_counts_allowed(counts) + policy_counts_denied(counts), sum = 0;
        uint64_t n_asked = n - counts->n_noted + counts->asked[minute % ASKED_MINUTES];
        counts->asked[minute % ASKED_MINUTES] = n_asked < UINT32_MAX ? (uint32_t)n_asked : UINT32_MAX;
        counts->n_noted = n;
        counts->minute = minute;
        for (size_t k = 0; k < ASKED_MINUTES; k++) sum += counts->asked[k];
        counts->asked_lately = sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX;
    }
}

const struct policy *policy_find(const struct policy_set *set, struct slice name)
{
    struct map_node *node = map_first(&set->by_name, hash_keyed(name.data, name.len));
    for (; node != NULL; node = map_next_same(node)) {
        const struct policy *policy = CONTAINER_OF(node, struct policy, node);
        if (slice_is(name, policy->name)) return policy;
    }
    return NULL;
}
