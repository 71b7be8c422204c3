/*
 * batch_pack.c: a batch as the arguments of one EVALSHA. lua/batch.lua draws the format; change both.
 *
 * A batch is, in this order: a CHECK of every key that is checked directly, a LOAD of every other, the ops on the
 * loaded states in their order, a SAVE of every loaded key. What is the same for consecutive keys of one limit, or the
 * same op on the next keys, goes as one. Two kinds of states are not simply loaded once: concurrency slots are read
 * before each op that asks for them and written after it: every op charges another slot; a log is saved and loaded
 * again before an op that may give back what was charged in this very batch: it gives back what is in the log.
 */
#include "store/batch_private.h"

#include <endian.h>

#include "base/check.h"
#include "base/decimal.h"

enum {
    HEADER_BYTES = 4 + 7 + 1 + 2 + 1 + 2,
    LIMIT_BYTES = 1 + 4 * 7,
    SPAN_BYTES = 1 + 1 + 2 + 2 + 5 + 7,
    /* at most: an op on loaded states, and each of its limits with a SAVE and a LOAD before it */
    OP_BYTES = SPAN_BYTES + 5 + 10 + 32,
    MEMBER_BYTES = 17 + 3 * SPAN_BYTES,
    STRIDE_MAX = UINT8_MAX,
    PUT_SLACK = 8,
};

/* A cost above every limit is always denied, and this one keeps the script's counts exact. */
#define COST_CAP ((INT64_C(1) << 34) + 1)
/* More than is ever available: a bucket that lets wait may have as much as a cost above its capacity. */
#define COST_NEVER (INT64_C(1) << 53)

struct packing {
    struct batch *batch;
    uint32_t n_ordered; /* keys of states that have their place */
    uint16_t place;     /* the last one taken, in KEYS */
    uint8_t *to;
    uint32_t n_ops;    /* of the script */
    uint32_t reply_at; /* where the next tuple begins */
};

static bool is_slots(const struct batch_key *key)
{
    return key->limit->algo == ALGO_CONCURRENCY;
}

static bool is_direct(const struct batch *batch, const struct script_op *asked)
{
    return asked->kind == KIND_CHECK && !batch_key_of(batch, asked, 0)->is_loaded;
}

/* ---- the order of the keys ---- */

enum key_rank { DIRECT, LOADED, DIRECT_OWN_WAY, LOADED_OWN_WAY, N_RANKS }; /* those read by MGET first */

/* May two keys of a rank be in one span? */
static bool same_span(const struct batch *batch, const struct batch_key *a, const struct batch_key *b)
{
    if (a->limit_no != b->limit_no) return false;
    if (batch->resets) return true;
    if (a->is_loaded) return a->may_be_charged == b->may_be_charged;
    const struct script_op *asked = batch_script_op(batch, a->last_script_op),
                           *other = batch_script_op(batch, b->last_script_op);
    return asked->count == other->count && asked->op->members[0].cost == other->op->members[0].cost;
}

/* The leader and the unplaced keys behind it that are of its span, one after the other; returns their number. */
static uint32_t place_span(struct packing *packing, uint32_t leader)
{
    struct batch *batch = packing->batch;
    struct batch_key *first = &batch->keys[leader];
    uint32_t n_before = packing->n_ordered;
    for (uint32_t i = leader; i < batch->n_keys; i++) {
        struct batch_key *key = &batch->keys[i];
        if (key->place != 0 || key->rank != first->rank || (i > leader && !same_span(batch, key, first))) continue;
        key->place = ++packing->place;
        batch->order[packing->n_ordered++] = (uint16_t)i;
    }
    first->n_of_span = (uint16_t)(packing->n_ordered - n_before);
    return first->n_of_span;
}

/* All n keys of a rank: those of one limit follow one another, and among them those of one span. */
static void place_rank(struct packing *packing, enum key_rank rank, uint32_t n)
{
    struct batch *batch = packing->batch;
    for (uint32_t i = 0; n > 0; i++) {
        const struct batch_key *first = &batch->keys[i];
        if (first->place != 0 || first->rank != rank) continue;

        for (uint32_t j = i; n > 0 && j < batch->n_keys; j++) {
            const struct batch_key *leader = &batch->keys[j];
            if (leader->place == 0 && leader->rank == rank && leader->limit_no == first->limit_no)
                n -= place_span(packing, j);
        }
    }
}

static void place_owns(struct packing *packing, bool records)
{
    struct batch *batch = packing->batch;
    for (uint32_t i = 0; i < batch->n_owns; i++)
        if (batch->owns[i].is_record == records) batch->owns[i].place = ++packing->place;
}

