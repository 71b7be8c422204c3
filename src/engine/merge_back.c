#include "engine/merge_back.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/hash.h"
#include "engine/engine_counters.h"
#include "engine/engine_private.h"

void merge_back_fini(struct merge_back *merge_back)
{
    CHECK(merge_back->n_out == 0);
    mem_free(merge_back->merges);
    *merge_back = (struct merge_back){0};
}

/* Looks again after a while whether the store is back. */
static void wait_for_store(struct engine *engine)
{
    engine->merge_back.knows_time = false;
    engine->merge_back.next_us = engine->clock->mono_us + MERGE_RETRY_US;
}

/* ---- counters ---- */

/* The plan that has a counter's limit, and the set that holds it; NULL: its policy is gone or has changed, or another
 * server is asked since. */
static const struct plan *find_plan(const struct engine *engine, const struct unmerged_counter *counter,
                                    struct policy_set **ret_set)
{
    const struct slice key = unmerged_key(counter);
    const struct policy *policy = reservations_policy(engine, unmerged_policy(counter), ret_set);
    if (unmerged_is_others(&engine->failure.unmerged, counter)) return NULL;
    if (policy == NULL || policy->version != counter->version || !policy_takes_key(policy, key)) return NULL;

    const struct plan *plan = plan_for_key(policy, key);
    return plan->merges_back && counter->limit_no < plan->n_limits ? plan : NULL;
}

/* Its merge is over, or will not be: it goes on with what was admitted since. */
static void end_merge(struct engine *engine, struct unmerged_counter *counter, int64_t n_merged)
{
    engine_counters.merged_back += (uint64_t)n_merged;
    engine_counters.merge_back_dropped += (uint64_t)(counter->sent - n_merged);
    counter->sent = 0;
    counter->id = 0;
    counter->is_doubtful = false;
    list_remove(&counter->link);
    if (counter->units > 0)
        list_push_back(&engine->failure.unmerged.waiting, &counter->link);
    else
        unmerged_remove(&engine->failure.unmerged, counter);
}

/* The store has not answered. If it cannot have charged anything, the next try is another merge. */
static void retry_merge(struct engine *engine, struct unmerged_counter *counter, bool was_sent)
{
    counter->is_doubtful |= was_sent;
    if (!counter->is_doubtful) {
        counter->units += counter->sent;
        counter->sent = 0;
    }
    list_push_back(&engine->failure.unmerged.waiting, &counter->link);
    wait_for_store(engine);
}

/* What is left of the units that wait: of what the table counts, the last units were admitted last. */
static void drop_spent(struct unmerged_counter *counter, int64_t spent)
{
    int64_t units = counter->units < spent ? counter->units : spent;
    int64_t left = spent - units, sent = counter->sent < left ? counter->sent : left;
    engine_counters.merge_back_dropped += (uint64_t)(counter->units - units + counter->sent - sent);
    counter->units = units;
    counter->sent = sent;
}

/* The limit of a counter of which something is left to be charged; else NULL, and the counter is gone. */
static const struct limit *limit_to_charge(struct engine *engine, struct unmerged_counter *counter,
                                           struct policy_set **ret_set)
{
    const struct plan *plan = find_plan(engine, counter, ret_set);
    drop_spent(counter, plan != NULL ? failure_spent(&engine->failure, plan, counter) : 0);
    if (counter->sent + counter->units > 0) return &plan->limits[counter->limit_no];

    unmerged_remove(&engine->failure.unmerged, counter);
    return NULL;
}

/* ---- the store's answers ---- */

/* The store is done with it, or was not asked. */
static void let_go(struct merge *merge)
{
    struct merge_back *merge_back = &merge->engine->merge_back;
    policy_set_unref(merge->set);
    merge->set = NULL;
    merge->next = merge_back->idle;
    merge_back->idle = merge;
    merge_back->n_out--;
}

static void end_peek(struct merge *merge, enum op_outcome outcome)
{
    struct engine *engine = merge->engine;
    struct list *waiting = &engine->failure.unmerged.waiting, *link = &merge->counter->link;
    if (outcome == OP_DECIDED) {
        engine->merge_back.knows_time = true;
        engine->merge_back.ahead_us = merge->op.now_us - engine->clock->wall_us;
        engine->merge_back.next_us = 0;
        return;
    }
    list_remove(link); /* the next look is at another one */
    list_push_back(waiting, link);
    wait_for_store(engine);
}

static void end_op(struct merge *merge, enum op_outcome outcome)
{
    struct engine *engine = merge->engine;
    struct unmerged_counter *counter = merge->counter;
    const struct op_reservation *reservation = &merge->reservation;
    let_go(merge);
    if (merge->op.kind == OP_PEEK) {
        end_peek(merge, outcome);
    } else if (outcome == OP_DECIDED) {
        end_merge(engine, counter, reservation->is_known ? counter->sent : reservation->charged);
    } else if (outcome == OP_STORE_ERROR && merge->member.is_foreign) {
        end_merge(engine, counter, 0); /* the key holds somebody else's value */
    } else {
        retry_merge(engine, counter, merge->op.sent);
    }
    if (engine->failure.unmerged.n == 0) engine->merge_back.knows_time = false; /* the clocks may move until the next */
}

static void on_op_done(struct op *op, enum op_outcome outcome)
{
    end_op(CONTAINER_OF(op, struct merge, op), outcome);
}

/* ---- what the store is asked ---- */

