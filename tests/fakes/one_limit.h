/*
 * one_limit.h: one limit and the state of one key, without a store: the decisions of the C code of an
 * algorithm alone.
 */
#ifndef RL_TESTS_ONE_LIMIT_H
#define RL_TESTS_ONE_LIMIT_H

#include "policy/policy.h"

struct one_limit {
    struct policy *policy; /* owned */
    const struct limit *limit;
    struct state state; /* owned */
};

/* Settings as in a configuration; window in us (calendar_window: that of an hour, a day or a longer one, a month, in a
 * zone that moves its clocks by half an hour). Fails the test if they are refused. */
struct one_limit one_limit(enum algo algo, int64_t limit, int64_t window_us, int64_t burst, bool count_denied);
struct one_limit one_leaky_bucket(int64_t limit, int64_t window_us, int64_t burst, int64_t max_wait_us);
void one_limit_fini(struct one_limit *one);

/* The same key under new settings, as after a reload. */
void one_limit_change(struct one_limit *one, int64_t limit, int64_t window_us, int64_t burst);

/* NULL if the settings are correct, else the message (in `text`). */
const char *one_limit_fault(enum algo algo, int64_t limit, int64_t window_us, int64_t burst, bool count_denied,
                            char *text, size_t size);

const char *one_leaky_bucket_fault(int64_t limit, int64_t window_us, int64_t burst, int64_t max_wait_us, char *text,
                                   size_t size);

struct decision one_check(struct one_limit *one, int64_t now_us, int64_t cost);
struct decision one_peek(struct one_limit *one, int64_t now_us, int64_t cost);
/* A check with its own wait. */
struct decision one_check_within(struct one_limit *one, int64_t now_us, int64_t cost, int64_t max_wait_us);
struct decision one_peek_within(struct one_limit *one, int64_t now_us, int64_t cost, int64_t max_wait_us);

#endif
