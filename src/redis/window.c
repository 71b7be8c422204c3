/* redis/window.c: how many batches may be on the wire; redis/batches.c asks before each. */
#include "redis/window.h"

#include "base/assert.h"

/* Of the deadline. An op may have to wait for two replies: that of what is on the wire, and its own. */
enum {
    FULL_PART = 4,  /* while the oldest reply takes longer, nothing more is sent */
    SLOW_PART = 10, /* a reply that took longer says that less should be on the wire */
};

void redis_window_answered(struct redis_window *window, uint32_t n, uint32_t per_batch, int64_t sent_us, int64_t now_us,
                           int64_t deadline_us, uint32_t most)
{
    bool was_slow = now_us - sent_us >= deadline_us / SLOW_PART;
    if (was_slow && sent_us >= window->halved_us) {
        window->halved_us = now_us;
        redis_window_begin(window, window->size > 1 ? window->size / 2 : 1);
    }
    if (!was_slow) {
        window->n_fast += n;
        if (window->n_fast >= window->size * per_batch) redis_window_begin(window, window->size + 1);
    }
    if (window->size > most) window->size = most; /* a reload may lower it */
}

bool redis_window_has_space(const struct redis_window *window, uint32_t n, uint32_t per_batch, int64_t oldest_us,
                            int64_t now_us, int64_t deadline_us)
{
    CHECK(window->size > 0 && per_batch > 0);
    return n < window->size * per_batch && now_us - oldest_us < deadline_us / FULL_PART;
}
