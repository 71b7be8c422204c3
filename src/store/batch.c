/*
 * batch.c: gathering ops into a batch.
 *
 * Every op's keys are found or added in the batch's small table. Then the op becomes an op of the script, or it
 * joins one:
 *
 *   A check joins its key's last script op if that is a check of the same cost, merging is on and denials are not
 * counted: k equal checks in a row admit exactly the first floor(available / cost) of them, as one after another would.
 *   A peek joins it at any cost: the answer follows from the key's state at that place in the order. Only a log's peek
 *   must find an equal one, because a denial's retry needs a look-up in the log.
 *
 * The script's ops keep their order. A key with one plain check is checked directly. The state of any other key is
 * loaded, the ops work on it one after the other, and it is saved at the end. batch_pack.c makes the call,
 * batch_reply.c the answers.
 */
#include "store/batch.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/hash.h"
#include "policy/policy.h"
#include "store/batch_private.h"
#include "store/redis_counters.h"

#define HASH_SPREAD UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / golden ratio: neighbours come apart */

enum {
    LIST_HEAD_MAX = 8 + NAME_MAX_LEN, /* "hold1:POLICY:" */
    OWN_PER_OP = 2,
};

struct batch *batch_new(const char *key_prefix, uint32_t max_keys, bool merge)
{
    struct batch *batch = mem_zalloc(sizeof *batch);
    if (batch == NULL) return NULL;
    batch->prefix = mem_strdup(key_prefix);
    if (batch->prefix == NULL) {
        mem_free(batch);
        return NULL;
    }

    batch->prefix_len = strlen(key_prefix);
    list_init(&batch->ops);
    buffer_init(&batch->key_bytes, 0);
    buffer_init(&batch->packet, 0);
    batch_set_merge(batch, max_keys, merge);
    return batch;
}

void batch_free(struct batch *batch)
{
    if (batch == NULL) return;
    CHECK(batch->n_ops == 0);
    buffer_fini(&batch->key_bytes);
    buffer_fini(&batch->packet);
    mem_free(batch->script_ops.at);
    mem_free(batch->op_keys.at);
    mem_free(batch->prefix);
    mem_free(batch);
}

void batch_clear(struct batch *batch)
{
    CHECK(batch->n_ops == 0);
    batch->n_keys = batch->n_limits = batch->n_owns = batch->weight = 0;
    batch->n_integers = 0;
    batch->has_loaded = false;
    batch->script_ops.n = batch->op_keys.n = 0;
    memset(batch->table, 0, sizeof batch->table);
    buffer_truncate(&batch->key_bytes, 0);
    batch->packed = false;
}

void batch_set_merge(struct batch *batch, uint32_t max_keys, bool merge)
{
    CHECK(max_keys >= 1 && max_keys <= BATCH_KEYS_MAX);
    batch->max_keys = max_keys;
    batch->merge = merge;
}

size_t batch_n_ops(const struct batch *batch)
{
    return batch->n_ops;
}

size_t batch_n_keys(const struct batch *batch)
{
    return batch->n_keys;
}

int64_t batch_now_us(const struct batch *batch)
{
    return batch->now_us;
}

void batch_take_ops(struct batch *batch, struct list *to)
{
    list_append(to, &batch->ops);
    batch->n_ops = 0;
}

/* ---- what an op asks of a batch ---- */

struct need {
    enum batch_kind kind;
    int64_t count; /* so many times its costs; 0 = a peek */
    bool has_list;
    uint32_t n_integers; /* of the reply */
    uint32_t weight;
    size_t key_bytes; /* of its new states' keys, at most; set by fits() */
};

static const enum batch_kind kinds[] = {
    [OP_CHECK] = KIND_CHECK_ALL, [OP_PEEK] = KIND_CHECK_ALL, [OP_RESET] = KIND_RESET, [OP_REFUND] = KIND_REFUND,
    [OP_RESERVE] = KIND_RESERVE, [OP_SETTLE] = KIND_SETTLE,  [OP_SWEEP] = KIND_SWEEP, [OP_ACQUIRE] = KIND_ACQUIRE,
    [OP_RELEASE] = KIND_RELEASE, [OP_RENEW] = KIND_RENEW,
};

static struct need need_of(const struct op *op)
{
    const struct op_member *first = &op->members[0];
    bool is_check = op->kind == OP_CHECK || op->kind == OP_PEEK, has_record = op->record.len > 0;
    int64_t count = op->at_most > 0 ? op->at_most : 1;

