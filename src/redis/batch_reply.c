/*
 * batch_reply.c: the script's reply as every op's answer; lua/batch.lua draws the format.
 *
 * The script says which states it saw; here the same decisions are made again by the same arithmetic. First the whole
 * reply is read and checked; nothing of an op is touched before that. Then the ops are answered in the order they were
 * added. A state that no script leaves makes its ops OP_STORE_ERROR: the server lies, and so would every answer that
 * follows from it.
 */
#include "base/assert.h"
#include "base/exact.h"
#include "redis/batch_private.h"
#include "redis/counters.h"

/* In place of a state; the last two only if keys are not declared. */
enum {
    FOREIGN = -1,
    AWAY = -2,
    BARRED = -3,
};

enum { TOO_LATE = -2 };

#define REPLY_MAX (EXACT_MAX + 1) /* of the script's integers: 2^53 is exact, too */

/* ---- the reply, read and checked ---- */

/* How the script found a reservation. */
enum settled { SETTLED_NOW, SETTLED_BEFORE, SETTLED_ENDED, SETTLED_TOO_LATE };
enum again { AGAIN_NOT, AGAIN_AS_THEN, AGAIN_CHANGED }; /* was it admitted before? */

/* What the script said of an op that is no plain check. Large: read_reply() does not zero it. */
struct tuple {
    int64_t again, again_us, settled, back;
    int64_t id_low, id_high, ttl_ms; /* of the reservation that was made then */
    struct batch_seen seen[BATCH_KEYS_MAX];
};

struct replay {
    const struct batch *batch;
    const int64_t *reply;
    const int64_t *at; /* what is read next */
    int64_t now_us;
    struct view *views; /* by limit; of whichever state is looked at */
    uint64_t foreign;   /* of each key a bit: it has a foreign type */
    uint64_t removed;   /* of each key a bit: this is answered */
    int64_t least;      /* of FOREIGN, AWAY and BARRED what it may have */
};

static bool in_range(int64_t value, int64_t least, int64_t most)
{
    return value >= least && value <= most;
}

/* The next integer. 0, or -1 if it is not between `least` and `most`. */
static int take_int(struct replay *replay, int64_t least, int64_t most, int64_t *ret)
{
    if (!in_range(*replay->at, least, most)) return -1;
    *ret = *replay->at++;
    return 0;
}

/* The i-th limit of a script op with the state that was seen of it; until the next one of that limit is looked at. */
static inline struct view *view_seen(struct replay *replay, const struct script_op *asked, uint16_t i,
                                     const struct batch_seen *seen)
{
    struct view *view = &replay->views[batch_key_of(replay->batch, asked, i)->limit_no];
    limit_report(view, seen->used, seen->extra, seen->wait);
    if (limit_has_penalty(view->limit)) limit_pause(view, seen->pause);
    return view;
}

static uint64_t key_bit(uint32_t key)
{
    _Static_assert(BATCH_KEYS_MAX == 64, "a bit for each");
    return UINT64_C(1) << key;
}

/* The functions that take or read return 0, or -1 if the integers make no sense. */

/* What is no state. */
static void note_missing(struct replay *replay, struct script_op *asked, uint16_t i, int64_t used)
{
    asked->is_foreign = true;
    if (used == FOREIGN) replay->foreign |= key_bit(asked->op->members[i].batch_key);
    if (used == BARRED) asked->undone = OP_BARRED;
    if (used == AWAY && asked->undone == OP_DECIDED) asked->undone = OP_AWAY;
}

/* Every state that a reply reports enters here. check_plausible() examines it once its time is known. */
static int take_state(struct replay *replay, struct script_op *asked, uint16_t i, struct batch_seen *seen)
{
    *seen = (struct batch_seen){0};
    if (take_int(replay, replay->least, REPLY_MAX, &seen->used) < 0) return -1;
    if (limit_ops(asked->op->members[i].limit)->has_extra && take_int(replay, 0, REPLY_MAX, &seen->extra) < 0)
        return -1;
    if (seen->used < 0) note_missing(replay, asked, i, seen->used);
    return 0;
}

/* The pause of a penalty, which is examined at once. */
static int take_pause(struct replay *replay, struct script_op *asked, const struct limit *limit,
                      struct batch_seen *seen)
{
    if (take_int(replay, 0, UINT32_MAX, &seen->pause.level) < 0) return -1;
    if (take_int(replay, 0, REPLY_MAX, &seen->pause.end_ms) < 0) return -1;
    if (!penalty_plausible(&limit->penalty, &seen->pause, replay->now_us / 1000)) asked->is_implausible = true;
    return 0;
}

