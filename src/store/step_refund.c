/*
 * step_refund.c: refunds as steps; twin of lua/step_refund.lua.
 *
 *   fields   <H key of the holds, 0 = none> <I7 units> <I7 made in us, 0 = now>
 *   reply    the members' states are those after it; then how many units each of them gave back
 */
#include "store/turn_steps.h"

enum { FIELD_BYTES = 2 + 7 + 7 };

static bool has_holds(const struct op *op)
{
    return op->members[0].hold_key.len > 0;
}

static struct step_needs needs(const struct op *op)
{
    return (struct step_needs){
        .n_extras = has_holds(op),
        .extra_bytes = has_holds(op) ? turn_steps_holds_key_bytes(op) : 0,
        .field_bytes = FIELD_BYTES,
        .n_integers = op->n_members,
    };
}

static void add_extras(struct turn *turn, const struct op *op)
{
    if (has_holds(op)) turn_steps_holds_key(turn, op);
}

static uint8_t *put_fields(const struct op *op, uint16_t extra, uint8_t *to)
{
    to = turn_put(to, has_holds(op) ? extra : 0, 2);
    return turn_put(turn_put(to, (uint64_t)op->members[0].cost, 7), 0, 7);
}

static int answer(struct step_walk *walk, const struct turn_entry *entry, const int64_t *states, struct op *op)
{
    step_judge_states(walk, entry, states, op);
    for (uint16_t i = 0; i < op->n_members; i++) {
        struct op_member *member = &op->members[i];
        int64_t s1 = states[2 * i], s2 = states[2 * i + 1];
        if (step_take(walk, 0, member->cost, &member->refunded) < 0) return -1;
        limit_decide(step_run(walk, entry, i), &s1, &s2, 0, true, 0, &member->decision);
    }
    return 0;
}

const struct step_ops step_refund_ops = {
    .needs = needs, .add_extras = add_extras, .put_fields = put_fields, .answer = answer};
