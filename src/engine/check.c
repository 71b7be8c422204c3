/*
 * check.c: the pool of checks, how a check becomes an op, and what the op's results say of each check.
 */
#include "engine/check.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/decimal.h"
#include "base/exact.h"
#include "base/latency.h"
#include "engine/engine_counters.h"

enum {
    SLAB_CHECKS = 64,
    NEAR_PART = 5,      /* allowed with less than this part of the limit left is near it, without a warn_at */
    KEEP_BYTES = 4096,  /* longer ones are not kept in the pool */
    KEEP_CHECKS = 1024, /* of those in the pool keep storage: 10 KiB each at most */
};

#define CANDIDATE_MARK "+candidate" /* as in the keys of its limits: no policy's name has a plus */

/* ---- the pool ---- */

struct check_slab {
    struct check_slab *next;
    struct check checks[SLAB_CHECKS];
};

/* More than the check itself has space for. */
static bool has_storage(const struct check *check)
{
    return check->all_members != NULL || check->bytes != NULL;
}

static void free_storage(struct check *check)
{
    mem_free(check->all_members);
    mem_free(check->bytes);
    check->all_members = NULL;
    check->bytes = NULL;
    check->members_cap = 0;
    check->bytes_cap = 0;
}

void check_pool_fini(struct check_pool *pool)
{
    CHECK(pool->n_out == 0);

    for (struct check_slab *slab = pool->slabs, *next; slab != NULL; slab = next) {
        next = slab->next;
        for (size_t i = 0; i < SLAB_CHECKS; i++) free_storage(&slab->checks[i]);
        mem_free(slab);
    }
    *pool = (struct check_pool){0};
}

/* As many checks have storage as were in use with some at once. If each kept its own, a check_all now and then would in
 * the end give some to every check of the pool. */
static void take_storage(struct check *check)
{
    struct check_pool *pool = check->pool;
    struct check *large = pool->large;
    if (has_storage(check) || large == NULL) return;

    check->all_members = large->all_members;
    check->members_cap = large->members_cap;
    check->bytes = large->bytes;
    check->bytes_cap = large->bytes_cap;
    large->all_members = NULL;
    large->bytes = NULL;
    large->members_cap = 0;
    large->bytes_cap = 0;

    pool->large = large->next;
    pool->n_large--;
    large->next = pool->idle;
    pool->idle = large;
}

struct check *check_pool_take(struct check_pool *pool)
{
    if (pool->idle == NULL && pool->large == NULL) {
        struct check_slab *slab = mem_zalloc(sizeof *slab);
        if (slab == NULL) return NULL;

        slab->next = pool->slabs;
        pool->slabs = slab;
        for (size_t i = 0; i < SLAB_CHECKS; i++) {
            deadline_init(&slab->checks[i].deadline);
            slab->checks[i].pool = pool;
            slab->checks[i].next = pool->idle;
            pool->idle = &slab->checks[i];
        }
    }

    struct check **from = pool->idle != NULL ? &pool->idle : &pool->large, *check = *from;
    *from = check->next;
    pool->n_out++;
    pool->n_large -= from == &pool->large;

    memset(check, 0, offsetof(struct check, decision));
    list_init(&check->op.link);
    check->first = check;
    check->n_all = check->n_unreleased = 1;
    return check;
}

void check_pool_return(struct check_pool *pool, struct check *check)
{
    for (struct check *joined; check != NULL; check = joined) {
        joined = check->joined;

        CHECK(pool->n_out > 0 && check->set != NULL && !deadline_is_set(&check->deadline) && !check->in_store);
        policy_set_unref(check->set);
        check->set = NULL;

        if (check->bytes_cap > KEEP_BYTES || pool->n_large == KEEP_CHECKS) free_storage(check);

        struct check **to = has_storage(check) ? &pool->large : &pool->idle;
        pool->n_large += to == &pool->large;
        pool->n_out--;
        check->next = *to; /* first out: its memory is warm */
        *to = check;
    }
}

/* ---- what is asked ---- */

