/*
 * batch_pack.c: a batch as the arguments of one EVALSHA. lua/batch.lua draws the format; change both.
 *
 * A batch is, in this order: a PAUSE of the keys whose limits have a penalty, a CHECK of every key that is checked
 * directly, a LOAD of every other, the ops on the loaded states in their order, a SAVE of every loaded key. What is the
 * same for consecutive keys of one limit, or the same op on the next keys, goes as one.
 *
 * Two kinds of states are loaded more than once:
 *   concurrency slots  before each op that asks for them, and saved after it, because every op charges another slot
 *   a log              saved and loaded again before an op that may give back what this batch has charged, because
 *                      that takes out what is in the log
 */
#include "redis/batch_private.h"

#include <endian.h>

#include "base/assert.h"
#include "base/decimal.h"

enum {
    HEADER_BYTES = 4 + 7 + 1 + 2 + 1 + 2,
    LIMIT_BYTES = 1 + N_CONSTANTS * 7,
    SPAN_BYTES = 1 + 1 + 2 + 2 + 5 + 7,
    PAUSE_BYTES = SPAN_BYTES + 4 * 7,
    /* at most: an op on loaded states, and each of its limits with a SAVE and a LOAD before it */
    OP_BYTES = SPAN_BYTES + 5 + 10 + 32,
    MEMBER_BYTES = 17 + 7 + 3 * SPAN_BYTES,
    STRIDE_MAX = UINT8_MAX,
    PUT_SLACK = 8,
};

/* A cost above every limit is always denied, and this one keeps the script's counts exact. */
#define COST_CAP ((INT64_C(1) << 34) + 1)
/* More than is ever available: a bucket that lets wait may have as much as a cost above its capacity. */
#define COST_NEVER (INT64_C(1) << 53)

struct packing {
    struct batch *batch;
    uint32_t n_assigned; /* spans */
    uint16_t last_index; /* taken, in KEYS */
    uint8_t *to;
    uint32_t n_ops;    /* of the script */
    uint32_t reply_at; /* where the next tuple begins */
};

static bool is_slots(const struct batch_key *key)
{
    return key->member->limit->algo == ALGO_CONCURRENCY;
}

static bool is_direct(const struct batch *batch, const struct script_op *asked)
{
    return asked->kind == KIND_CHECK && !batch_key_of(batch, asked, 0)->is_loaded;
}

/* ---- the order of the keys ---- */

enum key_rank { DIRECT_BY_MGET, LOADED_BY_MGET, DIRECT_BY_COMMAND, LOADED_BY_COMMAND }; /* those read by MGET first */

static enum key_rank rank_of(const struct batch_key *key, int64_t count)
{
    const struct algo_ops *ops = limit_ops(key->member->limit);
    bool by_command = ops->kind != STATE_STRING || ops->is_compat;
    if (key->is_loaded) return by_command ? LOADED_BY_COMMAND : LOADED_BY_MGET;
    return by_command || (ops->plain && count > 0) ? DIRECT_BY_COMMAND : DIRECT_BY_MGET;
}

/* Into the order: behind the last of its rank and limit, or else of its rank. */
static void insert_span(struct batch *batch, const struct batch_span *new)
{
    uint32_t at = 0, alike = 0;
    for (; at < batch->n_spans; at++) {
        const struct batch_span *span = &batch->spans[batch->order[at]];
        if (span->rank > new->rank) break;
        if (span->rank == new->rank && span->limit_no == new->limit_no) alike = at + 1;
    }
    if (alike > 0) at = alike;
    memmove(batch->order + at + 1, batch->order + at, batch->n_spans - at);
    batch->order[at] = (uint8_t)batch->n_spans++;
}

