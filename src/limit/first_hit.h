/*
 * first_hit.h: the parts of first_hit.c that compat.c takes over; what they do is said in limit.h.
 */
#ifndef RL_LIMIT_FIRST_HIT_H
#define RL_LIMIT_FIRST_HIT_H

#include "limit/limit.h"

void first_hit_prepare(struct view *view);
void first_hit_view(struct view *view, struct state *state);
int64_t first_hit_save(const struct view *view, struct state *state);
int64_t first_hit_reset_ms(const struct view *view);
int64_t first_hit_retry_ms(const struct view *view, int64_t cost);
void first_hit_describe(const struct view *view, struct state_terms *ret);

#endif
