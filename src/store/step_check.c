/*
 * step_check.c: checks and peeks as steps; twin of lua/step_check.lua and lua/step_peek.lua.
 *
 *   reply    after the members' states: a wait in us for each log with a cost, where the check is denied
 */
#include "store/turn_steps.h"

static int take_wait(struct step_walk *walk, const struct run *run, int64_t cost, int64_t *ret)
{
    *ret = 0;
    if (!limit_ops(run->limit)->has_wait || cost == 0) return 0;
    return step_take(walk, 1, run->limit->window_us, ret);
}

/* Of one member, all of which are admitted or not. */
static int answer_member(struct step_walk *walk, const struct run *run, const int64_t *state, bool admitted,
                         struct op_member *member)
{
    int64_t s1 = state[0], s2 = state[1], wait = 0;
    member->seen1 = s1;
    member->seen2 = s2;
    if (!admitted && take_wait(walk, run, member->cost, &wait) < 0) return -1;
    limit_decide(run, &s1, &s2, member->cost, admitted, wait, &member->decision);
    return 0;
}

static int answer(struct step_walk *walk, const struct turn_entry *entry, const int64_t *states, struct op *op)
{
    bool admitted = true;
    op->now_us = walk->now_us;
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct run *run = step_run(walk, entry, i);
        admitted &= limit_fits(run, states[2 * i], states[2 * i + 1], op->members[i].cost, 1) > 0;
    }
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct run *run = step_run(walk, entry, i);
        if (answer_member(walk, run, states + 2 * i, admitted, &op->members[i]) < 0) return -1;
    }
    return 0;
}

const struct step_ops step_peek_ops = {.answer = answer};
const struct step_ops step_check_ops = {.answer = answer};