/* Give every key its place; returns how many are read by MGET. */
static uint32_t place_keys(struct packing *packing)
{
    struct batch *batch = packing->batch;
    uint32_t n_of_rank[N_RANKS] = {0};
    for (uint32_t i = 0; i < batch->n_keys; i++) {
        struct batch_key *key = &batch->keys[i];
        const struct algo_ops *ops = limit_ops(key->limit);
        bool has_own_way = ops->kind != STATE_STRING || ops->is_compat;
        if (key->is_loaded)
            key->rank = has_own_way ? LOADED_OWN_WAY : LOADED;
        else if (has_own_way || (ops->plain && batch_script_op(batch, key->last_script_op)->count > 0))
            key->rank = DIRECT_OWN_WAY;
        else
            key->rank = DIRECT;
        n_of_rank[key->rank]++;
        key->place = 0;
        key->has_state = key->is_pending = false;
    }

    for (enum key_rank rank = DIRECT; rank <= LOADED; rank++)
        if (n_of_rank[rank] > 0) place_rank(packing, rank, n_of_rank[rank]);
    place_owns(packing, true);
    uint32_t n_mget = packing->place;

    for (enum key_rank rank = DIRECT_OWN_WAY; rank <= LOADED_OWN_WAY; rank++)
        if (n_of_rank[rank] > 0) place_rank(packing, rank, n_of_rank[rank]);
    place_owns(packing, false);
    CHECK(packing->n_ordered == batch->n_keys);
    return n_mget;
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

static void put_span(struct packing *packing, enum batch_kind kind, const struct batch_key *first, uint32_t n)
{
    int64_t count = 0;
    uint64_t cost = 0;
    if (kind == KIND_LOAD) count = first->may_be_charged;
    if (kind == KIND_RESET) cost = !limit_ops(first->limit)->is_compat; /* a key of ours goes, of any type */
    if (kind == KIND_CHECK) {
        const struct script_op *asked = batch_script_op(packing->batch, first->last_script_op);
        count = asked->count;
        cost = cost_of(first->limit, asked->op->members[0].cost);
    }
    put_op(packing, kind, first->limit_no + 1U, first->place, n, count, cost);
}

/* All spans that `kind` is for. */
static void put_spans(struct packing *packing, enum batch_kind kind)
{
    struct batch *batch = packing->batch;
    for (uint32_t i = 0, n; i < batch->n_keys; i += n) {
        const struct batch_key *first = &batch->keys[batch->order[i]];
        n = first->n_of_span;
        bool is_loaded = kind == KIND_LOAD || kind == KIND_SAVE;
        if (kind != KIND_RESET && (first->is_loaded != is_loaded || (is_loaded && is_slots(first)))) continue;

        put_span(packing, kind, first, n);
        const struct algo_ops *ops = limit_ops(first->limit);
        for (uint32_t j = i; j < i + n; j++) {
            struct batch_key *key = &batch->keys[batch->order[j]];
            key->has_state = kind == KIND_LOAD;
            if (kind != KIND_CHECK) continue;
            batch_script_op(batch, key->last_script_op)->reply_at = packing->reply_at;
            packing->reply_at += 1U + ops->has_s2 + ops->has_wait;
        }
    }
}

/* ---- ops on loaded states ---- */

/* A log's times must be in it before an op may give them back; and slots are read as they are at that place. */
static bool needs_load(const struct batch_key *key, const struct script_op *asked)
{
    bool gives_back = asked->kind >= KIND_RESERVE;
    return !key->has_state || (gives_back && key->is_pending);
}

static uint16_t own_place(const struct batch *batch, uint16_t own)
{
    return own > 0 ? batch->owns[own - 1].place : 0;
}

/* Is `next` what `first` is, on keys k times as far on as those of the one after it? That one, for which k is 1, sets
 * the strides. */
static bool is_kth(const struct batch *batch, const struct script_op *first, const struct script_op *next, uint32_t k,
                   uint8_t *strides)
{
    const struct op *a = first->op, *b = next->op;
    bool are_checks = (first->kind == KIND_CHECK || first->kind == KIND_CHECK_ALL) &&
                      (next->kind == KIND_CHECK || next->kind == KIND_CHECK_ALL);
    if (!are_checks || a->n_members != b->n_members || first->count != next->count) return false;
    if ((first->record > 0) != (next->record > 0)) return false;
    if (first->record > 0 && (own_place(batch, next->record) != own_place(batch, first->record) + k ||
                              a->record_ms != b->record_ms || op_version(a) != op_version(b)))
        return false;

    for (uint16_t i = 0; i < a->n_members; i++) {
        const struct batch_key *key = batch_key_of(batch, first, i), *other = batch_key_of(batch, next, i);
        if (is_slots(key) || key->limit_no != other->limit_no || a->members[i].cost != b->members[i].cost) return false;
        if (needs_load(other, next)) return false;
        int32_t distance = other->place - key->place;
        if (k == 1 && (distance < 0 || distance > STRIDE_MAX)) return false;
        if (k == 1) strides[i] = (uint8_t)distance;
        if (distance != (int32_t)k * strides[i]) return false;
    }
    return true;
}

/* The script op after the i-th that is no direct check; script_ops.n where there is none. */
static size_t next_loaded(const struct batch *batch, size_t i)
{
    do i++;
    while (i < batch->script_ops.n && is_direct(batch, batch_script_op(batch, i)));
    return i;
}

/* Of each limit its slot, for which no state is needed. */
static void put_slots(struct packing *packing, struct script_op *asked)
{
    asked->reply_at = packing->reply_at;
    for (uint16_t i = 0; i < asked->op->n_members; i++) {
        struct batch_key *key = batch_key_of(packing->batch, asked, i);
        put_op(packing, asked->kind, key->limit_no + 1U, key->place, 1, 0, 0);
        memcpy(packing->to, asked->op->slot, SLOT_ID_LEN);
        packing->to += SLOT_ID_LEN;
        key->has_state = false;
    }
    packing->reply_at += asked->op->n_members;
}

/* `asked`, and n - 1 more that are like it, on keys that are the strides further on. */
static void put_alike(struct packing *packing, const struct script_op *asked, uint32_t n, const uint8_t *strides)
{
    const struct batch *batch = packing->batch;
    const struct op *op = asked->op;
    const struct op_reservation *reservation = op->reservation;
    int64_t cost = 0;
    if (asked->kind == KIND_SETTLE) cost = reservation->actual;
    if (asked->kind == KIND_REFUND) cost = op->members[0].cost;
    put_op(packing, asked->kind == KIND_CHECK ? KIND_CHECK_ALL : asked->kind, 0, 0, n, asked->count, (uint64_t)cost);

    uint8_t *to = put(packing->to, op->n_members, 1);
    to = put(put(to, own_place(batch, asked->record), 2), own_place(batch, asked->list), 2);
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct batch_key *key = batch_key_of(batch, asked, i);
        struct view view; /* for its step, which no time changes */
        limit_at(&view, key->limit, &batch->limits[key->limit_no].constants, 0);
        uint64_t each = cost_of(key->limit, op->members[i].cost);
        if (asked->kind == KIND_SETTLE) each = (uint64_t)limit_debt(key->limit);
        if (asked->kind == KIND_REFUND) each = 0;
        to = put(put(put(put(to, key->place, 2), strides[i], 1), (uint64_t)view.step, 7), each, 7);
    }
    if (asked->record > 0) to = put(put(to, op->record_ms, 6), op_version(op), 4);

    if (asked->kind == KIND_ACQUIRE) {
        memcpy(to, op->slot, SLOT_ID_LEN);
        to += SLOT_ID_LEN;
    } else if (asked->kind >= KIND_RESERVE) {
        static const struct op_reservation none;
        const struct op_reservation *of = reservation != NULL ? reservation : &none;
        int64_t made_us = asked->kind == KIND_SETTLE ? of->made_us : 0;
        int64_t end_ms = asked->kind == KIND_SETTLE ? reservation_end_ms(of) : of->ttl_ms;
        to = put(put(to, of->id, 8), (uint64_t)of->units, 7);
        to = put(put(to, (uint64_t)made_us, 7), (uint64_t)end_ms, 7);
    }
    packing->to = to;
}

