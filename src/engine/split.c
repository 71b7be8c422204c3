/* split.c: parts of a check_all, their answers, and refunds if the whole is denied, for engine.c. */
#include "engine/split.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "engine/engine_counters.h"

struct split_part {
    struct split *split;
    struct check *check; /* the first of its check_all */
    uint32_t place;
    bool is_allowed;    /* its answer */
    bool is_decided;    /* by the store */
    enum reason reason; /* else why not */
    bool is_charged;    /* in the store, as is known */
    bool is_doubtful;   /* it may be, and this will not be known */
    bool is_local;      /* in the failure table, at local_us of its time */
    int64_t local_us;
};

struct split {
    struct splits *splits;
    struct check *whole;                /* NULL: it is answered, or its owner has left */
    struct check *asked[CHECK_ALL_MAX]; /* for each check of the whole the one of a part; NULL: no store is asked */
    struct split_part parts[CHECK_ALL_MAX];
    uint8_t n_parts;
    uint8_t n_waiting; /* parts without an answer */
    uint8_t n_out;     /* parts that are not back in the pool */
    bool is_over;      /* the whole's answer is known */
    bool gives_back;   /* and it does not allow */
};

/* ---- parts ---- */

bool splits_needed(const struct store *store, const struct check *check)
{
    const struct op *op = &check->op;
    if (check->n_all == 1 || !store_has_places(store)) return false;

    for (uint16_t i = 1; i < op->n_members; i++)
        if (store_place_of(store, &op->members[i]) != store_place_of(store, &op->members[0])) return true;
    return false;
}

/* Back to the pool; the last one ends the split. Nothing may be touched after this: the engine may be gone. */
static void return_part(struct split_part *part)
{
    struct check *check = part->check;
    if (--part->split->n_out == 0) mem_free(part->split);
    errand_end(check);
}

/* A check that asks the store what `one` of the whole asks. */
static struct check *new_check(struct splits *splits, const struct check *whole, const struct check *one)
{
    struct check *check = errand_new(splits->errands, ERRAND_PART, whole->op.kind, one->set, whole->op.client);
    if (check == NULL) return NULL;

    check->op.is_all = true;
    check->is_part = true;
    check->plan = one->plan;
    check->key = one->key;
    check->cost = one->cost;
    check->has_max_wait = one->has_max_wait;
    check->max_wait_us = one->max_wait_us;
    return check;
}

int split_make(struct splits *splits, struct check *whole)
{
    struct split *split = mem_zalloc(sizeof *split);
    if (split == NULL) return -1;
    CHECK(whole->op.record.len == 0 && op_is_check(whole->op.kind));

    split->splits = splits;
    split->whole = whole;
    size_t i = 0;
    CHECK_FOREACH (one, whole) {
        struct check **asked = &split->asked[i++];
        if (one->n_limits == 0) continue;
        *asked = new_check(splits, whole, one);
        if (*asked == NULL) goto err_drop_parts;

        uint32_t place = store_place_of(splits->errands->store, &whole->op.members[one->member_index[0]]);
        struct split_part *part = split->parts; /* all counters of one policy and key lie in one */
        while (part < split->parts + split->n_parts && part->place != place) part++;
        if (part->check != NULL) {
            check_join(part->check, *asked);
            continue;
        }
        *part = (struct split_part){.split = split, .check = *asked, .place = place};
        (*asked)->owner = part;
        split->n_parts++;
    }
    for (uint8_t k = 0; k < split->n_parts; k++)
        if (check_seal(split->parts[k].check) < 0) goto err_drop_parts;

    split->n_waiting = split->n_out = split->n_parts;
    whole->split = split;
    whole->is_split = true;
    return 0;

err_drop_parts:
    for (uint8_t k = 0; k < split->n_parts; k++) errand_end(split->parts[k].check);
    mem_free(split);
    return -1;
}

/* ---- giving back ---- */

