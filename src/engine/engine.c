/* engine.c: the way of a check, for the edges: admission, the store, the answer, release; what becomes due; the end. */
#include "engine/engine.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/exact.h"
#include "base/hash.h"
#include "engine/engine_counters.h"
#include "engine/engine_private.h"

COUNTERS_DEFINE(engine, ENGINE_COUNTERS);

enum {
    OVERDUE_PER_TICK = 4096, /* get into their client's lane: more than come in in a tick, so that none waits here */
    SWEEPS_PER_TICK = 64,
};

/* The end is arithmetic: the store is closed and every check is back. */
static void maybe_closed(struct engine *engine)
{
    if (!engine->store_closed || engine->pool.n_out > 0 || engine->slots.n > 0) return;

    void (*on_closed)(void *arg) = engine->on_closed;
    void *arg = engine->on_closed_arg;
    engine_counters.inflight = 0;
    slots_fini(&engine->slots);
    unit_leases_fini(&engine->leases);
    merge_back_fini(&engine->merge_back);
    failure_fini(&engine->failure);
    reservations_fini(&engine->reservations);
    calls_fini(&engine->calls);
    deadlines_fini(&engine->deadlines);
    check_pool_fini(&engine->pool);
    policy_set_unref(engine->set);
    mem_free(engine);

    on_closed(arg);
}

static void on_errand_ended(struct errands *errands)
{
    maybe_closed(CONTAINER_OF(errands, struct engine, errands));
}

static void answer(struct check *check);

struct engine *engine_new(struct clock *clock, struct store store, struct policy_set *set,
                          const struct engine_options *options)
{
    struct engine *engine = mem_zalloc(sizeof *engine);
    if (engine == NULL) return NULL;

    engine->clock = clock;
    engine->store = store;
    engine->set = set;
    engine->max_inflight = options->max_inflight;

    deadlines_init(&engine->deadlines);
    overdue_init(&engine->overdue);
    engine_counters.shadow_default = options->shadow_default;
    failure_init(&engine->failure, clock, &engine->merge_back, options->local_max_keys);
    engine->failure.is_exact = options->is_exact;
    merge_back_init(&engine->merge_back, &engine->store, options->local_max_keys);
    reservations_init(&engine->reservations, &engine->calls);
    engine->errands.pool = &engine->pool;
    engine->errands.store = &engine->store;
    engine->errands.max = options->max_inflight;
    engine->errands.on_ended = on_errand_ended;
    engine->splits = (struct splits){
        .errands = &engine->errands, .failure = &engine->failure, .work = &engine->work, .answer = answer};
    unit_leases_init(&engine->leases, clock, &engine->errands);
    if (slots_init(&engine->slots, clock, &engine->store, &engine->failure, &engine->calls, set, &options->slots) < 0) {
        mem_free(engine);
        return NULL;
    }
    return engine;
}

/* ---- checks out of the pool ---- */

/* Checks whose owner waits. Those that the store looks ahead at are decided in this tick: they do not count. */
static size_t n_inflight(const struct engine *engine)
{
    size_t n = engine->pool.n_out - engine->orphans.n - engine->errands.n;
    for (size_t i = 0; i < STORE_AHEAD; i++) {
        const struct op *op = engine->store.ahead[i];
        n -= op != NULL && CONTAINER_OF(op, const struct check, op)->state == CHECK_WAITING;
    }
    return n;
}

void engine_update_counters(struct engine *engine)
{
    store_decide_ahead(&engine->store);
    engine_counters.inflight = n_inflight(engine);
}

bool engine_is_full(const struct engine *engine)
{
    return engine->pool.n_out >= engine->max_inflight && n_inflight(engine) >= engine->max_inflight;
}

struct check *engine_check_new(struct engine *engine, enum op_kind kind, uint64_t client)
{
    struct check *check = engine_is_full(engine) || engine->closing ? NULL : check_pool_take(&engine->pool);
    engine_counters.overloaded += check == NULL;
    if (check == NULL) return NULL;
    check->op.kind = kind;
    check->op.client = client;
    check->engine = engine;
    check->set = policy_set_ref(engine->set);
    return check;
}

