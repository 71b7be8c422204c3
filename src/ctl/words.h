/*
 * words.h: the parts that reports are made of: values, limits and durations as people say them.
 */
#ifndef RL_CTL_WORDS_H
#define RL_CTL_WORDS_H

#include <stdbool.h>
#include <stdio.h>

#include "client/ratelimit.h"
#include "proto/pull.h"

/* The value of `name` in a map, or a pull at its end. */
struct pull words_member(struct pull map, const char *name);
/* The number `name` of a map; `otherwise` if it is missing or no number. */
int64_t words_number(struct pull map, const char *name, int64_t otherwise);
/* Is `name` in the map this text? */
bool words_is(struct pull map, const char *name, const char *text);
/* Is `name` in the map, and true? */
bool words_true(struct pull map, const char *name);

/* A text for the terminal, all else as JSON; moves past it. */
void words_value(FILE *out, struct pull *pull);
/* The text `name` of a map, with what comes before and after it; nothing if it is missing. */
void words_text(FILE *out, struct pull map, const char *name, const char *before, const char *after);

/* "fixed_window, 5 per 10s": without its name, and without what it has by default. */
void words_limit(FILE *out, struct pull limit);
/* "count 5, window ends in 8.2s": what the store has; what is over is left out. */
void words_state(FILE *out, struct pull state);
/* "limit 9, window 1m": some settings of a limit, but for its name. */
void words_changes(FILE *out, struct pull limit);

/* A decision, as report_decision() prints it, with the newline. `cost`: what was asked for. */
void words_decision(FILE *out, const struct ratelimit_decision *decision, int64_t cost, bool waited, bool granted);
/* Its parts: "remaining 0/5 (search/day), retry in 8s"; and "  [memory]", with the newline. */
void words_remaining(FILE *out, const struct ratelimit_decision *decision, int64_t cost);
/* " (search/day)": the limit that the numbers belong to, if it is one of several or has a name; else nothing. */
void words_of(FILE *out, const struct ratelimit_decision *decision);
void words_source(FILE *out, const struct ratelimit_decision *decision);

#endif
