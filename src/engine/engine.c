#include "engine/engine_private.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/counters.h"
#include "base/exact.h"
#include "engine/check_note.h"
#include "engine/check_unasked.h"

enum { EXPIRED_PER_TICK = 256 };

/* The end is arithmetic: the store is closed and every check is back. */
static void maybe_closed(struct engine *engine)
{
    if (!engine->store_closed || engine->pool.n_out > 0 || engine->slots.n > 0) return;
    void (*on_closed)(void *arg) = engine->on_closed;
    void *arg = engine->on_closed_arg;
    slots_fini(&engine->slots);
    failure_fini(&engine->failure);
    reservations_fini(&engine->reservations);
    deadlines_fini(&engine->deadlines);
    check_pool_fini(&engine->pool);
    policy_set_unref(engine->set);
    mem_free(engine);
    on_closed(arg);
}

static void on_candidate_over(struct candidates *candidates)
{
    maybe_closed(CONTAINER_OF(candidates, struct engine, candidates));
}

struct engine *engine_new(struct clock *clock, struct store store, struct policy_set *set,
                          const struct engine_options *options)
{
    struct engine *engine = mem_zalloc(sizeof *engine);
    if (engine == NULL) return NULL;
    engine->clock = clock;
    engine->store = store;
    engine->set = set;
    engine->max_inflight = options->max_inflight;
    check_pool_init(&engine->pool);
    deadlines_init(&engine->deadlines);
    failure_init(&engine->failure, clock, options->local_max_keys);
    reservations_init(&engine->reservations);
    candidates_init(&engine->candidates, &engine->pool, &engine->store, on_candidate_over);
    candidates_set_max(&engine->candidates, options->max_inflight);
    if (slots_init(&engine->slots, clock, &engine->store, &engine->failure, set, &options->slots) < 0) {
        mem_free(engine);
        return NULL;
    }
    return engine;
}

/* Checks that somebody waits for, or will. */
static size_t n_inflight(const struct engine *engine)
{
    return engine->pool.n_out - engine->n_tombs - engine->candidates.n;
}

static void update_gauge(const struct engine *engine)
{
    counters.inflight = n_inflight(engine);
}

bool engine_is_full(const struct engine *engine)
{
    return n_inflight(engine) >= engine->max_inflight;
}

struct check *engine_check_new(struct engine *engine, struct slice key)
{
    struct check *check = engine_is_full(engine) || engine->closing ? NULL : check_pool_take(&engine->pool, key);
    if (check == NULL) {
        counters.overloaded++;
        return NULL;
    }
    check->engine = engine;
    check->set = policy_set_ref(engine->set);
    update_gauge(engine);
    return check;
}

void check_hold_set(struct check *check, struct policy_set *set)
{
    policy_set_unref(check->set);
    check->set = policy_set_ref(set);
}

/* The check, and what it stands for. */
static void give_back(struct check *first)
{
    struct engine *engine = first->engine;
    bool is_all = first->is_all;
    for (struct check *check = first, *next; check != NULL; check = next) {
        next = is_all ? check->also : NULL;
        policy_set_unref(check->set);
        check_pool_return(&engine->pool, check);
    }
    update_gauge(engine);
    maybe_closed(engine);
}

void check_release(struct check *check)
{
    CHECK(!check->released);
    check->released = true;
    candidates_enforced(check);
    if (check->kind == OP_ACQUIRE && !check->answered && check->slot != NULL) slot_leave(check->slot);
    deadlines_unset(&check->engine->deadlines, &check->deadline);
    if (!check->store_holds) {
        give_back(check);
        return;
    }
    check->engine->n_tombs += check_count(check);
    update_gauge(check->engine);
}