void check_use_set(struct check *check, struct policy_set *set)
{
    policy_set_unref(check->set);
    check->set = policy_set_ref(set);
}

static void give_back(struct check *check)
{
    struct engine *engine = check->engine;
    if (check->errands != NULL) {
        errand_end(check);
        return;
    }
    check_pool_return(&engine->pool, check);
    if (engine->closing) maybe_closed(engine);
}

void check_release(struct check *check)
{
    struct engine *engine = check->engine;
    check = check->first;
    CHECK(check->state != CHECK_OVER && check->state != CHECK_LEFT);
    if (--check->n_unreleased > 0) return; /* of a check_all the last one ends all */

    if (check->state == CHECK_WAITING) {
        if (check->is_special) candidates_enforced(check);
        if (check->is_split) split_leave(check);
        deadlines_unset(&engine->deadlines, &check->deadline);
        check->op.is_awaited = false;
    }
    if (op_is_check(check->op.kind) && check->state != CHECK_ANSWERED && check->slot != NULL) slot_leave(check->slot);
    if (check->making != NULL) check->making->call.check = NULL;

    check->state = check->state == CHECK_ANSWERED ? CHECK_OVER : CHECK_LEFT;
    if (check->in_store && check->errands == NULL) fair_cap_add(&engine->orphans, check->op.client, check->n_all);
    if (!check->in_store) give_back(check);
}

/* ---- the answer ---- */

/* Completes the answer of a special check: unlimited ones, shadow, slots. */
static void complete_special(struct check *check)
{
    const struct plan *plan = check->plan;
    enum op_kind kind = check->op.kind;

    if (check->n_all > 1 || plan->decider == ALLOWED_ALWAYS) check_answer_unlimited(check);
    bool decides = (op_is_check(kind) || kind == OP_PEEK) && check->error == ERROR_NONE;
    if (plan->shadow && decides) decision_shadow(&check->decision); /* a check_all has none in shadow */
    if (check->making != NULL) reservations_answered(check);
    if (kind == OP_SETTLE && check->error == ERROR_NONE) slots_settled(&check->engine->slots, check);
    if (!op_is_check(kind) || check->slot == NULL) return;

    bool is_reserved = kind == OP_ACQUIRE || check->reservation.held; /* `allow` and a policy in shadow hold nothing */
    if (check->error == ERROR_NONE && check->decision.allowed && is_reserved)
        slot_held(check->slot, &check->decision);
    else
        slot_leave(check->slot);
}

/* Do not touch `check` after this: its owner may release it within done. */
static void answer(struct check *check)
{
    CHECK(check->state == CHECK_WAITING);
    deadlines_unset(&check->engine->deadlines, &check->deadline);
    check->state = CHECK_ANSWERED;
    check->op.is_awaited = false;
    if (check->is_special) complete_special(check);
    if (op_is_check(check->op.kind) && check->error == ERROR_NONE) check_count_decided(check);
    if (check->is_special) candidates_enforced(check);
    check->done(check);
}

static void fail(struct check *check, enum reason reason)
{
    check->engine->work += op_units(&check->op);
    if (check->op.kind != OP_RELEASE) failure_answer(&check->engine->failure, check, reason);
    answer(check);
}

/* One that has been submitted. */
static void fail_waiting(struct check *check, enum reason reason)
{
    if (check->is_split)
        split_fail(check, reason);
    else
        fail(check, reason);
}

static inline void decided(struct check *check)
{
    bool is_stores = check->op.source != SOURCE_DENY_CACHE && check->op.source != SOURCE_LEASE;
    if (is_stores) failure_store_answered(&check->engine->failure);
    check_take_answer(check, &check->op, check->op.source);
    answer(check);
}

/* What the store made of a check whose owner waits for the answer. */
static inline void end_waiting(struct check *check, enum op_outcome outcome)
{
    if (outcome == OP_DECIDED)
        decided(check);
    else
        fail(check, failure_reason(outcome));
}

