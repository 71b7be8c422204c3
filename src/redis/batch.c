/*
 * batch.c: gathering ops into a batch.
 *
 * Every op's keys are found or added in the batch's small table. Then the op becomes an op of the script, or it
 * joins one:
 *
 * A check joins its key's last script op if that is a check of the same cost, merging is on and denials are not
 * counted: k equal checks in a row admit exactly the first floor(available / cost) of them, as one after another would.
 * A peek joins it at any cost: the answer follows from the key's state at that place in the order. Only a log's peek
 * must find an equal one, because a denial's retry needs a look-up in the log.
 *
 * The script's ops keep their order. A key with one plain check is checked directly, unless its limit has a penalty.
 * The state of any other key is loaded, the ops work on it one after the other, and it is saved at the end.
 * batch_pack.c makes the call, batch_reply.c the answers.
 */
#include "redis/batch.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/hash.h"
#include "policy/policy.h"
#include "redis/batch_private.h"
#include "redis/counters.h"

enum { OP_KEYS_PER_OP = 2 };

struct batch *batch_new(const struct store_key_scheme *scheme, uint32_t max_keys, bool merge)
{
    struct batch *batch = mem_zalloc(sizeof *batch);
    if (batch == NULL) return NULL;
    batch->prefix = mem_strdup(scheme->prefix);
    if (batch->prefix == NULL) {
        mem_free(batch);
        return NULL;
    }

    batch->prefix_len = strlen(scheme->prefix);
    batch->n_shards = scheme->n_shards;
    list_init(&batch->ops);
    buffer_init(&batch->bytes, 0);
    batch_set_merge(batch, max_keys, merge);
    return batch;
}

void batch_free(struct batch *batch)
{
    if (batch == NULL) return;
    CHECK(batch->n_ops == 0);
    buffer_fini(&batch->bytes);
    mem_free(batch->script_ops);
    mem_free(batch->prefix);
    mem_free(batch);
}

void batch_clear(struct batch *batch)
{
    CHECK(batch->n_ops == 0);
    batch->n_script_ops = batch->n_members = batch->n_keys = batch->n_limits = batch->n_op_keys = batch->weight = 0;
    batch->n_integers = batch->keys_len = batch->n_pauses = 0;
    batch->has_loaded = batch->is_undeclared = false;
    memset(batch->table, 0, sizeof batch->table);
    batch->packed = false;
}

void batch_set_merge(struct batch *batch, uint32_t max_keys, bool merge)
{
    CHECK(max_keys >= 1 && max_keys <= BATCH_KEYS_MAX);
    batch->max_keys = max_keys;
    batch->merge = merge;
}

void batch_set_undeclared(struct batch *batch)
{
    CHECK(batch->n_keys >= 2);
    batch->is_undeclared = true;
    batch->packed = false;
}

size_t batch_n_ops(const struct batch *batch)
{
    return batch->n_ops;
}

bool batch_has_written(const struct batch *batch)
{
    LIST_FOREACH (it, &batch->ops) {
        const struct op *op = LIST_ITEM(it, struct op, link);
        if (op->outcome != OP_DECIDED || op->kind == OP_PEEK) continue;
        if (!op_is_check(op->kind) || op->members[0].decision.granted > 0) return true;
    }
    return false;
}

const struct list *batch_ops(const struct batch *batch)
{
    return &batch->ops;
}

size_t batch_n_keys(const struct batch *batch)
{
    return batch->n_keys;
}

