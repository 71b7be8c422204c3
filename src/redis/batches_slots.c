/*
 * redis/batches_slots.c: the batches of a cluster's node, each of one hash slot.
 */
#include <stdio.h>

#include "base/assert.h"
#include "redis/batches_private.h"
#include "redis/cluster_redirect.h"
#include "redis/counters.h"

enum { TAKEN_AT_ONCE = 256 };

/* ---- filling and sending ---- */

static struct cluster_slot *slot_of(const struct batch_call *call)
{
    return &call->batches->slots->of[call->hash_slot];
}

/* The call is complete. */
static void close_call(struct batch_call *call)
{
    list_remove(&call->link);
    slot_of(call)->open = NULL;
    bool is_alone = call->is_asking || slot_of(call)->alone_until_us > call->clock->mono_us;
    if (call->batches->options->merge && !is_alone) redis_batches_fill_by_merging(call->batches, call);
    redis_batches_send_call(call);
}

/* NULL without memory. */
static struct batch_call *open_call(struct redis_batches *batches, const struct op *op, struct list *open)
{
    struct batch_call *call = redis_batches_begin_call(batches);
    if (call == NULL) return NULL;
    call->hash_slot = op->hash_slot;
    call->is_asking = op->is_asking;
    slot_of(call)->open = call;
    list_push_back(open, &call->link);
    return call;
}

static enum batch_status add_to_call(struct batch_call *call, struct op *op)
{
    if (batch_n_ops(call->batch) >= BATCH_CALL_OPS_MAX) return BATCH_FULL;
    enum batch_status status = redis_batches_put(call, op);
    call->batches->n_keys += batch_n_keys(call->batch) - call->n_keys;
    call->n_keys = batch_n_keys(call->batch);
    return status;
}

/* It waits again while the open call of its hash slot is closed, so that no check goes with that which is behind it. */
static void wait_for_next_call(struct redis_batches *batches, struct op *op)
{
    struct batch_call *call = batches->slots->of[op->hash_slot].open;
    redis_batches_wait_again(batches, op);
    close_call(call);
}

/* Into the open call of its hash slot, or into a new one. */
static void add_op(struct redis_batches *batches, struct op *op, struct list *open)
{
    struct cluster_slot *slot = &batches->slots->of[op->hash_slot];
    bool is_alone = op->is_asking || slot->alone_until_us > batches->clock->mono_us;
    if (slot->open != NULL && is_alone) {
        wait_for_next_call(batches, op);
        return;
    }
    if (slot->open == NULL) open_call(batches, op, open);

    enum batch_status status = slot->open != NULL ? add_to_call(slot->open, op) : BATCH_NO_MEMORY;
    bool is_full = (status == BATCH_FULL || status == BATCH_CLASHES) && batch_n_ops(slot->open->batch) > 0;
    if (is_full) {
        wait_for_next_call(batches, op);
        return;
    }
    if (status != BATCH_ADDED) redis_batches_end_op(batches, op, OP_OVERLOAD); /* no memory, or it fits no batch */
    if (slot->open != NULL && is_alone) close_call(slot->open);
}

void redis_batches_send_by_slot(struct redis_batches *batches)
{
    if (batches->phase != BATCHES_SENDING || !redis_link_is_ready(batches->link)) return;
    struct list open;
    list_init(&open);
    for (struct op *op; redis_batches_has_space(batches) && (op = op_queue_next(&batches->waiting)) != NULL;) {
        struct cluster_slot *slot = &batches->slots->of[op->hash_slot];
        op_queue_take(&batches->waiting, op);
        if (redis_batches_is_over(batches, op))
            redis_batches_end_op(batches, op, OP_EXPIRED);
        else if (slot->is_held)
            cluster_slots_add(slot, op);
        else
            add_op(batches, op, &open);
    }
    while (!list_empty(&open)) close_call(LIST_ITEM(open.next, struct batch_call, link));
}

