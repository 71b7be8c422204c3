/* give_back.c: what the engine gives back by checks of its own: a reservation that has ended (a sweep) or is wanted no
 * more (a cancel), and a slot or reservation that its connection has abandoned. */
#include "base/assert.h"
#include "engine/engine_counters.h"
#include "engine/engine_private.h"

enum { RETRY_US = 5000000 }; /* until what could not be given back is tried again */

/* ---- a check of the engine's own ---- */

/* An errand that gives back what `client` had, by way of engine_submit(). NULL: the engine is full, that client has too
 * many of them, or memory is short. */
static struct check *own_check(struct engine *engine, struct policy_set *set, const struct plan *plan, struct slice key,
                               enum op_kind kind, uint64_t client, void (*done)(struct check *check))
{
    bool may = !engine->closing && !engine_is_full(engine);
    struct check *check = may ? errand_new(&engine->errands, ERRAND_GIVE_BACK, kind, set, client) : NULL;
    if (check == NULL) return NULL;

    check->engine = engine;
    check->done = done;
    check->plan = plan;
    check->key = key;
    return check;
}

/* False without memory: the check is released. */
static bool submit_own(struct check *check)
{
    if (check_seal(check) < 0) {
        check_release(check);
        return false;
    }
    engine_submit(check->engine, check);
    return true;
}

static void on_cancelled(struct check *check)
{
    struct engine *engine = check->engine;
    if (check->error != ERROR_NONE && !engine->closing)
        reservations_cancel_later(&engine->reservations, check->reservation.id, engine->clock->mono_us + RETRY_US);
    check_release(check);
}

/* Gives a reservation of this plan and key back at once; if this fails, later. In the store, or (local_reason) in the
 * failure table. `client` asks: so it takes effect in the order of that connection's calls. */
static void cancel(struct engine *engine, struct policy_set *set, const struct plan *plan, struct slice key,
                   const struct op_reservation *reservation, enum reason local_reason, uint64_t client)
{
    struct check *check = own_check(engine, set, plan, key, OP_SETTLE, client, on_cancelled);
    if (check != NULL) {
        check->local_reason = local_reason;
        check->reservation = (struct op_reservation){.id = reservation->id,
                                                     .units = reservation->units,
                                                     .made_us = reservation->made_us,
                                                     .ttl_ms = reservation->ttl_ms};
        if (submit_own(check)) return;
    }
    if (local_reason == REASON_NONE)
        reservations_cancel_later(&engine->reservations, reservation->id, engine->clock->mono_us + RETRY_US);
}

void engine_follow_up_reserve(struct check *check, enum op_outcome outcome)
{
    const struct op *op = &check->op;
    struct reservation *making = check->making;
    int64_t now_us = check->engine->clock->mono_us;
    bool is_wanted = op->record.len > 0 && (making == NULL || !making->is_abandoned);
    if (outcome == OP_DECIDED && check->reservation.held && check->state != CHECK_WAITING && !is_wanted)
        cancel(check->engine, check->set, check->plan, check->key, &check->reservation, REASON_NONE, op->client);

    if (outcome != OP_DOWN || !op->sent || check->engine->closing) return;

    /* Redis may still run the batch until runs_until_us, so the reservation may end that much later. */
    if (!reservations_keep(check, op->runs_until_us > now_us ? op->runs_until_us : now_us)) return;
    CHECK(making != NULL); /* it is what was kept */
    making->is_doubtful = true;
}

/* ---- reservations that are due ---- */

static void on_swept(struct check *check)
{
    struct engine *engine = check->engine;
    struct reservation *reservation = check->owner;
    if (check->error != ERROR_NONE && !engine->closing)
        reservations_retry(&engine->reservations, reservation, engine->clock->mono_us + RETRY_US);
    else
        reservation_free(reservation);
    check_release(check);
}

void engine_sweep(struct engine *engine, struct reservation *reservation)
{
    struct slice key = {reservation->key, reservation->key_len};
    int64_t now_us = engine->clock->mono_us;
    bool has_ended = !reservation->is_abandoned || reservation->is_doubtful || now_us >= reservation->end_us;
    struct policy_set *set;
    const struct plan *plan = reservation->is_made ? reservations_plan(engine, reservation, &set) : NULL;
    if (plan == NULL) {
        reservation_free(reservation);
        return;
    }

    struct check *check =
        own_check(engine, set, plan, key, has_ended ? OP_SWEEP : OP_SETTLE, reservation->client, on_swept);
    if (check != NULL) {
        check->owner = reservation;
        check->reservation = reservation->made;
        check->reservation.actual = 0;
        if (submit_own(check)) return;
    }
    reservations_retry(&engine->reservations, reservation, now_us + RETRY_US);
}

/* ---- what a connection abandons ---- */

static void abandon_slot(struct engine *engine, struct slot *slot, uint64_t client)
{
    struct check *check = engine_check_new(engine, OP_RELEASE, client);
    if (check == NULL) {
        slot_leave(slot);
        return;
    }
    engine_releases(check, slot);
    check->done = check_release;
    engine_submit(engine, check);
}

/* It is given back wherever it is held. One about which the store's answer is lost comes back at its end. */
static void abandon_reservation(struct engine *engine, struct reservation *reservation, uint64_t client)
{
    enum reason local_reason = reservation->local_reason;
    bool is_made = reservation->is_made && !reservation->is_doubtful;
    struct op_reservation made = reservation->made;
    struct policy_set *set;
    struct slice key = {reservation->key, reservation->key_len};
    reservation->is_abandoned = true;
    const struct plan *plan = reservations_plan(engine, reservation, &set);
    if (plan == NULL) return;

    if (is_made) reservation->local_reason = REASON_NONE; /* else it goes below, and the entry may go with it */
    if (local_reason != REASON_NONE) {
        made.made_us = reservation->local_made_us;
        cancel(engine, set, plan, key, &made, local_reason, client);
        made = reservation->made;
    }
    if (is_made) cancel(engine, set, plan, key, &made, REASON_NONE, client); /* it may be gone with that */
    if (local_reason != REASON_NONE && !is_made) reservations_forget_local(&engine->reservations, reservation);
}

void engine_abandon(struct engine *engine, uint64_t client, uint64_t msgid)
{
    struct call *call = calls_find(&engine->calls, client, msgid);
    if (call == NULL) return;

    struct check *waiting = call->check;
    engine_counters.abandoned++;
    calls_remove(&engine->calls, call);
    if (call->kind == CALL_RESERVE && waiting != NULL)
        CONTAINER_OF(call, struct reservation, call)->is_abandoned = true;

    if (waiting != NULL)
        engine_give_up(waiting);
    else if (call->kind == CALL_ACQUIRE)
        abandon_slot(engine, CONTAINER_OF(call, struct slot, call), client);
    else
        abandon_reservation(engine, CONTAINER_OF(call, struct reservation, call), client);
}
