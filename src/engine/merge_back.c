/* merge_back.c: a table of what failure.c has admitted, and the ops that charge it, run by engine.c when due. */
#include "engine/merge_back.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/hash.h"
#include "engine/engine_counters.h"
#include "engine/engine_private.h"

void merge_back_init(struct merge_back *merge_back, const struct store *store, size_t max)
{
    *merge_back = (struct merge_back){.store = store, .max = max};
    list_init(&merge_back->waiting);
}

static void remove_counter(struct merge_back *merge_back, struct unmerged *counter)
{
    map_remove(&merge_back->map, &counter->node);
    list_remove(&counter->link);
    engine_counters.merge_back_waiting = --merge_back->n;
    mem_free(counter);
}

void merge_back_forget_all(struct merge_back *merge_back)
{
    while (!list_empty(&merge_back->waiting))
        remove_counter(merge_back, LIST_ITEM(merge_back->waiting.next, struct unmerged, link));
    CHECK(merge_back->n == 0);
}

void merge_back_fini(struct merge_back *merge_back)
{
    merge_back_forget_all(merge_back);
    if (merge_back->map.slots != NULL) map_fini(&merge_back->map);
}

/* ---- names ---- */

static struct slice policy_name_of(const struct unmerged *counter)
{
    return (struct slice){counter->bytes, counter->policy_len};
}

struct slice unmerged_key(const struct unmerged *counter)
{
    return (struct slice){counter->bytes + counter->policy_len, counter->key_len};
}

struct slice unmerged_id(const struct unmerged *counter)
{
    return (struct slice){counter->bytes + counter->policy_len + counter->key_len, counter->id_len};
}

/* data NULL: the id itself. */
static struct slice shard_id_of(const struct unmerged *counter)
{
    if (!counter->has_shard_id) return (struct slice){NULL, 0};
    return (struct slice){counter->bytes + counter->policy_len + counter->key_len + counter->id_len,
                          counter->shard_id_len};
}

/* ---- what the failure table admits ---- */

/* One limit of a check. */
struct wanted {
    const struct check *check;
    const struct op_member *member; /* its id and shard */
    uint32_t n_daemons;
    uint16_t limit_no;
    uint64_t hash;
};

static struct wanted wanted_of(const struct check *first, const struct check *one, uint16_t i, uint32_t n_daemons)
{
    const struct op_member *member = &first->op.members[first->n_all > 1 ? one->member_index[i] : i];
    return (struct wanted){
        .check = one,
        .member = member,
        .n_daemons = n_daemons,
        .limit_no = i, /* no limit of 0 is asked, and none of them is left out */
        .hash = hash_keyed(member->key.data, member->key.len) ^ one->plan->limits[i].head_hash,
    };
}

static struct unmerged *find(const struct merge_back *merge_back, const struct wanted *wanted)
{
    const struct policy *policy = wanted->check->plan->policy;
    struct map_node *node = merge_back->n > 0 ? map_first(&merge_back->map, wanted->hash) : NULL;
    for (; node != NULL; node = map_next_same(node)) {
        struct unmerged *counter = CONTAINER_OF(node, struct unmerged, node);
        if (counter->version == policy->version && counter->limit_no == wanted->limit_no &&
            slice_eq(policy_name_of(counter), slice_of(policy->name)) &&
            slice_eq(unmerged_id(counter), wanted->member->key))
            return counter;
    }
    return NULL;
}

/* Is it about what was admitted in another server's place? */
static bool is_others(const struct merge_back *merge_back, const struct unmerged *counter)
{
    return counter->server != store_server(merge_back->store);
}

/* NULL: it is full, or memory is short. */
static struct unmerged *add(struct merge_back *merge_back, const struct wanted *wanted)
{
    const struct policy *policy = wanted->check->plan->policy;
    const struct slice name = slice_of(policy->name), key = wanted->check->key, id = wanted->member->key,
                       shard_id = wanted->member->shard_id;
    if (merge_back->n >= merge_back->max) return NULL;
    if (merge_back->map.slots == NULL && map_init(&merge_back->map, merge_back->max) < 0) return NULL;
    struct unmerged *counter = mem_alloc(sizeof *counter + name.len + key.len + id.len + shard_id.len);
    if (counter == NULL) return NULL;