/* How many times the costs fit, of `most`. */
static int64_t fit_of_seen(struct replay *replay, const struct script_op *asked, const struct op *op,
                           const struct batch_seen *seen, int64_t most)
{
    for (uint16_t i = 0; i < op->n_members; i++)
        most = limit_fits(view_seen(replay, asked, i, &seen[i]), op->members[i].cost, most);
    return most;
}

/* A log says how long to wait if not everything fits, and only then. */
static int take_wait(struct replay *replay, const struct script_op *asked, uint16_t i, bool is_known,
                     struct batch_seen *seen)
{
    const struct op_member *member = &asked->op->members[i];
    int64_t most = asked->count > 0 ? asked->count : 1;
    bool is_denied =
        !asked->is_foreign && !is_known && member->cost > 0 && fit_of_seen(replay, asked, asked->op, seen, most) < most;
    return take_int(replay, is_denied, is_denied ? member->limit->window_us : 0, &seen[i].wait);
}

/* What a record remembers of the first op of its name. */
static int take_record(struct replay *replay, const struct script_op *asked, struct tuple *tuple)
{
    if (take_int(replay, AGAIN_NOT, AGAIN_CHANGED, &tuple->again) < 0) return -1;
    if (take_int(replay, 0, REPLY_MAX, &tuple->again_us) < 0) return -1;
    for (uint16_t i = 0; i < asked->op->n_members; i++)
        if (take_int(replay, 0, REPLY_MAX, &tuple->seen[i].units) < 0) return -1;
    if (asked->kind != KIND_RESERVE) return 0;

    int64_t least_ms = tuple->again != AGAIN_NOT;
    if (take_int(replay, 0, UINT32_MAX, &tuple->id_low) < 0 || take_int(replay, 0, UINT32_MAX, &tuple->id_high) < 0)
        return -1;
    return take_int(replay, least_ms, RESERVATION_TTL_MAX_MS, &tuple->ttl_ms);
}

/* What a settlement or a refund gave back. */
static int take_returned(struct replay *replay, const struct script_op *asked, struct tuple *tuple)
{
    const struct op *op = asked->op;
    if (asked->kind == KIND_SETTLE) {
        if (take_int(replay, SETTLED_NOW, SETTLED_TOO_LATE, &tuple->settled) < 0) return -1;
        int64_t held = tuple->settled == SETTLED_NOW ? op->reservation->units : 0;
        return take_int(replay, 0, op->reservation->actual < held ? held - op->reservation->actual : 0, &tuple->back);
    }

    for (uint16_t i = 0; asked->kind == KIND_REFUND && i < op->n_members; i++) {
        int64_t units, most = tuple->again == AGAIN_NOT ? op->members[i].cost : 0;
        if (take_int(replay, 0, most, &units) < 0) return -1;
        if (tuple->again == AGAIN_NOT) tuple->seen[i].units = units; /* else the record says it */
    }
    return 0;
}

static int read_plain_check(struct replay *replay, struct script_op *asked)
{
    const struct limit *limit = asked->op->members[0].limit;
    if (take_state(replay, asked, 0, &asked->seen) < 0) return -1;
    if (limit_has_penalty(limit) && take_pause(replay, asked, limit, &asked->seen) < 0) return -1;
    bool has_wait = limit_ops(limit)->has_wait;
    return has_wait ? take_wait(replay, asked, 0, false, &asked->seen) : 0;
}

