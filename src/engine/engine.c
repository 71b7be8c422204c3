#include "engine/engine.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/exact.h"
#include "base/hash.h"
#include "engine/calls.h"
#include "engine/candidate.h"
#include "engine/engine_counters.h"
#include "engine/failure.h"
#include "engine/reservations.h"
#include "policy/inline_policies.h"

COUNTERS_DEFINE(engine, ENGINE_COUNTERS);

enum {
    EXPIRED_PER_TICK = 256, /* and as many as have come since, so that it never falls behind */
    SWEEPS_PER_TICK = 64,
    SWEEP_RETRY_US = 5000000,
    N_AHEAD = 2,
};

struct engine {
    struct clock *clock; /* not owned */
    struct store store;
    struct policy_set *set;                  /* one reference */
    struct inline_policies *inline_policies; /* not owned; NULL = none */
    uint64_t generation;                     /* how many sets came before this one */
    struct check_pool pool;
    struct deadlines deadlines; /* of every check that waits for the store */
    size_t n_deadlines_set;     /* since engine_expire() ran */
    struct failure failure;
    struct candidates candidates;
    struct calls calls;
    struct reservations reservations;
    uint64_t n_reserved; /* ever */
    struct slots slots;
    uint32_t max_inflight;
    size_t n_orphans;             /* checks that their owner has let go, and whose reply is still to come */
    size_t n_more_parts;          /* of check_alls under way: the parts beyond each one's first */
    struct check *ahead[N_AHEAD]; /* submitted, but not yet with the store, the older one first; NULL = empty; see
                                     shift_ahead() */
    bool closing;
    bool store_closed;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* The end is arithmetic: the store is closed and every check is back. */
static void maybe_closed(struct engine *engine)
{
    if (!engine->store_closed || engine->pool.n_out > 0 || engine->slots.n > 0) return;

    void (*on_closed)(void *arg) = engine->on_closed;
    void *arg = engine->on_closed_arg;
    engine_counters.inflight = 0;
    slots_fini(&engine->slots);
    failure_fini(&engine->failure);
    reservations_fini(&engine->reservations);
    calls_fini(&engine->calls);
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
    reservations_init(&engine->reservations, &engine->calls);
    candidates_init(&engine->candidates, &engine->pool, &engine->store, options->max_inflight, on_candidate_over);
    if (slots_init(&engine->slots, clock, &engine->store, &engine->failure, &engine->calls, set, &options->slots) < 0) {
        mem_free(engine);
        return NULL;
    }
    return engine;
}

/* ---- checks out of the pool ---- */

/* Checks that somebody waits for. Those ahead do not count: they are decided in this tick. */
static size_t n_inflight(const struct engine *engine)
{
    size_t n = engine->pool.n_out + engine->n_more_parts - engine->n_orphans - engine->candidates.n;
    for (size_t i = 0; i < N_AHEAD; i++) n -= engine->ahead[i] != NULL && engine->ahead[i]->state == CHECK_WAITING;
    return n;
}

void engine_update_gauges(const struct engine *engine)
{
    engine_counters.inflight = n_inflight(engine);
}

bool engine_is_full(const struct engine *engine)
{
    bool may_be = engine->pool.n_out + engine->n_more_parts >= engine->max_inflight;
    return may_be && n_inflight(engine) >= engine->max_inflight;
}

struct check *engine_check_new(struct engine *engine)
{
    struct check *check = engine_is_full(engine) || engine->closing ? NULL : check_pool_take(&engine->pool);
    if (check == NULL) {
        engine_counters.overloaded++;
        return NULL;
    }
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
    check_pool_return(&engine->pool, check);
    if (engine->closing) maybe_closed(engine);
}

void check_release(struct check *check)
{
    struct engine *engine = check->engine;
    CHECK(check->state != CHECK_OVER && check->state != CHECK_LEFT);
    if (check->state != CHECK_NEW) engine->n_more_parts -= check->n_parts - 1U;
    if (check->state == CHECK_WAITING) {
        if (check->is_special) candidates_enforced(check);
        deadlines_unset(&engine->deadlines, &check->deadline);
    }
    if (check->op.kind == OP_ACQUIRE && check->state != CHECK_ANSWERED && check->slot != NULL) slot_leave(check->slot);
    if (check->making != NULL) check->making->call.check = NULL;

    check->state = check->state == CHECK_ANSWERED ? CHECK_OVER : CHECK_LEFT;
    if (check->in_store)
        engine->n_orphans++;
    else
        give_back(check);
}

/* ---- the answer ---- */

/* The store is done with an OP_RESERVE, or was not asked. */
static void let_go(struct check *check)
{
    struct reservation *making = check->making;
    check->making = NULL;
    if (making != NULL) reservations_let_go(&check->engine->reservations, making);
}

/* The owner of an OP_RESERVE gets its answer. */
static void note_answered(struct check *check)
{
    struct engine *engine = check->engine;
    const struct decision *decision = &check->parts->decision;
    check->making->call.check = NULL;

    bool is_local = check->error == ERROR_NONE && decision->allowed && decision->source == SOURCE_LOCAL;
    if (is_local && check->reservation.held)
        reservations_made_locally(&engine->reservations, check->making, decision->reason, &check->reservation,
                                  engine->clock->mono_us);
    if (!check->in_store) let_go(check);
}

/* Completes the answer of a special check: unlimited parts, shadow, slots. */
static void complete_special(struct check *check)
{
    const struct policy *policy = check->parts->policy;
    struct decision *decision = &check->parts->decision;
    enum op_kind kind = check->op.kind;

    if (check->n_parts > 1 || policy->unlimited) check_answer_unlimited(check);
    bool decides = (op_is_check(kind) || kind == OP_PEEK) && check->error == ERROR_NONE;
    if (policy->shadow && decides) decision_shadow(decision); /* a check_all has no part in shadow */
    if (check->making != NULL) note_answered(check);
    if (kind != OP_ACQUIRE) return;

    if (check->error == ERROR_NONE && decision->allowed)
        slot_held(check->slot, decision);
    else
        slot_leave(check->slot);
}

/* Do not touch `check` after this: its owner may release it within done. */
static void answer(struct check *check)
{
    CHECK(check->state == CHECK_WAITING);
    deadlines_unset(&check->engine->deadlines, &check->deadline);
    check->state = CHECK_ANSWERED;
    if (check->is_special) complete_special(check);
    if (op_is_check(check->op.kind) && check->error == ERROR_NONE) check_count_decided(check);
    if (check->is_special) candidates_enforced(check);
    check->done(check);
}

static void fail(struct check *check, enum reason reason)
{
    if (check->op.kind != OP_RELEASE) failure_answer(&check->engine->failure, check, reason);
    answer(check);
}

static inline void decided(struct check *check)
{
    if (check->op.source != SOURCE_DENY_CACHE) failure_store_answered(&check->engine->failure);
    check_take_answer(check, &check->op, check->op.source);
    answer(check);
}

/* ---- reservations ---- */

/* The store has made the reservation, or may have. From from_us on its timer runs: a sweep gives its units back at its
 * end. False: there is no space for one more. */
static bool keep_reservation(const struct check *check, int64_t from_us)
{
    if (check->making == NULL) return false;
    return reservations_made(&check->engine->reservations, check->making, &check->reservation, from_us);
}

/* The store has decided `check`: updates timers and counters of reservations, even if nobody waits for the answer. */
static void note_reservation(const struct check *check)
{
    struct engine *engine = check->engine;
    const struct op_reservation *reservation = &check->reservation;

    if (check->op.kind == OP_SETTLE) {
        engine_counters.reservations_settled += !reservation->ended;
        reservations_forget(&engine->reservations, reservation->id);
    } else if (check->op.kind == OP_RESERVE && reservation->held) {
        /* no timer knows when the limits' now is moved */
        bool is_kept = keep_reservation(check, engine->clock->manual ? INT64_MAX : engine->clock->mono_us);
        if (reservation->is_known) return;
        engine_counters.reservations_made++;
        engine_counters.reservations_untimed += !is_kept && !engine->clock->manual;
    }
}

/* A check that the engine itself needs (a sweep, a cancel); no request waits for it. NULL: overloaded. */
static struct check *own_check(struct engine *engine, struct policy_set *set, const struct policy *policy,
                               struct slice key, enum op_kind kind, void (*done)(struct check *check))
{
    struct check *check = engine->closing ? NULL : engine_check_new(engine);
    if (check == NULL) return NULL;

