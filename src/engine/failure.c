/* failure.c: failure answers, and the table that `local` decides by, for engine.c, split.c and slots.c. */
#include "engine/failure.h"

#include "engine/engine_counters.h"
#include "engine/engine_private.h"

enum {
    DENY_RETRY_MS = 1000,
    CLOSE_US = 1000000,
    IN_ROW = 3,
    LOCAL_QUIET_US = 10000000, /* without a failure answer for this time the store has recovered */
    LOCAL_LIFE_US = 60000000,  /* the least time between two clears: each hands out the limits anew */
};

void failure_init(struct failure *failure, const struct clock *clock, struct merge_back *merge_back,
                  uint64_t local_max_keys)
{
    *failure = (struct failure){.clock = clock, .merge_back = merge_back, .local_max_keys = local_max_keys};
}

void failure_fini(struct failure *failure)
{
    if (failure->local != NULL) memory_store_free(failure->local);
    failure->local = NULL;
}

void failure_set_local_max_keys(struct failure *failure, uint64_t max_keys)
{
    failure->local_max_keys = failure->merge_back->max = max_keys;
    if (failure->local != NULL) memory_store_set_max_keys(failure->local, max_keys);
}

/* The time by which an outage is judged: a test's outages last as long as its clock says. */
static int64_t now_of(const struct failure *failure)
{
    return failure->clock->manual ? failure->clock->wall_us : failure->clock->mono_us;
}

static void answer_error(struct check *check, enum reason reason)
{
    static const struct {
        const char *unsent, *sent;
    } messages[] = {
        [REASON_DOWN] = {"the store is away; it was not sent", "the connection to the store was lost; it may be done"},
        [REASON_BREAKER] = {.unsent = "the store is in trouble; it was not sent"},
        [REASON_DEADLINE] = {"the store is too busy; it was not sent",
                             "the store did not answer in time; it may be done"},
        [REASON_OVERLOAD] =
            {.unsent = "too much waits for the store already (store.redis.max_inflight, store.redis.max_output); "
                       "it was not sent"},
        [REASON_STORE_ERROR] = {.sent = "the store answered with an error, or a key holds a value of another type"},
    };
    const char *sent = messages[reason].sent, *unsent = messages[reason].unsent;

    engine_counters.failure_error++;
    check->error = ERROR_STORE_UNAVAILABLE;
    check->error_message = sent != NULL && (check->op.sent || unsent == NULL) ? sent : unsent;
}

/* In a test's daemon: any other answer would be a wrong figure. */
static void answer_full(struct check *check)
{
    check->error = ERROR_OVERLOADED;
    check->error_message = "the memory store is full, and a test's forgets nothing; raise store.memory.max_keys or "
                           "max_bytes, or let the test use fewer keys at the same time";
}

/* A cost of 0 charges nothing and is always allowed, also here. */
static void answer_fixed(struct check *check, enum source source, enum reason reason)
{
    CHECK_FOREACH (one, check) {
        bool allowed = source == SOURCE_ALLOW || one->cost == 0;
        int64_t limit = plan_capacity(one->plan);
        for (uint16_t i = 0; check->op.kind == OP_ACQUIRE && i < one->plan->n_limits; i++) /* of all: it takes one */
            if (one->plan->limits[i].full < limit) limit = one->plan->limits[i].full;

        one->decision = (struct decision){
            .allowed = allowed,
            .limit = limit,
            .retry_after_ms = allowed ? 0 : DENY_RETRY_MS,
            .granted = allowed ? check_asked(one) : 0,
            .source = source,
            .reason = reason,
            .policy_version = one->plan->policy->version,
        };
    }
}

/* The table's time goes on from the host's as it was when the table was last empty. */
static void update_local_clock(struct failure *failure)
{
    struct clock *local = &failure->local_clock;
    if (memory_store_n_keys(failure->local) == 0 || failure->clock->manual) *local = *failure->clock;
    local->wall_us += failure->clock->mono_us - local->mono_us;
    local->mono_us = failure->clock->mono_us;
}

static int64_t share_of(const struct policy *policy, uint32_t n_daemons)
{
    if (policy->local_share != LIVE_SHARE) return policy->local_share;
    return n_daemons > 1 ? n_daemons : 1;
}

int64_t failure_share(const struct failure *failure, const struct policy *policy)
{
    return share_of(policy, failure->n_daemons);
}