static void count_decided(const struct check *first)
{
    bool allowed = true, shadow_denied = first->decision.shadow_denied;
    for (const struct check *one = first; one != NULL; one = check_after(first, one)) allowed &= one->decision.allowed;
    for (const struct check *one = first; one != NULL; one = check_after(first, one)) {
        struct policy_counts *counts = one->policy->counts;
        *(allowed ? &counts->allowed : &counts->denied) += 1;
        *(allowed ? &counters.allowed : &counters.denied) += 1;
    }
    first->policy->counts->shadow_denied += shadow_denied; /* which stands alone */
    counters.shadow_denied += shadow_denied;
}

static void soften(struct check *check)
{
    bool decides = op_is_check(check->kind) || check->kind == OP_PEEK;
    if (decides && check->error == ERROR_NONE) decision_shadow(&check->decision);
}

/* Whoever asked for a slot is told whether it is theirs. */
static void answer_acquire(struct check *check)
{
    if (check->error == ERROR_NONE && check->decision.allowed)
        slot_held(check->slot, check->decision.source == SOURCE_LOCAL);
    else
        slot_leave(check->slot);
}

static bool is_verdict(const struct check *check)
{
    return op_is_check(check->kind) && check->error == ERROR_NONE;
}

/* The last touch of `check`: its asker may release it within done. */
static void answer(struct check *check)
{
    CHECK(!check->answered && !check->released);
    check->answered = true;
    deadlines_unset(&check->engine->deadlines, &check->deadline);
    if (check->is_all || check->policy->unlimited) check_answer_unlimited(check);
    if (check->policy->shadow) soften(check);
    if (is_verdict(check)) count_decided(check);
    if (check->kind == OP_ACQUIRE) answer_acquire(check);
    candidates_enforced(check);
    check->done(check);
}

static void fail(struct check *check, enum reason reason)
{
    if (check->kind != OP_RELEASE) failure_answer(&check->engine->failure, check, reason);
    answer(check);
}

static void decided(struct check *check)
{
    failure_store_answered(&check->engine->failure);
    check_take_answer(check, &check->op, check->engine->store.source);
    answer(check);
}

/* The store holds the check's op no more: what that means for the slot it is about. */
static void note_slot(struct check *check, enum op_outcome outcome)
{
    struct slot *slot = check->slot;
    slot->n_out--;
    if (outcome == OP_DECIDED && check->kind == OP_RELEASE) slot->in_store = false;
    if (outcome == OP_DECIDED && check->kind == OP_ACQUIRE && check->op.members[0].decision.granted > 0)
        slot_taken(slot);
    slot_settle(slot);
}

static void on_op_done(struct op *op, enum op_outcome outcome)
{
    struct check *check = CONTAINER_OF(op, struct check, op);
    CHECK(check->store_holds);
    check->store_holds = false;
    if (outcome == OP_DECIDED) engine_note_hold(check);
    if (check->kind == OP_RESERVE) engine_follow_up_hold(check, outcome);
    if (check->kind == OP_ACQUIRE && outcome == OP_DOWN && op->sent) slot_doubt(check->slot);
    if (check->slot != NULL) note_slot(check, outcome);
    bool is_reply = outcome == OP_DECIDED || outcome == OP_STORE_ERROR;
    if (check->answered) counters.late_replies += is_reply;
    if (check->released) {
        check->engine->n_tombs -= check_count(check);
        give_back(check);
    } else if (!check->answered) {
        switch (outcome) {
        case OP_DECIDED: decided(check); break;
        case OP_DOWN: fail(check, REASON_DOWN); break;
        case OP_EXPIRED: fail(check, REASON_DEADLINE); break;
        case OP_OVERLOAD: fail(check, REASON_OVERLOAD); break;
        case OP_STORE_ERROR: fail(check, REASON_STORE_ERROR); break;
        }
    }
}

/* What was asked for, else the shortest of the policies'. */
static uint32_t deadline_of(const struct check *first)
{
    uint32_t least = UINT32_MAX;
    if (first->deadline_ms > 0) return first->deadline_ms;
    for (const struct check *one = first; one != NULL; one = check_after(first, one))
        if (!one->policy->unlimited && one->policy->deadline_ms < least) least = one->policy->deadline_ms;
    return least;
}

