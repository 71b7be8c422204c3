/*
 * engine_holds.c: the engine's part in what is reserved: draws each hold's id, notes which holds there are, and gives
 * back what nobody has settled in time, or ever can.
 */
#include "engine/engine_private.h"

#include "base/counters.h"
#include "base/hash.h"

enum {
    SWEEPS_MAX = 64, /* in one turn; the others in the next one */
    SWEEP_RETRY_US = 5000000,
};

/* An id that no other daemon draws either. */
void engine_start_hold(struct engine *engine, struct check *check)
{
    const struct {
        uint64_t n;
        int64_t at_us;
    } seed = {++engine->n_reserved, engine->clock->mono_us};
    check->hold =
        (struct op_hold){.id = hash_keyed(&seed, sizeof seed), .units = check->cost, .ttl_ms = check->hold.ttl_ms};
}

/* To give it back at its end, counted from from_us. False where none can be had. */
static bool start_timer(const struct check *check, int64_t from_us)
{
    struct engine *engine = check->engine;
    return reservations_add(&engine->reservations, check->hold.id, check->policy->name, check->key, from_us,
                            check->hold.ttl_ms);
}

void engine_note_hold(struct check *check)
{
    struct engine *engine = check->engine;
    const struct op_hold *hold = &check->hold;
    if (check->kind == OP_SETTLE && !hold->ended) counters.reservations_settled++;
    if (check->kind == OP_SETTLE) reservations_forget(&engine->reservations, hold->id);
    if (check->kind != OP_RESERVE || !hold->held) return;
    counters.reservations_made++;
    if (engine->clock->manual) return; /* no timer knows when the limits' now is moved */
    if (!start_timer(check, engine->clock->mono_us)) counters.reservations_untimed++;
}

/* What cannot be cancelled now comes back at its end. */
static void on_cancelled(struct check *check)
{
    check_release(check);
}

static void cancel(const struct check *reserved)
{
    struct engine *engine = reserved->engine;
    const struct op_hold *hold = &reserved->hold;
    struct check *check = engine->closing ? NULL : engine_check_new(engine, reserved->key);
    if (check == NULL) return;
    check_hold_set(check, reserved->set);
    check->kind = OP_SETTLE;
    check->policy = reserved->policy;
    check->hold =
        (struct op_hold){.id = hold->id, .units = hold->units, .made_us = hold->made_us, .ttl_ms = hold->ttl_ms};
    check->done = on_cancelled;
    engine_submit(engine, check);
}

void engine_follow_up_hold(struct check *check, enum op_outcome outcome)
{
    bool awaited = !check->answered && !check->released;
    if (outcome == OP_DECIDED && check->hold.held && !awaited) cancel(check);

    /* Lost: it may have been made, or Redis may still come to it, until the batch's time is over. Its end is then. */
    const struct op *op = &check->op;
    int64_t now_us = check->engine->clock->mono_us, last_us = op->runs_until_us > now_us ? op->runs_until_us : now_us;
    if (outcome == OP_DOWN && op->sent && !check->engine->closing) (void)start_timer(check, last_us);
}

static void retry_later(struct engine *engine, struct reservation *reservation)
{
    reservations_retry(&engine->reservations, reservation, engine->clock->mono_us + SWEEP_RETRY_US);
}

static void on_swept(struct check *check)
{
    struct engine *engine = check->engine;
    struct reservation *reservation = check->asker;
    if (check->error != ERROR_NONE && !engine->closing)
        retry_later(engine, reservation);
    else
        reservation_free(reservation);
    check_release(check);
}

/* Its policy may be gone or another, and nobody can be told what its hold was charged to. */
static void sweep(struct engine *engine, struct reservation *reservation)
{
    struct slice key = {reservation->key, reservation->key_len};
    const struct policy *policy = policy_find(engine->set, slice_of(reservation->policy));
    if (policy == NULL || !policy_takes_key(policy, key) || !policy_for_key(policy, key)->reserves) {
        reservation_free(reservation);
        return;
    }
    struct check *check = engine_check_new(engine, key);
    if (check == NULL) {
        retry_later(engine, reservation);
        return;
    }
    check->kind = OP_SWEEP;
    check->policy = policy_for_key(policy, key);
    check->asker = reservation;
    check->done = on_swept;
    engine_submit(engine, check);
}

void engine_sweep_ended(struct engine *engine)
{
    struct reservation *ended;
    for (int n = 0; n < SWEEPS_MAX && !engine->closing; n++) {
        ended = reservations_take(&engine->reservations, engine->clock->mono_us);
        if (ended == NULL) break;
        sweep(engine, ended);
    }
}