static int read_tuple(struct replay *replay, struct script_op *asked, struct tuple *tuple)
{
    const struct op *op = asked->op;
    if (asked->kind == KIND_RELEASE || asked->kind == KIND_RENEW) {
        for (uint16_t i = 0; i < op->n_members; i++) {
            if (take_int(replay, replay->least, 1, &tuple->seen[i].used) < 0) return -1;
            if (tuple->seen[i].used < 0) note_missing(replay, asked, i, tuple->seen[i].used);
        }
        return 0;
    }

    tuple->again = AGAIN_NOT;
    for (uint16_t i = 0; i < op->n_members; i++)
        if (take_state(replay, asked, i, &tuple->seen[i]) < 0) return -1;
    for (uint16_t i = 0; i < op->n_members && replay->batch->n_pauses > 0; i++) {
        const struct limit *limit = op->members[i].limit;
        if (limit_has_penalty(limit) && take_pause(replay, asked, limit, &tuple->seen[i]) < 0) return -1;
    }
    if (asked->record > 0 && take_record(replay, asked, tuple) < 0) return -1;
    if (take_returned(replay, asked, tuple) < 0) return -1;

    /* What a record says of the first admission was worked out at another time, maybe by another host's clock: of that
     * only the answer is checked. */
    for (uint16_t i = 0; i < op->n_members && tuple->again != AGAIN_AS_THEN; i++) {
        if (tuple->seen[i].used >= 0) {
            const struct view *view = view_seen(replay, asked, i, &tuple->seen[i]);
            if (!limit_ops(view->limit)->plausible(view)) asked->is_implausible = true;
        }
    }

    for (uint16_t i = 0; i < op->n_members && kind_is_check(asked->kind); i++) {
        if (!limit_ops(op->members[i].limit)->has_wait) continue;
        if (take_wait(replay, asked, i, tuple->again != AGAIN_NOT, tuple->seen) < 0) return -1;
    }
    return 0;
}

/* Nothing of an op is touched. */
static int read_reply(struct replay *replay)
{
    const struct batch *batch = replay->batch;
    for (uint32_t i = 0; batch->resets && i < batch->n_keys; i++) {
        int64_t removed = replay->reply[batch->keys[i].keys_index - 1];
        uint16_t pause = batch->keys[i].pause_index;
        if (!in_range(removed, replay->least, 1)) return -1;
        if (pause > 0 && !in_range(replay->reply[pause - 1], replay->least, 1)) return -1;
        if (removed == FOREIGN) replay->foreign |= key_bit(i);
    }
    if (batch->resets) return 0;

    struct tuple tuple;
    for (uint32_t i = 0; i < batch->n_script_ops; i++) {
        struct script_op *asked = &batch->script_ops[i];
        replay->at = replay->reply + asked->reply_at;
        asked->is_foreign = asked->is_checked = asked->is_implausible = false;
        asked->undone = OP_DECIDED;
        bool is_plain = asked->kind == KIND_CHECK;
        if ((is_plain ? read_plain_check(replay, asked) : read_tuple(replay, asked, &tuple)) < 0) return -1;
    }
    return 0;
}

/* ---- the answers ---- */

/* Leaves in `seen` the states after it. */
static void answer_check(struct replay *replay, const struct script_op *asked, struct batch_seen *seen, struct op *op)
{
    int64_t fit = fit_of_seen(replay, asked, op, seen, op->at_most > 0 ? op->at_most : 1);
    for (uint16_t i = 0; i < op->n_members; i++) {
        struct op_member *member = &op->members[i];
        struct view *view = view_seen(replay, asked, i, &seen[i]);
        member->used = seen[i].used;
        member->extra = seen[i].extra;
        member->wait_us = seen[i].wait;
        member->pause = view->pause;

        int64_t cost = member->cost * (fit > 0 ? fit : 1);
        limit_decide(view, cost, fit > 0 || limit_fits(view, cost, 1) > 0, fit > 0, &member->decision);
        seen[i].used = view->used;
        seen[i].extra = view->extra;
    }
}

/* What the op's answer is made of: the view as of now or, in `then`, as of the op that a record is of. */
static struct view *view_for(struct replay *replay, const struct script_op *asked, uint16_t i,
                             const struct tuple *tuple, struct view *then)
{
    const struct op_member *member = &asked->op->members[i];
    const struct batch_seen *seen = &tuple->seen[i];
    if (tuple->again != AGAIN_AS_THEN) return view_seen(replay, asked, i, seen);
    limit_here(then, member->limit, member->key, member->max_wait_us, tuple->again_us);
    limit_report(then, seen->used, seen->extra, 0);
    return then;
}

/* The first answer again; a changed policy's from the states of now. */
static void answer_again(struct replay *replay, const struct script_op *asked, const struct tuple *tuple, struct op *op)
{
    for (uint16_t i = 0; i < op->n_members; i++) {
        struct op_member *member = &op->members[i];
        struct view then, *view = view_for(replay, asked, i, tuple, &then);
        int64_t granted = tuple->seen[i].units;
        if (tuple->again == AGAIN_AS_THEN) {
            if (granted > member->limit->full) granted = member->limit->full; /* a server may say anything */
            if (granted > 0) limit_charge(view, granted);
        }
        limit_answer(view, granted, &member->decision);
        if (member->decision.reset_after_ms < 0) op->outcome = OP_STORE_ERROR;
    }
}