/* They were certainly not executed. */
static void end_all(struct redis_batches *batches, struct list *ops, enum op_outcome outcome)
{
    for (struct list *it; (it = list_pop_front(ops)) != NULL;) {
        LIST_ITEM(it, struct op, link)->sent = false;
        redis_batches_end_op(batches, LIST_ITEM(it, struct op, link), outcome);
    }
}

/* ---- what is not here ---- */

static bool is_word(struct slice text, const char *word)
{
    const uint8_t *space = memchr(text.data, ' ', text.len);
    size_t len = space != NULL ? (size_t)(space - text.data) : text.len;
    return len == strlen(word) && memcmp(text.data, word, len) == 0;
}

bool redis_batches_redirected(struct batch_call *call, struct slice error)
{
    struct redis_batches *batches = call->batches;
    bool is_try_again = is_word(error, "TRYAGAIN");
    if (!is_try_again && !is_word(error, "MOVED") && !is_word(error, "ASK")) return false;

    struct list ops;
    list_init(&ops);
    uint16_t hash_slot = call->hash_slot;
    bool is_asking_refused = call->is_asking_refused;
    redis_counters.redis_try_again += is_try_again;
    redis_counters.redis_redirects += !is_try_again;
    redis_batches_release_call(call, &ops);
    LIST_FOREACH (it, &ops) LIST_ITEM(it, struct op, link)->sent = false;
    if (!is_asking_refused) {
        batches->events.on_redirect(batches->events.arg, batches, hash_slot, error, is_try_again, &ops);
        return true;
    }

    /* The text of that refusal is noted: the right is missing, and it would be sent back and forth. */
    redis_counters.redis_errors++;
    end_all(batches, &ops, OP_STORE_ERROR);
    return true;
}

void redis_batches_end_refused(struct redis_batches *batches, struct list *ops, const char *text)
{
    redis_counters.redis_errors++;
    snprintf(batches->last_error, sizeof batches->last_error, "%s", text);
    batches->last_error_policy[0] = '\0';
    batches->last_error_us = batches->clock->mono_us;
    end_all(batches, ops, OP_STORE_ERROR);
}

void redis_batches_take_slot(struct redis_batches *batches, uint16_t hash_slot, struct list *to)
{
    LIST_FOREACH (it, &batches->refused) {
        if (LIST_ITEM(it, struct op, link)->hash_slot != hash_slot) continue;
        list_remove(it);
        list_push_back(to, it);
    }
    struct op *ops[TAKEN_AT_ONCE];
    for (size_t n; (n = op_queue_list_slot(&batches->waiting, hash_slot, ops, TAKEN_AT_ONCE)) > 0;) {
        for (size_t i = 0; i < n; i++) {
            op_queue_take(&batches->waiting, ops[i]);
            list_push_back(to, &ops[i]->link);
        }
    }
}

void redis_batches_mark_slots(const struct redis_batches *batches, bool *has_waiting)
{
    LIST_FOREACH (it, &batches->refused) has_waiting[LIST_ITEM(it, struct op, link)->hash_slot] = true;
    op_queue_mark_slots(&batches->waiting, has_waiting);
}

void redis_batches_end_overtaken_held(const struct batch_call *call)
{
    struct redis_batches *batches = call->batches;
    struct cluster_slot *slot = slot_of(call);
    if (!slot->is_held || list_empty(&slot->ops)) return;

    uint64_t newest = 0;
    const struct list *ops = batch_ops(call->batch);
    LIST_FOREACH (it, ops) {
        const struct op *op = LIST_ITEM(it, struct op, link);
        if (op->number > newest) newest = op->number;
    }

    struct batch_call_asked asked;
    batch_call_asked(call, &asked);
    LIST_FOREACH (it, &slot->ops) {
        struct op *op = LIST_ITEM(it, struct op, link);
        bool was_sent = op->n_hops > 0 || op->n_tries > 0;
        if (!was_sent || op->number > newest || !batch_call_asked_has(&asked, op)) continue;
        cluster_slots_withdraw(op);
        redis_batches_end_op(batches, op, OP_STORE_ERROR);
    }
}
