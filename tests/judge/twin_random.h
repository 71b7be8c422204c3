/* twin_random.h: the numbers that a trace of the twins is made of; a seed gives the same ones everywhere. */
#ifndef RL_TESTS_TWIN_RANDOM_H
#define RL_TESTS_TWIN_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

extern uint64_t twin_random_state;

/* splitmix64 */
static inline uint64_t random64(void)
{
    uint64_t z = twin_random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline int64_t below(int64_t n)
{
    return (int64_t)(random64() % (uint64_t)n);
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
