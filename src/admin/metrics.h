/*
 * metrics.h: the page of metrics, in Prometheus' text form, made piece by piece while it is sent.
 *
 * A piece takes some 20 us, and the loop goes on between two of them.
 */
#ifndef RL_ADMIN_METRICS_H
#define RL_ADMIN_METRICS_H

#include <stddef.h>

#include "admin/admin.h"

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct metrics;

/* NULL without memory. It holds the view's policies until it is freed. */
struct metrics *metrics_new(const struct admin_view *view, const struct clock *clock, const char *hiredis_version);
void metrics_free(struct metrics *metrics);
enum { METRICS_OVER = -1, METRICS_FAILED = -2 };
/* The next bytes of the page, at most `max`; how many, perhaps none yet; or METRICS_OVER; or METRICS_FAILED, without
 * memory. */
int64_t metrics_read(struct metrics *metrics, char *to, size_t max);

#endif