uint64_t batch_hash_of(const struct batch *batch, size_t nth)
{
    return batch->keys[nth].hash;
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

void batch_take_ended(struct batch *batch, enum op_outcome outcome, struct list *to)
{
    LIST_FOREACH (it, &batch->ops) {
        if (LIST_ITEM(it, struct op, link)->outcome != outcome) continue;
        list_remove(it);
        list_push_back(to, it);
        batch->n_ops--;
    }
}

/* ---- what an op asks of the script ---- */

static const enum batch_kind kinds[] = {
    [OP_CHECK] = KIND_CHECK_ALL, [OP_PEEK] = KIND_CHECK_ALL, [OP_RESET] = KIND_RESET, [OP_REFUND] = KIND_REFUND,
    [OP_RESERVE] = KIND_RESERVE, [OP_SETTLE] = KIND_SETTLE,  [OP_SWEEP] = KIND_SWEEP, [OP_ACQUIRE] = KIND_ACQUIRE,
    [OP_RELEASE] = KIND_RELEASE, [OP_RENEW] = KIND_RENEW,
};

/* All but its op keys. */
static struct script_op script_op_of(const struct op *op)
{
    const struct op_member *first = &op->members[0];
    bool is_check = op->kind == OP_CHECK || op->kind == OP_PEEK, has_record = op->record.len > 0;
    int64_t count = op->at_most > 0 ? op->at_most : 1;

    /* A plain check, as nearly every op. As many as fit are one charge, but denials that are counted are as many. */
    bool counts_some = op->at_most > 0 && first->limit->count_denied;
    if (is_check && op->n_members == 1 && !has_record && !counts_some) {
        /* a cost above the limit is only looked at, unless a denial changes something */
        bool may_charge =
            first->cost <= first->limit->full || first->limit->count_denied || limit_has_penalty(first->limit);
        const struct algo_ops *ops = limit_ops(first->limit);
        return (struct script_op){
            .kind = KIND_CHECK,
            .op = op,
            .count = op->kind == OP_CHECK && first->cost > 0 && may_charge ? count : 0,
            .n_integers = 1U + ops->has_extra + ops->has_wait + 2U * limit_has_penalty(first->limit),
        };
    }

    struct script_op asked = {
        .kind = kinds[op->kind],
        .op = op,
        .count = op_is_check(op->kind) ? count : 0,
        .n_integers = op->n_members,
    };
    if (asked.kind < KIND_CHECK_ALL) return asked;

    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct algo_ops *ops = limit_ops(op->members[i].limit);
        asked.n_integers += (uint32_t)ops->has_extra + (ops->has_wait && kind_is_check(asked.kind));
        asked.n_integers += 2U * limit_has_penalty(op->members[i].limit);
    }
    if (has_record) asked.n_integers += 2U + op->n_members + (asked.kind == KIND_RESERVE ? 3U : 0U);
    if (asked.kind == KIND_SETTLE) asked.n_integers += 2;
    if (asked.kind == KIND_REFUND) asked.n_integers += op->n_members;
    return asked;
}

/* How many units the op may add to a log or take out of it; 0 to the limit. */
static int64_t n_log_units(const struct op *op, const struct op_member *member)
{
    if (op->kind == OP_PEEK || op->kind == OP_RESET) return 0;

    int64_t n = op->at_most > member->cost ? op->at_most : member->cost;
    if (op->kind == OP_SETTLE)
        n = op->reservation->actual > op->reservation->units ? op->reservation->actual : op->reservation->units;
    return n < member->limit->limit ? n : member->limit->limit;
}

/* A log has an element for each unit. This is what they cost Redis; op_units() says what they cost this process. */
uint32_t batch_weight(struct op *op)
{
    if (op->weight > 0) return op->weight;
    if (op_is_single_check(op) && !limit_ops(op->members[0].limit)->has_wait) return op->weight = 1; /* as nearly all */

    int64_t weight = op->n_members * (op_is_light(op) ? 1 : BATCH_WEIGHT_HEAVY);
    for (uint16_t i = 0; i < op->n_members && weight < BATCH_WEIGHT_MAX; i++) {
        if (!limit_ops(op->members[i].limit)->has_wait) continue;
        int64_t n = n_log_units(op, &op->members[i]);
        if (n > 1) weight += n - 1;
    }

    op->weight = weight < BATCH_WEIGHT_MAX ? (uint32_t)weight : BATCH_WEIGHT_MAX;
    return op->weight;
}

/* ---- keys ---- */