    *counter = (struct unmerged){
        .server = store_server(merge_back->store),
        .version = policy->version,
        .n_daemons = wanted->n_daemons,
        .limit_no = wanted->limit_no,
        .has_shard_id = shard_id.data != NULL,
        .policy_len = name.len,
        .key_len = key.len,
        .id_len = id.len,
        .shard_id_len = shard_id.len,
    };
    slice_put(slice_put(slice_put(slice_put(counter->bytes, name), key), id), shard_id);
    map_insert(&merge_back->map, &counter->node, wanted->hash);
    list_push_back(&merge_back->waiting, &counter->link);
    engine_counters.merge_back_waiting = ++merge_back->n;
    return counter;
}

/* What came back of units that are in the store already stays charged there. */
static void change(struct merge_back *merge_back, const struct wanted *wanted, int64_t units)
{
    struct unmerged *counter = find(merge_back, wanted);
    bool is_waiting = counter != NULL && !list_empty(&counter->link);
    if (is_waiting && is_others(merge_back, counter)) {
        engine_counters.merge_back_dropped += (uint64_t)(counter->units + counter->sent);
        remove_counter(merge_back, counter);
        counter = NULL;
    }
    if (counter == NULL && units > 0) counter = add(merge_back, wanted);
    if (counter == NULL) {
        engine_counters.merge_back_dropped += units > 0 ? (uint64_t)units : 0;
        return;
    }
    counter->units = counter->units + units > 0 ? counter->units + units : 0;
    if (units > 0 && wanted->n_daemons < counter->n_daemons) counter->n_daemons = wanted->n_daemons;
}

void merge_back_add(struct merge_back *merge_back, const struct check *check, uint32_t n_daemons)
{
    CHECK_FOREACH (one, check) {
        int64_t units = one->decision.granted;
        for (uint16_t i = 0; one->plan->merges_back && units > 0 && i < one->n_limits; i++) {
            const struct wanted wanted = wanted_of(check, one, i, n_daemons);
            change(merge_back, &wanted, limit_cost(&one->plan->limits[i], units));
        }
    }
}

void merge_back_settled(struct merge_back *merge_back, const struct check *check, int64_t units, uint32_t n_daemons)
{
    for (uint16_t i = 0; check->plan->merges_back && i < check->n_limits; i++) {
        const struct wanted wanted = wanted_of(check, check, i, n_daemons);
        if (!limit_takes_one(&check->plan->limits[i])) change(merge_back, &wanted, units);
    }
}

void merge_back_forget(struct merge_back *merge_back, const struct check *check)
{
    for (uint16_t i = 0; i < check->n_limits; i++) {
        const struct op_member *member = &check->op.members[i];
        const struct wanted wanted = {
            .check = check,
            .member = member,
            .limit_no = (uint16_t)(member->limit - check->plan->limits), /* a reset may be of one limit */
            .hash = hash_keyed(member->key.data, member->key.len) ^ member->limit->head_hash,
        };
        struct unmerged *counter = find(merge_back, &wanted);
        if (counter == NULL) continue;
        counter->units = 0;
        if (counter->is_peeked) { /* it goes when the store has answered */
            counter->sent = 0;
            counter->is_doubtful = false;
        }
        if (!list_empty(&counter->link)) remove_counter(merge_back, counter);
    }
}

/* ---- what becomes of it ---- */

/* Looks again after a while whether the store is back. */
static void wait_for_store(struct engine *engine)
{
    engine->merge_back.knows_time = false;
    engine->merge_back.next_us = engine->clock->mono_us + MERGE_RETRY_US;
}

/* The plan that has a counter's limit, and the set that holds it; NULL: its policy is gone or has changed, or another
 * server is asked since. */
