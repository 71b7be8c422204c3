/*
 * report.h: the daemon's answers in words, for people; one function for each kind of answer.
 *
 * Each returns 0, or -1 when the answer is not of its kind (nothing is printed then).
 */
#ifndef RL_CTL_REPORT_H
#define RL_CTL_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "client/ratelimit.h"
#include "proto/pull.h"

/* What the words of the answer depend on in the question. */
struct asked {
    const int64_t *costs; /* of each check, in order */
    size_t n_costs;
    bool at_most; /* how much was granted is news */
    bool waited;  /* what is to be waited for is over */
    bool all;     /* of stats */
};

/* Reads the decision in an answer. 0, or -1 if it has none. */
int report_read(struct pull answer, struct ratelimit_decision *ret);

typedef int report_fn(FILE *out, struct pull answer, const struct asked *asked);

report_fn report_decision; /* "allowed  remaining 2/3, resets in 20s  [memory]" */
report_fn report_all;      /* the combined decision, and below it each member's */
report_fn report_many;     /* a line for each decision, with its number in the list */
report_fn report_reserved; /* a decision, and the reservation below it */
report_fn report_slot;     /* "denied  0 of 3 slots free ...", or a decision, and the slot below it */
report_fn report_change;   /* "refunded 2  remaining 5/5  [memory]" */
report_fn report_removed;
report_fn report_table;   /* a flat map, a line for each pair */
report_fn report_version; /* a table, times in words */
report_fn report_value;   /* one text or number */
report_fn report_hash;    /* its only field */

report_fn report_explain;  /* the decision, and below it why, and each limit's state; then the same of the candidate */
report_fn report_policies; /* a table, and below each policy its overrides and what else is unusual */
report_fn report_reload;   /* a line for each fault and change, then whether it is in effect */
report_fn report_config;   /* YAML, below its file and hash in comments */
int report_reload_code(struct pull answer); /* an enum exit_code */
report_fn report_stats;                     /* what to look at first; with `all` everything */

#endif