/* The policy's part of the table begins anew, if the store has decided and it had no failure answer for that long. */
static void begin_anew(struct failure *failure, struct policy_counts *counts)
{
    int64_t now_us = now_of(failure);
    bool is_quiet = counts->failed_us > 0 && now_us >= counts->failed_us + LOCAL_QUIET_US;
    if (!is_quiet || !policy_counts_recovered(counts)) return;
    if (now_us < counts->anew_from_us || now_us < failure->anew_from_us) return;
    counts->local_epoch++;
    counts->anew_from_us = failure->clear_from_us = now_us + LOCAL_LIFE_US;
}

/* A question to the table. The members of the op that it is about may still be the store's, and a share of a limit is a
 * limit of its own. */
struct local_op {
    struct op op;
    struct op_member members[POLICY_LIMITS_MAX];
    struct limit limits[POLICY_LIMITS_MAX]; /* of those members that are not asked by their own */
};

static enum submit ask_table(struct failure *failure, const struct op *op, uint32_t n_daemons, struct local_op *ret)
{
    ret->op = *op;
    ret->op.members = ret->members;
    list_init(&ret->op.link);
    memcpy(ret->members, op->members, op->n_members * sizeof ret->members[0]);
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct limit *limit = op->members[i].limit;
        int64_t share = share_of(limit->policy, n_daemons);
        uint16_t epoch = limit->policy->counts->local_epoch;
        if (share <= 1 && epoch == 0) continue;
        limit_share(&ret->limits[i], limit, share);
        ret->limits[i].epoch = epoch;
        ret->members[i].limit = &ret->limits[i];
    }

    update_local_clock(failure);
    struct store local = memory_store_handle(failure->local);
    return store_submit(&local, &ret->op);
}

/* Did the op, which the store has decided, charge anything? A denied one is charged to limits that count denials. */
static bool is_charged(const struct op *op)
{
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct op_member *member = &op->members[i];
        if (member->decision.granted > 0 || (member->limit->count_denied && member->cost > 0)) return true;
    }
    return false;
}

/* Has the store charged the check, or may it have? A reservation that no request id asks for again is cancelled. */
static bool may_be_charged(const struct check *check, enum op_outcome outcome)
{
    const struct op *op = &check->op;
    if (outcome == OP_DOWN) return op->sent;
    if (outcome == OP_STORE_ERROR) return op->is_doubtful;
    bool is_cancelled = op->kind == OP_RESERVE && op->reservation->held && op->record.len == 0;
    return outcome == OP_DECIDED && !is_cancelled && is_charged(op);
}

static bool merges_back(const struct check *check)
{
    bool any = false;
    CHECK_FOREACH (one, check) any |= one->plan->merges_back;
    return any;
}

/* What the table has admitted is to be charged in the store afterwards. */
static void note_admitted(struct failure *failure, struct check *check, enum reason reason)
{
    check->may_merge_back = check->in_store;
    enum op_outcome outcome = reason == REASON_DOWN          ? OP_DOWN
                              : reason == REASON_STORE_ERROR ? OP_STORE_ERROR
                                                             : OP_EXPIRED; /* it was not sent */
    if (!check->in_store && !may_be_charged(check, outcome))
        merge_back_add(failure->merge_back, check, failure->n_daemons);
}

/* The same, or what it has settled. */
static void note_unmerged(struct failure *failure, struct check *check, const struct op *local, enum reason reason)
{
    if (!merges_back(check)) return;

    if (local->kind == OP_SETTLE) {
        int64_t units = local->reservation->charged - local->reservation->refunded;
        merge_back_settled(failure->merge_back, check, units, failure->n_daemons);
    } else if (op_is_check(local->kind) && !local->is_known) {
        note_admitted(failure, check, reason);
    }
}

void failure_keep(struct failure *failure, struct check *part, enum reason reason)
{
    if (merges_back(part)) note_admitted(failure, part, reason);
}

void failure_give_back(struct failure *failure, const struct op *op)
{
    struct local_op local;
    if (failure->local != NULL) ask_table(failure, op, failure->n_daemons, &local);
}

void failure_store_done(struct failure *failure, struct check *check, enum op_outcome outcome)
{
    check->may_merge_back = false;
    if (!may_be_charged(check, outcome)) merge_back_add(failure->merge_back, check, failure->n_daemons);
}

