/* expire.c: what becomes due: the answers to checks whose deadline has passed, reservations that have ended, leases of
 * slots, merges, leased units. */
#include "engine/engine_private.h"

enum {
    OVERDUE_PER_TICK =
        4096, /* that get into their client's lane: more than come in in a tick, so that none waits here */
    SWEEPS_PER_TICK = 64,
};

static void on_swept(struct check *check)
{
    struct engine *engine = check->engine;
    struct reservation *reservation = check->owner;
    if (check->error != ERROR_NONE && !engine->closing)
        reservations_retry(&engine->reservations, reservation, engine->clock->mono_us + ENGINE_RETRY_US);
    else
        reservation_free(reservation);
    check_release(check);
}

/* Gives back a reservation that is due: it has ended, or could not be cancelled before. */
static void sweep(struct engine *engine, struct reservation *reservation)
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
        engine_internal_check(engine, set, plan, key, has_ended ? OP_SWEEP : OP_SETTLE, reservation->client, on_swept);
    if (check != NULL) {
        check->owner = reservation;
        check->reservation = reservation->made;
        check->reservation.actual = 0;
        if (engine_submit_internal(check)) return;
    }
    reservations_retry(&engine->reservations, reservation, now_us + ENGINE_RETRY_US);
}

int64_t engine_next_deadline(const struct engine *engine)
{
    if (overdue_may_have(&engine->overdue)) return engine->clock->mono_us;
    const struct deadline *first = deadlines_first(&engine->deadlines);
    int64_t next_us = reservations_next_us(&engine->reservations), due_us = slots_next_due(&engine->slots);
    if (due_us < next_us) next_us = due_us;
    due_us = unit_leases_next_us(&engine->leases);
    if (due_us < next_us) next_us = due_us;
    due_us = engine->failure.unmerged.n > 0 ? merge_back_next_us(engine) : INT64_MAX;
    if (due_us < next_us) next_us = due_us;
    return first != NULL && first->at_us < next_us ? first->at_us : next_us;
}

static void find_overdue(struct engine *engine)
{
    for (int n = 0; n < OVERDUE_PER_TICK; n++) {
        struct deadline *first = deadlines_first(&engine->deadlines);
        if (first == NULL || first->at_us > engine->clock->mono_us) return;
        deadlines_unset(&engine->deadlines, first);
        overdue_add(&engine->overdue, first, CONTAINER_OF(first, struct check, deadline)->op.client);
    }
}

static void answer_overdue(struct engine *engine)
{
    struct deadline *next;
    uint32_t before = engine->work;
    while (engine->work - before < ENGINE_EXPIRED_UNITS && (next = overdue_next(&engine->overdue)) != NULL) {
        uint32_t work = engine->work;
        engine_too_late(CONTAINER_OF(next, struct check, deadline));
        overdue_spend(&engine->overdue, engine->work - work);
    }
}

/* What exceeds the budget of a tick is due again in engine_next_deadline(), so that the loop can read and write in
 * between. */
void engine_expire(struct engine *engine)
{
    int64_t now_us = engine->clock->mono_us;
    find_overdue(engine);
    if (overdue_may_have(&engine->overdue)) answer_overdue(engine);

    for (int n = 0; n < SWEEPS_PER_TICK && engine->reservations.inside.n > 0 && !engine->closing; n++) {
        struct reservation *ended = reservations_take(&engine->reservations, now_us);
        if (ended == NULL) break;
        sweep(engine, ended);
    }
    slots_run(&engine->slots);
    if (!engine->closing) unit_leases_run(&engine->leases);
    if (engine->failure.unmerged.n > 0) merge_back_run(engine);
}
