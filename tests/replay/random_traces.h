/*
 * twin_traces.h: what the twins (twins.c) are asked: random traces, each from its seed.
 *
 * A trace has policies (twin_policies.h), a few keys, and turns of steps whose clock mostly goes forward, often to
 * where a reservation, a lease or a remembered id ends. Beside checks, peeks and resets it may ask for any of: refunds
 * and at_most; request ids; reservations; slots. And policies may be given other numbers under way, as by a reload.
 */
#ifndef RL_TESTS_TWIN_TRACES_H
#define RL_TESTS_TWIN_TRACES_H

#include "store/store.h"

enum {
    TWIN_MEMBERS_MAX = 6,
    TWIN_STEPS_MAX = 2048,
    TWIN_NOTE_MAX = 48,
};

/* What is asked, and what is counted of its answers. */
#define TWIN_KINDS(KIND)                                                                                               \
    KIND(CHECK, "check", "allowed")                                                                                    \
    KIND(PEEK, "peek", "allowed")                                                                                      \
    KIND(RESET, "reset", "removed")                                                                                    \
    KIND(MOST, "at_most", "allowed")                                                                                   \
    KIND(ONCE, "request_id", "answered again")                                                                         \
    KIND(REFUND, "refund", "refunded")                                                                                 \
    KIND(RESERVE, "reserve", "held")                                                                                   \
    KIND(SETTLE, "settle", "ended before")                                                                             \
    KIND(CANCEL, "cancel", "ended before")                                                                             \
    KIND(SWEEP, "sweep", "allowed")                                                                                    \
    KIND(ACQUIRE, "acquire", "allowed")                                                                                \
    KIND(RELEASE, "release", "found")                                                                                  \
    KIND(RENEW, "renew", "found")

enum twin_kind {
#define KIND(id, ...) TWIN_##id,
    TWIN_KINDS(KIND)
#undef KIND
        N_TWIN_KINDS
};

/* One op, for either store. */
struct twin_step {
    struct op op;
    enum twin_kind kind;
    bool redis_only; /* memory does by itself what this asks for */
    struct op_member members[TWIN_MEMBERS_MAX];
    struct op_reservation reservation;
    char slot[SLOT_ID_LEN];
    char record[TWIN_NOTE_MAX];
};

/* How the trace is decided. */
struct twin_trace {
    int64_t now_us;
    int64_t skew_us; /* the host's clock is so far ahead of Redis'; moves no calendar's edge */
    uint32_t max_keys;
    bool merge;
};

void twin_trace_begin(uint64_t seed, struct twin_trace *ret);
void twin_trace_end(void);
/* The steps of the turn at now_us, up to TWIN_STEPS_MAX; returns how many. */
size_t twin_trace_turn(struct twin_step *steps);
int64_t twin_trace_later(void);                       /* when the next turn is */
void twin_trace_denied(const struct twin_step *step); /* what was asked for before is not there */
void twin_step_copy(struct twin_step *to, const struct twin_step *from);

#endif
