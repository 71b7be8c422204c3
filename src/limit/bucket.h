/*
 * bucket.h: the parts of bucket.c that leaky_bucket.c takes over; what they do is said in limit.h.
 */
#ifndef RL_LIMIT_BUCKET_H
#define RL_LIMIT_BUCKET_H

#include "limit/limit.h"

int bucket_configure(struct limit *limit, struct diag *diag);
void bucket_prepare(struct view *view);
void bucket_view(struct view *view, struct state *state);
bool bucket_plausible(const struct view *view);
int64_t bucket_save(const struct view *view, struct state *state);
int64_t bucket_reset_ms(const struct view *view);
int64_t bucket_retry_ms(const struct view *view, int64_t cost);
int64_t bucket_delay_ms(const struct view *view);
void bucket_describe(const struct view *view, struct state_terms *ret);

#endif