static const struct plan *find_plan(const struct engine *engine, const struct unmerged *counter,
                                    struct policy_set **ret_set)
{
    const struct slice key = unmerged_key(counter);
    const struct policy *policy = reservations_policy(engine, policy_name_of(counter), ret_set);
    if (is_others(&engine->merge_back, counter)) return NULL;
    if (policy == NULL || policy->version != counter->version || !policy_takes_key(policy, key)) return NULL;

    const struct plan *plan = plan_for_key(policy, key);
    return plan->merges_back && counter->limit_no < plan->n_limits ? plan : NULL;
}

/* Its merge is over, or will not be: it goes on with what was admitted since. */
static void end_merge(struct engine *engine, struct unmerged *counter, int64_t n_merged)
{
    engine_counters.merged_back += (uint64_t)n_merged;
    engine_counters.merge_back_dropped += (uint64_t)(counter->sent - n_merged);
    counter->sent = 0;
    counter->id = 0;
    counter->is_doubtful = false;
    list_remove(&counter->link);
    if (counter->units > 0)
        list_push_back(&engine->merge_back.waiting, &counter->link);
    else
        remove_counter(&engine->merge_back, counter);
}

/* The limit of a counter of which something is left to be charged; else NULL, and the counter is gone. */
static const struct limit *limit_to_charge(struct engine *engine, struct unmerged *counter, struct policy_set **ret_set)
{
    const struct plan *plan = find_plan(engine, counter, ret_set);

    /* What is left of the units that wait: of what the table counts, the last units were admitted last. */
    int64_t spent = plan != NULL ? failure_spent(&engine->failure, plan, counter) : 0;
    int64_t units = counter->units < spent ? counter->units : spent;
    int64_t left = spent - units, sent = counter->sent < left ? counter->sent : left;
    engine_counters.merge_back_dropped += (uint64_t)(counter->units - units + counter->sent - sent);
    counter->units = units;
    counter->sent = sent;
    if (counter->sent + counter->units > 0) return &plan->limits[counter->limit_no];

    remove_counter(&engine->merge_back, counter);
    return NULL;
}

/* ---- the store's answers ---- */

/* The store is done with it, or was not asked. */
static void on_done(struct check *errand, enum op_outcome outcome)
{
    struct engine *engine = errand->engine;
    struct unmerged *counter = errand->owner;
    const struct op *op = &errand->op;
    const struct op_reservation *reservation = op->reservation;

    if (op->kind == OP_PEEK) {
        struct merge_back *merge_back = &engine->merge_back;
        counter->is_peeked = false;
        if (outcome == OP_DECIDED) {
            list_push_front(&merge_back->waiting, &counter->link);
            merge_back->knows_time = true;
            merge_back->ahead_us = op->now_us - engine->clock->wall_us;
            merge_back->next_us = 0;
        } else { /* the next look is at another one */
            list_push_back(&merge_back->waiting, &counter->link);
            wait_for_store(engine);
        }
    } else if (outcome == OP_DECIDED) {
        end_merge(engine, counter, reservation->is_known ? counter->sent : reservation->charged);
    } else if (outcome == OP_STORE_ERROR && op->members[0].is_foreign) {
        end_merge(engine, counter, 0); /* the key holds another program's value */
    } else { /* no answer; if it cannot have charged anything, the next try is another merge */
        counter->is_doubtful |= op->sent;
        if (!counter->is_doubtful) {
            counter->units += counter->sent;
            counter->sent = 0;
        }
        list_push_back(&engine->merge_back.waiting, &counter->link);
        wait_for_store(engine);
    }
    if (engine->merge_back.n == 0) engine->merge_back.knows_time = false; /* the clocks may move until the next */
    errand_end(errand);
}

/* ---- what the store is asked ---- */

