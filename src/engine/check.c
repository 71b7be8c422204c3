/*
 * check.c: the pool of checks, how a check becomes an op, and what the op's results say of each part.
 */
#include "engine/check.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/decimal.h"
#include "base/exact.h"
#include "engine/engine_counters.h"

enum {
    SLAB_CHECKS = 64,
    KEEP_BYTES = 4096,  /* longer ones are not kept in the pool */
    KEEP_CHECKS = 1024, /* of those in the pool keep storage of their own: 10 KiB each at most */
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
    return check->all_parts != NULL || check->all_members != NULL || check->bytes != NULL;
}

static void free_storage(struct check *check)
{
    mem_free(check->all_parts);
    mem_free(check->all_members);
    mem_free(check->bytes);
    check->all_parts = NULL;
    check->all_members = NULL;
    check->bytes = NULL;
    check->members_cap = 0;
    check->bytes_cap = 0;
}

void check_pool_init(struct check_pool *pool)
{
    *pool = (struct check_pool){0};
}

void check_pool_fini(struct check_pool *pool)
{
    CHECK(pool->n_out == 0);

    for (struct check_slab *slab = pool->slabs, *next; slab != NULL; slab = next) {
        next = slab->next;
        for (size_t i = 0; i < SLAB_CHECKS; i++) free_storage(&slab->checks[i]);
        mem_free(slab);
    }
    check_pool_init(pool);
}

static int add_slab(struct check_pool *pool)
{
    struct check_slab *slab = mem_zalloc(sizeof *slab);
    if (slab == NULL) return -1;

    slab->next = pool->slabs;
    pool->slabs = slab;
    for (size_t i = 0; i < SLAB_CHECKS; i++) {
        deadline_init(&slab->checks[i].deadline);
        slab->checks[i].next = pool->idle;
        pool->idle = &slab->checks[i];
    }
    return 0;
}

struct check *check_pool_take(struct check_pool *pool)
{
    if (pool->idle == NULL && add_slab(pool) < 0) return NULL;

    struct check *check = pool->idle;
    pool->idle = check->next;
    pool->n_out++;
    pool->n_large -= has_storage(check);

    memset(check, 0, offsetof(struct check, limits));
    memset(&check->one_part, 0, offsetof(struct part, decision));
    list_init(&check->op.link);
    check->parts = &check->one_part;
    check->n_parts = 1;
    return check;
}

void check_pool_return(struct check_pool *pool, struct check *check)
{
    CHECK(pool->n_out > 0 && check->set != NULL && !deadline_is_set(&check->deadline) && !check->in_store);
    policy_set_unref(check->set);
    check->set = NULL;
    for (uint16_t i = 0; i < check->n_parts; i++) policy_set_unref(check->parts[i].set);

    if (has_storage(check)) {
        if (check->bytes_cap <= KEEP_BYTES && pool->n_large < KEEP_CHECKS)
            pool->n_large++;
        else
            free_storage(check);
    }

    pool->n_out--;
    check->next = pool->idle; /* first out: its memory is warm */
    pool->idle = check;
}

/* ---- what is asked ---- */

struct part *check_add_part(struct check *check)
{
    CHECK(!check->is_sealed);
    if (check->n_parts == CHECK_PARTS_MAX) return NULL;
    if (check->n_parts == 1) {
        if (check->all_parts == NULL) check->all_parts = mem_alloc(CHECK_PARTS_MAX * sizeof *check->all_parts);
        if (check->all_parts == NULL) return NULL;
        check->all_parts[0] = check->one_part;
        check->parts = check->all_parts;
    }

    struct part *part = &check->parts[check->n_parts++];
    *part = (struct part){0};
    return part;
}

int64_t check_asked(const struct check *check, const struct part *part)
{
    int64_t most = check->at_most;
    if (check->op.kind == OP_REFUND) return 0;
    if (most == 0) return part->cost;
    for (uint16_t i = 0; i < part->policy->n_limits; i++) /* no limit can be asked for more at once */
        if (part->policy->limits[i].max_cost < most) most = part->policy->limits[i].max_cost;
    return most;
}

/* Has the policy a counter that belongs to the whole key? A reset without a limit forgets only those. */
static bool owns_state(const struct policy *policy)
{
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (!policy->limits[i].shared) return true;
    return false;
}

/* ---- filling the op ---- */

static bool has_record(const struct check *check)
{
    return check->request_id.len > 0 && check->op.kind != OP_ACQUIRE; /* a slot's id is its connection's */
}

/* Makes space for all that the check keeps: ret_bytes for keys, ids of shared limits and the record's name, op.members
 * for its members. 0, or -1 without memory. */
