/* store.c: what is the same of an op for every store. */
#include "store/store.h"

#include "policy/policy.h"

uint32_t op_version(const struct op *op)
{
    enum { FOLD = 31 };
    uint32_t version = 0;
    for (uint16_t i = 0; i < op->n_members; i++) version = version * FOLD + op->members[i].limit->policy->version;
    return version;
}
