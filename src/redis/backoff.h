/*
 * backoff.h: how long to wait before the next attempt, with full jitter; pure.
 *
 * A node that is merely away: a random time between 0 and a ceiling that doubles from `min_ms` to
 * `max_ms`, so that many daemons do not come back in step. A node that refused us (user, password,
 * too many clients, a certificate): between half of `refused_max_ms` and the whole of it, because asking again at once
 * cannot help, and a server that a thousand daemons ask has to answer each of them. The default still finds the server
 * within a second.
 */
#ifndef RL_REDIS_BACKOFF_H
#define RL_REDIS_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

struct backoff {
    uint32_t min_ms, max_ms, refused_max_ms;
    uint32_t n_failures; /* since the last reset */
    uint64_t random;     /* state of the generator */
};

void backoff_init(struct backoff *backoff, uint64_t seed);
void backoff_set(struct backoff *backoff, uint32_t min_ms, uint32_t max_ms, uint32_t refused_max_ms);
uint32_t backoff_next(struct backoff *backoff, bool refused); /* ms to wait after one more failure; at least 1 */
void backoff_reset(struct backoff *backoff);                  /* after a time of health */

#endif