static int make_space(struct check *check, uint8_t **ret_bytes)
{
    size_t n_members = 0, len = 0, part_len = 0;
    if (has_record(check)) {
        len = strlen("reserve1:") + 1 + NAME_MAX_LEN + DECIMAL_MAX + 1 + check->request_id.len;
        part_len = NAME_MAX_LEN + sizeof CANDIDATE_MARK + DECIMAL_MAX + 1 + 1; /* with the key once more */
    }
    for (uint16_t i = 0; i < check->n_parts; i++) {
        const struct part *part = &check->parts[i];
        len += part_len + part->key.len * (1U + part->policy->n_joined + (part_len > 0));
        n_members += part->policy->n_limits;
    }

    *ret_bytes = len <= CHECK_INLINE_BYTES ? check->inline_bytes : check->bytes;
    if (len > CHECK_INLINE_BYTES && len > check->bytes_cap) {
        *ret_bytes = mem_realloc(check->bytes, len);
        if (*ret_bytes == NULL) return -1;
        check->bytes = *ret_bytes;
        check->bytes_cap = len;
    }

    return check_make_members(check, n_members);
}

int check_make_members(struct check *check, size_t n)
{
    CHECK(n <= POLICY_LIMITS_MAX);
    check->op.members = check->inline_members;
    if (n <= CHECK_INLINE_MEMBERS) return 0;

    if (n > check->members_cap) {
        struct op_member *members = mem_realloc(check->all_members, n * sizeof *members);
        if (members == NULL) return -1;
        check->all_members = members;
        check->members_cap = (uint8_t)n;
    }
    check->op.members = check->all_members;
    return 0;
}

static uint8_t *append(uint8_t *to, struct slice bytes)
{
    if (bytes.len > 0) memcpy(to, bytes.data, bytes.len);
    return to + bytes.len;
}

/* `note1:POLICY:LEN:KEY:ID` (of a named limit `POLICY/LIMIT`), of several parts `notes1:N:` and the same of each: no
 * two questions have one name. An id belongs to its method, which the first word says. */
static void name_record(struct check *check, uint8_t *to)
{
    uint8_t *start = to;
    const char *head = check->n_parts > 1 ? "notes1:" : "note1:";
    if (check->op.kind == OP_RESERVE) head = "reserve1:";
    if (check->op.kind == OP_REFUND) head = "refund1:";
    to = append(to, slice_of(head));
    if (check->n_parts > 1) {
        to += decimal_put(to, check->n_parts);
        *to++ = ':';
    }

    for (uint16_t i = 0; i < check->n_parts; i++) {
        const struct part *part = &check->parts[i];
        to = append(to, slice_of(part->policy->name));
        if (check->only != NULL) {
            *to++ = '/';
            to = append(to, slice_of(check->only->name));
        }
        if (part->policy->is_candidate) to = append(to, slice_of(CANDIDATE_MARK));
        *to++ = ':';
        to += decimal_put(to, part->key.len);
        *to++ = ':';
        to = append(to, part->key);
        *to++ = ':';

        /* remembered for the longest time of its policies */
        if (part->policy->idempotency_ms > check->op.record_ms) check->op.record_ms = part->policy->idempotency_ms;
    }

    check->request_id.data = memcpy(to, check->request_id.data, check->request_id.len);
    check->op.record = (struct slice){start, (size_t)(to - start) + check->request_id.len};
}

/* Adds the limits of the part's policy as members. A limit of 0 needs no counter; but one may be left from before it
 * was 0, and a reset forgets that. */
static void add_members(struct check *check, const struct part *part)
{
    struct op *op = &check->op;
    const struct policy *policy = part->policy;
    const struct slice none = {NULL, 0};
    bool sees_reservations = policy->reserves && check->only == NULL; /* they are given back to all limits or none */
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        const struct limit *limit = &policy->limits[i];
        bool is_asked = op->kind == OP_RESET ? !limit->shared : limit->limit > 0;
        if (check->only != NULL ? limit != check->only : !is_asked) continue;

        struct op_member *member = &op->members[op->n_members++];
        member->limit = limit;
        member->key = part->key;
        member->common = none;
        member->reservations_key = sees_reservations ? part->key : none;
        member->cost = part->cost;
        member->max_wait_us = check->has_max_wait ? limit_max_wait(limit, check->max_wait_us) : limit->max_wait_us;
        member->seen1 = member->seen2 = member->refunded = 0;
        member->removed = member->is_foreign = member->found = false;
        member->batch_hash = 0;
    }
}

/* For a policy with shared limits: sets the id that each counter goes by, and the parts that all ids have in common.
 * Returns the rest of `bytes`. */