void check_join(struct check *first, struct check *check)
{
    CHECK(first->first == first && check->first == check && check->n_all == 1);
    CHECK(first->n_all < CHECK_ALL_MAX && !first->is_sealed && !check->is_sealed);
    struct check *last = first;
    while (last->joined != NULL) last = last->joined;
    last->joined = check;
    check->first = first;
    first->n_all++;
    first->n_unreleased++;
}

int64_t check_asked(const struct check *check)
{
    if (check->op.kind == OP_REFUND) return 0;
    if (check->at_most == 0) return check->cost;
    return check->at_most < check->plan->max_cost ? check->at_most : check->plan->max_cost;
}

/* ---- filling the op ---- */

static bool has_record(const struct check *check)
{
    return check->request_id.len > 0 && check->op.kind != OP_ACQUIRE; /* a slot's id is its connection's */
}

uint8_t *check_make_bytes(struct check *check, size_t len)
{
    if (len <= CHECK_INLINE_BYTES) return check->inline_bytes;
    take_storage(check);
    if (len <= check->bytes_cap) return check->bytes;

    uint8_t *bytes = mem_realloc(check->bytes, len);
    if (bytes == NULL) return NULL;
    check->bytes = bytes;
    check->bytes_cap = len;
    return bytes;
}

int check_make_members(struct check *check, size_t n)
{
    CHECK(n <= POLICY_LIMITS_MAX);
    check->op.members = check->inline_members;
    if (n <= CHECK_INLINE_MEMBERS) return 0;

    take_storage(check);
    if (n > check->members_cap) {
        struct op_member *members = mem_realloc(check->all_members, n * sizeof *members);
        if (members == NULL) return -1;
        check->all_members = members;
        check->members_cap = (uint8_t)n;
    }
    check->op.members = check->all_members;
    return 0;
}

/* The most that name_record() writes. */
static size_t record_len(const struct check *check)
{
    size_t len = strlen("reserve1:") + DECIMAL_MAX + 1 + check->request_id.len;
    if (check->only != NULL) len += 1 + NAME_MAX_LEN;
    CHECK_FOREACH (one, check) len += NAME_MAX_LEN + sizeof CANDIDATE_MARK + 1 + DECIMAL_MAX + 1 + one->key.len + 1;
    return len;
}

/* `note1:POLICY:LEN:KEY:ID` (of a named limit `POLICY/LIMIT`), of a check_all `notes1:N:` and the same of each: no two
 * questions have one name. An id belongs to its method, which the first word says. */
static void name_record(struct check *check, uint8_t *to)
{
    uint8_t *start = to;
    const char *head = check->n_all > 1 ? "notes1:" : "note1:";
    if (check->op.kind == OP_RESERVE) head = "reserve1:";
    if (check->op.kind == OP_REFUND) head = "refund1:";
    to = slice_put(to, slice_of(head));
    if (check->n_all > 1) {
        to += decimal_put(to, check->n_all);
        *to++ = ':';
    }

    CHECK_FOREACH (one, check) {
        const struct policy *policy = one->plan->policy;
        to = slice_put(to, slice_of(policy->name));
        if (check->only != NULL) {
            *to++ = '/';
            to = slice_put(to, slice_of(check->only->name));
        }
        if (policy->is_candidate) to = slice_put(to, slice_of(CANDIDATE_MARK));
        *to++ = ':';
        to += decimal_put(to, one->key.len);
        *to++ = ':';
        to = slice_put(to, one->key);
        *to++ = ':';

        /* remembered for the longest time of its policies */
        if (policy->idempotency_ms > check->op.record_ms) check->op.record_ms = policy->idempotency_ms;
    }

    check->request_id.data = memcpy(to, check->request_id.data, check->request_id.len);
    check->op.record = (struct slice){start, (size_t)(to - start) + check->request_id.len};
}

/* Adds the limits of `one`, which is `check` or joined to it, as members. A limit of 0 needs no counter; but one may be
 * left from before it was 0, and a reset forgets that. */
