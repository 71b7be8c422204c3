/*
 * step_check.c: checks and peeks as steps; twin of lua/step_check.lua and lua/step_peek.lua.
 *
 * A check may bring a note, a key in which its admission is remembered: who comes with the same note
 * while it is kept is charged nothing and gets the first answer, worked out again from the states
 * that the note holds. And it may ask for at most so many units: then as many as fit.
 *
 *   fields   of a check <B flags>; with flag 1 <H note, a key> <I6 ms to keep it> <I4 version>, with flag 2 <I7 most>
 *   reply    with a note 0; or 1 and the time of the first admission, whose states the members' are, and how many units
 *            each was charged then; or 2 and the same where the note was written under another version of the
 *            policies: the states are those of now. Then, where it was decided and denied, a wait in us for each log
 *            with a cost
 *   note     <I7 time> <I4 version>, per member <I7 s1> <I7 s2> <I7 units>
 */
#include "store/turn_steps.h"

enum {
    FLAG_NOTE = 1,
    FLAG_MOST = 2,
    FLAGS_SIZE = 1,
    NOTE_SIZE = 2 + 6 + 4,
    MOST_SIZE = 7,
    DECIDED = 0, /* what the reply says of a note */
    KNOWN = 1,
    KNOWN_OTHERWISE = 2,
};

static bool has_note(const struct op *op)
{
    return op->note.len > 0;
}

static struct step_needs needs(const struct op *op)
{
    return (struct step_needs){
        .n_extras = has_note(op),
        .extra_bytes = op->note.len,
        .field_bytes = FLAGS_SIZE + NOTE_SIZE + MOST_SIZE,
        .n_integers = has_note(op) ? 2 : 0, /* the members' units stand in place of waits */
    };
}

static void add_extras(struct turn *turn, const struct op *op)
{
    if (has_note(op)) turn_steps_extra(turn, &op->members[0], (struct slice){NULL, 0}, op->note);
}

static uint8_t *put_fields(const struct op *op, uint16_t extra, uint8_t *to)
{
    to = turn_put(to, (has_note(op) ? FLAG_NOTE : 0) | (op->at_most > 0 ? FLAG_MOST : 0), FLAGS_SIZE);
    if (has_note(op)) to = turn_put(turn_put(turn_put(to, extra, 2), op->note_ms, 6), op_version(op), 4);
    return op->at_most > 0 ? turn_put(to, (uint64_t)op->at_most, MOST_SIZE) : to;
}

static int take_wait(struct step_walk *walk, const struct run *run, int64_t cost, int64_t *ret)
{
    *ret = 0;
    if (!limit_ops(run->limit)->has_wait || cost == 0) return 0;
    return step_take(walk, 1, run->limit->window_us, ret);
}

/* How many times the costs are admitted, 0 = denied. */
static int64_t fit_of(const struct step_walk *walk, const struct turn_entry *entry, const int64_t *states,
                      const struct op *op)
{
    int64_t fit = op->at_most > 0 ? op->at_most : 1;
    for (uint16_t i = 0; i < op->n_members; i++)
        fit = limit_fits(step_run(walk, entry, i), states[2 * i], states[2 * i + 1], op->members[i].cost, fit);
    return fit;
}

static int answer_decided(struct step_walk *walk, const struct turn_entry *entry, const int64_t *states, struct op *op)
{
    int64_t fit = fit_of(walk, entry, states, op);
    step_judge_states(walk, entry, states, op);
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct run *run = step_run(walk, entry, i);
        struct op_member *member = &op->members[i];
        int64_t s1 = states[2 * i], s2 = states[2 * i + 1], wait = 0;
        member->seen1 = s1;
        member->seen2 = s2;
        if (fit == 0 && take_wait(walk, run, member->cost, &wait) < 0) return -1;
        limit_decide(run, &s1, &s2, member->cost * (fit > 0 ? fit : 1), fit > 0, wait, &member->decision);
    }
    return 0;
}

static int answer_again(struct step_walk *walk, const struct turn_entry *entry, const int64_t *states, bool as_then,
                        struct op *op)
{
    int64_t at_us, granted;
    if (step_take(walk, 0, TURN_EXACT_MAX, &at_us) < 0) return -1;
    if (!as_then) step_judge_states(walk, entry, states, op);
    for (uint16_t i = 0; i < op->n_members; i++) {
        struct run run = *step_run(walk, entry, i);
        struct op_member *member = &op->members[i];
        if (step_take(walk, 0, TURN_EXACT_MAX, &granted) < 0) return -1;
        if (as_then && granted > member->limit->full) granted = member->limit->full; /* a server may say anything */
        if (as_then) limit_run_here(&run, member->limit, member->key, member->max_wait_us, at_us);
        limit_answer_again(&run, states[2 * i], states[2 * i + 1], as_then ? granted : 0, granted, &member->decision);
        /* another host's clock may have worked out what stands there, so only the answer is judged */
        if (member->decision.reset_after_ms < 0) step_doubt(walk, op);
    }
    return 0;
}

static int answer(struct step_walk *walk, const struct turn_entry *entry, const int64_t *states, struct op *op)
{
    int64_t found = DECIDED;
    op->now_us = walk->now_us;
    if (has_note(op) && step_take(walk, DECIDED, KNOWN_OTHERWISE, &found) < 0) return -1;
    if (found != DECIDED) return answer_again(walk, entry, states, found == KNOWN, op);
    return answer_decided(walk, entry, states, op);
}

const struct step_ops step_peek_ops = {.answer = answer};
const struct step_ops step_check_ops = {
    .needs = needs, .add_extras = add_extras, .put_fields = put_fields, .answer = answer};
