/*
 * report.h: the daemon's answers in words, for people; one function for each kind of answer.
 *
 * Each returns 0, or -1 when the answer is not of its kind (nothing is printed then).
 */
#ifndef RL_CTL_REPORT_H
#define RL_CTL_REPORT_H

#include <stdio.h>

#include "proto/pull.h"

typedef int report_fn(FILE *out, struct pull answer);

int report_decision(FILE *out, struct pull answer); /* "allowed  4 of 5 left, whole again in 10s  (memory)" */
int report_all(FILE *out, struct pull answer);      /* the whole's decision, and below it each member's */
int report_many(FILE *out, struct pull answer);     /* a line for each decision, with its place in the list */
int report_explain(FILE *out, struct pull answer);  /* the decision, and below it why, and each limit's state; then the
                                                     * same of the candidate */
int report_taken(FILE *out, struct pull answer);    /* a decision, and the reservation or slot below it */
int report_change(FILE *out, struct pull answer);   /* "refunded 2  5 of 5 left  (memory)" */
int report_removed(FILE *out, struct pull answer);
int report_policies(FILE *out, struct pull answer); /* a line for each, and below it its overrides */
int report_table(FILE *out, struct pull answer);    /* a flat map, a line for each pair */
int report_value(FILE *out, struct pull answer);    /* one text or number */

#endif
