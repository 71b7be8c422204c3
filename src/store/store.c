/* store.c: what is the same of an op for every store. */
#include "store/store.h"

#include "policy/policy.h"

bool op_same_counter(const struct op_member *a, const struct op_member *b)
{
    const struct limit *x = a->limit, *y = b->limit;
    return x->algo == y->algo && x->key_head_len == y->key_head_len &&
           memcmp(x->key_head, y->key_head, x->key_head_len) == 0 && slice_eq(a->key, b->key);
}

uint32_t op_version(const struct op *op)
{
    enum { FOLD = 31 };
    uint32_t version = 0;
    for (uint16_t i = 0; i < op->n_members; i++) version = version * FOLD + op->members[i].limit->policy->version;
    return version;
}
