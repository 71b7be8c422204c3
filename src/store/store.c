/*
 * store.c: what is the same for every store: the order in which it gets its ops, and what an op says.
 */
#include "store/store.h"

#include "base/hash.h"
#include "policy/policy.h"

/* Peers choose the key, so that part is keyed; the head is ours. */
uint64_t op_member_hash(struct op_member *member)
{
    if (member->hash != 0) return member->hash;

    uint64_t hash = hash_keyed(member->key.data, member->key.len) ^ member->limit->head_hash;
    member->hash = hash + (hash == 0);
    return member->hash;
}

bool op_same_counter(const struct op_member *a, const struct op_member *b)
{
    const struct limit *x = a->limit, *y = b->limit;
    return x->algo == y->algo && x->key_head_len == y->key_head_len &&
           memcmp(x->key_head, y->key_head, x->key_head_len) == 0 && slice_eq(a->key, b->key);
}

void reservation_slot(uint64_t id, char out[SLOT_ID_LEN])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < SLOT_ID_LEN; i++) out[i] = digits[id >> (60 - 4 * (i % 16)) & 0xf];
}

int64_t op_decide_one(struct op *op, struct view *view)
{
    struct op_member *only = &op->members[0];
    op->now_us = view->now_us;
    only->used = view->used;
    only->extra = view->extra;

    int64_t fit = limit_fits(view, only->cost, op->at_most > 0 ? op->at_most : 1);
    int64_t cost = fit > 1 ? only->cost * fit : only->cost;
    int64_t units = limit_decide(view, cost, fit > 0, fit > 0, &only->decision);
    only->wait_us = view->wait_us;
    return units;
}

uint32_t op_version(const struct op *op)
{
    enum { FOLD = 31 };
    uint32_t version = 0;
    for (uint16_t i = 0; i < op->n_members; i++) version = version * FOLD + op->members[i].limit->policy->version;
    return version;
}

uint32_t op_units(const struct op *op)
{
    enum {
        HEAVY_UNITS = 4, /* of what keeps more than a state: a reservation, a slot, a record */
        LOG_UNITS = 64,  /* elements of a log that are as much work as a check here (in Redis: batch_weight()) */
    };
    int64_t n = op->answer_units + op->n_members * (op_is_light(op) ? 1 : HEAVY_UNITS);
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct op_member *member = &op->members[i];
        int64_t full = member->limit->limit, cost = member->cost < full ? member->cost : full;
        if (limit_ops(member->limit)->has_wait) n += cost / LOG_UNITS;
    }
    return (uint32_t)n;
}

/* ---- the ops of a store, in their order ---- */

/* Moves `op` (or NULL) in as the newest, and asks the store about the oldest. */
static void shift_ahead(struct store *store, struct op *op)
{
    struct op *oldest = store->ahead[0];
    store->ahead[0] = store->ahead[1];
    store->ahead[1] = op;
    if (oldest == NULL) return;

    oldest->done(oldest, submit_outcome(store->ops->submit(store->impl, oldest)));
}

void store_submit_ahead(struct store *store, struct op *op)
{
    store->ops->prefetch(store->impl, op);
    shift_ahead(store, op);
}

/* Out of line: mostly there are none, and each check comes by here. */
static __attribute__((noinline)) void decide_all_ahead(struct store *store)
{
    while (store->ahead[0] != NULL || store->ahead[1] != NULL) shift_ahead(store, NULL);
}

void store_decide_ahead(struct store *store)
{
    if (store->ahead[0] != NULL || store->ahead[1] != NULL) decide_all_ahead(store);
}

enum submit store_submit(struct store *store, struct op *op)
{
    store_decide_ahead(store);
    if (op->is_bound && op->server != store_server(store)) return SUBMIT_DOWN;
    return store->ops->submit(store->impl, op);
}

void store_flush(struct store *store)
{
    store_decide_ahead(store);
    store->ops->flush(store->impl);
}

void store_test(struct store *store, enum store_test what)
{
    store_decide_ahead(store);
    store->ops->test(store->impl, what);
}

void store_close(struct store *store, void (*on_closed)(void *arg), void *arg)
{
    store_decide_ahead(store);
    store->ops->close(store->impl, on_closed, arg);
}
