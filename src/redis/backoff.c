/* redis/backoff.c: how long to wait before the next attempt to connect, for redis/link.c. */
#include "redis/backoff.h"

#include "base/random.h"

/* 1 to `most`. */
static uint32_t random_upto(struct backoff *backoff, uint32_t most)
{
    return most > 1 ? 1 + (uint32_t)random_below(&backoff->random, most) : 1;
}

void backoff_init(struct backoff *backoff, uint64_t seed)
{
    *backoff = (struct backoff){.random = seed};
}

void backoff_set(struct backoff *backoff, uint32_t min_ms, uint32_t max_ms, uint32_t refused_max_ms)
{
    backoff->min_ms = min_ms > 0 ? min_ms : 1; /* from 0 nothing would ever double */
    backoff->max_ms = max_ms;
    backoff->refused_max_ms = refused_max_ms;
}

uint32_t backoff_next(struct backoff *backoff, bool refused)
{
    if (refused) {
        uint32_t half = backoff->refused_max_ms / 2;
        return half + random_upto(backoff, backoff->refused_max_ms - half);
    }

    uint64_t ceiling_ms = backoff->min_ms;
    for (uint32_t i = 0; i < backoff->n_failures && ceiling_ms < backoff->max_ms; i++) ceiling_ms *= 2;
    if (ceiling_ms > backoff->max_ms) ceiling_ms = backoff->max_ms;
    if (backoff->n_failures < UINT32_MAX) backoff->n_failures++;
    return random_upto(backoff, (uint32_t)ceiling_ms);
}

void backoff_reset(struct backoff *backoff)
{
    backoff->n_failures = 0;
}
