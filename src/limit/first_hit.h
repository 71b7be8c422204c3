/*
 * first_hit.h: the parts of first_hit.c that compat.c takes over; what they do is said in limit.h.
 */
#ifndef RL_LIMIT_FIRST_HIT_H
#define RL_LIMIT_FIRST_HIT_H

#include "limit/limit.h"

void first_hit_prepare(struct run *run);
void first_hit_view(const struct run *run, struct state *raw, int64_t *ret_s1, int64_t *ret_s2, int64_t *ret_keep);
int64_t first_hit_room(const struct run *run, int64_t s1, int64_t s2);
void first_hit_charge(const struct run *run, int64_t *s1, int64_t *s2, int64_t units);
int first_hit_store(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep, int64_t units);
void first_hit_answer(const struct run *run, int64_t s1, int64_t s2, bool allowed, int64_t cost, int64_t wait,
                      struct decision *ret);
int64_t first_hit_expires(const struct run *run, const struct state *raw);
void first_hit_describe(const struct run *run, int64_t s1, int64_t s2, struct state_terms *ret);

#endif
