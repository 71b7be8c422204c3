/*
 * decode.h: read the daemon's answers: decisions in both forms, and hello's list of fields.
 *
 * Decisions come as arrays, whose order hello's answer states, or as maps. Fields this library does not know are
 * skipped, those that are missing keep their default; only `allowed` must be there.
 */
#ifndef RL_CLIENT_DECODE_H
#define RL_CLIENT_DECODE_H

#include <stdint.h>

#include "base/buffer.h"
#include "client/ratelimit.h"
#include "proto/pull.h"

enum { DECODE_FIELDS_MAX = 64 }; /* places of the array form that are looked at; what follows is skipped */

/* Which field stands at which place of the array form. */
struct decode_order {
    uint8_t n;
    uint8_t fields[DECODE_FIELDS_MAX]; /* index into the table of decode.c */
};

void decode_order_init(struct decode_order *order); /* the protocol's order, good until hello has answered */

/* What was added to the protocol, and is used if hello lists it. */
enum { FEATURE_NAME = 1 << 0, FEATURE_ABANDON = 1 << 1 };

/* Take over what hello answered; on -1 (no such answer) all are as before. *max_frame in bytes; *features is a set of
 * FEATURE_*. */
int decode_hello(struct pull pull, struct decode_order *order, uint32_t *max_frame, unsigned *features);

/* One decision on a check of `cost`, and move past it; 0, or -1 when that is no decision. */
int decode_decision(struct pull *pull, const struct decode_order *order, int64_t cost,
                    struct ratelimit_decision *ret_decision);

/* One with a reservation or slot, which must be there if it allows: into `id`, with a NUL after it; else `id` is
 * empty. -1 also without memory. */
int decode_with_id(struct pull *pull, const struct decode_order *order, int64_t cost,
                   struct ratelimit_decision *ret_decision, struct buffer *id);
/* A list of `n` decisions, into `decisions`, where each one's `granted` is its check's cost beforehand. */
int decode_many(struct pull *pull, const struct decode_order *order, struct ratelimit_decision *decisions, size_t n);
/* A check_all's: the combined decision, on `cost` in all, and those of its members as decode_many(). */
int decode_all(struct pull *pull, const struct decode_order *order, int64_t cost,
               struct ratelimit_decision *ret_decision, struct ratelimit_decision *members, size_t n);
/* Of `names`, each with a NUL behind it: those that a list of policies lacks, and those that count denied checks, each
 * list as a text with commas, cut to `size`. 0, or -1 when that is no list of policies. */
int decode_policies(struct pull pull, const struct buffer *names, char *ret_missing, char *ret_counting, size_t size);
/* The bool `name` of a map, {removed: bool} and whatever a later daemon adds. 0 or -1. */
int decode_flag(struct pull pull, const char *name, bool *ret);

#endif
