/*
 * step_reserve.c: reserving, settling and sweeping as steps; twin of lua/step_reserve.lua, step_settle.lua and
 * step_sweep.lua, which draw their fields and what they say.
 *
 * What has ended is given back before the members' states are told, so nothing of it needs to be known here.
 */
#include <stdio.h>

#include "base/check.h"
#include "limit/policy.h"
#include "store/turn_steps.h"

enum { HEAD_MAX = 8 + NAME_MAX_LEN }; /* "hold1:POLICY:" */

/* How the script found the hold. */
enum found { FOUND_HELD, FOUND_SETTLED, FOUND_ENDED, FOUND_TOO_LATE };

size_t turn_steps_holds_key_bytes(const struct op *op)
{
    return HEAD_MAX + op->members[0].hold_key.len;
}

static struct step_needs needs_for(const struct op *op, size_t field_bytes, size_t n_integers)
{
    return (struct step_needs){
        .n_extras = 1,
        .extra_bytes = turn_steps_holds_key_bytes(op),
        .field_bytes = field_bytes,
        .n_integers = n_integers,
    };
}

void turn_steps_holds_key(struct turn *turn, const struct op *op)
{
    const struct op_member *first = &op->members[0];
    char head[HEAD_MAX];
    int len = snprintf(head, sizeof head, "hold1:%s:", first->limit->policy->name);
    CHECK(len > 0 && (size_t)len < sizeof head && first->hold_key.len > 0);
    turn_steps_extra(turn, first, (struct slice){(const uint8_t *)head, (size_t)len}, first->hold_key);
}

/* ---- reserve ---- */

static struct step_needs reserve_needs(const struct op *op)
{
    return needs_for(op, 2 + 8 + 7 + 4, 0);
}

static uint8_t *put_reserve(const struct op *op, uint16_t extra, uint8_t *to)
{
    const struct op_hold *hold = op->hold;
    to = turn_put(turn_put(to, extra, 2), hold->id, 8);
    return turn_put(turn_put(to, (uint64_t)hold->units, 7), (uint64_t)hold->ttl_ms, 4);
}

static int answer_reserve(struct step_walk *walk, const struct turn_entry *entry, const int64_t *states, struct op *op)
{
    if (step_check_ops.answer(walk, entry, states, op) < 0) return -1;
    op->hold->held = true;
    for (uint16_t i = 0; i < op->n_members; i++) op->hold->held &= op->members[i].decision.allowed;
    op->hold->made_us = walk->now_us;
    return 0;
}

const struct step_ops step_reserve_ops = {
    .needs = reserve_needs,
    .add_extras = turn_steps_holds_key,
    .put_fields = put_reserve,
    .answer = answer_reserve,
};

/* ---- settle ---- */

static struct step_needs settle_needs(const struct op *op)
{
    return needs_for(op, 2 + 8 + 7 + 7 + 7 + 7 + op->n_members * (size_t)7, 2);
}

static uint8_t *put_settle(const struct op *op, uint16_t extra, uint8_t *to)
{
    const struct op_hold *hold = op->hold;
    to = turn_put(turn_put(to, extra, 2), hold->id, 8);
    to = turn_put(turn_put(to, (uint64_t)hold->units, 7), (uint64_t)hold->made_us, 7);
    to = turn_put(turn_put(to, (uint64_t)hold_end_ms(hold), 7), (uint64_t)hold->actual, 7);
    for (uint16_t i = 0; i < op->n_members; i++) to = turn_put(to, (uint64_t)limit_debt(op->members[i].limit), 7);
    return to;
}

/* As the script counts them. */
static int64_t charged_units(const struct step_walk *walk, const struct turn_entry *entry, const int64_t *states,
                             const struct op *op, int64_t units)
{
    for (uint16_t i = 0; i < op->n_members; i++) {
        int64_t fits = limit_fits_used(step_run(walk, entry, i), states[2 * i], states[2 * i + 1]);
        if (units > fits) units = fits;
    }
    return units;
}

/* The decision of a peek, with `units` charged. */
static void answer_member(const struct run *run, const int64_t *state, int64_t units, struct op_member *member)
{
    int64_t s1 = state[0], s2 = state[1];
    if (units > 0) limit_ops(run->limit)->charge(run, &s1, &s2, units);
    limit_decide(run, &s1, &s2, 0, true, 0, &member->decision);
}

static int answer_settle(struct step_walk *walk, const struct turn_entry *entry, const int64_t *states, struct op *op)
{
    struct op_hold *hold = op->hold;
    int64_t found, back, units = 0;
    step_judge_states(walk, entry, states, op);
    if (step_take(walk, FOUND_HELD, FOUND_TOO_LATE, &found) < 0) return -1;
    int64_t held = found == FOUND_HELD ? hold->units : 0;
    if (step_take(walk, 0, hold->actual < held ? held - hold->actual : 0, &back) < 0) return -1;
    if ((found == FOUND_HELD || found == FOUND_ENDED) && hold->actual > held)
        units = charged_units(walk, entry, states, op, hold->actual - held);
    for (uint16_t i = 0; i < op->n_members; i++)
        answer_member(step_run(walk, entry, i), states + 2 * i, units, &op->members[i]);
    hold->refunded = back;
    hold->charged = units;
    hold->ended = found != FOUND_HELD;
    return 0;
}

const struct step_ops step_settle_ops = {
    .needs = settle_needs,
    .add_extras = turn_steps_holds_key,
    .put_fields = put_settle,
    .answer = answer_settle,
};

/* ---- sweep ---- */

static struct step_needs sweep_needs(const struct op *op)
{
    return needs_for(op, 2, 0);
}

static uint8_t *put_sweep(const struct op *op, uint16_t extra, uint8_t *to)
{
    (void)op;
    return turn_put(to, extra, 2);
}

static int answer_sweep(struct step_walk *walk, const struct turn_entry *entry, const int64_t *states, struct op *op)
{
    step_judge_states(walk, entry, states, op);
    for (uint16_t i = 0; i < op->n_members; i++)
        answer_member(step_run(walk, entry, i), states + 2 * i, 0, &op->members[i]);
    return 0;
}

const struct step_ops step_sweep_ops = {
    .needs = sweep_needs,
    .add_extras = turn_steps_holds_key,
    .put_fields = put_sweep,
    .answer = answer_sweep,
};
