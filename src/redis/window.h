/*
 * redis/window.h: how many batches may be on the wire to one server at once; pure. In a cluster a call has few keys, so
 * there the keys count: `per_batch` of them are a batch.
 *
 * New ops wait for the batches on the wire: a slow reply halves the window, but the replies of one window only once; as
 * many fast ones as it has batches let it grow by one. So it stays near what the server answers in time (D. Chiu and R.
 * Jain, "Analysis of the increase and decrease algorithms for congestion avoidance", 1989).
 */
#ifndef RL_REDIS_WINDOW_H
#define RL_REDIS_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

struct redis_window {
    uint32_t size;     /* batches; 1 to the setting */
    uint32_t n_fast;   /* of what was answered fast since it changed; batches, or keys */
    int64_t halved_us; /* CLOCK_MONOTONIC; replies to what was sent before do not halve it again */
};

static inline void redis_window_begin(struct redis_window *window, uint32_t size)
{
    window->size = size;
    window->n_fast = 0;
}

/* A good reply to n of what counts, sent at sent_us. deadline_us: the usual check's. */
void redis_window_answered(struct redis_window *window, uint32_t n, uint32_t per_batch, int64_t sent_us, int64_t now_us,
                           int64_t deadline_us, uint32_t most);
/* May one more go, with n on the wire, the oldest since oldest_us? Only as long as the server answers well within the
 * deadline. (One may always be on its way.) */
bool redis_window_has_space(const struct redis_window *window, uint32_t n, uint32_t per_batch, int64_t oldest_us,
                            int64_t now_us, int64_t deadline_us);

#endif