/* What gives something back is sent however late: who asked for it is answered by the deadline all the same. */
static bool must_be_sent(const struct check *check)
{
    return check->kind == OP_RELEASE || check->kind == OP_SWEEP || (check->kind == OP_SETTLE && check->party == 0);
}

/* 0, or -1 where something of ours is used up. */
static int prepare(struct check *check)
{
    struct engine *engine = check->engine;
    int64_t deadline_us = (int64_t)deadline_of(check) * 1000;
    if (engine->n_tombs >= engine->max_inflight) return -1;
    if (check_reserve_members(check, check_n_limits(check)) < 0 || check_reserve_ids(check) < 0) return -1;
    if (check_name_note(check) < 0) return -1;
    if (deadlines_set(&engine->deadlines, &check->deadline, engine->clock->mono_us, deadline_us) < 0) return -1;
    check_fill_op(check, &check->op, check->members);
    check->op.done = on_op_done;
    if (!must_be_sent(check)) check->op.deadline_us = check->deadline.at_us;
    return 0;
}

static void ask_store(struct check *check)
{
    enum submit status = store_submit(&check->engine->store, &check->op);
    if (check->slot != NULL && status != SUBMIT_PENDING)
        note_slot(check, status == SUBMIT_DECIDED ? OP_DECIDED : OP_DOWN);
    switch (status) {
    case SUBMIT_DECIDED:
        engine_note_hold(check);
        decided(check);
        break;
    case SUBMIT_PENDING: check->store_holds = true; break;
    case SUBMIT_DOWN: fail(check, REASON_DOWN); break;
    case SUBMIT_OVERLOAD: fail(check, REASON_OVERLOAD); break;
    }
}

static void settle_locally(struct check *check)
{
    failure_settle(&check->engine->failure, check, check->local_reason);
    answer(check);
}

/* The slot is left whatever comes of asking: what stays in the store follows later, or ends by itself. */
static void submit_release(struct check *check)
{
    struct slot *slot = check->slot;
    bool in_store = slot->in_store;
    slot->n_out++;
    slot_leave(slot);
    check->removed = true;
    if (in_store && !check->engine->closing && prepare(check) == 0) {
        ask_store(check);
        return;
    }
    note_slot(check, OP_DOWN);
    answer(check);
}

static void submit_check(struct check *check)
{
    if (check->slot != NULL) check->slot->n_out++;
    ask_store(check);
}

void engine_submit(struct engine *engine, struct check *check)
{
    CHECK(check->engine == engine && check->policy != NULL && check->done != NULL && check->cost >= 0);
    CHECK(!check->is_all || (check->kind == OP_CHECK && check_n_limits(check) <= POLICY_LIMITS_MAX));
    for (const struct check *one = check_after(check, check); one != NULL; one = check_after(check, one))
        CHECK(!one->policy->shadow && !check->policy->shadow);
    if (op_is_check(check->kind)) counters.checks += check_count(check);
    if (check->kind == OP_RESERVE) engine_start_hold(engine, check);
    if (check->kind == OP_SETTLE) check->hold.ended = true; /* where no store is asked */
    struct check *trials = candidates_prepare(&engine->candidates, check);
    if (check->kind == OP_RELEASE)
        submit_release(check);
    else if (check_decide_unasked(check, engine->store.source))
        answer(check);
    else if (check->local_reason != REASON_NONE)
        settle_locally(check);
    else if (engine->closing)
        fail(check, REASON_DOWN);
    else if (prepare(check) < 0)
        fail(check, REASON_OVERLOAD);
    else
        submit_check(check);
    /* the engine may be gone with the last of them */
    if (trials != NULL) candidates_submit(trials, engine->clock->mono_us, engine->closing);
}