/* The i-th script op, and those behind it that go as the same op; returns which is next. */
static size_t put_script_ops(struct packing *packing, size_t i)
{
    struct batch *batch = packing->batch;
    struct script_op *asked = batch_script_op(batch, i);
    if (asked->kind == KIND_RELEASE || asked->kind == KIND_RENEW) {
        put_slots(packing, asked);
        return i + 1;
    }

    for (uint16_t j = 0; j < asked->op->n_members; j++) {
        struct batch_key *key = batch_key_of(batch, asked, j);
        if (!needs_load(key, asked)) continue;
        if (key->is_pending) put_span(packing, KIND_SAVE, key, 1);
        put_span(packing, KIND_LOAD, key, 1);
        key->has_state = true;
        key->is_pending = false;
    }

    uint8_t strides[BATCH_KEYS_MAX] = {0};
    uint32_t n = 1;
    size_t end = next_loaded(batch, i);
    while (end < batch->script_ops.n && is_kth(batch, asked, batch_script_op(batch, end), n, strides)) {
        end = next_loaded(batch, end);
        n++;
    }
    if (n == 1) memset(strides, 0, sizeof strides); /* is_kth() may have set some */
    put_alike(packing, asked, n, strides);

    for (size_t at = i; at < end; at = next_loaded(batch, at)) {
        struct script_op *alike = batch_script_op(batch, at);
        alike->reply_at = packing->reply_at;
        packing->reply_at += alike->n_integers;

        /* what is loaded is no longer, or not yet, what Redis has */
        for (uint16_t j = 0; j < alike->op->n_members; j++) {
            struct batch_key *key = batch_key_of(batch, alike, j);
            if (alike->kind == KIND_ACQUIRE && is_slots(key)) {
                put_span(packing, KIND_SAVE, key, 1);
                key->has_state = false;
            }
            key->is_pending |= limit_ops(key->limit)->has_wait && (alike->count > 0 || alike->kind == KIND_SETTLE);
        }
    }
    return end;
}

