/*
 * check_pool.h: where checks come from and go back to.
 *
 * Slabs of checks that grow with need and are kept for good, so that a warmed-up daemon allocates
 * nothing here; the last one returned is the next one taken, because it is still in the cache.
 */
#ifndef RL_ENGINE_CHECK_POOL_H
#define RL_ENGINE_CHECK_POOL_H

#include "engine/check.h"

struct check_slab;

struct check_pool {
    struct list idle;
    struct check_slab *slabs; /* owned */
    size_t n_out;             /* checks taken and not yet returned */
};

void check_pool_init(struct check_pool *pool);
void check_pool_fini(struct check_pool *pool); /* every check must be back */

/* A check with a copy of `key`, zero but for its own storage; NULL without memory. */
struct check *check_pool_take(struct check_pool *pool, struct slice key);
void check_pool_return(struct check_pool *pool, struct check *check);

/* Room for the ids that check_fill_members() joins, of all that `first` stands for. 0, or -1 without memory. */
int check_reserve_ids(struct check *first);
/* Room for n members at check->members. 0, or -1 without memory. */
int check_reserve_members(struct check *check, size_t n);

#endif