/* Two limits never share a key of ours (the head names policy and limit), but two compat policies may. */
static bool same_key(const struct op_member *a, const struct op_member *b)
{
    const struct limit *x = a->limit, *y = b->limit;
    return limit_ops(x)->is_compat == limit_ops(y)->is_compat && x->key_head_len == y->key_head_len &&
           memcmp(x->key_head, y->key_head, x->key_head_len) == 0 && slice_eq(a->key, b->key);
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
    batch->limits[batch->n_limits] =
        (struct batch_limit){.limit = member->limit, .phase_ms = phase_ms, .max_wait_us = member->max_wait_us};
    return (uint16_t)batch->n_limits++;
}

/* How many bytes the state's key has in Redis, at most. */
static size_t key_len(const struct batch *batch, const struct op_member *member)
{
    return batch->prefix_len + STORE_TAG_LEN + member->limit->key_head_len + member->key.len;
}

/* If the whole key decides the shard, the shard follows from this hash, too. A compat policy's name is no part of it,
 * because two of them may name the same key. */
uint64_t batch_key_hash(struct op_member *member)
{
    if (member->batch_hash != 0) return member->batch_hash;

    const struct limit *limit = member->limit;
    uint64_t start = limit_ops(limit)->is_compat ? HASH_STABLE_START : limit->policy->name_hash;
    member->batch_hash = hash_stable(start, member->key.data, member->key.len);
    return member->batch_hash;
}

/* The key's place in the table, or the empty one where it belongs. A peer can choose keys of one hash, and gains no
 * more than BATCH_KEYS_MAX comparisons. */
static uint32_t find_key(const struct batch *batch, const struct op_member *member, uint64_t hash)
{
    uint32_t at = hash % BATCH_TABLE;
    for (; batch->table[at] != 0; at = (at + 1) % BATCH_TABLE) {
        const struct batch_key *key = &batch->keys[batch->table[at] - 1];
        if (key->hash == hash && same_key(key->member, member)) break;
    }
    return at;
}

/* Has the key the constants of the member's limit and wait? After a reload it may have another limit's. */
static bool is_same_limit(const struct batch *batch, const struct batch_key *key, const struct op_member *member)
{
    const struct batch_limit *limit = &batch->limits[key->limit_no];
    return limit->limit == member->limit && limit->max_wait_us == member->max_wait_us;
}

/* Gives each limit of the op its key. It stops at one without space, or whose key has other constants. */
static enum batch_status find_or_add_keys(struct batch *batch, struct op *op)
{
    uint32_t n_known = batch->n_keys, most = batch->n_ops > 0 ? batch->max_keys : BATCH_KEYS_MAX;
    for (uint32_t i = 0; i < op->n_members; i++) {
        struct op_member *member = &op->members[i];
        uint64_t hash = batch_key_hash(member);
        uint32_t at = find_key(batch, member, hash), n = batch->n_keys;
        if (batch->table[at] != 0) {
            n = batch->table[at] - 1U;
            if (n < n_known && !is_same_limit(batch, &batch->keys[n], member)) return BATCH_CLASHES;
        } else {
            if (n >= most) return BATCH_FULL;
            uint16_t limit_no = find_or_add_limit(batch, member);
            batch->keys[n] =
                (struct batch_key){.member = member, .hash = hash, .at = (uint16_t)at, .limit_no = limit_no};
            batch->keys_len += key_len(batch, member);
            batch->n_pauses += limit_has_penalty(member->limit);
            batch->table[at] = (uint8_t)++batch->n_keys;
        }
        member->batch_key = (uint16_t)n;
    }
    return BATCH_ADDED;
}

/* An op key. An idempotency record that two ops name is one key: the second must find what the first
 * has written. A list has all reservations of the op's policy and key, or the ids of what was merged into a counter. */
