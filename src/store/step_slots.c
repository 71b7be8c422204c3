/*
 * step_slots.c: slots of concurrency limits as steps; twin of lua/step_acquire.lua, lua/step_release.lua and
 * lua/step_renew.lua. A step's own field is the slot's id; an acquire is answered as a check is.
 */
#include "store/turn_steps.h"

static struct step_needs needs(const struct op *op)
{
    (void)op;
    return (struct step_needs){.field_bytes = SLOT_ID_LEN};
}

static uint8_t *put_slot(const struct op *op, uint16_t extra, uint8_t *to)
{
    (void)extra;
    memcpy(to, op->slot, SLOT_ID_LEN);
    return to + SLOT_ID_LEN;
}

static int answer_acquire(struct step_walk *walk, const struct turn_entry *entry, const int64_t *states, struct op *op)
{
    return step_check_ops.answer(walk, entry, states, op);
}

static int answer_found(struct step_walk *walk, const struct turn_entry *entry, const int64_t *states, struct op *op)
{
    (void)walk;
    (void)entry;
    for (uint16_t i = 0; i < op->n_members; i++) op->members[i].found = states[2 * i] != 0;
    return 0;
}

const struct step_ops step_acquire_ops = {.needs = needs, .put_fields = put_slot, .answer = answer_acquire};
const struct step_ops step_release_ops = {.needs = needs, .put_fields = put_slot, .answer = answer_found};
const struct step_ops step_renew_ops = {.needs = needs, .put_fields = put_slot, .answer = answer_found};