/* ---- what the store is asked ---- */

static void on_op_done(struct op *op, enum op_outcome outcome)
{
    struct check *check = CONTAINER_OF(op, struct check, op);
    CHECK(check->in_store);
    check->in_store = false;

    if (check->is_special) {
        /* What has to follow, even if no owner waits for the answer. */
        if (check->is_leased) unit_leases_answered(&check->engine->leases, check, outcome);
        if (outcome == OP_DECIDED) reservations_decided(check);
        if (check->op.kind == OP_RESERVE) engine_follow_up_reserve(check, outcome);
        if (check->slot != NULL) slot_op_done(check->slot, &check->op, outcome);
        if (check->state != CHECK_WAITING) reservations_let_go(check);
    }

    bool is_reply = outcome == OP_DECIDED || outcome == OP_STORE_ERROR;
    if (check->state == CHECK_ANSWERED || check->state == CHECK_OVER) {
        engine_counters.late_replies += is_reply;
        if (check->may_merge_back) failure_store_done(&check->engine->failure, check, outcome);
    }
    if (check->state == CHECK_OVER || check->state == CHECK_LEFT) {
        /* A check that its owner has left. The memory store's was decided in the same tick: it is counted. */
        struct engine *engine = check->engine;
        bool is_counted = check->state == CHECK_LEFT && outcome == OP_DECIDED && store_looks_ahead(&engine->store);
        if (is_counted && op_is_check(check->op.kind)) {
            check_take_answer(check, &check->op, check->op.source);
            check_count_decided(check);
        }
        if (check->errands == NULL) fair_cap_remove(&engine->orphans, check->op.client, check->n_all);
        give_back(check);
    } else if (check->state == CHECK_WAITING) {
        end_waiting(check, outcome);
    }
}

/* What was asked for, else the shortest of the policies'. */
static int64_t deadline_us_of(const struct check *check)
{
    uint32_t shortest_ms = UINT32_MAX;
    if (check->deadline_ms > 0) return check->deadline_ms * INT64_C(1000);
    CHECK_FOREACH (one, check)
        if (one->plan->deadline_ms < shortest_ms) shortest_ms = one->plan->deadline_ms;
    return shortest_ms * INT64_C(1000);
}

/* May the check wait for the store? Then deadlines_set() cannot fail. */
static bool may_wait(struct engine *engine, const struct check *check)
{
    bool may = check->errands != NULL || fair_cap_allows(&engine->orphans, engine->max_inflight, check->op.client);
    return may && deadlines_reserve(&engine->deadlines) == 0;
}

static void ask_store(struct check *check)
{
    struct engine *engine = check->engine;
    struct op *op = &check->op;
    int64_t now_us = engine->clock->mono_us;
    int64_t deadline_us = deadline_us_of(check);
    enum submit status = SUBMIT_OVERLOAD;
    if (check->slot != NULL) check->slot->n_out++;
    if (op->kind == OP_RESERVE) reservations_ask(check);

    /* ops that give something back are sent even after the deadline; the owner still gets an answer by the deadline */
    bool is_errand = check->errands != NULL;
    bool must_be_sent = op->kind == OP_RELEASE || op->kind == OP_SWEEP || (op->kind == OP_SETTLE && is_errand);
    if (!must_be_sent) op->deadline_us = now_us + deadline_us;
    op->done = on_op_done;
    op->is_awaited = !is_errand;
    if (may_wait(engine, check)) status = store_submit(&engine->store, op);

    if (status == SUBMIT_PENDING) {
        engine->work += op->n_members;
        check->in_store = true;
        deadlines_set(&engine->deadlines, &check->deadline, now_us, deadline_us);
        return;
    }

    enum op_outcome outcome = submit_outcome(status);
    if (check->slot != NULL) slot_op_done(check->slot, op, outcome);
    if (check->is_leased) unit_leases_answered(&engine->leases, check, outcome);
    if (outcome == OP_DECIDED && check->is_special) reservations_decided(check);
    end_waiting(check, outcome);
}