int64_t failure_spent(struct failure *failure, const struct plan *plan, const struct unmerged *counter)
{
    struct slice key = unmerged_key(counter);
    struct op_member members[POLICY_LIMITS_MAX] = {0};
    for (uint16_t i = 0; i < plan->n_limits; i++)
        members[i] = (struct op_member){.limit = &plan->limits[i], .key = key, .reservations_key = key};

    /* All limits, so that reservations that have ended are given back. Of shared limits only this id is known. */
    struct op op = {.kind = OP_PEEK, .n_members = plan->n_limits, .members = members};
    size_t at = counter->limit_no;
    if (plan->shares) {
        members[0] = (struct op_member){.limit = &plan->limits[at], .key = unmerged_id(counter)};
        op.n_members = 1;
        at = 0;
    }

    struct local_op local;
    if (failure->local == NULL || ask_table(failure, &op, counter->n_daemons, &local) != SUBMIT_DECIDED) return 0;
    return local.members[at].limit->full - local.members[at].decision.remaining;
}

void failure_answer_locally(struct failure *failure, struct check *check, enum reason reason)
{
    struct memory_options options = {.max_keys = failure->local_max_keys,
                                     .sweep = failure->is_exact || !failure->clock->manual,
                                     .exact = failure->is_exact};
    struct local_op local;
    struct op op = check->op;
    if (check->asks_lease) op.at_most = 0; /* its own units alone */
    if (failure->local == NULL) failure->local = memory_store_new(&failure->local_clock, &options);
    if (failure->local == NULL || ask_table(failure, &op, failure->n_daemons, &local) != SUBMIT_DECIDED)
        goto err_no_memory;

    /* Each member was asked by its share, and its answer outlives that: it is of the limit. */
    for (uint16_t i = 0; i < local.op.n_members; i++) {
        struct op_member *member = &local.members[i];
        const struct limit *limit = check->op.members[i].limit;
        bool is_above_share = member->cost > member->limit->full && member->cost <= limit->full;
        if (is_above_share && !member->decision.allowed) member->decision.retry_after_ms = DENY_RETRY_MS;
        member->decision.of = limit;
        member->limit = limit;
    }

    engine_counters.failure_local++;
    check_take_answer(check, &local.op, SOURCE_LOCAL);
    CHECK_FOREACH (one, check) one->decision.reason = reason;

    /* Each limit's own answer, for the log; and for `explain` what the table has of it. */
    for (uint16_t i = 0; i < local.op.n_members; i++) {
        struct op_member *member = &check->op.members[i];
        member->decision = local.members[i].decision;
        if (op.kind != OP_PEEK) continue;
        check->op.now_us = local.op.now_us;
        member->used = local.members[i].used;
        member->extra = local.members[i].extra;
    }

    if (op.kind == OP_RESET) {
        check->decision.source = SOURCE_LOCAL;
        merge_back_forget(failure->merge_back, check);
    }
    if (!check->is_part) note_unmerged(failure, check, &local.op, reason);
    return;

err_no_memory:
    engine_counters.overloaded++;
    if (failure->is_exact) {
        answer_full(check);
        return;
    }
    if (check->plan->shadow) {
        answer_fixed(check, SOURCE_ALLOW, reason);
        return;
    }
    check->error = ERROR_OVERLOADED;
    check->error_message = "memory is short";
}

/* The table knows the count of what `local` decides, and can forget it. What the store has refused is an error, which
 * names the reason. A reset that was sent may be done. */
static bool is_answered_locally(const struct check *check, enum reason reason)
{
    enum op_kind kind = check->op.kind;
    bool is_away = reason == REASON_DOWN || reason == REASON_BREAKER || reason == REASON_DEADLINE;
    if (!is_away || check->plan->on_failure != ON_FAILURE_LOCAL || check->is_split) return false;
    if (kind == OP_PEEK) return !check->plan->policy->is_candidate; /* the table has no counts of candidates */
    return kind == OP_RESET && !check->op.sent;
}

/* The strictest policy of a check_all decides for all of its members. */
static enum on_failure on_failure_of(const struct check *check, enum reason reason)
{
    static const int strictness[N_ON_FAILURE] = {
#define ON_FAILURE(ID, word, strictness_, ...) [ON_FAILURE_##ID] = strictness_,
#include "policy/on_failure.def"
#undef ON_FAILURE
    };
    if (!op_is_check(check->op.kind)) return is_answered_locally(check, reason) ? ON_FAILURE_LOCAL : ON_FAILURE_ERROR;