/* ---- the call ---- */

/* ARGV[1]. 0, or -1 without memory. */
static int pack(struct batch *batch, uint32_t nonce, int64_t wall_us, int64_t latest_us)
{
    size_t most = HEADER_BYTES + batch->n_limits * (size_t)LIMIT_BYTES + batch->n_keys * (size_t)(2 * SPAN_BYTES) +
                  batch->script_ops.n * OP_BYTES + batch->op_keys.n * MEMBER_BYTES + PUT_SLACK;
    buffer_truncate(&batch->packet, 0);
    uint8_t *start = buffer_reserve(&batch->packet, most);
    if (start == NULL) return -1;

    struct packing packing = {.batch = batch};
    uint32_t n_mget = place_keys(&packing);
    uint8_t *to = put(put(put(start, nonce, 4), (uint64_t)latest_us, 7), 0, 1);
    uint8_t *n_ops = put(put(to, n_mget, 2), batch->n_limits, 1);
    to = n_ops + 2;
    for (uint32_t i = 0; i < batch->n_limits; i++) {
        struct batch_limit *limit = &batch->limits[i];
        struct constants *constants = &limit->constants;
        limit_constants(constants, limit->limit, limit->phase_ms, limit->max_wait_us, wall_us);
        to = put(to, limit->limit->algo == ALGO_LEAKY_BUCKET ? ALGO_BUCKET : limit->limit->algo, 1);
        to = put(put(to, (uint64_t)constants->a, 7), (uint64_t)constants->b, 7);
        to = put(put(to, (uint64_t)constants->c, 7), (uint64_t)constants->d, 7);
    }

    packing.to = to;
    if (batch->resets) {
        put_spans(&packing, KIND_RESET);
        packing.reply_at = batch->n_keys;
    } else {
        put_spans(&packing, KIND_CHECK);
    }
    if (batch->has_loaded) {
        put_spans(&packing, KIND_LOAD);
        for (size_t i = 0; i < batch->script_ops.n;)
            i = is_direct(batch, batch_script_op(batch, i)) ? i + 1 : put_script_ops(&packing, i);
        put_spans(&packing, KIND_SAVE);
    }

    size_t len = (size_t)(packing.to - start);
    CHECK(len + PUT_SLACK <= most && packing.n_ops <= UINT16_MAX);
    CHECK(batch->resets || packing.reply_at == batch->n_integers);
    n_ops[0] = (uint8_t)packing.n_ops;
    n_ops[1] = (uint8_t)(packing.n_ops >> 8);
    batch->n_integers = packing.reply_at;
    buffer_grew(&batch->packet, len);
    return 0;
}

size_t batch_args(struct batch *batch, uint32_t nonce, int64_t wall_us, int64_t latest_us,
                  const struct slice **ret_args)
{
    if (pack(batch, nonce, wall_us, latest_us) < 0) return 0;
    const uint8_t *bytes = buffer_data(&batch->key_bytes);
    size_t n_keys = batch->n_keys + batch->n_owns;
    batch->args[0] = (struct slice){(const uint8_t *)batch->numkeys, decimal_put(batch->numkeys, n_keys)};
    for (uint32_t i = 0; i < batch->n_keys; i++) {
        const struct batch_key *key = &batch->keys[i];
        batch->args[key->place] = (struct slice){bytes + key->start, key->len};
    }
    for (uint32_t i = 0; i < batch->n_owns; i++)
        batch->args[batch->owns[i].place] = (struct slice){bytes + batch->owns[i].start, batch->owns[i].len};
    batch->args[1 + n_keys] = (struct slice){buffer_data(&batch->packet), buffer_len(&batch->packet)};

    batch->latest_us = latest_us;
    batch->packed = true;
    *ret_args = batch->args;
    return n_keys + 2;
}