/* The owner loses the slot at once, whatever the store answers: a lease that stays in the store is given back later, or
 * ends. */
static void submit_release(struct check *check)
{
    struct slot *slot = check->slot;
    bool is_leased = slot->lease == LEASE_TAKEN;
    slot->n_out++; /* it stays until the end of this function */
    slot_leave(slot);
    check->removed = true;

    if (is_leased && !check->engine->closing && slot_seal_release(check) == 0) {
        slot->n_out--;
        ask_store(check);
        return;
    }

    slot_op_done(slot, &check->op, OP_DOWN);
    answer(check);
}

/* Submits a check that is_special (check.h). Apart, so that the usual check saves no registers for it. */
static __attribute__((noinline)) void submit_special(struct engine *engine, struct check *check)
{
    if (check->op.kind == OP_RESERVE) {
        const struct {
            uint64_t n;
            int64_t at_us;
        } seed = {++engine->n_reserved, engine->clock->mono_us}; /* no other daemon draws this id either */
        bool is_one = check->plan->takes_one && !check->plan->takes_units && check->cost > 0; /* each limit takes one */
        check->reservation = (struct op_reservation){.id = hash_keyed(&seed, sizeof seed),
                                                     .units = is_one ? 1 : check->cost,
                                                     .ttl_ms = check->reservation.ttl_ms};
        if (check->slot != NULL) slot_reserve(check->slot, &check->reservation);
    }
    if (check->op.kind == OP_SETTLE) check->reservation.ended = true; /* unless a store is asked */
    /* No limit decides these; the pool keeps the last check's decision. */
    if (check->op.kind == OP_RESET || check->op.kind == OP_RELEASE)
        check->decision = (struct decision){.allowed = true, .source = engine->store.source};

    bool may_lease = engine->store.source == SOURCE_REDIS && check->op.kind != OP_RELEASE;
    check->is_leased = may_lease && unit_leases_concern(&engine->leases, check);
    struct check *candidates = candidates_prepare(&engine->errands, check);
    if (check->op.kind == OP_RELEASE)
        submit_release(check);
    else if (check_decide_by_plans(check, engine->store.source, engine->clock->wall_us))
        answer(check);
    else if (check->local_reason != REASON_NONE) {
        failure_answer_locally(&engine->failure, check, check->local_reason);
        answer(check);
    } else if (engine->closing)
        fail(check, REASON_DOWN);
    else if (check->is_leased && unit_leases_decide(&engine->leases, check))
        decided(check);
    else {
        if (check->is_leased) unit_leases_submit(&engine->leases, check);
        if (splits_needed(&engine->store, check)) {
            /* A check_all whose counters lie in several places. */
            int64_t now_us = engine->clock->mono_us, deadline_us = deadline_us_of(check);
            engine_counters.split_checks++;
            if (may_wait(engine, check) && split_make(&engine->splits, check) == 0) {
                deadlines_set(&engine->deadlines, &check->deadline, now_us, deadline_us);
                split_submit(check, now_us + deadline_us);
            } else {
                fail(check, REASON_OVERLOAD);
            }
        } else {
            ask_store(check);
        }
    }

    /* the engine may be gone with the last of them */
    if (candidates != NULL) candidates_submit(candidates, engine->clock->mono_us, engine->closing);
}

void engine_submit(struct engine *engine, struct check *check)
{
    CHECK(check->engine == engine && check->first == check && check->state == CHECK_NEW && check->done != NULL);
    check->state = CHECK_WAITING;
    if (op_is_check(check->op.kind)) engine_counters.checks += check->n_all;

    if (check->is_special || engine->closing) {
        submit_special(engine, check);
    } else if (store_looks_ahead(&engine->store)) {
        check->op.done = on_op_done;
        check->in_store = true;
        store_submit_ahead(&engine->store, &check->op);
    } else {
        ask_store(check);
    }
}

