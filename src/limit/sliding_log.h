/*
 * sliding_log.h: the parts of sliding_log.c that compat.c takes over; what they do is said in limit.h.
 */
#ifndef RL_LIMIT_SLIDING_LOG_H
#define RL_LIMIT_SLIDING_LOG_H

#include "limit/limit.h"

void sliding_log_view(const struct run *run, struct state *raw, int64_t *ret_s1, int64_t *ret_s2, int64_t *ret_keep);
int64_t sliding_log_room(const struct run *run, int64_t s1, int64_t s2);
void sliding_log_charge(const struct run *run, int64_t *s1, int64_t *s2, int64_t units);
int64_t sliding_log_wait(const struct run *run, const struct state *raw, int64_t s1, int64_t cost);
int sliding_log_reserve(const struct run *run, struct state *raw, int64_t units);
int sliding_log_store(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep, int64_t units);
void sliding_log_answer(const struct run *run, int64_t s1, int64_t s2, bool allowed, int64_t cost, int64_t wait,
                        struct decision *ret);
int64_t sliding_log_expires(const struct run *run, const struct state *raw);
void sliding_log_describe(const struct run *run, int64_t s1, int64_t s2, struct state_terms *ret);

#endif
