/*
 * fixed_window.h: the parts of fixed_window.c that compat.c takes over; what they do is said in limit.h.
 */
#ifndef RL_LIMIT_FIXED_WINDOW_H
#define RL_LIMIT_FIXED_WINDOW_H

#include "limit/limit.h"

void fixed_window_prepare(struct view *view);
void fixed_window_view(struct view *view, struct state *state);
int64_t fixed_window_save(const struct view *view, struct state *state);
int64_t fixed_window_reset_ms(const struct view *view);
int64_t fixed_window_retry_ms(const struct view *view, int64_t cost);
void fixed_window_describe(const struct view *view, struct state_terms *ret);

#endif