    /* A plain check, as nearly every op. As many as fit are one charge, but denials that are counted are as many. */
    bool counts_some = op->at_most > 0 && first->limit->count_denied;
    if (is_check && op->n_members == 1 && !has_record && !counts_some) {
        /* a cost above the limit is only looked at, unless denials are counted */
        bool may_charge = first->cost <= first->limit->full || first->limit->count_denied;
        const struct algo_ops *ops = limit_ops(first->limit);
        return (struct need){
            .kind = KIND_CHECK,
            .count = op->kind == OP_CHECK && first->cost > 0 && may_charge ? count : 0,
            .n_integers = 1U + ops->has_s2 + ops->has_wait,
            .weight = 1,
        };
    }

    bool is_light = (is_check || op->kind == OP_RESET) && !has_record;
    struct need need = {
        .kind = kinds[op->kind],
        .count = op_is_check(op->kind) ? count : 0,
        .n_integers = op->n_members,
        .weight = op->n_members * (is_light ? 1U : BATCH_WEIGHT_OWN),
    };
    if (need.kind < KIND_CHECK_ALL) return need;

    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct algo_ops *ops = limit_ops(op->members[i].limit);
        need.n_integers += (uint32_t)ops->has_s2 + (ops->has_wait && kind_is_check(need.kind));
    }
    if (has_record) need.n_integers += 2U + op->n_members + (need.kind == KIND_RESERVE ? 3U : 0U);
    if (need.kind == KIND_SETTLE) need.n_integers += 2;
    if (need.kind == KIND_REFUND) need.n_integers += op->n_members;
    need.has_list = need.kind == KIND_REFUND ? first->reservations_key.len > 0 : need.kind >= KIND_RESERVE;
    return need;
}

/* ---- memory ---- */

static int vec_reserve(struct vec *vec, size_t more, size_t size)
{
    if (vec->n + more <= vec->cap) return 0;
    size_t cap = vec->cap == 0 ? BATCH_KEYS_MAX : vec->cap * 2;
    while (cap < vec->n + more) cap *= 2;
    void *at = mem_realloc(vec->at, cap * size);
    if (at == NULL) return -1;
    vec->at = at;
    vec->cap = cap;
    return 0;
}

/* Memory for everything one op can add, so that nothing fails half way. */
static int reserve(struct batch *batch, const struct op *op, size_t key_bytes)
{
    size_t own_bytes = OWN_PER_OP * (batch->prefix_len + STORE_TAG_LEN + LIST_HEAD_MAX) + op->record.len +
                       op->members[0].reservations_key.len;
    if (buffer_reserve(&batch->key_bytes, key_bytes + own_bytes) == NULL) return -1;
    if (vec_reserve(&batch->script_ops, 1, sizeof(struct script_op)) < 0) return -1;
    return vec_reserve(&batch->op_keys, op->n_members, sizeof(uint16_t));
}

/* Where the next key's bytes go; reserved before. */
static uint8_t *key_bytes_end(const struct batch *batch)
{
    return buffer_data(&batch->key_bytes) + buffer_len(&batch->key_bytes);
}

static uint8_t *append(uint8_t *to, const void *bytes, size_t len)
{
    if (len > 0) memcpy(to, bytes, len);
    return to + len;
}

/* prefix:{bNNN}: */
static uint8_t *append_tag(const struct batch *batch, uint8_t *to, uint64_t hash)
{
    to = append(to, batch->prefix, batch->prefix_len);
    store_key_tag(hash, (char *)to);
    return to + STORE_TAG_LEN;
}

/* ---- keys of states ---- */

/* Two limits never share a key of ours (the head names policy and limit), but two compat policies may: their keys are
 * compared whole. The head counts too, so that one table holds both. */
static bool same_key(const struct batch *batch, const struct batch_key *key, const struct op_member *member)
{
    const struct limit *limit = member->limit;
    bool is_compat = limit_ops(limit)->is_compat;
    if (is_compat != limit_ops(key->limit)->is_compat) return false;

    size_t tag_len = is_compat ? 0 : batch->prefix_len + STORE_TAG_LEN;
    const uint8_t *bytes = buffer_data(&batch->key_bytes) + key->start + tag_len;
    return key->len == tag_len + limit->key_head_len + member->key.len &&
           memcmp(bytes, limit->key_head, limit->key_head_len) == 0 &&
           memcmp(bytes + limit->key_head_len, member->key.data, member->key.len) == 0;
}

/* From wanted->at on. A peer can choose keys of one hash, and gains no more than BATCH_KEYS_MAX comparisons. */
static inline void find_key(const struct batch *batch, const struct op_member *member, struct batch_wanted *wanted)
{
    for (; (wanted->found = batch->table[wanted->at]) != 0; wanted->at = (wanted->at + 1) % BATCH_TABLE) {
        const struct batch_key *key = &batch->keys[wanted->found - 1];
        if (key->hash == wanted->hash && same_key(batch, key, member)) return;
    }
}

