/* deny_cache.c: denials that are certain, by limit and key (counter_table.h), for redis/store.c. */
#include "redis/deny_cache.h"

#include "base/assert.h"
#include "policy/policy.h"
#include "redis/counters.h"

enum { GROUP_BITS = 10, HASH_BITS = 64 };
_Static_assert(DENY_CACHE_GROUPS == 1 << GROUP_BITS, "one for each value of these bits of a hash");

struct deny_entry {
    int64_t sent_us;                 /* CLOCK_MONOTONIC: from then it counts */
    int64_t now_us;                  /* the server's clock when it saw the state */
    int64_t cost, max_wait_us, full; /* of the denied check and its limit; keys that share a counter may have others */
    struct state state;              /* as memory has it; not of a log, of which these are kept: */
    int64_t used, newest_us, wait_us;
    struct pause pause; /* of a limit with a penalty */
    uint32_t version;   /* of the policy */
};

void deny_cache_init(struct deny_cache *cache)
{
    *cache = (struct deny_cache){0};
}

void deny_cache_fini(struct deny_cache *cache)
{
    counter_table_fini(&cache->table);
}

void deny_cache_clear(struct deny_cache *cache)
{
    cache->epoch++;
    counter_table_clear(&cache->table);
}

void deny_cache_set_options(struct deny_cache *cache, uint64_t max_keys, int64_t max_age_us)
{
    deny_cache_clear(cache);
    cache->max_age_us = max_age_us;
    if (max_keys == cache->max_keys) return;

    deny_cache_fini(cache);
    cache->max_keys = max_keys;
    counter_table_init(&cache->table, max_keys, sizeof(struct deny_entry), 0, DENY_CACHE_NAME_MAX);
}

/* ---- what can be kept ---- */

/* Is a denial by this limit only an answer, and the only one that its policy gives? Is there space for the key? */
static bool is_kept(const struct deny_cache *cache, const struct op_member *member)
{
    const struct limit *limit = member->limit;
    const struct policy *policy = limit->policy;
    if (policy->n_limits != 1 || policy->shadow || policy->is_candidate) return false;
    if (limit->count_denied || limit->algo == ALGO_CONCURRENCY || limit_ops(limit)->is_compat) return false;
    return counter_table_fits(&cache->table, member);
}

/* A check that asks one limit and leaves nothing but a charge. */
static bool is_plain(const struct deny_cache *cache, const struct op *op)
{
    return op->kind == OP_CHECK && op->n_members == 1 && !op->is_all && op->record.len == 0 &&
           op->members[0].cost > 0 && is_kept(cache, &op->members[0]);
}

/* An op with a list of reservations gives back those that have ended, too. */
static bool may_give_back(const struct op *op)
{
    switch (op->kind) {
    case OP_RESET:
    case OP_REFUND:
    case OP_RESERVE:
    case OP_SETTLE:
    case OP_SWEEP: return true;
    case OP_CHECK:
    case OP_PEEK:
    case OP_ACQUIRE:
    case OP_RELEASE:
    case OP_RENEW: break;
    }
    return false;
}

/* The ops under way that may give back units of keys that hash alike. */
static uint32_t *givers_of(struct deny_cache *cache, struct op_member *member)
{
    return &cache->givers[op_member_hash(member) >> (HASH_BITS - GROUP_BITS)];
}

static int64_t sent_us_of(const void *entry)
{
    return ((const struct deny_entry *)entry)->sent_us;
}

static void remove_entry(struct deny_cache *cache, struct op_member *member)
{
    struct deny_entry *entry = counter_table_find(&cache->table, member);
    if (entry != NULL) counter_table_remove(&cache->table, entry);
}

/* ---- a check's answer ---- */

/* By how much more may be in use for `member` to pass than for the denied check? Overrides give keys that share
 * a counter different limits, and equal windows and rates. */
static int64_t asks_less_by(const struct op_member *member, const struct deny_entry *entry)
{
    return (member->limit->full - member->cost) - (entry->full - entry->cost);
}

static void view_at(struct view *view, const struct op_member *member, int64_t now_us, int64_t wall_us)
{
    struct constants constants;
    limit_constants(&constants, member->limit, limit_phase(member->limit, member->key), member->max_wait_us, wall_us);
    limit_at(view, member->limit, &constants, now_us);
}

static bool is_current(const struct deny_cache *cache, const struct deny_entry *entry, const struct op_member *member,
                       int64_t mono_us)
{
    int64_t age_us = mono_us - entry->sent_us;
    return age_us >= 0 && age_us < cache->max_age_us && entry->version == member->limit->policy->version;
}