static uint16_t find_or_add_op_key(struct batch *batch, const struct op *op, bool is_record)
{
    const struct op_member *first = &op->members[0];
    struct batch_op_key wanted = {
        .head = is_record ? "" : first->limit->policy->name,
        .name = is_record ? op->record : first->reservations_key,
        .shard = (uint16_t)(store_key_hash(first) % batch->n_shards),
        .is_record = is_record,
        .is_of_merges = !is_record && op->reservation != NULL && op->reservation->is_merge,
    };
    if (wanted.is_of_merges) {
        wanted.head = first->limit->key_head;
        wanted.name = first->key;
    }
    CHECK(wanted.name.len > 0 || wanted.is_of_merges);
    for (uint32_t i = 0; i < batch->n_op_keys; i++) {
        const struct batch_op_key *key = &batch->op_keys[i];
        if (key->is_record == is_record && key->shard == wanted.shard && slice_eq(key->name, wanted.name) &&
            strcmp(key->head, wanted.head) == 0) /* a limit's head has a colon, a policy's name has none */
            return (uint16_t)(i + 1);
    }

    CHECK(batch->n_op_keys < BATCH_OP_KEYS_MAX);
    batch->op_keys[batch->n_op_keys] = wanted;
    batch->keys_len += batch->prefix_len + STORE_TAG_LEN + BATCH_LIST_HEAD_MAX + wanted.name.len;
    return (uint16_t)++batch->n_op_keys;
}

/* ---- the script's ops ---- */

/* Is there space for an op that has its keys? Any may be the first; one that joins another asks for nothing more. */
static enum batch_status judge_fit(const struct batch *batch, const struct script_op *asked, uint32_t weight,
                                   bool joins)
{
    if (batch->n_ops == 0) return BATCH_ADDED;
    if (batch->resets != (asked->kind == KIND_RESET)) return BATCH_CLASHES;
    if (batch->weight + weight > BATCH_WEIGHT_MAX) return BATCH_FULL;
    if (joins) return BATCH_ADDED;
    bool has_space = batch->n_op_keys + OP_KEYS_PER_OP <= BATCH_OP_KEYS_MAX &&
                     batch->n_integers + asked->n_integers + BATCH_N_LAST <= BATCH_REPLY_MAX;
    return has_space ? BATCH_ADDED : BATCH_FULL;
}

/* Must a plain check's retry be looked up, if it is denied? */
static bool needs_wait(const struct limit *limit, int64_t cost)
{
    return limit_ops(limit)->has_wait && cost > 0 && cost <= limit->full;
}

/* May a plain check join `last`, its key's last script op? `count` is what it asks for. */
static bool may_join(const struct batch *batch, const struct script_op *last, const struct op *op, int64_t count)
{
    if (last->kind != KIND_CHECK) return false;

    const struct limit *limit = op->members[0].limit;
    int64_t cost = op->members[0].cost, last_cost = last->op->members[0].cost;
    if (last->count == 0 && !needs_wait(limit, last_cost)) return true; /* a peek at the state alone: it becomes this */
    if (count > 0) { /* a charge, after a charge or a log's peek: is it counted together with those of `last`? */
        bool may_merge = batch->merge && limit_ops(limit)->merges && !limit->count_denied;
        return may_merge && last->count > 0 && last->op->members[0].cost == op->members[0].cost && op->at_most == 0 &&
               last->op->at_most == 0;
    }

    /* a peek: the state is known, but a log's retry only of that very peek */
    return !needs_wait(limit, cost) || (last->count == 0 && last_cost == cost);
}

/* Of an op that may_join(). */
static void join_last_op(struct batch *batch, struct op *op, int64_t count)
{
    struct batch_key *key = &batch->keys[op->members[0].batch_key];
    struct script_op *last = &batch->script_ops[key->last_script_op];
    const struct limit *limit = op->members[0].limit;
    if (last->count == 0 && !needs_wait(limit, last->op->members[0].cost)) {
        if (count > 0 || needs_wait(limit, op->members[0].cost)) last->op = op;
        last->count = count;
    } else if (count > 0) {
        last->count++;
        redis_counters.redis_merged++;
    }

    key->may_be_charged |= count > 0;
    op->batch_op = key->last_script_op;
}

