/*
 * native.h: the parts of native algorithms that compat.c takes over; limit.h describes them.
 */
#ifndef RL_LIMIT_NATIVE_H
#define RL_LIMIT_NATIVE_H

#include "limit/limit.h"

void fixed_window_prepare(struct view *view);
void fixed_window_view(struct view *view, struct state *state);
int64_t fixed_window_save(const struct view *view, struct state *state);
int64_t fixed_window_reset_ms(const struct view *view);
int64_t fixed_window_retry_ms(const struct view *view, int64_t cost);
void fixed_window_describe(const struct view *view, struct state_terms *ret);

void first_hit_prepare(struct view *view);
void first_hit_view(struct view *view, struct state *state);
int64_t first_hit_save(const struct view *view, struct state *state);
int64_t first_hit_reset_ms(const struct view *view);
int64_t first_hit_retry_ms(const struct view *view, int64_t cost);
void first_hit_describe(const struct view *view, struct state_terms *ret);

void sliding_log_view(struct view *view, struct state *state);
int sliding_log_reserve(const struct view *view, struct state *state, int64_t units);
int64_t sliding_log_save(const struct view *view, struct state *state);
int64_t sliding_log_reset_ms(const struct view *view);
int64_t sliding_log_wait_us(const struct view *view, int64_t cost);
int64_t sliding_log_retry_ms(const struct view *view, int64_t cost);
void sliding_log_describe(const struct view *view, struct state_terms *ret);

#endif