/* The keys as spans, which batch->order sorts by rank; in a rank the spans of one limit follow one another. */
static void gather_spans(struct batch *batch)
{
    batch->n_spans = 0;
    for (uint32_t i = 0; i < batch->n_keys; i++) {
        struct batch_key *key = &batch->keys[i];
        const struct script_op *asked = &batch->script_ops[key->last_script_op];
        bool is_check = !key->is_loaded && !batch->resets;
        int64_t count = is_check ? asked->count : key->may_be_charged;
        int64_t cost = is_check ? asked->op->members[0].cost : 0;

        struct batch_span *span = batch->spans, *end = span + batch->n_spans;
        while (span < end && (span->limit_no != key->limit_no || span->is_loaded != key->is_loaded ||
                              span->count != count || span->cost != cost))
            span++;
        if (span == end) {
            *span = (struct batch_span){
                .limit_no = key->limit_no,
                .is_loaded = key->is_loaded,
                .count = count,
                .cost = cost,
                .first = (uint16_t)i,
                .rank = (uint8_t)rank_of(key, count),
                .n_integers = is_check ? (uint8_t)asked->n_integers : 0,
            };
            insert_span(batch, span);
        }
        span->n++;
        key->span = span;
    }
}

static void assign_op_keys(struct packing *packing, bool records)
{
    struct batch *batch = packing->batch;
    for (uint32_t i = 0; i < batch->n_op_keys; i++)
        if (batch->op_keys[i].is_record == records) batch->op_keys[i].keys_index = ++packing->last_index;
}

/* The next of the spans up to a rank. */
static void assign_spans(struct packing *packing, enum key_rank last)
{
    struct batch *batch = packing->batch;
    for (; packing->n_assigned < batch->n_spans; packing->n_assigned++) {
        struct batch_span *span = &batch->spans[batch->order[packing->n_assigned]];
        if (span->rank > last) return;
        span->next_index = packing->last_index + 1U;
        packing->last_index += span->n;
        span->reply_at = packing->reply_at;
        packing->reply_at += span->n * span->n_integers;
    }
}

/* The pauses of a span's keys follow one another as these do. */
static void assign_pauses(struct packing *packing)
{
    struct batch *batch = packing->batch;
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        struct batch_span *span = &batch->spans[batch->order[i]];
        if (!limit_has_penalty(batch->keys[span->first].member->limit)) continue;
        span->next_pause = packing->last_index + 1U;
        packing->last_index += span->n;
    }
}

/* ---- KEYS ---- */

static uint8_t *append_bytes(uint8_t *to, const void *bytes, size_t len)
{
    if (len > 0) memcpy(to, bytes, len);
    return to + len;
}

/* prefix:{bNNN}: */
static uint8_t *append_tag(const struct batch *batch, uint8_t *to, uint64_t hash)
{
    to = append_bytes(to, batch->prefix, batch->prefix_len);
    store_key_tag(hash, batch->n_shards, (char *)to);
    return to + STORE_TAG_LEN;
}

/* Every key at its place; of states prefix:{bNNN}:head id, of compat policies only head and id. */
static void put_keys(struct packing *packing)
{
    struct batch *batch = packing->batch;
    uint8_t *to = packing->to;
    for (uint32_t i = 0; i < batch->n_keys; i++) {
        struct batch_key *key = &batch->keys[i];
        struct batch_span *span = key->span;
        key->keys_index = span->next_index++;
        key->has_state = key->is_loaded && !is_slots(key);
        key->is_pending = false;
        if (!key->is_loaded) {
            batch->script_ops[key->last_script_op].reply_at = span->reply_at;
            span->reply_at += span->n_integers;
        }

        const struct op_member *member = key->member;
        const struct limit *limit = member->limit;
        bool is_compat = limit_ops(limit)->is_compat;
        uint8_t *start = to;
        if (i == span->first) {
            if (!is_compat) to = append_tag(batch, to, 0);
            to = append_bytes(to, limit->key_head, limit->key_head_len);
            span->stem = (struct slice){start, (size_t)(to - start)};
        } else {
            to = append_bytes(to, span->stem.data, span->stem.len);
        }
        if (!is_compat) {
            uint64_t hash = member->shard_id.data != NULL ? store_key_hash(member) : key->hash;
            store_key_tag(hash, batch->n_shards, (char *)start + batch->prefix_len);
        }
        to = append_bytes(to, member->key.data, member->key.len);
        batch->args[key->keys_index] = (struct slice){start, (size_t)(to - start)};
        if (!limit_has_penalty(limit)) continue;
        key->pause_index = span->next_pause++;

        /* The pause's key is the state's, but for the tag of the algorithm. */
        static const char tag[] = "pn1";
        const struct slice state = batch->args[key->keys_index];
        size_t at = batch->prefix_len + STORE_TAG_LEN;
        CHECK(state.data[at + sizeof tag - 1] == ':'); /* every algorithm's tag has as many bytes */
        batch->args[key->pause_index] = (struct slice){to, state.len};
        to = append_bytes(to, state.data, state.len);
        memcpy(to - state.len + at, tag, sizeof tag - 1);
    }

    for (uint32_t i = 0; i < batch->n_op_keys; i++) {
        const struct batch_op_key *key = &batch->op_keys[i];
        uint8_t *start = to;
        to = append_tag(batch, to, key->shard);
        if (key->is_of_merges)
            to = append_bytes(append_bytes(to, "merge1:", 7), key->head, strlen(key->head));
        else if (!key->is_record)
            to = append_bytes(append_bytes(append_bytes(to, "hold1:", 6), key->head, strlen(key->head)), ":", 1);
        to = append_bytes(to, key->name.data, key->name.len);
        batch->args[key->keys_index] = (struct slice){start, (size_t)(to - start)};
    }
    packing->to = to;
}

