/*
 * sliding_log.h: the parts of sliding_log.c that compat.c takes over; what they do is said in limit.h.
 */
#ifndef RL_LIMIT_SLIDING_LOG_H
#define RL_LIMIT_SLIDING_LOG_H

#include "limit/limit.h"

void sliding_log_view(struct view *view, struct state *state);
int sliding_log_reserve(const struct view *view, struct state *state, int64_t units);
int64_t sliding_log_save(const struct view *view, struct state *state);
int64_t sliding_log_reset_ms(const struct view *view);
int64_t sliding_log_wait_us(const struct view *view, int64_t cost);
int64_t sliding_log_retry_ms(const struct view *view, int64_t cost);
void sliding_log_describe(const struct view *view, struct state_terms *ret);

#endif