static uint16_t find_or_add_limit(struct batch *batch, const struct op_member *member)
{
    int64_t phase_ms = limit_phase(member->limit, member->key);
    for (uint32_t i = 0; i < batch->n_limits; i++) {
        const struct batch_limit *known = &batch->limits[i];
        if (known->limit == member->limit && known->phase_ms == phase_ms && known->max_wait_us == member->max_wait_us)
            return (uint16_t)i;
    }

    CHECK(batch->n_limits < BATCH_KEYS_MAX);
    uint8_t *stem = key_bytes_end(batch), *at = stem;
    if (!limit_ops(member->limit)->is_compat) at = append_tag(batch, at, 0);
    at = append(at, member->limit->key_head, member->limit->key_head_len);
    batch->limits[batch->n_limits] = (struct batch_limit){
        .limit = member->limit,
        .phase_ms = phase_ms,
        .max_wait_us = member->max_wait_us,
        .stem_at = (uint32_t)buffer_len(&batch->key_bytes),
        .stem_len = (uint32_t)(at - stem),
    };
    buffer_grew(&batch->key_bytes, (size_t)(at - stem));
    return (uint16_t)batch->n_limits++;
}

/* prefix:{bNNN}:head key; of compat policies only head and key. */
static uint16_t add_key(struct batch *batch, const struct op_member *member, const struct batch_wanted *wanted)
{
    uint16_t limit_no = find_or_add_limit(batch, member);
    const struct batch_limit *limit = &batch->limits[limit_no];
    uint8_t *start = key_bytes_end(batch);
    uint8_t *at = append(start, buffer_data(&batch->key_bytes) + limit->stem_at, limit->stem_len);
    if (!limit_ops(member->limit)->is_compat) {
        uint64_t hash = member->common.data != NULL ? store_key_hash(member) : wanted->hash;
        store_key_tag(hash, (char *)start + batch->prefix_len);
    }
    at = append(at, member->key.data, member->key.len);

    CHECK(batch->n_keys < BATCH_KEYS_MAX);
    batch->keys[batch->n_keys] = (struct batch_key){
        .limit = member->limit,
        .hash = wanted->hash,
        .start = (uint32_t)buffer_len(&batch->key_bytes),
        .len = (uint32_t)(at - start),
        .limit_no = limit_no,
    };
    buffer_grew(&batch->key_bytes, (size_t)(at - start));
    batch->table[wanted->at] = (uint8_t)(batch->n_keys + 1);
    return (uint16_t)batch->n_keys++;
}

/* A key that is the op's own. An idempotency record that two ops name is one key: the second must find what the first
 * has written. */
static uint16_t find_or_add_own(struct batch *batch, const struct op *op, const char *head, struct slice name,
                                bool is_record)
{
    uint8_t *start = key_bytes_end(batch);
    uint8_t *at = append_tag(batch, start, store_key_hash(&op->members[0]));
    at = append(append(at, head, strlen(head)), name.data, name.len);
    size_t len = (size_t)(at - start);
    uint64_t hash = hash_keyed(start, len);
    for (uint32_t i = 0; i < batch->n_owns; i++) {
        const struct batch_own *own = &batch->owns[i];
        if (own->hash == hash && own->len == len &&
            memcmp(buffer_data(&batch->key_bytes) + own->start, start, len) == 0)
            return (uint16_t)(i + 1);
    }

    CHECK(batch->n_owns < BATCH_OWN_MAX);
    batch->owns[batch->n_owns] = (struct batch_own){
        .hash = hash, .start = (uint32_t)buffer_len(&batch->key_bytes), .len = (uint32_t)len, .is_record = is_record};
    buffer_grew(&batch->key_bytes, len);
    return (uint16_t)++batch->n_owns;
}

/* ---- the script's ops ---- */

/* Looks for the op's keys, and says whether it may join this batch: its kind, its keys' settings, and the space. */
static bool fits(struct batch *batch, const struct op *op, struct need *need)
{
    uint32_t n_new = 0;
    bool has_changed = false;
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct op_member *member = &op->members[i];
        struct batch_wanted *wanted = &batch->wanted[i];
        /* Of a key of ours it is the shard's hash, too, where the whole key decides the shard. Keys of two compat
         * policies may be the same. */
        bool is_compat = limit_ops(member->limit)->is_compat;
        uint64_t start = is_compat ? HASH_STABLE_START : member->limit->policy->name_hash;
        wanted->hash = hash_stable(start, member->key.data, member->key.len);
        wanted->at = (wanted->hash * HASH_SPREAD) >> 32 & (BATCH_TABLE - 1);
        find_key(batch, member, wanted);
        if (wanted->found == 0) {
            size_t stem_len = batch->prefix_len + STORE_TAG_LEN + member->limit->key_head_len;
            need->key_bytes += 2 * stem_len + member->key.len; /* the stem of a new limit, too */
            n_new++;
            continue;
        }

        /* a key's constants are those of one limit (after a reload there may be another) and one wait */
        const struct batch_limit *limit = &batch->limits[batch->keys[wanted->found - 1].limit_no];
        has_changed |= limit->limit != member->limit || limit->max_wait_us != member->max_wait_us;
    }

    if (batch->n_ops == 0) return true;
    return !has_changed && batch->resets == (op->kind == OP_RESET) && batch->n_keys + n_new <= batch->max_keys &&
           batch->weight + need->weight <= BATCH_WEIGHT_MAX && batch->n_owns + OWN_PER_OP <= BATCH_OWN_MAX &&
           batch->n_integers + need->n_integers + BATCH_N_LAST <= BATCH_REPLY_MAX;
}

