/*
 * natives.h: the algorithms that count units, in the order of algo.def: all but the presets and concurrency. Tests of
 * every algorithm go through them, so a new row is tested without a list to extend.
 */
#ifndef RL_TESTS_NATIVES_H
#define RL_TESTS_NATIVES_H

#include "limit/limit.h"

/* Fills `ret`, and returns how many there are. */
static inline size_t natives(enum algo ret[N_ALGOS])
{
    size_t n = 0;
    for (int algo = 0; algo < N_ALGOS; algo++)
        if (!algo_table[algo]->is_compat && algo != ALGO_CONCURRENCY) ret[n++] = (enum algo)algo;
    return n;
}

#endif