/* What of the part's charge can be taken back; returns how many limits that are. */
static uint16_t copy_charged(const struct check *check, struct op_member *to)
{
    const struct op *op = &check->op;
    uint16_t n = 0;
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct limit *limit = op->members[i].limit;
        if (op->members[i].cost == 0 || limit->count_denied || !limit_ops(limit)->refunds) continue;
        to[n] = op->members[i]; /* in place, or ahead of what is still to be read */
        to[n++].reservations_key = (struct slice){NULL, 0};
    }
    return n;
}

static void count_refund(bool is_done)
{
    engine_counters.split_refunds += is_done;
    engine_counters.split_refunds_lost += !is_done;
}

static void on_refund_done(struct check *check, enum op_outcome outcome)
{
    struct split_part *part = check->owner;
    part->split->splits->n_refunds--;
    count_refund(outcome == OP_DECIDED);
    return_part(part);
}

/* The op of the part becomes its refund. False: it has nothing to give back. */
static bool refund(struct split_part *part)
{
    struct splits *splits = part->split->splits;
    struct check *check = part->check;
    struct op *op = &check->op;
    uint16_t n = copy_charged(check, op->members);
    if (n == 0) return false;

    check->reservation = (struct op_reservation){.made_us = op->now_us};
    *op = (struct op){.kind = OP_REFUND,
                      .n_members = n,
                      .members = op->members,
                      .reservation = &check->reservation,
                      .client = op->client,
                      .is_bound = true,
                      .server = op->server};
    list_init(&op->link);
    splits->n_refunds++;
    if (errand_submit(check, on_refund_done)) *splits->work += op_units(op);
    return true;
}

/* The whole has its answer, and the store is done with the part's check. */
static void end_part(struct split_part *part)
{
    bool gives_back = part->split->gives_back;
    if (gives_back && part->is_doubtful) count_refund(false);
    if (gives_back && part->is_charged && refund(part)) return;
    return_part(part);
}

/* ---- the answer ---- */

/*
 * Other limits deny the whole: the part's answer is that of a check that was not charged, as in one script. A limit with
 * count_denied was, and may now deny the next check. A log's reply has no wait of a check that it admitted: then it is the
 * longest one.
 */
static void answer_uncharged(struct split_part *part)
{
    struct check *check = part->check;
    struct op *op = &check->op;
    for (uint16_t i = 0; i < op->n_members && part->is_decided; i++) {
        struct op_member *member = &op->members[i];
        struct view view;
        limit_here(&view, member->limit, member->key, member->max_wait_us, op->now_us);
        limit_report(&view, member->used, member->extra, member->limit->window_us);
        limit_decide(&view, member->cost, true, false, &member->decision);
    }
    if (part->is_decided) check_take_answer(check, op, op->source);
    CHECK_FOREACH (one, check) {
        one->decision.granted = 0;
        one->decision.delay_ms = 0;
    }
}

/* Every part has its answer. */
static void end_split(struct split *split)
{
    struct splits *splits = split->splits;
    struct check *whole = split->whole;
    CHECK(split->n_waiting == 0 && !split->is_over);
    split->is_over = true;
    for (uint8_t k = 0; k < split->n_parts; k++) split->gives_back |= !split->parts[k].is_allowed;

    for (uint8_t k = 0; k < split->n_parts; k++) {
        struct split_part *part = &split->parts[k];
        if (part->is_local && !split->gives_back) failure_keep(splits->failure, part->check, part->reason);

        if (part->is_local && split->gives_back) {
            /* In the failure table, while the part's op may be the store's. */
            struct op_member members[POLICY_LIMITS_MAX];
            struct op_reservation charge = {.made_us = part->local_us};
            struct op op = {.kind = OP_REFUND, .members = members, .reservation = &charge};
            op.n_members = copy_charged(part->check, members);
            if (op.n_members > 0) failure_give_back(part->split->splits->failure, &op);
        }

        if (part->is_allowed && split->gives_back) answer_uncharged(part);
    }
    if (whole != NULL) {
        size_t n = 0;
        CHECK_FOREACH (one, whole) {
            const struct check *asked = split->asked[n++];
            if (asked == NULL) continue;
            one->decision = asked->decision;
            for (uint8_t i = 0; i < one->n_limits; i++) /* each limit's own, for the log */
                whole->op.members[one->member_index[i]].decision = *check_decision_of(asked, i);
        }
        for (uint8_t k = 0; k < split->n_parts && whole->error == ERROR_NONE; k++) {
            whole->error = split->parts[k].check->error;
            whole->error_message = split->parts[k].check->error_message;
        }

        whole->is_split = false;
        split->whole = NULL;
    }

    for (uint8_t k = 0, n = split->n_parts; k < n; k++) /* with the last one the split may be gone */
        if (!split->parts[k].check->in_store) end_part(&split->parts[k]);
    if (whole != NULL) splits->answer(whole);
}