int engine_acquires(struct engine *engine, struct check *check, struct slot_owner *owner)
{
    enum { COST = 1 };
    check->kind = OP_ACQUIRE;
    check->cost = COST;
    check->slot = slots_new(&engine->slots, check, owner);
    counters.overloaded += check->slot == NULL;
    return check->slot == NULL ? -1 : 0;
}

void engine_releases(struct check *check, struct slot *slot)
{
    check->kind = OP_RELEASE;
    check->slot = slot;
    policy_set_unref(check->set); /* the slot's policy may be an older one */
    check->set = policy_set_ref(slot->set);
    check->policy = slot->policy;
}

const char *engine_cost_fault(const struct policy *policy, int64_t cost)
{
    if (cost < 0) return "cost: must not be negative";
    if (cost > EXACT_MAX) return "cost: must not be above 2^53 - 1";
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        const struct limit *limit = &policy->limits[i];
        if (limit_ops(limit)->is_compat && cost > 1) return "cost: a compat policy takes only 0 and 1";
        if (cost <= limit->max_cost || cost > limit->full) continue;
        if (limit->algo == ALGO_CONCURRENCY) return "cost: a concurrency limit takes only 0 and 1";
        return "cost: one check may charge a sliding_log at most 1000";
    }
    return NULL;
}

struct policy_set *engine_policies(struct engine *engine)
{
    return engine->set;
}

void engine_set_policies(struct engine *engine, struct policy_set *set)
{
    policy_set_share_counts(set, engine->set);
    slots_policies_changed(&engine->slots, set);
    policy_set_unref(engine->set);
    engine->set = set;
}

void engine_set_options(struct engine *engine, const struct engine_options *options)
{
    engine->max_inflight = options->max_inflight;
    candidates_set_max(&engine->candidates, options->max_inflight);
    failure_set_local_max_keys(&engine->failure, options->local_max_keys);
    engine->slots.options = options->slots;
}

void engine_flush(struct engine *engine)
{
    if (engine->closing) return;
    store_flush(&engine->store);
    failure_flush(&engine->failure);
}

int64_t engine_next_deadline(const struct engine *engine)
{
    const struct deadline *first = deadlines_first(&engine->deadlines);
    int64_t next_us = reservations_next_us(&engine->reservations), due_us = slots_next_due(&engine->slots);
    if (due_us < next_us) next_us = due_us;
    return first != NULL && first->at_us < next_us ? first->at_us : next_us;
}

/* The deadline is over: an op that was not sent by then never is. */
static void expire(struct check *check)
{
    if (check->op.deadline_us > 0 && check->store_holds && store_withdraw(&check->engine->store, &check->op))
        on_op_done(&check->op, OP_EXPIRED);
    else
        fail(check, REASON_DEADLINE);
}

/* What expires beyond the budget is next in engine_next_deadline(): the loop reads and writes in between. */
void engine_expire(struct engine *engine)
{
    int64_t now_us = engine->clock->mono_us;
    for (int n = 0; n < EXPIRED_PER_TICK; n++) {
        struct deadline *first = deadlines_first(&engine->deadlines);
        if (first == NULL || first->at_us > now_us) break;
        expire(CONTAINER_OF(first, struct check, deadline));
    }

    if (engine->reservations.n > 0) engine_sweep_ended(engine);
    slots_run(&engine->slots);
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

const struct failure *engine_failure(const struct engine *engine)
{
    return &engine->failure;
}

struct slots *engine_slots(struct engine *engine)
{
    return &engine->slots;
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
    engine->closing = true;
    engine->on_closed = on_closed;
    engine->on_closed_arg = arg;
    for (struct deadline *first; (first = deadlines_first(&engine->deadlines)) != NULL;)
        fail(CONTAINER_OF(first, struct check, deadline), REASON_DOWN);
    if (engine->slots.n > 0) store_flush(&engine->store); /* those given back last */
    slots_close(&engine->slots);
    store_close(&engine->store, on_store_closed, engine);
}