/* Must a plain check's retry be looked up, if it is denied? */
static bool needs_wait(const struct limit *limit, int64_t cost)
{
    return limit_ops(limit)->has_wait && cost > 0 && cost <= limit->full;
}

/* Let a plain check join its key's last script op; false where it may not. */
static bool join(struct batch *batch, struct op *op, int64_t count)
{
    if (batch->wanted[0].found == 0) return false;
    struct batch_key *key = &batch->keys[batch->wanted[0].found - 1];
    struct script_op *last = batch_script_op(batch, key->last_script_op);
    if (last->kind != KIND_CHECK) return false;

    const struct limit *limit = op->members[0].limit;
    int64_t cost = op->members[0].cost, last_cost = last->op->members[0].cost;
    bool needs = needs_wait(limit, cost);
    if (last->count == 0 && !needs_wait(limit, last_cost)) { /* the peek's becomes this one's */
        if (count > 0 || needs) last->op = op;
        last->count = count;
    } else if (count == 0) {
        if (needs && (last->count > 0 || last_cost != cost)) return false;
    } else {
        bool may_merge = batch->merge && limit_ops(limit)->merges && !limit->count_denied;
        bool are_equal = last_cost == cost && last->count > 0 && op->at_most == 0 && last->op->at_most == 0;
        if (!may_merge || !are_equal) return false;
        last->count++;
        redis_counters.redis_merged++;
    }

    key->may_be_charged |= count > 0;
    op->script_op = key->last_script_op;
    return true;
}

static void add_script_op(struct batch *batch, struct op *op, const struct need *need)
{
    uint32_t index = (uint32_t)batch->script_ops.n++, keys_at = (uint32_t)batch->op_keys.n;
    bool loads = need->kind != KIND_RESET && (need->kind != KIND_CHECK || batch->wanted[0].found != 0);
    for (uint16_t i = 0; i < op->n_members; i++) {
        struct batch_wanted *wanted = &batch->wanted[i];
        if (wanted->found == 0 && i > 0) find_key(batch, &op->members[i], wanted); /* those before it are new there */
        uint16_t key_no = wanted->found != 0 ? (uint16_t)(wanted->found - 1) : add_key(batch, &op->members[i], wanted);
        *batch_op_keys(batch, keys_at + i) = key_no;

        struct batch_key *key = &batch->keys[key_no];
        key->is_loaded |= loads;
        key->may_be_charged |= need->count > 0;
        key->last_script_op = index;
    }
    batch->op_keys.n += op->n_members;
    batch->has_loaded |= loads;
    batch->n_integers += need->n_integers;

    struct script_op *asked = batch_script_op(batch, index);
    *asked = (struct script_op){
        .kind = need->kind, .op = op, .count = need->count, .keys_at = keys_at, .n_integers = need->n_integers};
    if (op->record.len > 0) asked->record = find_or_add_own(batch, op, "", op->record, true);
    if (need->has_list) { /* of all reservations of the op's policy and key */
        const struct op_member *first = &op->members[0];
        char head[LIST_HEAD_MAX];
        int len = snprintf(head, sizeof head, "hold1:%s:", first->limit->policy->name);
        CHECK(len > 0 && (size_t)len < sizeof head && first->reservations_key.len > 0);
        asked->list = find_or_add_own(batch, op, head, first->reservations_key, false);
    }
    op->script_op = index;
}

int batch_add(struct batch *batch, struct op *op)
{
    CHECK(op->n_members >= 1 && op->n_members <= BATCH_KEYS_MAX);
    struct need need = need_of(op);
    if (!fits(batch, op, &need)) return 1;
    if (need.kind != KIND_CHECK || !join(batch, op, need.count)) {
        if (reserve(batch, op, need.key_bytes) < 0) return -1;
        add_script_op(batch, op, &need);
    }

    batch->resets = op->kind == OP_RESET;
    batch->weight += need.weight;
    batch->packed = false;
    list_push_back(&batch->ops, &op->link);
    batch->n_ops++;
    return 0;
}
