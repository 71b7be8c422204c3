/*
 * random.h: numbers that look random, from any seed: splitmix64 (Steele, Lea and Flood, 2014).
 *
 * For jitter, samples and tests. They are not secret: one number gives away the next.
 */
#ifndef RL_BASE_RANDOM_H
#define RL_BASE_RANDOM_H

#include <stdint.h>

/* One to one: different numbers stay different. */
static inline uint64_t random_mix(uint64_t number)
{
    number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
    return number ^ number >> 31;
}

static inline uint64_t random_next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return random_mix(*state);
}

/* 0 to n - 1. */
static inline uint64_t random_below(uint64_t *state, uint64_t n)
{
    return random_next(state) % n;
}

#endif
