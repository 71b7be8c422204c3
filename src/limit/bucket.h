/*
 * bucket.h: the parts of bucket.c that leaky_bucket.c takes over; what they do is said in limit.h.
 */
#ifndef RL_LIMIT_BUCKET_H
#define RL_LIMIT_BUCKET_H

#include "limit/limit.h"

int bucket_configure(struct limit *limit, struct diag *diag);
void bucket_prepare(struct run *run);
void bucket_view(const struct run *run, struct state *raw, int64_t *ret_s1, int64_t *ret_s2, int64_t *ret_keep);
bool bucket_plausible(const struct run *run, int64_t s1, int64_t s2);
int64_t bucket_room(const struct run *run, int64_t s1, int64_t s2);
void bucket_charge(const struct run *run, int64_t *s1, int64_t *s2, int64_t units);
int bucket_store(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep, int64_t units);
void bucket_answer(const struct run *run, int64_t s1, int64_t s2, bool allowed, int64_t cost, int64_t wait,
                   struct decision *ret);
int64_t bucket_refund(const struct run *run, struct state *raw, int64_t *s1, int64_t *s2, int64_t units,
                      int64_t made_us);
int64_t bucket_expires(const struct run *run, const struct state *raw);
void bucket_describe(const struct run *run, int64_t s1, int64_t s2, struct state_terms *ret);

#endif