static uint8_t *set_ids(const struct part *part, struct op_member *members, uint16_t n, uint8_t *bytes)
{
    const struct key_format *format = part->policy->format;
    struct key_split split;
    CHECK(key_format_split(format, part->key, &split)); /* the owner has checked this */
    struct slice common = key_format_id(format, &split, part->policy->common, bytes);
    if (common.data == bytes) bytes += common.len; /* joined there; else it is a piece of the key */

    for (uint16_t i = 0; i < n; i++) {
        struct op_member *member = &members[i];
        member->common = common;
        if (!member->limit->shared) continue;
        member->key = key_format_id(format, &split, member->limit->parts, bytes);
        if (member->key.data == bytes) bytes += member->key.len;
    }
    return bytes;
}

/* In a check_all: parts whose keys share a counter charge it once, with their sum. The members from `first` on are the
 * present part's. */
static void merge_shared(struct check *check, uint16_t first)
{
    struct op *op = &check->op;
    uint16_t n = first;
    for (uint16_t i = first; i < op->n_members; i++) {
        uint16_t same = 0;
        while (same < first && !op_same_counter(&op->members[same], &op->members[i])) same++;

        if (same == first) {
            check->limits[check->n_limits++] = (uint8_t)n;
            if (n != i) op->members[n] = op->members[i];
            n++;
        } else {
            int64_t *cost = &op->members[same].cost, more = op->members[i].cost;
            check->limits[check->n_limits++] = (uint8_t)same;
            *cost = *cost < EXACT_MAX - more ? *cost + more : EXACT_MAX;
            check->is_merged = true;
        }
    }
    op->n_members = n;
}

/* Adds the members of each part, and copies the keys and ids into `bytes`. Returns the rest of `bytes`. */
static uint8_t *add_parts(struct check *check, uint8_t *bytes)
{
    struct op *op = &check->op;
    bool is_all = check->n_parts > 1;
    for (uint16_t i = 0; i < check->n_parts; i++) {
        struct part *part = &check->parts[i];
        const struct policy *policy = part->policy;
        uint16_t first = op->n_members;
        part->key.data = memcpy(bytes, part->key.data, part->key.len);
        part->first = check->n_limits;
        bytes += part->key.len;
        if (policy->unlimited || (is_all && policy->zero != NULL)) continue; /* it asks nothing */

        add_members(check, part);
        part->n = (uint8_t)(op->n_members - first);
        if (policy->shares) bytes = set_ids(part, op->members + first, part->n, bytes);
        if (is_all) merge_shared(check, first);
    }
    for (uint16_t i = 0; check->is_merged && i < op->n_members; i++) /* no list of reservations is one key's then */
        op->members[i].reservations_key = (struct slice){NULL, 0};
    return bytes;
}

int check_seal(struct check *check)
{
    struct op *op = &check->op;
    struct part *first = check->parts;
    const struct policy *policy = first->policy;
    CHECK(!check->is_sealed && check->n_parts > 0);
    bool is_decision = op->kind == OP_CHECK || op->kind == OP_PEEK;
    check->is_special = !is_decision || check->n_parts > 1 || !policy->only_limits;

    /* the usual check needs no more than its key and a limit or two */
    bool is_usual = !check->is_special && check->request_id.len == 0 && !policy->shares;
    if (is_usual && first->key.len <= CHECK_INLINE_BYTES && policy->n_limits <= CHECK_INLINE_MEMBERS) {
        op->members = check->inline_members;
        first->key.data = memcpy(check->inline_bytes, first->key.data, first->key.len);
        add_members(check, first);
        first->n = (uint8_t)op->n_members;
    } else {
        uint8_t *bytes;
        if (make_space(check, &bytes) < 0) return -1;
        bytes = add_parts(check, bytes);
        if (has_record(check)) name_record(check, bytes);
        if (op->kind == OP_RESERVE || op->kind == OP_SETTLE) op->reservation = &check->reservation;
    }

    if (check->at_most > 0) op->at_most = check_asked(check, first);
    check->is_sealed = true;
    return 0;
}

/* ---- the answer ---- */

/* A part that its policy alone decides: an unlimited one admits everything, a limit of 0 nothing, and no store need be
 * asked. What may have been counted before the limit was 0, a reset forgets. */
static bool answer_by_policy(const struct check *check, struct part *part, enum source source, int64_t now_us)
{
    const struct policy *policy = part->policy;
    const struct limit *zero = policy->zero;
    if (check->op.kind == OP_RESET) return check->only == NULL && !owns_state(policy);
    if (check->only != NULL) zero = check->only->limit == 0 ? check->only : NULL;
    if (zero == NULL && !policy->unlimited) return false;

    engine_counters.decided_unlimited++;
    if (policy->unlimited) return true; /* check_answer_unlimited() says what */

    bool allowed = part->cost == 0 || check->op.kind == OP_REFUND; /* there is nothing to give back */
    part->decision = (struct decision){
        .allowed = allowed,
        .retry_after_ms = allowed ? 0 : RETRY_NEVER,
        .bound_by = !allowed && policy->n_limits > 1 ? zero : NULL,
        .of = zero,
        .window_ms = limit_window_ms(zero, now_us),
        .source = source,
        .policy_version = policy->version,
    };
    return true;
}

