/*
 * random_traces.h: random traces for differential.c, each from its seed.
 *
 * A trace has policies (random_policies.h), a few keys, and ticks with steps. Its clock mostly goes forward, often to
 * the end of a reservation, a lease or a remembered id. Besides checks, peeks and resets, a trace may have refunds,
 * charges that are undone, or that go back to a bucket if it has their level still, and at_most, request ids,
 * reservations, and slots. Policies may get other numbers during the trace, as by a reload. Some have an override or a
 * candidate, and some are named as inline policies are.
 */
#ifndef RL_TESTS_RANDOM_TRACES_H
#define RL_TESTS_RANDOM_TRACES_H

#include "store/store.h"

enum {
    TRACE_MEMBERS_MAX = 6,
    TRACE_STEPS_MAX = 2048,
    TRACE_RECORD_MAX = 48,
};

/* The kinds of ops, and the outcome that is counted for each. */
#define TRACE_KINDS(KIND)                                                                                              \
    KIND(CHECK, "check", "allowed")                                                                                    \
    KIND(PEEK, "peek", "allowed")                                                                                      \
    KIND(RESET, "reset", "removed")                                                                                    \
    KIND(MOST, "at_most", "allowed")                                                                                   \
    KIND(ONCE, "request_id", "answered again")                                                                         \
    KIND(REFUND, "refund", "refunded")                                                                                 \
    KIND(UNDO, "undo", "refunded")                                                                                     \
    KIND(RETURN, "return", "refunded")                                                                                 \
    KIND(RESERVE, "reserve", "held")                                                                                   \
    KIND(SETTLE, "settle", "ended before")                                                                             \
    KIND(CANCEL, "cancel", "ended before")                                                                             \
    KIND(SWEEP, "sweep", "allowed")                                                                                    \
    KIND(ACQUIRE, "acquire", "allowed")                                                                                \
    KIND(RELEASE, "release", "found")                                                                                  \
    KIND(RENEW, "renew", "found")

enum trace_kind {
#define KIND(id, ...) TRACE_##id,
    TRACE_KINDS(KIND)
#undef KIND
        N_TRACE_KINDS
};

/* One op, for either store. */
struct trace_step {
    struct op op;
    enum trace_kind kind;
    bool redis_only; /* the memory store does this without a request */
    struct op_member members[TRACE_MEMBERS_MAX];
    struct op_reservation reservation;
    char slot[SLOT_ID_LEN];
    char record[TRACE_RECORD_MAX];
};

/* How to decide the trace. */
struct trace {
    int64_t now_us;
    int64_t skew_us; /* the host's clock is ahead of Redis' by this much; this moves no calendar's edge */
    uint32_t max_keys;
    bool merge;
};

void trace_begin(uint64_t seed, struct trace *ret);
void trace_end(void);
/* Makes the steps of the tick at now_us, up to TRACE_STEPS_MAX; returns their number. */
size_t trace_tick(struct trace_step *steps);
int64_t trace_later(void);                         /* the time of the next tick */
void trace_denied(const struct trace_step *step);  /* the step was denied: later steps cannot use it */
void trace_allowed(const struct trace_step *step); /* else: they may take back its charge */
void trace_step_copy(struct trace_step *to, const struct trace_step *from);

#endif