/* ---- spans ---- */

/* Writes 8 bytes always: what is too much is written over, or lies in the packet's PUT_SLACK. */
static uint8_t *put(uint8_t *to, uint64_t value, size_t size)
{
    uint64_t little = htole64(value);
    memcpy(to, &little, sizeof little);
    return to + size;
}

static uint64_t cost_of(const struct limit *limit, int64_t cost)
{
    if (limit->max_wait_us > 0 && cost > limit->full) return (uint64_t)COST_NEVER;
    return (uint64_t)(cost < COST_CAP ? cost : COST_CAP);
}

static void put_op(struct packing *packing, enum batch_kind kind, uint32_t limit, uint32_t first, uint32_t n,
                   int64_t count, uint64_t cost)
{
    uint8_t *to = put(put(put(put(packing->to, kind, 1), limit, 1), first, 2), n, 2);
    packing->to = put(put(to, (uint64_t)count, 5), cost, 7);
    packing->n_ops++;
}

/* All spans that `kind` is for. */
static void put_spans(struct packing *packing, enum batch_kind kind)
{
    const struct batch *batch = packing->batch;
    bool is_loaded = kind == KIND_LOAD || kind == KIND_SAVE;
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        const struct batch_span *span = &batch->spans[batch->order[i]];
        const struct batch_key *first = &batch->keys[span->first];
        if (span->is_loaded != is_loaded || (is_loaded && is_slots(first))) continue;

        const struct limit *limit = first->member->limit;
        uint64_t cost = cost_of(limit, span->cost);
        if (kind == KIND_RESET) cost = !limit_ops(limit)->is_compat; /* a key of ours goes, of any type */
        put_op(packing, kind, span->limit_no + 1U, first->keys_index, span->n, kind == KIND_SAVE ? 0 : span->count,
               cost);
    }
}

/* Of the keys whose limits have a penalty, before their LOAD or RESET. */
static void put_pauses(struct packing *packing)
{
    const struct batch *batch = packing->batch;
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        const struct batch_span *span = &batch->spans[batch->order[i]];
        const struct batch_key *first = &batch->keys[span->first];
        const struct penalty *penalty = &first->member->limit->penalty;
        if (!limit_has_penalty(first->member->limit)) continue;

        put_op(packing, KIND_PAUSE, 0, first->keys_index, span->n, first->pause_index, batch->resets);
        uint8_t *to = put(packing->to, (uint64_t)penalty->time_ms, 7);
        to = put(put(to, (uint64_t)penalty->factor, 7), (uint64_t)penalty_length_ms(penalty, UINT32_MAX), 7);
        packing->to = put(to, (uint64_t)penalty->forget_ms, 7);
    }
}

/* LOAD or SAVE */
static void put_state(struct packing *packing, enum batch_kind kind, const struct batch_key *key)
{
    put_op(packing, kind, key->limit_no + 1U, key->keys_index, 1, kind == KIND_LOAD && key->may_be_charged, 0);
}

/* ---- ops on loaded states ---- */