/* Memory for one more, so that nothing fails half way. */
static int reserve_script_op(struct batch *batch)
{
    if (batch->n_script_ops < batch->script_ops_cap) return 0;
    uint32_t cap = batch->script_ops_cap == 0 ? BATCH_KEYS_MAX : batch->script_ops_cap * 2;
    struct script_op *script_ops = mem_realloc(batch->script_ops, cap * sizeof *script_ops);
    if (script_ops == NULL) return -1;
    batch->script_ops = script_ops;
    batch->script_ops_cap = cap;
    return 0;
}

enum batch_status batch_add(struct batch *batch, struct op *op)
{
    CHECK(op->n_members >= 1 && op->n_members <= BATCH_KEYS_MAX);
    if (reserve_script_op(batch) < 0) return BATCH_NO_MEMORY;

    uint32_t n_known = batch->n_keys, n_limits = batch->n_limits, weight = batch_weight(op);
    enum batch_status status = find_or_add_keys(batch, op);
    struct script_op *asked = &batch->script_ops[batch->n_script_ops];
    *asked = script_op_of(op);
    bool is_known = status == BATCH_ADDED && op->members[0].batch_key < n_known;
    const struct script_op *last =
        is_known ? &batch->script_ops[batch->keys[op->members[0].batch_key].last_script_op] : NULL;
    bool joins = is_known && asked->kind == KIND_CHECK && may_join(batch, last, op, asked->count);
    if (status == BATCH_ADDED) status = judge_fit(batch, asked, weight, joins);
    if (status != BATCH_ADDED) {
        /* Only the keys that were there before stay. */
        while (batch->n_keys > n_known) {
            const struct batch_key *key = &batch->keys[--batch->n_keys];
            batch->table[key->at] = 0;
            batch->keys_len -= key_len(batch, key->member);
            batch->n_pauses -= limit_has_penalty(key->member->limit);
        }
        batch->n_limits = n_limits;
        return status;
    }

    if (joins) {
        join_last_op(batch, op, asked->count);
    } else {
        bool has_penalty = limit_has_penalty(op->members[0].limit);
        bool loads = asked->kind == KIND_CHECK ? is_known || has_penalty : asked->kind != KIND_RESET;
        op->batch_op = batch->n_script_ops++;
        for (uint32_t i = 0; i < op->n_members; i++) {
            struct batch_key *key = &batch->keys[op->members[i].batch_key];
            key->is_loaded |= loads;
            key->may_be_charged |= asked->count > 0;
            key->last_script_op = op->batch_op;
        }
        batch->n_members += op->n_members;
        batch->n_integers += asked->n_integers;
        batch->has_loaded |= loads;

        if (op->record.len > 0) asked->record = find_or_add_op_key(batch, op, true);
        bool has_list =
            asked->kind == KIND_REFUND ? op->members[0].reservations_key.len > 0 : asked->kind >= KIND_RESERVE;
        if (has_list) asked->list = find_or_add_op_key(batch, op, false);
    }

    batch->resets = op->kind == OP_RESET;
    batch->weight += weight;
    batch->packed = false;
    list_push_back(&batch->ops, &op->link);
    batch->n_ops++;
    return BATCH_ADDED;
}

bool batch_would_merge(const struct batch *batch, struct op *op)
{
    struct op_member *member = &op->members[0];
    if (!op_is_single_check(op)) return false;

    uint8_t number = batch->table[find_key(batch, member, batch_key_hash(member))];
    if (number == 0) return false;

    const struct batch_key *key = &batch->keys[number - 1];
    const struct script_op asked = script_op_of(op), *last = &batch->script_ops[key->last_script_op];
    bool joins = is_same_limit(batch, key, member) && asked.kind == KIND_CHECK && asked.count > 0 && last->count > 0 &&
                 may_join(batch, last, op, asked.count);
    return joins && judge_fit(batch, &asked, batch_weight(op), true) == BATCH_ADDED;
}