bool check_decide_by_policies(struct check *check, enum source source, int64_t now_us)
{
    bool all = true, denied = false;
    for (uint16_t i = 0; i < check->n_parts; i++) {
        struct part *part = &check->parts[i];
        if (!answer_by_policy(check, part, source, now_us))
            all = false;
        else if (!part->policy->unlimited && check->op.kind != OP_RESET && !part->decision.allowed)
            denied = true;
    }

    for (uint16_t i = 0; denied && i < check->n_parts; i++) { /* the others would not deny, as far as is known */
        struct part *part = &check->parts[i];
        if (part->policy->zero != NULL || part->policy->unlimited) continue;

        const struct limit *least = policy_least_limit(part->policy);
        part->decision = (struct decision){
            .allowed = true,
            .limit = least->full,
            .of = least,
            .window_ms = limit_window_ms(least, now_us),
            .source = source,
            .policy_version = part->policy->version,
        };
    }

    if (all || denied) check->op.n_members = 0; /* no answer of the store's is among the members */
    return all || denied;
}

void check_answer_unlimited(struct check *check)
{
    bool allowed = true;
    for (uint16_t i = 0; i < check->n_parts; i++)
        allowed &= check->parts[i].policy->unlimited || check->parts[i].decision.allowed;

    for (uint16_t i = 0; i < check->n_parts; i++) {
        struct part *part = &check->parts[i];
        if (!part->policy->unlimited) continue;

        part->decision = (struct decision){
            .allowed = true,
            .limit = UNLIMITED,
            .remaining = UNLIMITED,
            .granted = allowed ? check_asked(check, part) : 0,
            .source = SOURCE_UNLIMITED,
            .policy_version = part->policy->version,
        };
    }
}

/* Of several limits; apart from the others, whose stack needs no place for them. */
static void combine_limits(const struct check *check, struct part *part, const struct op_member *members)
{
    struct decision decisions[POLICY_LIMITS_MAX];
    const uint8_t *places = check->n_parts > 1 ? check->limits + part->first : NULL;
    for (uint8_t i = 0; i < part->n; i++) decisions[i] = members[places != NULL ? places[i] : i].decision;
    decision_combine(&part->decision, decisions, part->n);
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

    for (uint16_t i = 0; i < check->n_parts; i++) {
        struct part *part = &check->parts[i];
        if (part->policy->unlimited) continue;
        if (part->n > 1) {
            combine_limits(check, part, members);
        } else if (part->n == 1) {
            part->decision = members[check->n_parts > 1 ? check->limits[part->first] : 0].decision;
            part->decision.bound_by = NULL;
        }

        if (check->is_merged && part->n > 0 && part->decision.granted > 0)
            part->decision.granted = part->cost; /* not the sum */
        part->decision.policy_version = part->policy->version;
        part->decision.source = source;
        part->decision.reason = REASON_NONE;
    }
}

void check_count_decided(const struct check *check)
{
    const struct part *end = check->parts + check->n_parts;
    bool allowed = true;
    for (const struct part *part = check->parts; part < end; part++) allowed &= part->decision.allowed;

    for (const struct part *part = check->parts; part < end; part++) {
        struct policy_counts *counts = part->policy->counts;
        *(allowed ? &counts->allowed : &counts->denied) += 1;
        counts->shadow_denied += part->decision.shadow_denied;
        engine_counters.shadow_denied += part->decision.shadow_denied;
    }
    *(allowed ? &engine_counters.allowed : &engine_counters.denied) += check->n_parts;
}

void check_combine(const struct part *const *parts, size_t n, struct decision *ret)
{
    enum { FOLD = 31 };
    struct decision decisions[CHECK_PARTS_MAX];
    const struct part *decider = NULL; /* the first that anything was asked of: one that is unlimited decides nothing */
    int64_t granted = 0;
    uint32_t version = 0;
    CHECK(n >= 1 && n <= CHECK_PARTS_MAX);
    for (size_t i = 0; i < n; i++) {
        decisions[i] = parts[i]->decision;
        granted += parts[i]->decision.granted;
        version = version * FOLD + parts[i]->policy->version;
        if (decider == NULL && !parts[i]->policy->unlimited) decider = parts[i];
    }
    if (decider == NULL) decider = parts[0];

    decision_combine(ret, decisions, n);
    ret->granted = ret->allowed ? granted : 0;
    ret->policy_version = version;
    ret->source = decider->decision.source;
    ret->reason = decider->decision.reason;
    if (ret->source == SOURCE_DENY) ret->reset_after_ms = 0; /* no limit denied */
}