/* The part's owner waits, or the part is the store's alone. */
static void take_answer(struct split_part *part, enum reason reason)
{
    struct splits *splits = part->split->splits;
    struct check *check = part->check;
    check->state = CHECK_ANSWERED;
    check->op.is_awaited = false;
    part->split->n_waiting--;
    part->is_decided = reason == REASON_NONE;
    part->reason = reason;

    if (part->is_decided) {
        failure_store_answered(splits->failure);
        check_take_answer(check, &check->op, check->op.source);
    } else if (part->split->whole != NULL) {
        *splits->work += op_units(&check->op);
        failure_answer(splits->failure, check, reason);
        if (check->error != ERROR_NONE) return;
    } else {
        return; /* no owner needs a failure answer */
    }

    part->is_allowed = true;
    CHECK_FOREACH (one, check) part->is_allowed &= one->decision.allowed;
    part->is_local = part->is_allowed && check->decision.source == SOURCE_LOCAL;
    part->local_us = splits->failure->local_clock.wall_us;
}

/* The store is done with a part's check, or has refused it. */
static void on_done(struct check *check, enum op_outcome outcome)
{
    struct split_part *part = check->owner;
    struct split *split = part->split;
    const struct op *op = &check->op;
    if (outcome == OP_DECIDED)
        for (uint16_t i = 0; i < op->n_members; i++) part->is_charged |= op->members[i].decision.granted > 0;
    part->is_doubtful = (outcome == OP_DOWN && op->sent) || (outcome == OP_STORE_ERROR && op->is_doubtful);

    if (check->state == CHECK_WAITING) {
        take_answer(part, failure_reason(outcome));
    } else {
        engine_counters.late_replies += outcome == OP_DECIDED || outcome == OP_STORE_ERROR;
        if (check->may_merge_back) failure_store_done(split->splits->failure, check, outcome);
    }

    if (split->is_over)
        end_part(part);
    else if (split->n_waiting == 0)
        end_split(split);
}

void split_submit(struct check *whole, int64_t deadline_us)
{
    struct split *split = whole->split;
    uint32_t *work = split->splits->work;
    for (uint8_t k = 0, n = split->n_parts; k < n; k++) { /* with the answer of the last one the split may be gone */
        struct check *check = split->parts[k].check;
        check->state = CHECK_WAITING;
        check->op.deadline_us = deadline_us;
        check->op.is_awaited = true;
        if (errand_submit(check, on_done)) *work += op_units(&check->op);
    }
}

void split_fail(struct check *whole, enum reason reason)
{
    struct split *split = whole->split;
    for (uint8_t k = 0; k < split->n_parts; k++) {
        struct check *check = split->parts[k].check;
        if (check->state != CHECK_WAITING) continue;
        if (check->in_store && store_withdraw(split->splits->errands->store, &check->op)) check->in_store = false;
        take_answer(&split->parts[k], reason);
    }
    end_split(split);
}

void split_leave(struct check *whole)
{
    struct split *split = whole->split;
    for (uint8_t k = 0; k < split->n_parts; k++) split->parts[k].check->op.is_awaited = false;
    split->whole = NULL;
    whole->is_split = false;
}
