/*
 * wait.c: the calls that wait, made of the blocking ones: ask, sleep for the time in the denial, ask again.
 */
#include "client/wait.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"

#define PAUSE_MAX_MS (INT64_C(1) << 53) /* no daemon sends more; another peer must not cause an overflow */

enum {
    SECOND_MS = 1000,
    MS_NS = 1000000,
    JITTER_PART = 10, /* up to a tenth of the pause */
    PAUSE_MIN_MS = 10,
    SLOT_PAUSE_MIN_MS = 50,
    SLOT_PAUSE_MAX_MS = 1000,
};

/* ---- When to ask again ---- */

void wait_start(struct wait *wait, enum wait_kind kind, int64_t most_ms, int64_t now_ms, uint64_t seed)
{
    *wait = (struct wait){.kind = kind, .slot_pause_ms = SLOT_PAUSE_MIN_MS, .random = seed};
    wait->until_ms = most_ms < 0 || most_ms > INT64_MAX - now_ms ? INT64_MAX : now_ms + most_ms;
}

int64_t wait_left_ms(const struct wait *wait, int64_t now_ms)
{
    if (wait->until_ms == INT64_MAX) return INT64_MAX;
    return wait->until_ms > now_ms ? wait->until_ms - now_ms : 0;
}

int64_t wait_next_ms(struct wait *wait, int64_t retry_after_ms, int64_t now_ms)
{
    int64_t left_ms = wait_left_ms(wait, now_ms), pause_ms = retry_after_ms;
    if (retry_after_ms < 0 || left_ms == 0) return WAIT_OVER;

    if (wait->kind == WAIT_FOR_SLOT) {
        pause_ms = wait->slot_pause_ms;
        wait->slot_pause_ms = pause_ms < SLOT_PAUSE_MAX_MS / 2 ? pause_ms * 2 : SLOT_PAUSE_MAX_MS;
    } else if (retry_after_ms > left_ms) {
        return WAIT_OVER; /* it would be denied until the end: return now */
    }

    if (pause_ms < PAUSE_MIN_MS) pause_ms = PAUSE_MIN_MS;
    if (pause_ms > PAUSE_MAX_MS) pause_ms = PAUSE_MAX_MS;

    pause_ms += (int64_t)random_below(&wait->random, (uint64_t)(pause_ms / JITTER_PART) + 1);
    return pause_ms < left_ms ? pause_ms : left_ms;
}

int64_t wait_now_ms(void)
{
    return clock_mono_us() / 1000;
}

uint64_t wait_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed) return seed;
    return (uint64_t)wait_now_ms() << 20 ^ (uint64_t)getpid();
}

bool wait_after(struct wait *wait, const struct ratelimit_decision *decision)
{
    int64_t pause_ms =
        decision->allowed ? decision->delay_ms : wait_next_ms(wait, decision->retry_after_ms, wait_now_ms());
    if (pause_ms == WAIT_OVER) return false;

    struct timespec left = {.tv_sec = (time_t)(pause_ms / SECOND_MS), .tv_nsec = (long)(pause_ms % SECOND_MS) * MS_NS};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) continue;
    return !decision->allowed;
}

/* ---- The calls ---- */

enum ratelimit_status ratelimit_check_wait(struct ratelimit *client, const char *policy, const void *key,
                                           size_t key_len, const struct ratelimit_options *options, uint32_t timeout_ms,
                                           int64_t wait_ms, struct ratelimit_decision *ret_decision)
{
    struct wait wait;
    wait_start(&wait, WAIT_FOR_UNITS, wait_ms, wait_now_ms(), wait_seed());

    /* The daemon denies a delay that is longer than the time left. A struct of another version is passed unchanged. */
    bool is_bounded = wait.until_ms != INT64_MAX && (options == NULL || options->size == sizeof *options);
    struct ratelimit_options bounded = RATELIMIT_OPTIONS;
    if (is_bounded && options != NULL) bounded = *options;
    int64_t max_wait_ms = bounded.max_wait_ms;

    for (;;) {
        int64_t left_ms = wait_left_ms(&wait, wait_now_ms());
        bounded.max_wait_ms = max_wait_ms == -1 || max_wait_ms > left_ms ? left_ms : max_wait_ms;
        enum ratelimit_status status = ratelimit_check_with(client, policy, key, key_len,
                                                            is_bounded ? &bounded : options, timeout_ms, ret_decision);
        if (status != RATELIMIT_OK || !wait_after(&wait, ret_decision)) return status;
    }
}

enum ratelimit_status ratelimit_acquire_wait(struct ratelimit *client, const char *policy, const void *key,
                                             size_t key_len, uint32_t timeout_ms, int64_t wait_ms,
                                             struct ratelimit_decision *ret_decision)
{
    struct wait wait;
    wait_start(&wait, WAIT_FOR_SLOT, wait_ms, wait_now_ms(), wait_seed());

    for (;;) {
        enum ratelimit_status status = ratelimit_acquire(client, policy, key, key_len, timeout_ms, ret_decision);
        if (status != RATELIMIT_OK || !wait_after(&wait, ret_decision)) return status;
    }
}