/* What was used beyond what was held is charged as far as it fits every limit. */
static void answer_settle(struct replay *replay, const struct script_op *asked, const struct tuple *tuple,
                          struct op *op)
{
    struct op_reservation *reservation = op->reservation;
    int64_t held = tuple->settled == SETTLED_NOW ? reservation->units : 0, units = 0;
    bool is_charged = tuple->settled == SETTLED_NOW || tuple->settled == SETTLED_ENDED, is_held = false;
    if (is_charged && reservation->actual > held) units = reservation->actual - held;
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct view *view = view_seen(replay, asked, i, &tuple->seen[i]);
        if (!reservation_holds(reservation, view->limit)) continue;
        int64_t fits = limit_fits_used(view, reservation_debt(reservation, view->limit));
        if (units > fits) units = fits;
        is_held = true;
    }
    if (!is_held) units = 0;

    for (uint16_t i = 0; i < op->n_members; i++) {
        struct view *view = view_seen(replay, asked, i, &tuple->seen[i]);
        if (units > 0 && reservation_holds(reservation, view->limit)) limit_charge(view, units);
        limit_answer(view, 0, &op->members[i].decision);
    }

    reservation->refunded = tuple->back;
    reservation->charged = units;
    reservation->ended = tuple->settled != SETTLED_NOW;
    reservation->is_known = tuple->settled == SETTLED_BEFORE;
}

/* A refund's answer is a peek of cost 0 after it; if a record remembers the refund, a peek of the states of then. */
static void answer_refund(struct replay *replay, const struct script_op *asked, const struct tuple *tuple,
                          struct op *op)
{
    for (uint16_t i = 0; i < op->n_members; i++) {
        struct op_member *member = &op->members[i];
        struct view then;
        limit_answer(view_for(replay, asked, i, tuple, &then), 0, &member->decision);
        member->refunded = tuple->seen[i].units;
        if (member->decision.reset_after_ms < 0) op->outcome = OP_STORE_ERROR;
    }
}

static void answer_op(struct replay *replay, struct script_op *asked, struct op *op)
{
    op->outcome = asked->is_foreign ? OP_STORE_ERROR : OP_DECIDED;
    op->now_us = replay->now_us;
    if (asked->kind == KIND_CHECK) {
        op->members[0].is_foreign = asked->is_foreign;
        if (asked->is_foreign) return;

        struct view *view = view_seen(replay, asked, 0, &asked->seen);
        if (!asked->is_checked) asked->is_implausible |= !limit_ops(view->limit)->plausible(view);
        asked->is_checked = true;
        bool has_penalty = limit_has_penalty(view->limit);
        if (has_penalty) op->members[0].pause = view->pause;
        op_decide_one(op, view);
        if (op->kind == OP_PEEK) return;
        asked->seen.used = view->used; /* the next one's state */
        asked->seen.extra = view->extra;
        if (has_penalty) asked->seen.pause = view->pause;
        return;
    }

    struct tuple tuple = {0};
    replay->at = replay->reply + asked->reply_at;
    CHECK(read_tuple(replay, asked, &tuple) == 0); /* once more */
    if (asked->is_foreign) {                       /* if it is an op key, all count */
        for (uint16_t i = 0; i < op->n_members; i++) op->members[i].is_foreign = tuple.seen[i].used == FOREIGN;
        return;
    }

    if (kind_is_check(asked->kind) && tuple.again != AGAIN_NOT)
        answer_again(replay, asked, &tuple, op);
    else if (kind_is_check(asked->kind))
        answer_check(replay, asked, tuple.seen, op);
    else if (asked->kind == KIND_SETTLE)
        answer_settle(replay, asked, &tuple, op);
    else if (asked->kind == KIND_REFUND)
        answer_refund(replay, asked, &tuple, op);

    if (asked->kind == KIND_RESERVE) {
        struct op_reservation *reservation = op->reservation;
        reservation->held = true;
        for (uint16_t i = 0; i < op->n_members; i++) reservation->held &= op->members[i].decision.allowed;
        reservation->made_us = replay->now_us;
        reservation->is_known = tuple.again != AGAIN_NOT;
        if (reservation->is_known) {
            reservation->id = (uint64_t)tuple.id_high << 32 | (uint64_t)tuple.id_low;
            reservation->units = 0;
            for (uint16_t i = 0; i < op->n_members; i++)
                if (tuple.seen[i].units > reservation->units) reservation->units = tuple.seen[i].units;
            reservation->made_us = tuple.again_us;
            reservation->ttl_ms = tuple.ttl_ms;
        }
    }

    for (uint16_t i = 0; i < op->n_members; i++) {
        struct op_member *member = &op->members[i];
        member->found = tuple.seen[i].used == 1; /* of a slot */
        if (asked->kind == KIND_SWEEP) limit_answer(view_seen(replay, asked, i, &tuple.seen[i]), 0, &member->decision);
    }
}