/* A log's times must be in it before an op may give them back; and slots are read as they are at that place. */
static bool needs_load(const struct batch_key *key, const struct script_op *asked)
{
    bool gives_back = asked->kind >= KIND_RESERVE;
    return !key->has_state || (gives_back && key->is_pending);
}

static uint16_t op_key_index(const struct batch *batch, uint16_t number)
{
    return number > 0 ? batch->op_keys[number - 1].keys_index : 0;
}

/* Can `next` go with `first`, as the k-th op behind it? It must be the same op, on keys that lie k strides behind those
 * of `first`. The first op behind it (k is 1) sets the strides, one for each limit. */
static bool is_kth(const struct batch *batch, const struct script_op *first, const struct script_op *next, uint32_t k,
                   uint8_t *strides)
{
    const struct op *a = first->op, *b = next->op;
    bool are_checks = (first->kind == KIND_CHECK || first->kind == KIND_CHECK_ALL) &&
                      (next->kind == KIND_CHECK || next->kind == KIND_CHECK_ALL);
    if (!are_checks || a->n_members != b->n_members || first->count != next->count) return false;
    if (batch->n_pauses > 0 && (a->at_most > 0) != (b->at_most > 0)) return false;
    if ((first->record > 0) != (next->record > 0)) return false;
    if (first->record > 0 && (op_key_index(batch, next->record) != op_key_index(batch, first->record) + k ||
                              a->record_ms != b->record_ms || op_version(a) != op_version(b)))
        return false;

    for (uint16_t i = 0; i < a->n_members; i++) {
        const struct batch_key *key = batch_key_of(batch, first, i), *other = batch_key_of(batch, next, i);
        if (is_slots(key) || key->limit_no != other->limit_no || a->members[i].cost != b->members[i].cost) return false;
        if (needs_load(other, next)) return false;
        int32_t distance = other->keys_index - key->keys_index;
        if (k == 1 && (distance < 0 || distance > STRIDE_MAX)) return false;
        if (k == 1) strides[i] = (uint8_t)distance;
        if (distance != (int32_t)k * strides[i]) return false;
    }
    return true;
}

/* The script op after the i-th that is no direct check; n_script_ops: there is none. */
static uint32_t next_loaded(const struct batch *batch, uint32_t i)
{
    do i++;
    while (i < batch->n_script_ops && is_direct(batch, &batch->script_ops[i]));
    return i;
}

/* Of each limit its slot, for which no state is needed. */
static void put_slots(struct packing *packing, struct script_op *asked)
{
    asked->reply_at = packing->reply_at;
    for (uint16_t i = 0; i < asked->op->n_members; i++) {
        struct batch_key *key = batch_key_of(packing->batch, asked, i);
        bool is_last = &packing->batch->script_ops[key->last_script_op] == asked; /* of those that ask for the key */
        put_op(packing, asked->kind, key->limit_no + 1U, key->keys_index, 1, !is_last, 0);
        memcpy(packing->to, asked->op->slot, SLOT_ID_LEN);
        packing->to += SLOT_ID_LEN;
        key->has_state = false;
    }
    packing->reply_at += asked->op->n_members;
}

