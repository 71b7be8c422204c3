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
    /* of the packet, at most: a script op, and each of its limits with a SAVE and a LOAD before it */
    OP_BYTES = 18 + 5 + 10 + 32,
    MEMBER_BYTES = 17 + 3 * 18,
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
    batch->n_integers = batch->op_bytes = 0;
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
    bool has_record, has_list;
    int64_t count;       /* so many times its costs; 0 = a peek */
    uint32_t n_integers; /* of the reply */
    uint32_t weight;
};

static bool has_list(const struct op *op)
{
    if (op->kind == OP_REFUND) return op->members[0].reservations_key.len > 0;
    return op->kind == OP_RESERVE || op->kind == OP_SETTLE || op->kind == OP_SWEEP;
}

static enum batch_kind kind_of(const struct op *op)
{
    switch (op->kind) {
    case OP_RESET: return KIND_RESET;
    case OP_REFUND: return KIND_REFUND;
    case OP_RESERVE: return KIND_RESERVE;
    case OP_SETTLE: return KIND_SETTLE;
    case OP_SWEEP: return KIND_SWEEP;
    case OP_ACQUIRE: return KIND_ACQUIRE;
    case OP_RELEASE: return KIND_RELEASE;
    case OP_RENEW: return KIND_RENEW;
    case OP_CHECK:
    case OP_PEEK: break;
    }
    /* As many as fit are one charge; denials that are counted are as many. */
    bool counts_some = op->at_most > 0 && op->members[0].limit->count_denied;
    return op->n_members > 1 || op->record.len > 0 || counts_some ? KIND_CHECK_ALL : KIND_CHECK;
}

/* Could a plain check be charged? A cost above the limit is only looked at, unless denials are counted. */
static bool is_charged(const struct op *op)
{
    const struct op_member *only = &op->members[0];
    return op->kind == OP_CHECK && only->cost > 0 && (only->cost <= only->limit->full || only->limit->count_denied);
}

static int64_t count_of(const struct op *op, enum batch_kind kind)
{
    if (!op_is_check(op->kind) || (kind == KIND_CHECK && !is_charged(op))) return 0;
    return op->at_most > 0 ? op->at_most : 1;
}

static uint32_t n_integers_of(const struct op *op, enum batch_kind kind)
{
    uint32_t n = op->n_members;
    if (kind == KIND_RESET || kind == KIND_RELEASE || kind == KIND_RENEW) return n;
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct algo_ops *ops = limit_ops(op->members[i].limit);
        n += (uint32_t)ops->has_s2 + (ops->has_wait && kind_is_check(kind));
    }
    if (op->record.len > 0) n += 2U + op->n_members + (kind == KIND_RESERVE ? 3U : 0U);
    return n + (kind == KIND_SETTLE ? 2 : kind == KIND_REFUND ? op->n_members : 0);
}

static struct need need_of(const struct op *op)
{
    bool has_record = op->record.len > 0, is_check = op->kind == OP_CHECK || op->kind == OP_PEEK;
    if (is_check && op->n_members == 1 && !has_record && op->at_most == 0) { /* nearly every op */
        const struct algo_ops *ops = limit_ops(op->members[0].limit);
        uint32_t n_integers = 1U + ops->has_s2 + ops->has_wait;
        return (struct need){.kind = KIND_CHECK, .count = is_charged(op), .n_integers = n_integers, .weight = 1};
    }