static void add_op_members(struct check *check, struct check *one)
{
    struct op *op = &check->op;
    const struct plan *plan = one->plan;
    const struct slice none = {NULL, 0};
    bool sees_reservations = plan->reserves && check->only == NULL; /* they are given back to all limits or none */
    uint16_t first = op->n_members;
    for (uint16_t i = 0; i < plan->n_limits; i++) {
        const struct limit *limit = &plan->limits[i];
        bool is_asked = op->kind == OP_RESET ? !limit->shared : limit->limit > 0;
        if (check->only != NULL ? limit != check->only : !is_asked) continue;

        struct op_member *member = &op->members[op->n_members++];
        member->limit = limit;
        member->key = one->key;
        member->shard_id = none;
        member->reservations_key = sees_reservations ? one->key : none;
        member->cost = one->cost;
        member->max_wait_us = check->has_max_wait ? limit_max_wait(limit, check->max_wait_us) : limit->max_wait_us;
        member->used = member->extra = member->refunded = 0;
        member->removed = member->is_foreign = member->found = false;
        member->hash = member->batch_hash = 0;
    }
    one->n_limits = (uint8_t)(op->n_members - first);
}

/* Of some limits a check takes one, whatever it costs. A refund of the policy gives back units alone; one of such a
 * limit by its name those of its own. */
static void set_costs(const struct check *check, const struct check *one, struct op_member *members)
{
    bool is_refund = check->op.kind == OP_REFUND;
    for (uint8_t i = 0; i < one->n_limits; i++) {
        const struct limit *limit = members[i].limit;
        bool is_named = check->only != NULL || limit->name[0] == '\0'; /* the only one goes by the policy's name */
        if (!is_refund)
            members[i].cost = limit_cost(limit, one->cost);
        else if (limit_takes_one(limit) && !is_named)
            members[i].cost = 0;
    }
}

/* For a plan with shared limits: sets the id that each counter goes by, and the parts that all ids have in common, in
 * `bytes`. */
static void set_ids(const struct check *one, struct op_member *members, uint8_t *bytes)
{
    const struct key_format *format = one->plan->policy->format;
    struct key_split split;
    CHECK(key_format_split(format, one->key, &split)); /* the owner has checked this */
    struct slice shard_id = key_format_id(format, &split, one->plan->shard_parts, bytes);
    if (shard_id.data == bytes) bytes += shard_id.len; /* joined there; else it is a piece of the key */

    for (uint8_t i = 0; i < one->n_limits; i++) {
        struct op_member *member = &members[i];
        member->shard_id = shard_id;
        if (!member->limit->shared) continue;
        member->key = key_format_id(format, &split, member->limit->parts, bytes);
        if (member->key.data == bytes) bytes += member->key.len;
    }
}

/* In a check_all: keys that share a counter charge it once, with their sum. The members from `first` on are those of
 * `one`. */
static void merge_shared(struct check *check, struct check *one, uint16_t first)
{
    struct op *op = &check->op;
    uint16_t n = first;
    for (uint16_t i = first; i < op->n_members; i++) {
        uint16_t same = 0;
        while (same < first && !op_same_counter(&op->members[same], &op->members[i])) same++;
        one->member_index[i - first] = (uint8_t)(same < first ? same : n);

        if (same == first) {
            if (n != i) op->members[n] = op->members[i];
            n++;
        } else {
            int64_t *cost = &op->members[same].cost, added = op->members[i].cost;
            *cost = *cost < EXACT_MAX - added ? *cost + added : EXACT_MAX;
            check->is_merged = true;
        }
    }
    op->n_members = n;
}

/* Copies the key of `one`, and adds what the store is asked for it. Returns where more bytes go, with space for
 * n_more of them; NULL without memory. */
static uint8_t *seal_one(struct check *check, struct check *one, size_t n_more)
{
    const struct plan *plan = one->plan;
    uint16_t first = check->op.n_members;
    size_t n_ids = one->key.len * plan->n_joined;
    uint8_t *bytes = check_make_bytes(one, one->key.len + n_ids + n_more);
    if (bytes == NULL) return NULL;

    one->key.data = memcpy(bytes, one->key.data, one->key.len);
    bytes += one->key.len;
    one->is_sealed = true;
    bool asks_nothing = plan->decider == ALLOWED_ALWAYS || (check->n_all > 1 && plan->decider == DENIED_ALWAYS);
    if (asks_nothing) return bytes;

    add_op_members(check, one);
    if (plan->takes_one) set_costs(check, one, check->op.members + first);
    if (plan->shares) set_ids(one, check->op.members + first, bytes);
    if (check->n_all > 1) merge_shared(check, one, first);
    return bytes + n_ids;
}