/* `asked`, and n - 1 more that are like it, the keys of each one stride behind those of the one before. */
static void put_alike(struct packing *packing, const struct script_op *asked, uint32_t n, const uint8_t *strides)
{
    const struct batch *batch = packing->batch;
    const struct op *op = asked->op;
    const struct op_reservation *reservation = op->reservation;
    bool is_undone = asked->kind == KIND_REFUND && reservation != NULL;
    int64_t cost = batch->n_pauses > 0 && op->at_most > 0;
    if (asked->kind == KIND_SETTLE) cost = reservation->actual;
    if (asked->kind == KIND_REFUND && !is_undone) cost = 1;
    put_op(packing, asked->kind == KIND_CHECK ? KIND_CHECK_ALL : asked->kind, 0, 0, n, asked->count, (uint64_t)cost);

    uint8_t *to = put(packing->to, op->n_members, 1);
    to = put(put(to, op_key_index(batch, asked->record), 2), op_key_index(batch, asked->list), 2);
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct batch_key *key = batch_key_of(batch, asked, i);
        struct view view; /* for its step, which no time changes */
        limit_at(&view, key->member->limit, &batch->limits[key->limit_no].constants, 0);
        uint64_t each = cost_of(key->member->limit, op->members[i].cost);
        uint8_t stride = strides[i];
        if (asked->kind >= KIND_RESERVE) { /* these go alone */
            bool is_held = reservation != NULL ? reservation_holds(reservation, key->member->limit)
                                               : !limit_takes_one(key->member->limit);
            stride = is_held ? 0 : is_slots(key) ? 2 : 1;
            if (asked->kind == KIND_REFUND) each = (uint64_t)op->members[i].cost;
            if (asked->kind == KIND_SETTLE) each = (uint64_t)COST_NEVER; /* it bounds nothing */
            if (asked->kind == KIND_SETTLE && is_held)
                each = (uint64_t)reservation_debt(reservation, key->member->limit);
        }
        to = put(put(put(put(to, key->keys_index, 2), stride, 1), (uint64_t)view.step, 7), each, 7);
    }
    if (asked->record > 0) to = put(put(to, op->record_ms, 6), op_version(op), 4);

    if (asked->kind == KIND_ACQUIRE) {
        memcpy(to, op->slot, SLOT_ID_LEN);
        to += SLOT_ID_LEN;
    } else if (asked->kind >= KIND_RESERVE) {
        static const struct op_reservation none;
        const struct op_reservation *of = reservation != NULL ? reservation : &none;
        int64_t made_us = asked->kind == KIND_SETTLE || is_undone ? of->made_us : 0;
        int64_t end_ms = asked->kind == KIND_SETTLE ? reservation_end_ms(of) : of->ttl_ms;
        to = put(put(to, of->id, 8), (uint64_t)(is_undone ? of->level : of->units), 7);
        to = put(put(to, (uint64_t)made_us, 7), (uint64_t)end_ms, 7);
        for (uint16_t i = 0; is_undone && i < op->n_members; i++) { /* how much of `used` drains in a us */
            const struct batch_limit *limit = &batch->limits[batch_key_of(batch, asked, i)->limit_no];
            to = put(to, limit_is_bucket(limit->limit) ? (uint64_t)limit->constants.bucket.tokens : 0, 7);
        }
    }
    packing->to = to;
}

/* The i-th script op, and those behind it that go as the same op; returns which is next. */
static uint32_t put_script_ops(struct packing *packing, uint32_t i)
{
    struct batch *batch = packing->batch;
    struct script_op *asked = &batch->script_ops[i];
    if (asked->kind == KIND_RELEASE || asked->kind == KIND_RENEW) {
        put_slots(packing, asked);
        return i + 1;
    }

    for (uint16_t j = 0; j < asked->op->n_members; j++) {
        struct batch_key *key = batch_key_of(batch, asked, j);
        if (!needs_load(key, asked)) continue;
        if (key->is_pending) put_state(packing, KIND_SAVE, key);
        put_state(packing, KIND_LOAD, key);
        key->has_state = true;
        key->is_pending = false;
    }

    uint8_t strides[BATCH_KEYS_MAX] = {0};
    uint32_t n = 1;
    uint32_t end = next_loaded(batch, i);
    while (end < batch->n_script_ops && is_kth(batch, asked, &batch->script_ops[end], n, strides)) {
        end = next_loaded(batch, end);
        n++;
    }
    if (n == 1) memset(strides, 0, sizeof strides); /* is_kth() may have set some */
    put_alike(packing, asked, n, strides);

    for (uint32_t at = i; at < end; at = next_loaded(batch, at)) {
        struct script_op *alike = &batch->script_ops[at];
        alike->reply_at = packing->reply_at;
        packing->reply_at += alike->n_integers;

        /* a slot's state is saved at once; what a log is charged is not in Redis before its SAVE */
        for (uint16_t j = 0; j < alike->op->n_members; j++) {
            struct batch_key *key = batch_key_of(batch, alike, j);
            if ((alike->kind == KIND_ACQUIRE || alike->kind == KIND_RESERVE) && is_slots(key))
                put_state(packing, KIND_SAVE, key);
            if (alike->kind >= KIND_ACQUIRE && is_slots(key)) key->has_state = false;
            key->is_pending |=
                limit_ops(key->member->limit)->has_wait && (alike->count > 0 || alike->kind == KIND_SETTLE);
        }
    }
    return end;
}

