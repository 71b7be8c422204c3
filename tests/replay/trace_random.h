/* trace_random.h: random numbers for a trace; a seed gives the same numbers on every machine. */
#ifndef RL_TESTS_TRACE_RANDOM_H
#define RL_TESTS_TRACE_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"

extern uint64_t trace_random_state;

static inline int64_t below(int64_t n)
{
    return (int64_t)random_below(&trace_random_state, (uint64_t)n);
}

static inline bool once_in(int64_t n)
{
    return below(n) == 0;
}

#define ONE_OF(...)                                                                                                    \
    ((const int64_t[]){__VA_ARGS__})[below((int64_t)(sizeof(const int64_t[]){__VA_ARGS__} / sizeof(int64_t)))]

static inline int64_t between(int64_t least, int64_t value, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

#endif