/* The second of two resets of a key finds nothing. */
static void answer_reset(struct replay *replay, struct op *op)
{
    const struct batch *batch = replay->batch;
    op->outcome = OP_DECIDED;
    for (uint16_t i = 0; i < op->n_members; i++) {
        struct op_member *member = &op->members[i];
        uint64_t bit = key_bit(member->batch_key);
        const struct batch_key *key = &batch->keys[member->batch_key];
        int64_t removed = replay->reply[key->keys_index - 1];
        bool had_pause = key->pause_index > 0 && replay->reply[key->pause_index - 1] == 1;
        member->is_foreign = removed == FOREIGN;
        if (removed == FOREIGN && op->outcome == OP_DECIDED) op->outcome = OP_STORE_ERROR;
        if (removed == AWAY && op->outcome != OP_BARRED) op->outcome = OP_AWAY;
        if (removed == BARRED) op->outcome = OP_BARRED;
        member->removed = (removed == 1 || had_pause) && !(replay->removed & bit);
        replay->removed |= bit;
    }
}

int batch_replay(struct batch *batch, const int64_t *reply, size_t n, uint32_t nonce)
{
    CHECK(batch->packed);
    bool is_late = batch->latest_us != 0 && n == BATCH_N_LAST && reply[0] == TOO_LATE && reply[2] == nonce;
    if (!is_late && (n != batch->n_integers + BATCH_N_LAST || reply[n - 1] != nonce)) return -1;
    int64_t now_us = is_late ? reply[1] : reply[n - 3], n_bad = is_late ? 0 : reply[n - 2];
    if (!in_range(now_us, 0, REPLY_MAX) || !in_range(n_bad, 0, REPLY_MAX)) return -1;
    if (is_late) {
        batch->now_us = now_us;
        return 1;
    }

    struct view views[BATCH_KEYS_MAX];
    struct replay replay = {.batch = batch,
                            .reply = reply,
                            .now_us = now_us,
                            .views = views,
                            .least = batch->is_undeclared ? BARRED : FOREIGN};
    for (uint32_t i = 0; i < batch->n_limits; i++)
        limit_at(&views[i], batch->limits[i].limit, &batch->limits[i].constants, now_us);
    if (read_reply(&replay) < 0) return -1;
    batch->now_us = now_us;

    /* the script may meet one value several times, and a server may say anything */
    int64_t n_met = n_bad, n_keys = (int64_t)batch->n_keys + batch->n_op_keys;
    for (uint64_t left = replay.foreign; left != 0; left &= left - 1) n_met++; /* bit by bit */
    redis_counters.redis_bad_values += (uint64_t)(n_met < n_keys ? n_met : n_keys);

    bool any_doubt = false;
    LIST_FOREACH (link, &batch->ops) {
        struct op *op = LIST_ITEM(link, struct op, link);
        if (batch->resets) {
            answer_reset(&replay, op);
            continue;
        }

        struct script_op *asked = &batch->script_ops[op->batch_op];
        if (asked->undone != OP_DECIDED) {
            op->outcome = asked->undone;
            op->is_doubtful = false;
            continue;
        }
        answer_op(&replay, asked, op);
        if (asked->is_implausible) op->outcome = OP_STORE_ERROR;
        op->is_doubtful = op->outcome == OP_STORE_ERROR && !asked->is_foreign;
        any_doubt |= op->is_doubtful;
    }
    redis_counters.redis_bad_replies += any_doubt;
    return 0;
}
