/*
 * policy.c: making, sealing and finding policies. See policy.h for who holds a set how long.
 */
#include "limit/policy.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/hash.h"

enum { SET_EXPECTED = 1024, SET_FIRST_CAP = 8 };

const char *on_failure_name(enum on_failure on_failure)
{
    static const char *const names[] = {
        [ON_FAILURE_ALLOW] = "allow",
        [ON_FAILURE_DENY] = "deny",
        [ON_FAILURE_LOCAL] = "local",
        [ON_FAILURE_ERROR] = "error",
    };
    CHECK((size_t)on_failure < sizeof names / sizeof names[0]);
    return names[on_failure];
}

struct policy *policy_new(const char *name, uint16_t n_limits)
{
    CHECK(n_limits >= 1 && n_limits <= POLICY_LIMITS_MAX && strlen(name) <= NAME_MAX_LEN);
    struct policy *policy = mem_zalloc(sizeof *policy + n_limits * sizeof policy->limits[0]);
    if (policy == NULL) return NULL;
    snprintf(policy->name, sizeof policy->name, "%s", name);
    policy->n_limits = n_limits;
    for (uint16_t i = 0; i < n_limits; i++) policy->limits[i].policy = policy;
    return policy;
}

void policy_free(struct policy *policy)
{
    mem_free(policy);
}

/* The settings go into the fingerprint as text, so that it is the same on every machine. */
static uint64_t hash_limit(uint64_t hash, const struct limit *limit)
{
    char text[256];
    int len = snprintf(text, sizeof text, "|%s|%s|%" PRId64 "|%" PRId64 "|%" PRId64 "|%" PRId64 "|%d|", limit->name,
                       limit_ops(limit)->name, limit->limit, limit->window_us, limit->burst, limit->max_wait_us,
                       (int)limit->count_denied);
    CHECK(len > 0 && (size_t)len < sizeof text);
    hash = hash_stable(hash, text, (size_t)len);
    if (limit->phase) hash = hash_stable(hash, "phase|", 6);
    return hash_stable(hash, limit->key_head, limit->key_head_len); /* tells first-hit windows from aligned ones */
}

void policy_seal(struct policy *policy)
{
    char text[160];
    int len = snprintf(text, sizeof text, "%s|%s|%" PRIu32, policy->name, on_failure_name(policy->on_failure),
                       policy->deadline_ms);
    CHECK(len > 0 && (size_t)len < sizeof text);
    uint64_t hash = hash_stable(HASH_STABLE_START, text, (size_t)len);
    if (policy->shadow) hash = hash_stable(hash, "|shadow", strlen("|shadow"));
    for (uint16_t i = 0; i < policy->n_limits; i++) hash = hash_limit(hash, &policy->limits[i]);
    policy->version = (uint32_t)(hash ^ hash >> 32);
}

const struct limit *policy_zero_limit(const struct policy *policy)
{
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (policy->limits[i].limit == 0) return &policy->limits[i];
    return NULL;
}

int64_t policy_capacity(const struct policy *policy)
{
    int64_t least = policy->limits[0].full;
    for (uint16_t i = 1; i < policy->n_limits; i++)
        if (policy->limits[i].full < least) least = policy->limits[i].full;
    return least;
}

struct policy_set *policy_set_new(void)
{
    struct policy_set *set = mem_zalloc(sizeof *set);
    if (set == NULL) return NULL;
    if (map_init(&set->by_name, SET_EXPECTED) < 0) {
        mem_free(set);
        return NULL;
    }
    set->n_refs = 1;
    return set;
}

static int grow(struct policy_set *set)
{
    size_t cap = set->cap == 0 ? SET_FIRST_CAP : set->cap * 2;
    struct policy **in_order = mem_realloc(set->in_order, cap * sizeof in_order[0]);
    if (in_order == NULL) return -1;
    set->in_order = in_order;
    set->cap = cap;
    return 0;
}

int policy_set_add(struct policy_set *set, struct policy *policy)
{
    struct slice name = slice_of(policy->name);
    if (policy_find(set, name) != NULL) return -2;
    if (set->n == set->cap && grow(set) < 0) return -1;
    set->in_order[set->n++] = policy;
    map_insert(&set->by_name, &policy->node, hash_keyed(name.data, name.len));
    return 0;
}

struct policy_set *policy_set_ref(struct policy_set *set)
{
    CHECK(set->n_refs > 0);
    set->n_refs++;
    return set;
}

void policy_set_unref(struct policy_set *set)
{
    if (set == NULL) return;
    CHECK(set->n_refs > 0);
    if (--set->n_refs > 0) return;
    for (size_t i = 0; i < set->n; i++) policy_free(set->in_order[i]);
    mem_free(set->in_order);
    map_fini(&set->by_name);
    mem_free(set);
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