int engine_acquires(struct engine *engine, struct check *check, struct slot_owner *owner)
{
    CHECK(check->op.kind == OP_ACQUIRE || (check->op.kind == OP_RESERVE && check->request_id.len == 0));
    CHECK(check->state == CHECK_NEW && check->is_sealed);
    check->slot = slots_new(&engine->slots, check, owner);
    engine_counters.overloaded += check->slot == NULL;
    if (check->slot == NULL) return -1;

    check->op.slot = check->slot->id;
    check->request_id = (struct slice){NULL, 0}; /* the slot has it */
    return 0;
}

void engine_releases(struct check *check, struct slot *slot)
{
    CHECK(check->state == CHECK_NEW && !check->is_sealed && slot->state == SLOT_HELD);
    check->op.kind = OP_RELEASE;
    check->is_special = true;
    check->is_sealed = true; /* the slot has the key, and its members once it is submitted */
    check->slot = slot;
    check_use_set(check, slot->set); /* the slot's policy may be an older one */
    check->plan = &slot->policy->plan;
}

void engine_give_up(struct check *check)
{
    struct engine *engine = check->engine;
    struct op *op = &check->op;
    bool in_store = check->in_store;
    check->error = ERROR_ABANDONED;
    check->error_message = "the client has given it up";
    answer(check);

    /* In the store it is alive until its op is done. One that was not sent is not done at all. */
    if (in_store && store_withdraw(&engine->store, op)) on_op_done(op, OP_EXPIRED);
}

/* ---- what becomes due ---- */

int64_t engine_next_deadline(const struct engine *engine)
{
    if (overdue_may_have(&engine->overdue)) return engine->clock->mono_us;

    const struct deadline *first = deadlines_first(&engine->deadlines);
    int64_t next_us = reservations_next_us(&engine->reservations), due_us = slots_next_due(&engine->slots);
    if (due_us < next_us) next_us = due_us;
    due_us = unit_leases_next_us(&engine->leases);
    if (due_us < next_us) next_us = due_us;
    due_us = engine->merge_back.n > 0 ? merge_back_next_us(engine) : INT64_MAX;
    if (due_us < next_us) next_us = due_us;
    return first != NULL && first->at_us < next_us ? first->at_us : next_us;
}

/* What exceeds the budget of a tick is due again in engine_next_deadline(), so that the loop can read and write in
 * between. */
void engine_expire(struct engine *engine)
{
    int64_t now_us = engine->clock->mono_us;
    for (int n = 0; n < OVERDUE_PER_TICK; n++) {
        struct deadline *first = deadlines_first(&engine->deadlines);
        if (first == NULL || first->at_us > now_us) break;
        deadlines_unset(&engine->deadlines, first);
        overdue_add(&engine->overdue, first, CONTAINER_OF(first, struct check, deadline)->op.client);
    }

    if (overdue_may_have(&engine->overdue)) {
        struct deadline *next;
        uint32_t before = engine->work;
        while (engine->work - before < ENGINE_EXPIRED_UNITS && (next = overdue_next(&engine->overdue)) != NULL) {
            uint32_t work = engine->work;
            struct check *check = CONTAINER_OF(next, struct check, deadline);
            if (check->op.deadline_us > 0 && check->in_store && store_withdraw(&engine->store, &check->op))
                on_op_done(&check->op, OP_EXPIRED); /* it was not sent by then, and never will be */
            else
                fail_waiting(check, REASON_DEADLINE);
            overdue_spend(&engine->overdue, engine->work - work);
        }
    }

    for (int n = 0; n < SWEEPS_PER_TICK && engine->reservations.inside.n > 0 && !engine->closing; n++) {
        struct reservation *ended = reservations_take(&engine->reservations, now_us);
        if (ended == NULL) break;
        engine_sweep(engine, ended);
    }
    slots_run(&engine->slots);
    if (!engine->closing) unit_leases_run(&engine->leases);
    if (engine->merge_back.n > 0) merge_back_run(engine);
}

/* ---- for the edges ---- */

bool engine_splits(const struct engine *engine, const struct check *check)
{
    return splits_needed(&engine->store, check);
}

