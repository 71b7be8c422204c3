/*
 * carry.h: what becomes of the states that exist when a limit's settings change (lua/ALGORITHMS.md, "Settings
 * changed").
 *
 * Nothing here lists what keeps and what starts afresh. Keys are compared by the names that limit_set_key_head() gave
 * them, and a state is made under the old settings and viewed under the new ones, by the functions that decide checks.
 */
#ifndef RL_LIMIT_CARRY_H
#define RL_LIMIT_CARRY_H

#include <stdbool.h>
#include <stdint.h>

struct limit;

/* Do the limits' keys begin alike, for states of one form? `in_redis`: there, presets of two systems may share a key;
 * in memory each algorithm has its own. */
bool limit_same_head(const struct limit *before, const struct limit *after, bool in_redis);

enum carry {
    CARRY_ALL,
    CARRY_SOME, /* of some keys: their windows begin at moments of their own (phase) */
    CARRY_NONE, /* what is there counts as fresh */
};

/* Does a state that was charged under `before` count under `after`, which has the same keys? */
enum carry limit_carry(const struct limit *before, const struct limit *after, int64_t now_us);

/* When the last state that is charged at now_us has ended, in us since the epoch; INT64_MAX: unknown. */
int64_t limit_states_end_us(const struct limit *limit, int64_t now_us);

#endif
