/* redis/breaker.c: counts refused and late batches in a row; redis/batches.c reports them, redis/node.c asks. */
#include "redis/breaker.h"

void redis_breaker_set(struct redis_breaker *breaker, uint32_t errors, uint32_t late)
{
    breaker->errors = errors;
    breaker->late = late;
    bool is_off = (breaker->cause == BREAKER_REFUSED && errors == 0) || (breaker->cause == BREAKER_LATE && late == 0);
    if (is_off) redis_breaker_close(breaker);
}

void redis_breaker_close(struct redis_breaker *breaker)
{
    breaker->cause = BREAKER_CLOSED;
    breaker->n_errors = breaker->n_late = 0;
}

static void count(struct redis_breaker *breaker, uint32_t *n_in_row, uint32_t most, enum breaker_cause cause)
{
    if (redis_breaker_is_open(breaker) || most == 0 || ++*n_in_row < most) return;
    breaker->cause = cause;
    breaker->on_opened(breaker);
}

void redis_breaker_refused(struct redis_breaker *breaker)
{
    count(breaker, &breaker->n_errors, breaker->errors, BREAKER_REFUSED);
}

void redis_breaker_lost(struct redis_breaker *breaker, int64_t missed_us, int64_t sent_us, int64_t now_us)
{
    if (missed_us == 0 || redis_breaker_is_open(breaker)) return; /* open: it was sent before */
    bool is_first = breaker->n_late == 0;
    if (is_first) breaker->row_us = now_us;
    if (is_first) breaker->longest_us = breaker->fastest_us = breaker->slowest_us = 0;
    if (is_first || missed_us < breaker->missed_us) breaker->missed_us = missed_us;
    if (missed_us > breaker->longest_us) breaker->longest_us = missed_us;

    bool is_one_pause = sent_us < breaker->row_us && breaker->late > 1;
    if (is_one_pause && breaker->n_late + 1 >= breaker->late) return;
    count(breaker, &breaker->n_late, breaker->late, BREAKER_LATE);
}

void redis_breaker_took(struct redis_breaker *breaker, int64_t took_us)
{
    if (breaker->fastest_us == 0 || took_us < breaker->fastest_us) breaker->fastest_us = took_us;
    if (took_us > breaker->slowest_us) breaker->slowest_us = took_us;
}

void redis_breaker_answered(struct redis_breaker *breaker, int64_t missed_us, int64_t sent_us, int64_t now_us,
                            bool has_written)
{
    if (redis_breaker_is_open(breaker)) return;
    if (has_written) breaker->n_errors = 0;
    if (missed_us == 0) breaker->n_late = 0;
    redis_breaker_lost(breaker, missed_us, sent_us, now_us);
}