/* Any check; 0, or -1 without memory. Apart, so that the usual one saves no registers for it. */
static __attribute__((noinline)) int seal(struct check *check)
{
    struct op *op = &check->op;
    size_t n_members = 0;
    CHECK_FOREACH (one, check) n_members += one->plan->n_limits;
    if (check_make_members(check, n_members) < 0) return -1;

    uint8_t *record = seal_one(check, check, has_record(check) ? record_len(check) : 0);
    if (record == NULL) return -1;
    struct check *others = check->joined;
    CHECK_FOREACH (one, others)
        if (seal_one(check, one, 0) == NULL) return -1;
    if (has_record(check)) name_record(check, record);
    if (op->kind == OP_RESERVE || op->kind == OP_SETTLE) op->reservation = &check->reservation;

    for (uint16_t i = 0; check->is_merged && i < op->n_members; i++) /* no list of reservations is one key's then */
        op->members[i].reservations_key = (struct slice){NULL, 0};
    return 0;
}

int check_seal(struct check *check)
{
    struct op *op = &check->op;
    const struct plan *plan = check->plan;
    CHECK(!check->is_sealed && check->first == check);
    bool is_decision = op->kind == OP_CHECK || op->kind == OP_PEEK;
    check->is_special = !is_decision || check->n_all > 1 || !plan->is_plain;

    /* the usual check needs no more than its key and a limit or two */
    bool is_usual = !check->is_special && check->request_id.len == 0 && !plan->shares;
    if (is_usual && check->key.len <= CHECK_INLINE_BYTES && plan->n_limits <= CHECK_INLINE_MEMBERS) {
        op->members = check->inline_members;
        check->key.data = memcpy(check->inline_bytes, check->key.data, check->key.len);
        add_op_members(check, check);
    } else if (seal(check) < 0) {
        return -1;
    }

    if (check->at_most > 0) op->at_most = check_asked(check);
    check->is_sealed = true;
    return 0;
}

/* ---- the answer ---- */

/* One that its plan alone decides: an unlimited one admits everything, a limit of 0 nothing, and no store need be
 * asked. What may have been counted before the limit was 0, a reset forgets. */
static bool answer_by_plan(struct check *check, enum source source, int64_t now_us)
{
    const struct plan *plan = check->plan;
    const struct limit *zero_limit = plan->zero_limit;
    if (check->op.kind == OP_RESET) return check->only == NULL && !plan->owns_state;
    if (check->only != NULL) zero_limit = check->only->limit == 0 ? check->only : NULL;
    if (zero_limit == NULL && plan->decider != ALLOWED_ALWAYS) return false;

    engine_counters.decided_unlimited++;
    if (plan->decider == ALLOWED_ALWAYS) return true; /* check_answer_unlimited() says what */

    bool allowed = check->cost == 0 || check->op.kind == OP_REFUND; /* there is nothing to give back */
    check->decision = (struct decision){
        .allowed = allowed,
        .retry_after_ms = allowed ? 0 : RETRY_NEVER,
        .bound_by = !allowed && plan->n_limits > 1 ? zero_limit : NULL,
        .of = zero_limit,
        .window_ms = limit_window_ms(zero_limit, now_us),
        .source = source,
        .policy_version = plan->policy->version,
    };
    return true;
}

/* In a check_all that a limit of 0 denies, the other limits would not deny, as far as is known. */
static void allow_undecided(struct check *check, enum source source, int64_t now_us)
{
    CHECK_FOREACH (one, check) {
        const struct limit *least = one->plan->least;
        if (one->plan->decider != DECIDED_BY_LIMITS) continue;

        one->decision = (struct decision){
            .allowed = true,
            .limit = least->full,
            .of = least,
            .window_ms = limit_window_ms(least, now_us),
            .source = source,
            .policy_version = one->plan->policy->version,
        };
    }
}

