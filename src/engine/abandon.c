/* abandon.c: gives back what a connection has abandoned: a call that waits, a slot, a reservation. */
#include "base/assert.h"
#include "engine/engine_counters.h"
#include "engine/engine_private.h"

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
        engine_cancel(engine, set, plan, key, &made, local_reason, client);
        made = reservation->made;
    }
    if (is_made) engine_cancel(engine, set, plan, key, &made, REASON_NONE, client); /* it may be gone with that */
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
