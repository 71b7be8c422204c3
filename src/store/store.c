/* store.c: what is the same of an op for every store. */
#include "store/store.h"

#include "policy/policy.h"

bool op_same_counter(const struct op_member *a, const struct op_member *b)
{
    const struct limit *x = a->limit, *y = b->limit;
    return x->algo == y->algo && x->key_head_len == y->key_head_len &&
           memcmp(x->key_head, y->key_head, x->key_head_len) == 0 && slice_eq(a->key, b->key);
}

int64_t op_decide_one(struct op *op, struct view *view)
{
    struct op_member *only = &op->members[0];
    op->now_us = view->now_us;
    only->seen1 = view->used;
    only->seen2 = view->extra;

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
