/*
 * test_time.h: points in time, as a test file writes them.
 *
 *     9s                                  since the start of the test
 *     2026-03-29T01:59:59Z                or with an offset, +02:00
 *     2026-03-29T01:59:59 Europe/Berlin   as the clocks there show it; if they show it twice, the first time
 */
#ifndef RL_CTL_TEST_TIME_H
#define RL_CTL_TEST_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/faults.h"
#include "policy/tree.h"

#define TEST_START_US INT64_C(1767225600000000) /* 2026-01-01T00:00:00Z, where all usual windows begin */

/* Microseconds since the epoch, 0 to 2^53 - 1. False: the fault is recorded, as that of `key`. */
bool test_time_read(const char *key, const struct tree_node *node, int64_t start_us, struct faults *faults,
                    int64_t *ret_us);
/* The same, but for a time since the start. */
bool test_time_read_start(const char *key, const struct tree_node *node, struct faults *faults, int64_t *ret_us);

#endif