bool check_decide_by_plans(struct check *check, enum source source, int64_t now_us)
{
    bool all = true, denied = false;
    CHECK_FOREACH (one, check) {
        bool is_decided = answer_by_plan(one, source, now_us);
        bool has_decision = is_decided && one->plan->decider != ALLOWED_ALWAYS && one->op.kind != OP_RESET;
        all &= is_decided;
        denied |= has_decision && !one->decision.allowed;
    }

    if (denied) allow_undecided(check, source, now_us);
    if (all || denied) check->op.n_members = 0; /* no answer of the store's is among the members */
    return all || denied;
}

void check_answer_unlimited(struct check *check)
{
    bool allowed = true;
    CHECK_FOREACH (one, check) allowed &= one->plan->decider == ALLOWED_ALWAYS || one->decision.allowed;

    CHECK_FOREACH (one, check) {
        if (one->plan->decider != ALLOWED_ALWAYS) continue;
        one->decision = (struct decision){
            .allowed = true,
            .limit = UNLIMITED,
            .remaining = UNLIMITED,
            .granted = allowed ? check_asked(one) : 0,
            .source = SOURCE_UNLIMITED,
            .policy_version = one->plan->policy->version,
        };
    }
}

/* Not inlined, so that checks of one limit need no space on the stack for several. */
static void combine_limits(struct check *one, const struct op_member *members)
{
    struct decision decisions[POLICY_LIMITS_MAX];
    bool is_all = one->first->n_all > 1;
    for (uint8_t i = 0; i < one->n_limits; i++) decisions[i] = members[is_all ? one->member_index[i] : i].decision;
    if (one->plan->takes_one && one->first->op.kind != OP_ACQUIRE)
        decision_combine_units(&one->decision, decisions, one->n_limits);
    else
        decision_combine(&one->decision, decisions, one->n_limits);
}

/* Of an admitted check whose limits may have been charged other units: the sum of several keys, one in place of its
 * cost. A record remembers what each limit was charged. Apart, so that the usual check saves no registers for it. */
static __attribute__((noinline)) int64_t granted_units(const struct check *one, const struct op_member *members)
{
    bool is_all = one->first->n_all > 1;
    if (one->first->is_merged) return one->cost;
    if (!one->plan->takes_one) return one->decision.granted;

    int64_t most = one->plan->takes_units ? 0 : one->cost;
    for (uint8_t i = 0; i < one->n_limits; i++) {
        int64_t granted = members[is_all ? one->member_index[i] : i].decision.granted;
        if (granted > most) most = granted;
    }
    return most;
}

void check_take_answer(struct check *check, const struct op *op, enum source source)
{
    const struct op_member *members = op->members;
    switch (op->kind) {
    case OP_RESET:
        for (uint16_t i = 0; i < op->n_members; i++) check->removed |= members[i].removed;
        return;
    case OP_RELEASE:
        check->removed = true;
        for (uint16_t i = 0; i < op->n_members; i++) check->removed &= members[i].found;
        return;
    case OP_REFUND:
        for (uint16_t i = 0; i < op->n_members; i++)
            if (members[i].refunded > check->refunded) check->refunded = members[i].refunded;
        break;
    default: break;
    }

    CHECK_FOREACH (one, check) {
        struct decision *decision = &one->decision;
        if (one->plan->decider == ALLOWED_ALWAYS) continue;
        if (one->n_limits > 1) {
            combine_limits(one, members);
        } else if (one->n_limits == 1) {
            *decision = members[check->n_all > 1 ? one->member_index[0] : 0].decision;
            decision->bound_by = NULL;
        } else {
            decision->reason = REASON_NONE;
        }

        if (check->is_special && one->n_limits > 0 && decision->granted > 0)
            decision->granted = granted_units(one, members);
        decision->policy_version = one->plan->policy->version;
        decision->source = source;
    }
}

/* The decision allows. A shadow policy's denial is one by its limit, and not near it. */
static inline bool is_near(const struct decision *decision)
{
    if (decision->of == NULL || decision->shadow_denied) return false;
    return decision->of->warn_at > 0 ? decision->near : decision->remaining * NEAR_PART < decision->limit;
}

