/*
 * turn_steps.h: a turn in steps, and what a kind of step (step.def) is to it; private to turn*.c and step_*.c.
 *
 * The script handles such a turn's ops one after the other, each from its keys' states in Redis to
 * their new ones, before it looks at the next. Every op is one step; it may bring keys of its own
 * beside those of its members (a note ...) and fields of its own, and the reply says for each step
 * what it saw. lua/steps.lua draws the format.
 *
 * A kind is a row of step.def, lua/step_NAME.lua, and its step_ops; kind_of() in turn_steps.c says
 * which ops are of it.
 */
#ifndef RL_STORE_TURN_STEPS_H
#define RL_STORE_TURN_STEPS_H

#include "store/turn_private.h"

enum step_kind {
#define STEP(id, ...) STEP_##id,
#include "store/step.def"
#undef STEP
    N_STEP_KINDS
};

/* What an op takes of its turn, beside its members. */
struct step_needs {
    uint16_t n_extras;  /* keys of its own */
    size_t extra_bytes; /* theirs, without prefix and tag */
    size_t field_bytes; /* at most */
    size_t n_integers;  /* at most, in the reply */
};

/* The reply while it is read, once, forward. */
struct step_walk {
    const struct turn *turn;
    const int64_t *at, *end; /* what is left */
    int64_t now_us;
    struct run runs[TURN_KEYS_MAX]; /* by run */
    uint64_t n_foreign;
    bool any_implausible;
};

struct step_ops {
    struct step_needs (*needs)(const struct op *op);            /* NULL: nothing */
    void (*add_extras)(struct turn *turn, const struct op *op); /* by turn_steps_extra(), n_extras times */
    /* Its own fields; `extra`: the place of its first own key in KEYS, from 1. Returns their end. NULL: none. */
    uint8_t *(*put_fields)(const struct op *op, uint16_t extra, uint8_t *to);
    /* What the script says of this op beyond its members' states, of which none is foreign: s1 and s2 of each in turn.
     * Fills the members' results. 0, or -1 where the integers make no sense. */
    int (*answer)(struct step_walk *walk, const struct turn_entry *entry, const int64_t *states, struct op *op);
};

extern const struct step_ops step_check_ops;

/* Does the op go in steps only? */
bool turn_steps_needed(const struct op *op);

bool turn_steps_fit(const struct turn *turn, const struct op *op); /* room for one more, beside its members' keys */
int turn_steps_reserve(struct turn *turn, const struct op *op);    /* 0, or -1 without memory */
void turn_steps_add(struct turn *turn, const struct op *op, struct turn_entry *entry);

size_t turn_steps_args(struct turn *turn, uint32_t nonce, int64_t wall_us, int64_t latest_us,
                       const struct slice **ret_args);
void turn_steps_bounds(const struct turn *turn, size_t *ret_min, size_t *ret_max);
int turn_steps_replay(struct turn *turn, const int64_t *reply, size_t n);

/* For the kinds: one more key, `head` and `name` behind the prefix and the tag of `member`'s keys. */
void turn_steps_extra(struct turn *turn, const struct op_member *member, struct slice head, struct slice name);
/* The key of the holds of the op's policy and key, which has any (step_reserve.c). */
void turn_steps_holds_key(struct turn *turn, const struct op *op);
size_t turn_steps_holds_key_bytes(const struct op *op);
/* The next integer of the reply. 0, or -1 where there is none, or none between `least` and `most`. */
int step_take(struct step_walk *walk, int64_t least, int64_t most, int64_t *ret);
/* States that no script leaves: the op gets no answer. */
void step_doubt(struct step_walk *walk, struct op *op);
/* Doubts the op unless its members' states are what their algorithms leave, as of now. */
void step_judge_states(struct step_walk *walk, const struct turn_entry *entry, const int64_t *states, struct op *op);
/* The run of an op's i-th member at the walk's now. */
const struct run *step_run(const struct step_walk *walk, const struct turn_entry *entry, uint16_t i);

#endif
