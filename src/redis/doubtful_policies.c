#include "redis/doubtful_policies.h"

#include <string.h>

#include "policy/policy.h"
#include "store/store.h"

static bool has_name(const struct doubtful_policies *doubtful, uint64_t name)
{
    for (uint32_t i = 0; i < doubtful->n; i++)
        if (doubtful->names[i] == name) return true;
    return false;
}

bool doubtful_policies_has(const struct doubtful_policies *doubtful, const struct op *op)
{
    for (uint16_t i = 0; i < op->n_members; i++)
        if (has_name(doubtful, op->members[i].limit->policy->name_hash)) return true;
    return false;
}

void doubtful_policies_add(struct doubtful_policies *doubtful, const struct op *op)
{
    for (uint16_t i = 0; i < op->n_members; i++) {
        uint64_t name = op->members[i].limit->policy->name_hash;
        if (has_name(doubtful, name)) continue;

        if (doubtful->n == DOUBTFUL_POLICIES_MAX)
            memmove(&doubtful->names[0], &doubtful->names[1], --doubtful->n * sizeof doubtful->names[0]);
        doubtful->names[doubtful->n++] = name;
    }
}

void doubtful_policies_remove(struct doubtful_policies *doubtful, const struct op *op)
{
    for (uint16_t i = 0; i < op->n_members; i++) {
        uint32_t n = 0;
        for (uint32_t j = 0; j < doubtful->n; j++)
            if (doubtful->names[j] != op->members[i].limit->policy->name_hash)
                doubtful->names[n++] = doubtful->names[j];
        doubtful->n = n;
    }
}