struct policy_set *engine_policies(struct engine *engine)
{
    return engine->set;
}

uint64_t engine_policies_generation(const struct engine *engine)
{
    return engine->generation;
}

void engine_set_policies(struct engine *engine, struct policy_set *set)
{
    policy_set_share_counts(set, engine->set);
    slots_policies_changed(&engine->slots, set);
    policy_set_unref(engine->set);
    engine->set = set;
    engine->generation++;
}

void engine_set_inline_policies(struct engine *engine, struct inline_policies *inline_policies)
{
    engine->inline_policies = inline_policies;
}

void engine_set_options(struct engine *engine, const struct engine_options *options)
{
    engine->max_inflight = options->max_inflight;
    engine->errands.max = options->max_inflight;
    engine_counters.shadow_default = options->shadow_default;
    failure_set_local_max_keys(&engine->failure, options->local_max_keys);
    engine->slots.options = options->slots;
}

void engine_flush(struct engine *engine)
{
    if (engine->closing) return;
    store_flush(&engine->store);
    failure_flush(&engine->failure);
    engine_update_counters(engine);
}

void engine_set_time(struct engine *engine, int64_t wall_us)
{
    store_decide_ahead(&engine->store); /* by the time at which they came */
    engine->clock->wall_us = wall_us;
    engine->clock->manual = true;
    slots_renew_all(&engine->slots);
}

void engine_decide_ahead(struct engine *engine)
{
    store_decide_ahead(&engine->store);
}

uint32_t engine_take_work(struct engine *engine)
{
    uint32_t units = engine->work;
    engine->work = 0;
    return units;
}

uint32_t engine_max_inflight(const struct engine *engine)
{
    return engine->max_inflight;
}

size_t engine_n_available(const struct engine *engine)
{
    size_t n = n_inflight(engine);
    return n < engine->max_inflight ? engine->max_inflight - n : 0;
}

size_t engine_n_live(const struct engine *engine)
{
    return engine->pool.n_out;
}

void engine_set_n_daemons(struct engine *engine, uint32_t n)
{
    engine->failure.n_daemons = n;
    engine_counters.live_daemons = n;
}

bool engine_walk(struct engine *engine, struct store_walk *walk)
{
    return store_walk(&engine->store, walk);
}

const char *engine_store_error(const struct engine *engine)
{
    return store_error_text(&engine->store);
}

const char *engine_store_trial(const struct engine *engine)
{
    return store_trial_text(&engine->store);
}

const struct failure *engine_failure(const struct engine *engine)
{
    return &engine->failure;
}

struct slots *engine_slots(struct engine *engine)
{
    return &engine->slots;
}

void engine_stop(struct engine *engine)
{
    slots_stop(&engine->slots);
    unit_leases_stop(&engine->leases);
}

bool engine_holds_any(const struct engine *engine)
{
    return engine->slots.n > 0 || unit_leases_are_held(&engine->leases);
}

static void on_store_closed(void *arg)
{
    struct engine *engine = arg;
    engine->store_closed = true;
    maybe_closed(engine);
}

void engine_close(struct engine *engine, void (*on_closed)(void *arg), void *arg)
{
    CHECK(!engine->closing);
    store_decide_ahead(&engine->store);
    engine->closing = true;
    engine->on_closed = on_closed;
    engine->on_closed_arg = arg;

    for (struct deadline *first; (first = overdue_next(&engine->overdue)) != NULL;)
        fail_waiting(CONTAINER_OF(first, struct check, deadline), REASON_DOWN);
    for (struct deadline *first; (first = deadlines_first(&engine->deadlines)) != NULL;)
        fail_waiting(CONTAINER_OF(first, struct check, deadline), REASON_DOWN);
    unit_leases_end(&engine->leases);
    if (engine->slots.n > 0 || engine->splits.n_refunds > 0 || engine->errands.of[ERRAND_LEASE].n > 0)
        store_flush(&engine->store); /* what was given back last */
    slots_close(&engine->slots);
    store_close(&engine->store, on_store_closed, engine);
}
