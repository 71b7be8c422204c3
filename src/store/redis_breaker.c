#include "store/redis_breaker.h"

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

void redis_breaker_lost(struct redis_breaker *breaker, int64_t missed_us)
{
    if (missed_us == 0 || redis_breaker_is_open(breaker)) return; /* open: it was sent before */
    if (breaker->n_late == 0 || missed_us < breaker->missed_us) breaker->missed_us = missed_us;
    count(breaker, &breaker->n_late, breaker->late, BREAKER_LATE);
}

void redis_breaker_answered(struct redis_breaker *breaker, int64_t missed_us, bool has_written)
{
    if (redis_breaker_is_open(breaker)) return;
    if (has_written) breaker->n_errors = 0;
    if (missed_us == 0) breaker->n_late = 0;
    redis_breaker_lost(breaker, missed_us);
}