/* What few decisions need: their policy has no series of its own, or a limit denied, or it would have. */
__attribute__((noinline)) static void count_rarely(const struct check *check, bool allowed)
{
    const struct decision *decision = &check->decision;
    struct policy_counts *counts = check->plan->policy->counts;
    struct policy_counts *sum = atomic_load_explicit(&counts->sum, memory_order_relaxed);
    bool is_by_limit = !decision->allowed && decision->of != NULL && decision->of->n_denied != NULL;
    if (is_by_limit) ++*decision->of->n_denied;
    counts->all.shadow_denied += decision->shadow_denied;
    engine_counters.shadow_denied += decision->shadow_denied;
    if (sum == NULL) return;

    sum->all.decisions[decision->source][allowed]++;
    sum->all.shadow_denied += decision->shadow_denied;
    sum->denied_by_limit += is_by_limit;
    if (!allowed) return;
    sum->all.granted += (uint64_t)decision->granted;
    sum->all.near += is_near(decision);
}

/* `allowed`: the check, or all of its check_all. */
static inline void count_decision(const struct check *check, bool allowed)
{
    struct policy_counts *counts = check->plan->policy->counts;
    const struct decision *decision = &check->decision;
    counts->all.decisions[decision->source][allowed]++;
    if (allowed) {
        counts->all.granted += (uint64_t)decision->granted;
        if (is_near(decision)) counts->all.near++;
        engine_counters.allowed++;
    } else {
        engine_counters.denied++;
    }
    bool has_sum = atomic_load_explicit(&counts->sum, memory_order_relaxed) != NULL;
    if (__builtin_expect(!allowed || decision->shadow_denied || has_sum, 0)) count_rarely(check, allowed);
}

/* The first of those that came with a read, or a check_all. */
__attribute__((noinline)) static void count_first_or_all(const struct check *check)
{
    bool allowed = true;
    latency_decided(check->op.read_us, check->n_all);
    CHECK_FOREACH (one, check) allowed &= one->decision.allowed;
    CHECK_FOREACH (one, check) count_decision(one, allowed);
}

/* Every decision passes here. Calls stand at the end of their way alone, so that the usual way saves no registers. */
void check_count_decided(const struct check *check)
{
    if (check->joined == NULL && latency_decided_again(check->op.read_us, 1))
        count_decision(check, check->decision.allowed);
    else
        count_first_or_all(check);
}

/* The more of it, the more the check's source and reason say about the whole, which `allowed`. */
static int weight_of(const struct check *check, bool allowed)
{
    const struct decision *decision = &check->decision;
    bool decides = allowed || !decision->allowed;
    bool is_failure = decision->source >= SOURCE_ALLOW;
    if (check->plan->decider == ALLOWED_ALWAYS) return 0; /* an unlimited one decides nothing */
    return decides && is_failure ? 3 : decides ? 2 : 1;
}

void check_combine(const struct check *const *checks, size_t n, struct decision *ret)
{
    enum { FOLD = 31 };
    struct decision decisions[CHECK_ALL_MAX];
    const struct check *decider = checks[0];
    int64_t granted = 0;
    uint32_t version = 0;
    CHECK(n >= 1 && n <= CHECK_ALL_MAX);
    for (size_t i = 0; i < n; i++) {
        decisions[i] = checks[i]->decision;
        granted += checks[i]->decision.granted;
        version = version * FOLD + checks[i]->plan->policy->version;
    }

    decision_combine(ret, decisions, n);
    for (size_t i = 1; i < n; i++)
        if (weight_of(checks[i], ret->allowed) > weight_of(decider, ret->allowed)) decider = checks[i];
    ret->granted = ret->allowed ? granted : 0;
    ret->policy_version = version;
    ret->source = decider->decision.source;
    if (ret->source >= SOURCE_ALLOW) ret->reason = decider->decision.reason;          /* else that of what binds */
    if (ret->source == SOURCE_DENY && ret->bound_by == NULL) ret->reset_after_ms = 0; /* no limit denied */
}
