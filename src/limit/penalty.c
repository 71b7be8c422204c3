/* penalty.c: the arithmetic of pauses; lua/batch.lua has the same. */
#include "limit/penalty.h"

int64_t penalty_length_ms(const struct penalty *penalty, int64_t level)
{
    int64_t length_ms = level > 0 ? penalty->time_ms : 0;
    if (penalty->factor == 1) return length_ms;
    for (int64_t i = 1; i < level && length_ms < penalty->max_ms; i++) length_ms *= penalty->factor;
    return length_ms < penalty->max_ms ? length_ms : penalty->max_ms;
}

bool penalty_view(const struct penalty *penalty, struct pause *pause, int64_t now_ms)
{
    int64_t latest_ms = now_ms + penalty_length_ms(penalty, pause->level);
    bool is_ahead = pause->end_ms > latest_ms;
    if (is_ahead) pause->end_ms = latest_ms;
    if (pause->end_ms + penalty->forget_ms <= now_ms) *pause = (struct pause){0};
    return is_ahead;
}

struct pause penalty_next(const struct penalty *penalty, const struct pause *pause, int64_t now_ms)
{
    int64_t level = pause->level < UINT32_MAX ? pause->level + 1 : UINT32_MAX;
    return (struct pause){.level = level, .end_ms = now_ms + penalty_length_ms(penalty, level)};
}

bool penalty_plausible(const struct penalty *penalty, const struct pause *pause, int64_t now_ms)
{
    return pause->level > 0 ? pause->end_ms <= now_ms + penalty_length_ms(penalty, pause->level) : pause->end_ms == 0;
}
