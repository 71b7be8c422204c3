#include "client/breaker.h"

enum breaker_verdict breaker_ask(struct breaker *breaker, int64_t now_us)
{
    if (breaker->n_timeouts < BREAKER_TIMEOUTS) return BREAKER_PASS;
    if (breaker->probes || now_us < breaker->open_until_us) return BREAKER_REFUSE;
    breaker->probes = true;
    return BREAKER_PROBE;
}

void breaker_answered(struct breaker *breaker)
{
    *breaker = (struct breaker){0};
}

void breaker_timed_out(struct breaker *breaker, bool is_probe, int64_t now_us)
{
    if (breaker->n_timeouts < BREAKER_TIMEOUTS && ++breaker->n_timeouts == BREAKER_TIMEOUTS) {
        breaker->open_until_us = now_us + BREAKER_OPEN_US;
    } else if (is_probe) {
        breaker->probes = false;
        breaker->open_until_us = now_us + BREAKER_OPEN_US;
    }
}

void breaker_probe_ended(struct breaker *breaker)
{
    *breaker = (struct breaker){0};
}