/* One about the counter, which stays until it is done; NULL without memory. */
static struct check *new_errand(struct engine *engine, struct unmerged *counter, const struct limit *limit,
                                struct policy_set *set, enum op_kind kind)
{
    const struct op_member member = {.limit = limit, .key = unmerged_id(counter), .shard_id = shard_id_of(counter)};
    struct check *errand = errand_new(&engine->errands, ERRAND_MERGE, kind, set, 0);
    if (errand == NULL) {
        wait_for_store(engine);
        return NULL;
    }
    errand->engine = engine;
    errand->owner = counter;
    errand_about(errand, &member);
    errand->op.deadline_us = engine->clock->mono_us + MERGE_RETRY_US;
    return errand;
}

static void charge(struct engine *engine, struct unmerged *counter, const struct limit *limit, struct policy_set *set)
{
    struct check *errand = new_errand(engine, counter, limit, set, OP_SETTLE);
    if (errand == NULL) return;
    if (counter->sent == 0) {
        const struct {
            uint64_t n;
            int64_t at_us;
        } seed = {++engine->merge_back.n_started, engine->clock->mono_us}; /* no other daemon draws this id either */
        counter->id = hash_keyed(&seed, sizeof seed) | 1;
        counter->made_us = engine->clock->wall_us + engine->merge_back.ahead_us;
        counter->sent = counter->units;
        counter->units = 0;
    }
    int64_t life_ms = (int64_t)limit->life_s * 1000, ttl_ms = life_ms;
    if (life_ms < MERGE_TTL_MIN_MS) ttl_ms = MERGE_TTL_MIN_MS;
    if (life_ms > MERGE_TTL_MAX_MS) ttl_ms = MERGE_TTL_MAX_MS;

    list_remove(&counter->link);
    errand->reservation = (struct op_reservation){
        .id = counter->id, .made_us = counter->made_us, .ttl_ms = ttl_ms, .actual = counter->sent, .is_merge = true};
    errand->op.reservation = &errand->reservation;
    errand->op.is_bound = true;
    errand->op.server = counter->server;
    errand_submit(errand, on_done);
}

static bool may_ask(const struct engine *engine)
{
    const struct merge_back *merge_back = &engine->merge_back;
    if (list_empty(&engine->merge_back.waiting) || engine->closing) return false;
    size_t n_out = engine->errands.of[ERRAND_MERGE].n;
    return merge_back->knows_time ? n_out < ERRAND_MERGES_MAX : n_out == 0;
}

int64_t merge_back_next_us(const struct engine *engine)
{
    return may_ask(engine) ? engine->merge_back.next_us : INT64_MAX;
}

void merge_back_run(struct engine *engine)
{
    struct merge_back *merge_back = &engine->merge_back;
    if (engine->clock->mono_us < merge_back_next_us(engine)) return;
    if (!merge_back->knows_time) {
        struct list *waiting = &merge_back->waiting;
        struct policy_set *set;
        size_t n = merge_back->n < ERRAND_MERGES_MAX ? merge_back->n : ERRAND_MERGES_MAX;
        for (; n > 0 && !list_empty(waiting); n--) { /* those go that have nothing left to be charged */
            struct unmerged *counter = LIST_ITEM(waiting->next, struct unmerged, link);
            if (limit_to_charge(engine, counter, &set) == NULL) continue;
            list_remove(&counter->link);
            list_push_back(waiting, &counter->link);
        }
        if (!list_empty(waiting)) {
            struct unmerged *counter = LIST_ITEM(waiting->next, struct unmerged, link);
            const struct limit *limit = limit_to_charge(engine, counter, &set);
            struct check *errand = limit != NULL ? new_errand(engine, counter, limit, set, OP_PEEK) : NULL;
            if (errand == NULL) return;

            counter->is_peeked = true;
            list_remove(&counter->link);
            errand_submit(errand, on_done);
        }

        return;
    }

    for (int n = 0; n < ERRAND_MERGES_MAX && may_ask(engine) && merge_back->knows_time; n++) {
        struct unmerged *counter = LIST_ITEM(engine->merge_back.waiting.next, struct unmerged, link);
        struct policy_set *set;
        const struct limit *limit = limit_to_charge(engine, counter, &set);
        if (limit != NULL) charge(engine, counter, limit, set);
    }
}
