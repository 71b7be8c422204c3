/* batch_call.c: one EVALSHA with its batch, and the policies whose ops go apart, for redis/batches.c. */
#include "redis/batch_call.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/latency.h"
#include "policy/policy.h"

struct batch_call *batch_call_new(struct redis_batches *batches, const struct redis_options *options,
                                  const struct doubtful_policies *doubtful, const struct clock *clock)
{
    struct batch_call *call = mem_zalloc(sizeof *call);
    if (call == NULL) return NULL;
    call->batch = batch_new(&(struct store_key_scheme){options->key_prefix, options->n_shards}, options->batch_max_keys,
                            options->merge);
    if (call->batch == NULL) {
        mem_free(call);
        return NULL;
    }

    call->batches = batches;
    call->doubtful = doubtful;
    call->clock = clock;
    list_init(&call->link);
    return call;
}

void batch_call_free(struct batch_call *call)
{
    batch_free(call->batch);
    mem_free(call);
}

void batch_call_begin(struct batch_call *call, const struct redis_options *options, uint32_t nonce)
{
    batch_set_merge(call->batch, options->batch_max_keys, options->merge); /* they may have changed */
    call->nonce = nonce;
    call->is_doubtful = call->is_sent = call->is_asking = false;
    call->is_asking_refused = call->is_cut_off = call->is_alone = false;
    call->n_keys = call->n_slots = 0;
    call->policy = NULL;
    call->last_deadline_us = call->longest_us = call->until_us = 0;
}

/* ---- doubtful policies ---- */

static bool has_name(const struct doubtful_policies *doubtful, uint64_t name)
{
    for (uint32_t i = 0; i < doubtful->n; i++)
        if (doubtful->names[i] == name) return true;
    return false;
}

/* Is one of the policies that the op asks among them? */
static bool is_doubtful(const struct doubtful_policies *doubtful, const struct op *op)
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

/* ---- which ops may be in it ---- */

/* The policy of all the op's limits; NULL if they have several. */
static const struct policy *policy_of(const struct op *op)
{
    const struct policy *policy = op->members[0].limit->policy;
    for (uint16_t i = 1; i < op->n_members; i++)
        if (op->members[i].limit->policy != policy) return NULL;
    return policy;
}

/* May the op share the call with those inside? */
static bool may_share(const struct batch_call *call, const struct op *op)
{
    if (call->doubtful->n == 0 || batch_n_ops(call->batch) == 0) return true;
    if (call->is_doubtful) return call->policy != NULL && call->policy == policy_of(op);
    return !is_doubtful(call->doubtful, op);
}

bool batch_call_would_merge(const struct batch_call *call, struct op *op)
{
    return !op->is_asking && may_share(call, op) && batch_would_merge(call->batch, op);
}

enum batch_status batch_call_add(struct batch_call *call, struct op *op)
{
    bool is_first = batch_n_ops(call->batch) == 0;
    if (!may_share(call, op)) return BATCH_CLASHES;
    enum batch_status status = batch_add(call->batch, op);
    if (status != BATCH_ADDED) return status;

    if (is_first && call->doubtful->n > 0) {
        call->is_doubtful = is_doubtful(call->doubtful, op);
        call->policy = call->is_doubtful ? policy_of(op) : NULL;
    }
    op->sent = true;
    op->sent_us = call->clock->mono_us; /* in this tick it is */
    latency_sent(op->read_us, op->sent_us);
    if (op->deadline_us > call->last_deadline_us) call->last_deadline_us = op->deadline_us;
    if (op->deadline_us - op->submitted_us > call->longest_us) call->longest_us = op->deadline_us - op->submitted_us;
    return status;
}

/* ---- what is known of it ---- */

int64_t batch_call_missed_us(const struct batch_call *call, int64_t least_us)
{
    int64_t now_us = call->clock->mono_us;
    if (call->longest_us > least_us) least_us = call->longest_us;
    if (call->last_deadline_us == 0 || now_us < call->last_deadline_us) return 0;
    return now_us - call->sent_us >= least_us ? least_us : 0;
}

/* A number of client and key; batch_add() has left the key's hash. */
static uint32_t bit_of(const struct op *op, const struct op_member *member)
{
    return (uint32_t)(hash_stable(member->batch_hash, &op->client, sizeof op->client) % ASKED_BITS);
}

void batch_call_asked(const struct batch_call *call, struct batch_call_asked *ret)
{
    memset(ret, 0, sizeof *ret);
    const struct list *ops = batch_ops(call->batch);
    LIST_FOREACH (it, ops) {
        const struct op *op = LIST_ITEM(it, struct op, link);
        for (uint16_t i = 0; i < op->n_members; i++) {
            uint32_t bit = bit_of(op, &op->members[i]);
            ret->bits[bit / 64] |= UINT64_C(1) << bit % 64;
        }
    }
}

bool batch_call_asked_has(const struct batch_call_asked *asked, const struct op *op)
{
    for (uint16_t i = 0; i < op->n_members; i++) {
        uint32_t bit = bit_of(op, &op->members[i]);
        if (asked->bits[bit / 64] >> bit % 64 & 1) return true;
    }
    return false;
}
