/*
 * breaker.h: a daemon that hangs must cost its callers three timeouts, and not one with every call.
 *
 * After three calls in a row that timed out the breaker is open for a second: calls are not tried. Then one call goes
 * through, as a probe, while others are still turned away. Any answer closes the breaker; a probe that times out opens
 * it for another second. Failures that take no time do not count.
 */
#ifndef RL_CLIENT_BREAKER_H
#define RL_CLIENT_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum { BREAKER_TIMEOUTS = 3, BREAKER_OPEN_US = 1000000 };

struct breaker {
    int n_timeouts; /* in a row */
    bool probes;    /* a probe is on its way */
    int64_t open_until_us;
};

enum breaker_verdict { BREAKER_PASS, BREAKER_PROBE, BREAKER_REFUSE };

/* May a call be made now? BREAKER_PROBE: yes, and its end must be reported as a probe's. */
enum breaker_verdict breaker_ask(struct breaker *breaker, int64_t now_us);

void breaker_answered(struct breaker *breaker);
void breaker_timed_out(struct breaker *breaker, bool is_probe, int64_t now_us);
/* The probe ended in another way: nothing hangs, so the next calls are tried. */
void breaker_probe_ended(struct breaker *breaker);

#endif
