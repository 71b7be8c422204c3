/*
 * fixed_window.h: the parts of fixed_window.c that compat.c takes over; what they do is said in limit.h.
 */
#ifndef RL_LIMIT_FIXED_WINDOW_H
#define RL_LIMIT_FIXED_WINDOW_H

#include "limit/limit.h"

void fixed_window_prepare(struct run *run);
void fixed_window_view(const struct run *run, struct state *raw, int64_t *ret_s1, int64_t *ret_s2, int64_t *ret_keep);
int64_t fixed_window_room(const struct run *run, int64_t s1, int64_t s2);
void fixed_window_charge(const struct run *run, int64_t *s1, int64_t *s2, int64_t units);
int fixed_window_store(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep, int64_t units);
void fixed_window_answer(const struct run *run, int64_t s1, int64_t s2, bool allowed, int64_t cost, int64_t wait,
                         struct decision *ret);
int64_t fixed_window_expires(const struct run *run, const struct state *raw);
void fixed_window_describe(const struct run *run, int64_t s1, int64_t s2, struct state_terms *ret);

#endif
