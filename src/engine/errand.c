/* errand.c: the engine's own checks, from the pool to the store and back. */
#include "engine/errand.h"

#include "base/assert.h"

struct check *errand_new(struct errands *errands, enum errand_kind kind, enum op_kind op_kind, struct policy_set *set,
                         uint64_t client)
{
    static const size_t max_of[N_ERRAND_KINDS] = {
        [ERRAND_LEASE] = ERRAND_LEASES_MAX, [ERRAND_MERGE] = ERRAND_MERGES_MAX};
    size_t max = max_of[kind] > 0 ? max_of[kind] : errands->max;
    bool may = fair_cap_allows(&errands->of[kind], max, client);
    struct check *errand = may ? check_pool_take(errands->pool) : NULL;
    if (errand == NULL) return NULL;

    fair_cap_add(&errands->of[kind], client, 1);
    errands->n++;
    errand->errands = errands;
    errand->errand_kind = kind;
    errand->op.kind = op_kind;
    errand->op.client = client;
    errand->set = policy_set_ref(set);
    return errand;
}

void errand_about(struct check *errand, const struct op_member *member)
{
    errand->op.members = errand->inline_members;
    errand->op.n_members = 1;
    errand->inline_members[0] = *member;
}

static void on_op_done(struct op *op, enum op_outcome outcome)
{
    struct check *errand = CONTAINER_OF(op, struct check, op);
    CHECK(errand->in_store);
    errand->in_store = false;
    errand->errand_done(errand, outcome);
}

bool errand_submit(struct check *errand, void (*done)(struct check *errand, enum op_outcome outcome))
{
    errand->op.done = on_op_done;
    errand->errand_done = done;
    enum submit status = store_submit(errand->errands->store, &errand->op);
    errand->in_store = status == SUBMIT_PENDING;
    if (!errand->in_store) done(errand, submit_outcome(status));
    return status == SUBMIT_PENDING;
}

void errand_end(struct check *errand)
{
    struct errands *errands = errand->errands;
    fair_cap_remove(&errands->of[errand->errand_kind], errand->op.client, errand->n_all);
    errands->n -= errand->n_all;
    check_pool_return(errands->pool, errand);
    errands->on_ended(errands);
}