    enum batch_kind kind = kind_of(op);
    bool is_plain = (is_check || op->kind == OP_RESET) && !has_record;
    return (struct need){
        .kind = kind,
        .has_record = has_record,
        .has_list = has_list(op),
        .count = count_of(op, kind),
        .n_integers = n_integers_of(op, kind),
        .weight = op->n_members * (is_plain ? 1U : BATCH_WEIGHT_OWN),
    };
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
static int reserve(struct batch *batch, const struct op *op)
{
    size_t tag_len = batch->prefix_len + STORE_TAG_LEN;
    size_t bytes = OWN_PER_OP * (tag_len + LIST_HEAD_MAX) + op->record.len + op->members[0].reservations_key.len;
    for (uint16_t i = 0; i < op->n_members; i++)
        bytes += 2 * (tag_len + op->members[i].limit->key_head_len) + op->members[i].key.len; /* a stem, and a key */

    if (buffer_reserve(&batch->key_bytes, bytes) == NULL) return -1;
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

/* Of the table; of a key of ours it is the shard's hash too, where all of the key decides the shard. Keys of two compat
 * policies may be the same. A peer can choose keys of one hash, and gains no more than BATCH_KEYS_MAX comparisons. */
static uint64_t hash_of(const struct op_member *member)
{
    bool is_compat = limit_ops(member->limit)->is_compat;
    uint64_t start = is_compat ? HASH_STABLE_START : member->limit->policy->name_hash;
    return hash_stable(start, member->key.data, member->key.len);
}

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

static bool is_wanted(const struct batch *batch, uint8_t found, const struct op_member *member, uint64_t hash)
{
    const struct batch_key *key = &batch->keys[found - 1];
    return key->hash == hash && same_key(batch, key, member);
}

/* From wanted->at on. */
static inline void find_key(const struct batch *batch, const struct op_member *member, struct batch_wanted *wanted)
{
    while ((wanted->found = batch->table[wanted->at]) != 0 && !is_wanted(batch, wanted->found, member, wanted->hash))
        wanted->at = (wanted->at + 1) % BATCH_TABLE;
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
static uint16_t find_or_add_key(struct batch *batch, const struct op_member *member, struct batch_wanted *wanted)
{
    if (wanted->found == 0) find_key(batch, member, wanted); /* the op's keys before it are new there */
    if (wanted->found != 0) return (uint16_t)(wanted->found - 1);

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
    batch->table[wanted->at] = (uint8_t)++batch->n_keys;
    return (uint16_t)(batch->n_keys - 1);
}

/* ---- keys of an op's own ---- */

/* An idempotency record that two ops name is one key: the second must find what the first has written. */
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

/* The list of all reservations of the op's policy and key. */
static uint16_t find_or_add_list(struct batch *batch, const struct op *op)
{
    const struct op_member *first = &op->members[0];
    char head[LIST_HEAD_MAX];
    int len = snprintf(head, sizeof head, "hold1:%s:", first->limit->policy->name);
    CHECK(len > 0 && (size_t)len < sizeof head && first->reservations_key.len > 0);
    return find_or_add_own(batch, op, head, first->reservations_key, false);
}

/* ---- the script's ops ---- */

/* Must a plain check's retry be looked up, if it is denied? */
static bool needs_wait(const struct limit *limit, int64_t cost)
{
    return limit_ops(limit)->has_wait && cost > 0 && cost <= limit->full;
}

/* May a plain check join its key's last script op? */
static bool may_join(const struct batch *batch, const struct script_op *last, const struct op *op, int64_t count)
{
    if (last->kind != KIND_CHECK) return false;
    const struct limit *limit = op->members[0].limit;
    int64_t cost = op->members[0].cost, last_cost = last->op->members[0].cost;
    bool is_peek = count == 0, joins_peek = last->count == 0;

    if (joins_peek && !needs_wait(limit, last_cost)) return true; /* the peek's becomes this one's */
    if (is_peek) return !needs_wait(limit, cost) || (joins_peek && last_cost == cost);
    return !joins_peek && last_cost == cost && op->at_most == 0 && last->op->at_most == 0 && batch->merge &&
           limit_ops(limit)->merges && !limit->count_denied;
}

static void join(struct script_op *asked, const struct op *op, int64_t count)
{
    if (count > 0 && asked->count > 0) {
        asked->count++;
        redis_counters.redis_merged++;
    } else if (count > 0 || (asked->count == 0 && needs_wait(op->members[0].limit, op->members[0].cost))) {
        asked->op = op;
        asked->count = count;
    }
}

static uint32_t add_script_op(struct batch *batch, const struct op *op, const struct need *need, uint32_t keys_at)
{
    uint32_t index = (uint32_t)batch->script_ops.n++;
    *batch_script_op(batch, index) = (struct script_op){
        .kind = need->kind,
        .op = op,
        .count = need->count,
        .keys_at = keys_at,
        .record = need->has_record ? find_or_add_own(batch, op, "", op->record, true) : 0,
        .list = need->has_list ? find_or_add_list(batch, op) : 0,
        .n_integers = need->n_integers,
    };

    for (uint16_t i = 0; i < op->n_members; i++) {
        struct batch_key *key = &batch->keys[*batch_op_keys(batch, keys_at + i)];
        if (need->kind != KIND_RESET && (need->kind != KIND_CHECK || key->n_script_ops > 0))
            key->is_loaded = batch->has_loaded = true;
        key->n_script_ops++;
        key->last_script_op = index;
    }
    batch->n_integers += need->n_integers;
    batch->op_bytes += OP_BYTES + op->n_members * (size_t)MEMBER_BYTES;
    return index;
}

/* The op's script op: the one that it joins, or its own. */
static uint32_t script_op_of(struct batch *batch, const struct op *op, const struct need *need, uint32_t keys_at)
{
    for (uint16_t i = 0; i < op->n_members; i++)
        batch->keys[*batch_op_keys(batch, keys_at + i)].may_be_charged |= need->count > 0;

    const struct batch_key *first = &batch->keys[*batch_op_keys(batch, keys_at)];
    if (need->kind == KIND_CHECK && first->n_script_ops > 0) {
        struct script_op *last = batch_script_op(batch, first->last_script_op);
        if (may_join(batch, last, op, need->count)) {
            join(last, op, need->count);
            return first->last_script_op;
        }
    }
    return add_script_op(batch, op, need, keys_at);
}

/* Looks for the op's keys, and says whether it may join this batch: its kind, its keys' settings, and the space. */
static bool fits(struct batch *batch, const struct op *op, const struct need *need)
{
    uint32_t n_new = 0;
    bool has_changed = false;
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct op_member *member = &op->members[i];
        struct batch_wanted *wanted = &batch->wanted[i];
        wanted->hash = hash_of(member);
        wanted->at = (wanted->hash * HASH_SPREAD) >> 32 & (BATCH_TABLE - 1);
        find_key(batch, member, wanted);
        n_new += wanted->found == 0;
        if (wanted->found == 0) continue;
        /* a key's constants are those of one limit (after a reload there may be another) and one wait */
        const struct batch_limit *limit = &batch->limits[batch->keys[wanted->found - 1].limit_no];
        has_changed |= limit->limit != member->limit || limit->max_wait_us != member->max_wait_us;
    }

    if (batch->n_ops == 0) return true;
    return !has_changed && batch->resets == (op->kind == OP_RESET) && batch->n_keys + n_new <= batch->max_keys &&
           batch->weight + need->weight <= BATCH_WEIGHT_MAX && batch->n_owns + OWN_PER_OP <= BATCH_OWN_MAX &&
           batch->n_integers + need->n_integers + 3 <= BATCH_REPLY_MAX;
}

int batch_add(struct batch *batch, struct op *op)
{
    CHECK(op->n_members >= 1 && op->n_members <= BATCH_KEYS_MAX);
    struct need need = need_of(op);
    if (!fits(batch, op, &need)) return 1;
    if (reserve(batch, op) < 0) return -1;

    uint32_t keys_at = (uint32_t)batch->op_keys.n;
    for (uint16_t i = 0; i < op->n_members; i++)
        *batch_op_keys(batch, batch->op_keys.n++) = find_or_add_key(batch, &op->members[i], &batch->wanted[i]);
    batch->resets = op->kind == OP_RESET;
    op->script_op = script_op_of(batch, op, &need, keys_at);

    batch->weight += need.weight;
    batch->packed = false;
    list_push_back(&batch->ops, &op->link);
    batch->n_ops++;
    return 0;
}
