/* reserving.c: what becomes of the reservation that an OP_RESERVE makes, and of its entry in the table. */
#include "engine/engine_counters.h"
#include "engine/engine_private.h"
#include "policy/inline_policies.h"

void reserving_let_go(struct check *check)
{
    struct reservation *making = check->making;
    check->making = NULL;
    if (making != NULL) reservations_let_go(&check->engine->reservations, making);
}

void reserving_answered(struct check *check)
{
    struct engine *engine = check->engine;
    const struct decision *decision = &check->decision;
    check->making->call.check = NULL;

    bool is_local = check->error == ERROR_NONE && decision->allowed && decision->source == SOURCE_LOCAL;
    if (is_local && check->reservation.held)
        reservations_made_locally(&engine->reservations, check->making, decision->reason, &check->reservation,
                                  engine->clock->mono_us);
    if (!check->in_store) reserving_let_go(check);
}

bool reserving_keep(const struct check *check, int64_t from_us)
{
    if (check->making == NULL) return false;
    return reservations_made(&check->engine->reservations, check->making, &check->reservation, from_us);
}

void reserving_decided(const struct check *check)
{
    struct engine *engine = check->engine;
    const struct op_reservation *reservation = &check->reservation;

    if (check->op.kind == OP_SETTLE) {
        engine_counters.reservations_settled += !reservation->ended;
        reservations_forget(&engine->reservations, reservation->id);
    } else if (check->op.kind == OP_RESERVE && reservation->held) {
        /* no timer knows when the limits' now is moved */
        bool is_kept = reserving_keep(check, engine->clock->manual ? INT64_MAX : engine->clock->mono_us);
        if (reservation->is_known) return;
        engine_counters.reservations_made++;
        engine_counters.reservations_untimed += !is_kept && !engine->clock->manual;
    }
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

const struct plan *reserving_plan(const struct engine *engine, const struct reservation *reservation,
                                  struct policy_set **ret_set)
{
    struct slice key = {reservation->key, reservation->key_len};
    const struct policy *policy = find_policy(engine, slice_of(reservation->policy), ret_set);
    if (policy == NULL || !policy_takes_key(policy, key)) return NULL;

    const struct plan *plan = plan_for_key(policy, key);
    return plan->reserves ? plan : NULL;
}