/* ---- the call ---- */

static void put_packet(struct packing *packing, uint32_t n_mget, uint32_t nonce, int64_t wall_us, int64_t latest_us)
{
    struct batch *batch = packing->batch;
    bool reads_first = batch->has_loaded || batch->n_pauses > 0;
    uint8_t *to = put(put(put(packing->to, nonce, 4), (uint64_t)latest_us, 7), reads_first, 1);
    uint8_t *n_ops = put(put(to, n_mget, 2), batch->n_limits, 1);
    to = n_ops + 2;
    for (uint32_t i = 0; i < batch->n_limits; i++) {
        struct batch_limit *limit = &batch->limits[i];
        struct constants *constants = &limit->constants;
        limit_constants(constants, limit->limit, limit->phase_ms, limit->max_wait_us, wall_us);
        to = put(to, limit->limit->algo == ALGO_LEAKY_BUCKET ? ALGO_BUCKET : limit->limit->algo, 1);
        for (int k = 0; k < N_CONSTANTS; k++) to = put(to, (uint64_t)constants->wire[k], 7);
    }

    packing->to = to;
    if (batch->n_pauses > 0) put_pauses(packing);
    put_spans(packing, batch->resets ? KIND_RESET : KIND_CHECK);
    if (batch->has_loaded) {
        put_spans(packing, KIND_LOAD);
        for (uint32_t i = 0; i < batch->n_script_ops;)
            i = is_direct(batch, &batch->script_ops[i]) ? i + 1 : put_script_ops(packing, i);
        put_spans(packing, KIND_SAVE);
    }

    CHECK(packing->n_ops <= UINT16_MAX);
    n_ops[0] = (uint8_t)packing->n_ops;
    n_ops[1] = (uint8_t)(packing->n_ops >> 8);
}

size_t batch_args(struct batch *batch, uint32_t nonce, int64_t wall_us, int64_t latest_us,
                  const struct slice **ret_args)
{
    size_t n_keys_len = batch->n_pauses > 0 ? 2 * batch->keys_len : batch->keys_len; /* a pause's key has as many */
    size_t most = n_keys_len + HEADER_BYTES + batch->n_limits * (size_t)LIMIT_BYTES +
                  batch->n_keys * (size_t)(2 * SPAN_BYTES) + batch->n_pauses * (size_t)PAUSE_BYTES +
                  batch->n_script_ops * (size_t)OP_BYTES + batch->n_members * (size_t)MEMBER_BYTES + PUT_SLACK;
    struct packing packing = {.batch = batch, .to = buffer_reserve(&batch->bytes, most)};
    if (packing.to == NULL) return 0;

    const uint8_t *start = packing.to;
    gather_spans(batch);
    if (batch->n_pauses > 0) assign_pauses(&packing);
    assign_spans(&packing, LOADED_BY_MGET);
    assign_op_keys(&packing, true);
    uint32_t n_mget = packing.last_index, n_keys = batch->n_keys + batch->n_pauses + batch->n_op_keys;
    assign_spans(&packing, LOADED_BY_COMMAND);
    assign_op_keys(&packing, false);
    put_keys(&packing);
    const uint8_t *packet = packing.to;
    put_packet(&packing, n_mget, nonce, wall_us, latest_us);
    CHECK((size_t)(packing.to - start) + PUT_SLACK <= most);

    batch->args[0] =
        (struct slice){(const uint8_t *)batch->numkeys, decimal_put(batch->numkeys, batch->is_undeclared ? 0 : n_keys)};
    batch->args[1 + n_keys] = (struct slice){packet, (size_t)(packing.to - packet)};
    if (batch->resets) batch->n_integers = batch->n_keys + batch->n_pauses; /* one of each, however many name it */
    CHECK(batch->resets || packing.reply_at == batch->n_integers);
    batch->latest_us = latest_us;
    batch->packed = true;
    *ret_args = batch->args;
    return n_keys + 2;
}