    enum on_failure strictest = ON_FAILURE_ALLOW;
    CHECK_FOREACH (one, check)
        if (strictness[one->plan->on_failure] > strictness[strictest]) strictest = one->plan->on_failure;
    return strictest;
}

/* Counts how often each of the check's policies has failed in a row. True: one has failed often. */
static bool count_in_row(const struct check *check, int64_t now_us)
{
    bool is_often = false, is_decision = op_is_check(check->op.kind) && check->error == ERROR_NONE;
    CHECK_FOREACH (one, check) {
        struct policy_counts *counts = one->plan->policy->counts;
        if (policy_counts_recovered(counts)) {
            counts->decided_before = policy_counts_allowed(counts) + policy_counts_denied(counts) - counts->failed;
            counts->n_in_row = 0;
        }
        counts->n_in_row++;
        counts->failed_us = now_us;
        counts->failed += is_decision;
        is_often |= counts->n_in_row >= IN_ROW;
    }
    return is_often;
}

void failure_answer(struct failure *failure, struct check *check, enum reason reason)
{
    int64_t now_us = now_of(failure);
    bool is_close = failure->last_us > 0 && now_us - failure->last_us <= CLOSE_US;
    failure->last_us = now_us;
    if (failure->is_exact && reason == REASON_OVERLOAD) {
        answer_full(check);
        return;
    }

    switch (reason) {
    case REASON_BREAKER: engine_counters.failure_breaker++; break;
    case REASON_DEADLINE: engine_counters.failure_deadline++; break;
    case REASON_OVERLOAD: engine_counters.failure_overload++; break;
    case REASON_STORE_ERROR: engine_counters.failure_store_error++; break;
    default: engine_counters.failure_down++; break;
    }

    switch (on_failure_of(check, reason)) {
    case ON_FAILURE_ALLOW:
        engine_counters.failure_allow++;
        answer_fixed(check, SOURCE_ALLOW, reason);
        break;
    case ON_FAILURE_DENY:
        engine_counters.failure_deny++;
        answer_fixed(check, SOURCE_DENY, reason);
        break;
    case ON_FAILURE_LOCAL:
        CHECK_FOREACH (one, check) begin_anew(failure, one->plan->policy->counts);
        failure_answer_locally(failure, check, reason);
        break;
    case ON_FAILURE_ERROR: answer_error(check, reason); break;
    case N_ON_FAILURE: CHECK(false);
    }

    if (count_in_row(check, now_us) || is_close) failure->n_repeated++;
}

void failure_store_answered(struct failure *failure)
{
    int64_t now_us = now_of(failure);
    failure->decided_us = now_us;
    if (failure->local == NULL || memory_store_n_keys(failure->local) == 0) return;
    if (now_us < failure->last_us + LOCAL_QUIET_US || now_us < failure->clear_from_us) return;

    memory_store_clear(failure->local);
    failure->clear_from_us = failure->anew_from_us = now_us + LOCAL_LIFE_US;
}

bool failure_touch_slot(struct failure *failure, struct op *op)
{
    bool found = true;
    if (failure->local == NULL) return false;

    struct local_op local;
    ask_table(failure, op, failure->n_daemons, &local);
    for (uint16_t i = 0; i < op->n_members; i++) found &= local.members[i].found;
    return found;
}

void failure_forget(struct failure *failure, const struct policy_set *set)
{
    if (failure->local != NULL) memory_store_free(failure->local);
    failure->local = NULL;
    failure->decided_us = failure->last_us = failure->clear_from_us = failure->anew_from_us = 0;
    merge_back_forget_all(failure->merge_back);

    for (size_t i = 0; i < set->n; i++) {
        struct policy_counts *counts = set->in_order[i]->counts;
        counts->decided_before = policy_counts_allowed(counts) + policy_counts_denied(counts) - counts->failed;
        counts->failed_us = counts->anew_from_us = 0;
        counts->n_in_row = 0;
    }
}

void failure_flush(struct failure *failure)
{
    if (failure->local == NULL) return;

    update_local_clock(failure);
    struct store local = memory_store_handle(failure->local);
    store_flush(&local);
}
