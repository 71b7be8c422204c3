/*
 * penalty.h: a pause after a breach, which grows with repetition.
 *
 * A breach is a check of a unit or more that finds nothing available. It begins a pause, in which the limit denies
 * every unit. A breach within `forget` of the pause's end begins the next level, whose pause is `factor` times as long,
 * up to `max`. Its state is apart from the counter's, and is written when a pause begins, or is clamped, and never
 * else.
 *
 * The counterpart in the script is PAUSE of lua/batch.lua.
 */
#ifndef RL_LIMIT_PENALTY_H
#define RL_LIMIT_PENALTY_H

#include <stdbool.h>
#include <stdint.h>

/* The setting, in whole milliseconds; all 0: the limit has none. */
struct penalty {
    int64_t time_ms; /* how long the first pause lasts */
    int64_t factor;
    int64_t max_ms;    /* at least time_ms */
    int64_t forget_ms; /* after a pause */
};

#define PENALTY_LONGEST_MS INT64_C(31536000000) /* 365 days, of each duration */
enum { PENALTY_FACTOR_MAX = 1000 };

/* The state; zeroed: there was no pause, or it is forgotten. */
struct pause {
    int64_t level; /* how many pauses followed one another; at most UINT32_MAX */
    int64_t end_ms;
};

static inline bool penalty_same(const struct penalty *a, const struct penalty *b)
{
    return a->time_ms == b->time_ms && a->factor == b->factor && a->max_ms == b->max_ms && a->forget_ms == b->forget_ms;
}

/* How long the pause of a level lasts; 0 of level 0. */
int64_t penalty_length_ms(const struct penalty *penalty, int64_t level);
/* A stored pause as it counts at now_ms: nothing if it is forgotten; never longer than one that begins now, though the
 * clock stepped back, or the penalty was made shorter. True: it was longer, and is to be written. */
bool penalty_view(const struct penalty *penalty, struct pause *pause, int64_t now_ms);
/* The pause that a breach begins after that one, which is viewed and has ended. */
struct pause penalty_next(const struct penalty *penalty, const struct pause *pause, int64_t now_ms);
/* May a server report this state, as the script clamps it? */
bool penalty_plausible(const struct penalty *penalty, const struct pause *pause, int64_t now_ms);

#endif