/* True: it denies the op. Apart, so that an op without an entry has no space for a view on its stack. */
static __attribute__((noinline)) bool decide_by(struct deny_cache *cache, struct deny_entry *entry, struct op *op,
                                                const struct clock *clock)
{
    struct op_member *member = &op->members[0];
    /* What asks for less may be admitted, and what comes behind it must not be answered with the numbers before it. */
    bool has_penalty = limit_has_penalty(member->limit); /* of which pauses are kept, and these deny every cost */
    bool asks_less = !has_penalty && (asks_less_by(member, entry) > 0 || member->max_wait_us > entry->max_wait_us);
    if (asks_less || !is_current(cache, entry, member, clock->mono_us)) {
        counter_table_remove(&cache->table, entry);
        return false;
    }
    /* Of a log only the time is known at which this very cost fits this very limit. */
    bool is_log = limit_ops(member->limit)->has_wait;
    if (is_log && (member->cost != entry->cost || member->limit->full != entry->full)) return false;

    struct state state = entry->state;
    struct view view;
    op->now_us = entry->now_us + clock->mono_us - entry->sent_us;
    view_at(&view, member, op->now_us, clock->wall_us);
    if (is_log)
        limit_report(&view, entry->used, entry->newest_us, entry->now_us + entry->wait_us - op->now_us);
    else
        limit_view(&view, &state);
    if (has_penalty) limit_pause(&view, entry->pause);
    bool is_over = (is_log && view.wait_us <= 0) || (has_penalty && view.pause_ms == 0);
    if (is_over || limit_fits(&view, member->cost, 1) > 0) {
        counter_table_remove(&cache->table, entry);
        return false;
    }

    op_decide_one(op, &view);
    CHECK(!member->decision.allowed); /* nothing was charged */
    op->source = SOURCE_DENY_CACHE;
    redis_counters.denied_from_cache++;
    return true;
}

bool deny_cache_decide(struct deny_cache *cache, struct op *op, const struct clock *clock)
{
    if (!counter_table_is_reserved(&cache->table) || !is_plain(cache, op)) return false;
    struct deny_entry *entry = counter_table_find(&cache->table, &op->members[0]);
    return entry != NULL && decide_by(cache, entry, op, clock);
}

/* ---- what goes to Redis, and comes back ---- */

void deny_cache_submitted(struct deny_cache *cache, struct op *op)
{
    op->deny_epoch = cache->epoch;
    if (!may_give_back(op)) return;

    for (uint16_t i = 0; i < op->n_members; i++) {
        remove_entry(cache, &op->members[i]);
        ++*givers_of(cache, &op->members[i]);
    }
}

void deny_cache_ended(struct deny_cache *cache, const struct op *op)
{
    if (!may_give_back(op)) return;

    for (uint16_t i = 0; i < op->n_members; i++) {
        uint32_t *givers = givers_of(cache, &op->members[i]);
        CHECK(*givers > 0);
        --*givers;
    }
}

static void keep_denial(struct deny_cache *cache, const struct op *op, int64_t sent_us, int64_t wall_us)
{
    struct op_member *member = &op->members[0];
    const struct limit *limit = member->limit;
    if (op->deny_epoch != cache->epoch || *givers_of(cache, member) > 0) return;
    bool has_penalty = limit_has_penalty(limit);
    if (has_penalty && member->decision.reason != REASON_PENALTY) return; /* it would hide a breach */

    /* What asks for less says as much as this denial would, but of a log, which answers only its own cost and limit. So
     * does one of as much in the same call. */
    bool is_log = limit_ops(limit)->has_wait;
    struct deny_entry *old = counter_table_find(&cache->table, member);
    bool is_comparable = old != NULL && !has_penalty && is_current(cache, old, member, sent_us) &&
                         old->max_wait_us >= member->max_wait_us;
    if (is_comparable && !is_log && asks_less_by(member, old) < 0) return;
    if (is_comparable && old->sent_us == sent_us && old->cost == member->cost && old->full == limit->full) return;

    struct deny_entry entry = {.sent_us = sent_us,
                               .now_us = op->now_us,
                               .cost = member->cost,
                               .full = limit->full,
                               .max_wait_us = member->max_wait_us,
                               .pause = member->pause,
                               .version = limit->policy->version};
    int64_t now_ms = op->now_us / 1000;
    bool has_begun = has_penalty && member->pause.end_ms <= now_ms; /* by this very denial */
    if (has_begun) entry.pause = penalty_next(&limit->penalty, &member->pause, now_ms);

    if (is_log) {
        /* The units between those that are left and those that were asked for come back one by one, at times that are
         * not known.
         */
        int64_t left = member->used < limit->full ? limit->full - member->used : 0;
        bool fits = member->cost <= left; /* only a pause denies it */
        if (!fits && (member->wait_us <= 0 || member->cost != left + 1)) return;
        entry.used = member->used;
        entry.newest_us = member->extra;
        entry.wait_us = fits ? EXACT_MAX : member->wait_us;
    } else {
        struct view view;
        view_at(&view, member, op->now_us, wall_us);
        limit_report(&view, member->used, member->extra, 0);
        limit_ops(limit)->save(&view, &entry.state);
    }

    struct deny_entry *place = old != NULL ? old : counter_table_add(&cache->table, member, sent_us_of);
    if (place != NULL) *place = entry;
}

void deny_cache_learn(struct deny_cache *cache, const struct op *op, int64_t sent_us, int64_t wall_us)
{
    if (cache->max_keys == 0 || op->kind != OP_CHECK) return;
    if (!op->members[0].decision.allowed && is_plain(cache, op)) {
        keep_denial(cache, op, sent_us, wall_us);
        return;
    }

    /* What was admitted has changed the numbers of an older entry. */
    for (uint16_t i = 0; counter_table_is_reserved(&cache->table) && i < op->n_members; i++) {
        struct op_member *member = &op->members[i];
        if (member->decision.granted > 0 && is_kept(cache, member)) remove_entry(cache, member);
    }
}