/* 0, or -1 without memory. */
static int make_merges(struct engine *engine)
{
    struct merge_back *merge_back = &engine->merge_back;
    if (merge_back->merges != NULL) return 0;
    merge_back->merges = mem_zalloc(MERGES_MAX * sizeof merge_back->merges[0]);
    if (merge_back->merges == NULL) return -1;

    for (size_t i = 0; i < MERGES_MAX; i++) {
        struct merge *merge = &merge_back->merges[i];
        merge->engine = engine;
        merge->next = merge_back->idle;
        merge_back->idle = merge;
    }
    return 0;
}

/* An idle one takes up the counter. */
static struct merge *take(struct engine *engine, struct unmerged_counter *counter, const struct limit *limit,
                          struct policy_set *set, enum op_kind kind)
{
    struct merge *merge = engine->merge_back.idle;
    engine->merge_back.idle = merge->next;
    engine->merge_back.n_out++;
    merge->counter = counter;
    merge->set = policy_set_ref(set);
    merge->member =
        (struct op_member){.limit = limit, .key = unmerged_id(counter), .shard_id = unmerged_shard_id(counter)};
    merge->op = (struct op){.kind = kind,
                            .n_members = 1,
                            .members = &merge->member,
                            .deadline_us = engine->clock->mono_us + MERGE_RETRY_US,
                            .done = on_op_done};
    list_init(&merge->op.link);
    return merge;
}

static void ask_store(struct merge *merge)
{
    enum submit status = store_submit(&merge->engine->store, &merge->op);
    if (status != SUBMIT_PENDING) end_op(merge, submit_outcome(status));
}

static uint64_t draw_id(struct engine *engine)
{
    const struct {
        uint64_t n;
        int64_t at_us;
    } seed = {++engine->merge_back.n_started, engine->clock->mono_us}; /* no other daemon draws this id either */
    return hash_keyed(&seed, sizeof seed) | 1;
}

static int64_t ttl_ms_of(const struct limit *limit)
{
    int64_t life_ms = (int64_t)limit->life_s * 1000;
    return life_ms < MERGE_TTL_MIN_MS ? MERGE_TTL_MIN_MS : life_ms < MERGE_TTL_MAX_MS ? life_ms : MERGE_TTL_MAX_MS;
}

static void charge(struct engine *engine, struct unmerged_counter *counter, const struct limit *limit,
                   struct policy_set *set)
{
    if (counter->sent == 0) {
        counter->id = draw_id(engine);
        counter->made_us = engine->clock->wall_us + engine->merge_back.ahead_us;
        counter->sent = counter->units;
        counter->units = 0;
    }
    list_remove(&counter->link);
    struct merge *merge = take(engine, counter, limit, set, OP_SETTLE);
    merge->op.reservation = &merge->reservation;
    merge->op.is_bound = true;
    merge->op.server = counter->server;
    merge->reservation = (struct op_reservation){.id = counter->id,
                                                 .made_us = counter->made_us,
                                                 .ttl_ms = ttl_ms_of(limit),
                                                 .actual = counter->sent,
                                                 .is_merge = true};
    ask_store(merge);
}

/* Of some counters: those of which nothing is left to be charged go. */
static void drop_ended(struct engine *engine)
{
    struct list *waiting = &engine->failure.unmerged.waiting;
    size_t n = engine->failure.unmerged.n < MERGES_MAX ? engine->failure.unmerged.n : MERGES_MAX;
    for (; n > 0 && !list_empty(waiting); n--) {
        struct unmerged_counter *counter = LIST_ITEM(waiting->next, struct unmerged_counter, link);
        struct policy_set *set;
        if (limit_to_charge(engine, counter, &set) == NULL) continue;
        list_remove(&counter->link);
        list_push_back(waiting, &counter->link);
    }
}

static void look_for_store(struct engine *engine)
{
    drop_ended(engine);
    struct list *waiting = &engine->failure.unmerged.waiting;
    if (list_empty(waiting)) return;

    struct unmerged_counter *counter = LIST_ITEM(waiting->next, struct unmerged_counter, link);
    struct policy_set *set;
    const struct limit *limit = limit_to_charge(engine, counter, &set);
    if (limit != NULL) ask_store(take(engine, counter, limit, set, OP_PEEK));
}

static bool may_ask(const struct engine *engine)
{
    const struct merge_back *merge_back = &engine->merge_back;
    if (list_empty(&engine->failure.unmerged.waiting) || engine->closing) return false;
    return merge_back->knows_time ? merge_back->n_out < MERGES_MAX : merge_back->n_out == 0;
}

int64_t merge_back_next_us(const struct engine *engine)
{
    return may_ask(engine) ? engine->merge_back.next_us : INT64_MAX;
}

void merge_back_run(struct engine *engine)
{
    struct merge_back *merge_back = &engine->merge_back;
    if (engine->clock->mono_us < merge_back_next_us(engine)) return;
    if (make_merges(engine) < 0) {
        wait_for_store(engine);
        return;
    }
    if (!merge_back->knows_time) {
        look_for_store(engine);
        return;
    }

    for (int n = 0; n < MERGES_MAX && may_ask(engine) && merge_back->knows_time; n++) {
        struct unmerged_counter *counter =
            LIST_ITEM(engine->failure.unmerged.waiting.next, struct unmerged_counter, link);
        struct policy_set *set;
        const struct limit *limit = limit_to_charge(engine, counter, &set);
        if (limit != NULL) charge(engine, counter, limit, set);
    }
}