    check_use_set(check, set);
    check->op.kind = kind;
    check->done = done;
    check->parts->policy = policy;
    check->parts->key = key;
    return check;
}

static void on_cancelled(struct check *check)
{
    struct engine *engine = check->engine;
    if (check->error != ERROR_NONE && !engine->closing)
        reservations_cancel_later(&engine->reservations, check->reservation.id,
                                  engine->clock->mono_us + SWEEP_RETRY_US);
    check_release(check);
}

/* Gives a reservation of `part` back at once; if this fails, later. In the store, or (local_reason) in the failure
 * table. `party` asks: so it takes effect in the order of that connection's calls. */
static void cancel(struct engine *engine, struct policy_set *set, const struct part *part,
                   const struct op_reservation *reservation, enum reason local_reason, uint64_t party)
{
    struct check *check = own_check(engine, set, part->policy, part->key, OP_SETTLE, on_cancelled);
    uint64_t id = reservation->id;
    if (check == NULL) goto err_later;

    check->op.party = party;
    check->local_reason = local_reason;
    check->reservation = (struct op_reservation){.id = reservation->id,
                                                 .units = reservation->units,
                                                 .made_us = reservation->made_us,
                                                 .ttl_ms = reservation->ttl_ms};
    if (check_seal(check) == 0) {
        engine_submit(engine, check);
        return;
    }
    check_release(check);

err_later:
    if (local_reason == REASON_NONE)
        reservations_cancel_later(&engine->reservations, id, engine->clock->mono_us + SWEEP_RETRY_US);
}

/* The store is done with an OP_RESERVE. If its owner has left, has abandoned it or has another answer, nobody will
 * settle the reservation: it is cancelled, unless a request id lets the owner ask for it again. If the connection was
 * lost, there may be a reservation: a timer is started for it. */
static void follow_up_reserve(struct check *check, enum op_outcome outcome)
{
    const struct op *op = &check->op;
    const struct part *part = check->parts;
    struct reservation *making = check->making;
    int64_t now_us = check->engine->clock->mono_us;
    bool is_wanted = op->record.len > 0 && (making == NULL || !making->is_abandoned);
    if (outcome == OP_DECIDED && check->reservation.held && check->state != CHECK_WAITING && !is_wanted)
        cancel(check->engine, check_set_of(check, part), part, &check->reservation, REASON_NONE, 0);

    if (outcome != OP_DOWN || !op->sent || check->engine->closing) return;

    /* Redis may still run the batch until runs_until_us, so the reservation may end that much later. */
    if (keep_reservation(check, op->runs_until_us > now_us ? op->runs_until_us : now_us)) making->is_doubtful = true;
}

static void on_swept(struct check *check)
{
    struct engine *engine = check->engine;
    struct reservation *reservation = check->owner;
    if (check->error != ERROR_NONE && !engine->closing)
        reservations_retry(&engine->reservations, reservation, engine->clock->mono_us + SWEEP_RETRY_US);
    else
        reservation_free(reservation);
    check_release(check);
}

/* The policy of that name; *ret_set holds it. NULL: it is gone. */
static const struct policy *find_policy(const struct engine *engine, struct slice name, struct policy_set **ret_set)
{
    char text[256];
    const struct policy *policy = policy_find(engine->set, name);
    *ret_set = engine->set;
    if (policy != NULL || engine->inline_policies == NULL) return policy;
    if (inline_policies_named(engine->inline_policies, name, ret_set, text, sizeof text) != ERROR_NONE) return NULL;
    return (*ret_set)->in_order[0];
}

/* The policy and key of a reservation, as they are now; *ret_set holds the policy. False: the policy is gone or has
 * changed, so it is unknown what the reservation was charged to. */
static bool find_part(const struct engine *engine, const struct reservation *reservation, struct policy_set **ret_set,
                      struct part *ret)
{
    struct slice key = {reservation->key, reservation->key_len};
    const struct policy *policy = find_policy(engine, slice_of(reservation->policy), ret_set);
    if (policy == NULL || !policy_takes_key(policy, key)) return false;
    *ret = (struct part){.policy = policy_for_key(policy, key), .key = key};
    return ret->policy->reserves;
}

/* Gives back a reservation that is due: it has ended, or could not be cancelled before. */
static void sweep(struct engine *engine, struct reservation *reservation)
{
    int64_t now_us = engine->clock->mono_us;
    bool has_ended = !reservation->is_abandoned || reservation->is_doubtful || now_us >= reservation->end_us;
    struct policy_set *set;
    struct part part;
    if (!reservation->is_made || !find_part(engine, reservation, &set, &part)) {
        reservation_free(reservation);
        return;
    }

    struct check *check = own_check(engine, set, part.policy, part.key, has_ended ? OP_SWEEP : OP_SETTLE, on_swept);
    if (check != NULL) {
        check->owner = reservation;
        check->reservation = reservation->own;
        check->reservation.actual = 0;
    }
    if (check != NULL && check_seal(check) == 0) {
        engine_submit(engine, check);
        return;
    }

    if (check != NULL) check_release(check);
    reservations_retry(&engine->reservations, reservation, now_us + SWEEP_RETRY_US);
}

/* ---- what the store is asked ---- */

/* The store is done with the check's op: updates its slot. */
static void note_slot(struct check *check, enum op_outcome outcome)
{
    struct slot *slot = check->slot;
    slot->n_out--;
    if (outcome == OP_DECIDED && check->op.kind == OP_RELEASE) slot->lease = LEASE_NONE;
    if (outcome == OP_DECIDED && check->op.kind == OP_ACQUIRE && check->op.members[0].decision.granted > 0)
        slot_taken(slot);
    slot_settle(slot);
}

static void on_op_done(struct op *op, enum op_outcome outcome)
{
    struct check *check = CONTAINER_OF(op, struct check, op);
    CHECK(check->in_store);
    check->in_store = false;

    if (outcome == OP_DECIDED && check->is_special) note_reservation(check);
    if (op->kind == OP_RESERVE) follow_up_reserve(check, outcome);
    if (op->kind == OP_ACQUIRE && outcome == OP_DOWN && op->sent) slot_doubt(check->slot);
    if (check->slot != NULL) note_slot(check, outcome);
    if (check->state != CHECK_WAITING) let_go(check);

    bool is_reply = outcome == OP_DECIDED || outcome == OP_STORE_ERROR;
    if (check->state == CHECK_ANSWERED || check->state == CHECK_OVER) engine_counters.late_replies += is_reply;
    if (check->state == CHECK_OVER || check->state == CHECK_LEFT) {
        check->engine->n_orphans--;
        give_back(check);
    } else if (check->state == CHECK_WAITING) {
        switch (outcome) {
        case OP_DECIDED: decided(check); break;
        case OP_DOWN: fail(check, REASON_DOWN); break;
        case OP_BREAKER: fail(check, REASON_BREAKER); break;
        case OP_EXPIRED: fail(check, REASON_DEADLINE); break;
        case OP_OVERLOAD: fail(check, REASON_OVERLOAD); break;
        case OP_STORE_ERROR: fail(check, REASON_STORE_ERROR); break;
        }
    }
}

static void ask_store(struct check *check)
{
    struct engine *engine = check->engine;
    struct op *op = &check->op;
    int64_t now_us = engine->clock->mono_us;
    enum submit status = SUBMIT_OVERLOAD;
    if (check->slot != NULL) check->slot->n_out++;
    if (op->kind == OP_RESERVE)
        check->making = reservations_ask(&engine->reservations, check, check->parts->policy->name, check->parts->key);

    /* what was asked for, else the shortest of the policies' */
    uint32_t deadline_ms = check->deadline_ms > 0 ? check->deadline_ms : UINT32_MAX;
    for (uint16_t i = 0; i < check->n_parts && check->deadline_ms == 0; i++) {
        const struct policy *policy = check->parts[i].policy;
        if (!policy->unlimited && policy->deadline_ms < deadline_ms) deadline_ms = policy->deadline_ms;
    }
    int64_t deadline_us = deadline_ms * INT64_C(1000);

    /* ops that give something back are sent even after the deadline; the owner still gets an answer by the deadline */
    bool must_be_sent = op->kind == OP_RELEASE || op->kind == OP_SWEEP || (op->kind == OP_SETTLE && op->party == 0);
    if (!must_be_sent) op->deadline_us = now_us + deadline_us;
    op->done = on_op_done;
    bool is_ready = engine->n_orphans < engine->max_inflight && deadlines_reserve(&engine->deadlines) == 0;
    if (is_ready) status = store_submit(&engine->store, op);

    if (status == SUBMIT_PENDING) {
        check->in_store = true;
        deadlines_set(&engine->deadlines, &check->deadline, now_us, deadline_us);
        engine->n_deadlines_set++;
        return;
    }
    if (check->slot != NULL) note_slot(check, status == SUBMIT_DECIDED ? OP_DECIDED : OP_DOWN);
    if (status == SUBMIT_DECIDED && check->is_special) note_reservation(check);
    switch (status) {
    case SUBMIT_DECIDED: decided(check); break;
    case SUBMIT_DOWN: fail(check, REASON_DOWN); break;
    case SUBMIT_BREAKER: fail(check, REASON_BREAKER); break;
    default: fail(check, REASON_OVERLOAD); break;
    }
}

/*
 * If the memory store has more keys than fit into the processor's cache, a decision mostly waits for the memory of its
 * key. So a check is prefetched, and kept in `ahead` while two more checks are read; all other code sees it as in the
 * store. Checks stay ahead until the end of the tick at most, or until an op of another kind comes, so that ops take
 * effect in their order.
 *
 * Moves `check` (or NULL) in as the newest, and asks the store about the oldest.
 */
static void shift_ahead(struct engine *engine, struct check *check)
{
    struct check *oldest = engine->ahead[0];
    engine->ahead[0] = engine->ahead[1];
    engine->ahead[1] = check;
    if (oldest == NULL) return;

    enum submit status = store_submit(&engine->store, &oldest->op);
    if (status == SUBMIT_DECIDED && oldest->state == CHECK_WAITING) {
        oldest->in_store = false;
        decided(oldest);
    } else {
        on_op_done(&oldest->op, status == SUBMIT_DECIDED ? OP_DECIDED : OP_OVERLOAD);
    }
}

void engine_decide_ahead(struct engine *engine)
{
    while (engine->ahead[0] != NULL || engine->ahead[1] != NULL) shift_ahead(engine, NULL);
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

    note_slot(check, OP_DOWN);
    answer(check);
}

/* Submits a check that is_special (check.h). */
static void submit_special(struct engine *engine, struct check *check)
{
    if (check->op.kind == OP_RESERVE) {
        const struct {
            uint64_t n;
            int64_t at_us;
        } seed = {++engine->n_reserved, engine->clock->mono_us}; /* no other daemon draws this id either */
        check->reservation = (struct op_reservation){
            .id = hash_keyed(&seed, sizeof seed), .units = check->parts->cost, .ttl_ms = check->reservation.ttl_ms};
    }
    if (check->op.kind == OP_SETTLE) check->reservation.ended = true; /* where no store is asked */

    struct check *trials = candidates_prepare(&engine->candidates, check);
    if (check->op.kind == OP_RELEASE)
        submit_release(check);
    else if (check_decide_by_policies(check, engine->store.source, engine->clock->wall_us))
        answer(check);
    else if (check->local_reason != REASON_NONE) {
        failure_answer_locally(&engine->failure, check, check->local_reason);
        answer(check);
    } else if (engine->closing)
        fail(check, REASON_DOWN);
    else
        ask_store(check);

    /* the engine may be gone with the last of them */
    if (trials != NULL) candidates_submit(trials, engine->clock->mono_us, engine->closing);
}

void engine_submit(struct engine *engine, struct check *check)
{
    CHECK(check->engine == engine && check->state == CHECK_NEW && check->done != NULL);
    check->state = CHECK_WAITING;
    engine->n_more_parts += check->n_parts - 1U;
    if (op_is_check(check->op.kind)) engine_counters.checks += check->n_parts;

    if (check->is_special || engine->closing) {
        engine_decide_ahead(engine);
        submit_special(engine, check);
    } else if (engine->store.ops->prefetch != NULL) {
        store_prefetch(&engine->store, &check->op);
        check->in_store = true;
        shift_ahead(engine, check);
    } else {
        ask_store(check);
    }
}

int engine_acquires(struct engine *engine, struct check *check, struct slot_owner *owner)
{
    check->slot = slots_new(&engine->slots, check, owner);
    engine_counters.overloaded += check->slot == NULL;
    if (check->slot == NULL) return -1;

    check->op.slot = check->slot->id;
    check->request_id = (struct slice){NULL, 0}; /* the slot has it */
    return 0;
}

void engine_releases(struct check *check, struct slot *slot)
{
    check->op.kind = OP_RELEASE;
    check->is_special = true;
    check->slot = slot;
    check_use_set(check, slot->set); /* the slot's policy may be an older one */
    check->parts->policy = slot->policy;
}

/* ---- what its connection abandons ---- */

/* The owner gets an error now; what the store still grants is nobody's. */
static void abandon_waiting(struct check *check)
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

static void abandon_slot(struct engine *engine, struct slot *slot, uint64_t party)
{
    struct check *check = engine->closing ? NULL : engine_check_new(engine);
    if (check == NULL) {
        slot_leave(slot);
        return;
    }
    engine_releases(check, slot);
    check->op.party = party;
    check->done = check_release;
    engine_submit(engine, check);
}

/* It is given back wherever it is held. One about which the store's answer is lost comes back at its end. */
static void abandon_reservation(struct engine *engine, struct reservation *reservation, uint64_t party)
{
    enum reason local_reason = reservation->local_reason;
    bool is_made = reservation->is_made && !reservation->is_doubtful;
    struct op_reservation own = reservation->own;
    struct policy_set *set;
    struct part part;
    reservation->is_abandoned = true;
    if (!find_part(engine, reservation, &set, &part)) return;

    if (local_reason != REASON_NONE) {
        own.made_us = reservation->local_made_us;
        cancel(engine, set, &part, &own, local_reason, party);
        own = reservation->own;
    }
    if (is_made) cancel(engine, set, &part, &own, REASON_NONE, party); /* it may be gone with that */
    if (local_reason != REASON_NONE && !is_made) reservations_forget_local(&engine->reservations, reservation);
}

void engine_abandon(struct engine *engine, uint64_t party, uint64_t msgid)
{
    struct call *call = calls_find(&engine->calls, party, msgid);
    if (call == NULL) return;

    struct check *waiting = call->check;
    engine_counters.abandoned++;
    calls_remove(&engine->calls, call);
    if (call->kind == CALL_RESERVE && waiting != NULL)
        CONTAINER_OF(call, struct reservation, call)->is_abandoned = true;

    if (waiting != NULL)
        abandon_waiting(waiting);
    else if (call->kind == CALL_ACQUIRE)
        abandon_slot(engine, CONTAINER_OF(call, struct slot, call), party);
    else
        abandon_reservation(engine, CONTAINER_OF(call, struct reservation, call), party);
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
    engine->candidates.max = options->max_inflight;
    failure_set_local_max_keys(&engine->failure, options->local_max_keys);
    engine->slots.options = options->slots;
}

void engine_flush(struct engine *engine)
{
    if (engine->closing) return;
    engine_decide_ahead(engine);
    store_flush(&engine->store);
    failure_flush(&engine->failure);
    engine_update_gauges(engine);
}

int64_t engine_next_deadline(const struct engine *engine)
{
    const struct deadline *first = deadlines_first(&engine->deadlines);
    int64_t next_us = reservations_next_us(&engine->reservations), due_us = slots_next_due(&engine->slots);
    if (due_us < next_us) next_us = due_us;
    return first != NULL && first->at_us < next_us ? first->at_us : next_us;
}

/* What exceeds the budget of a tick is due again in engine_next_deadline(), so that the loop can read and write in
 * between. */
void engine_expire(struct engine *engine)
{
    int64_t now_us = engine->clock->mono_us;
    size_t most = EXPIRED_PER_TICK + engine->n_deadlines_set;
    engine->n_deadlines_set = 0;
    for (size_t n = 0; n < most; n++) {
        struct deadline *first = deadlines_first(&engine->deadlines);
        if (first == NULL || first->at_us > now_us) break;

        struct check *check = CONTAINER_OF(first, struct check, deadline);
        struct op *op = &check->op;
        if (op->deadline_us > 0 && check->in_store && store_withdraw(&engine->store, op))
            on_op_done(op, OP_EXPIRED); /* it was not sent by then, and never will be */
        else
            fail(check, REASON_DEADLINE);
    }

    for (int n = 0; n < SWEEPS_PER_TICK && engine->reservations.n > 0 && !engine->closing; n++) {
        struct reservation *ended = reservations_take(&engine->reservations, now_us);
        if (ended == NULL) break;
        sweep(engine, ended);
    }
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

const char *engine_store_error(const struct engine *engine)
{
    return store_error_text(&engine->store);
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
    engine_decide_ahead(engine);
    engine->closing = true;
    engine->on_closed = on_closed;
    engine->on_closed_arg = arg;

    for (struct deadline *first; (first = deadlines_first(&engine->deadlines)) != NULL;)
        fail(CONTAINER_OF(first, struct check, deadline), REASON_DOWN);
    if (engine->slots.n > 0) store_flush(&engine->store); /* those given back last */
    slots_close(&engine->slots);
    store_close(&engine->store, on_store_closed, engine);
}
