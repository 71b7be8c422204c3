/*
 * metrics.h: the page of metrics, in Prometheus' text form, made piece by piece while it is sent.
 *
 * A piece takes some 20 us, and the loop goes on between two of them. The page is a number of steps, each some whole
 * lines, so it can also be asked for part by part, each from the step on at which the one before ended: then nothing of
 * it is kept in between.
 */
#ifndef RL_ADMIN_METRICS_H
#define RL_ADMIN_METRICS_H

#include <stddef.h>

#include "admin/admin.h"
#include "base/buffer.h"

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct metrics;

/* NULL without memory. It holds the view's policies until it is freed. */
struct metrics *metrics_new(const struct admin_view *view, const struct clock *clock, const char *hiredis_version);
void metrics_free(struct metrics *metrics); /* NULL is fine */
enum { METRICS_OVER = -1, METRICS_FAILED = -2 };
/* The next bytes of the page, at most `max`; how many, perhaps none yet; or METRICS_OVER; or METRICS_FAILED, without
 * memory. */
int64_t metrics_read(struct metrics *metrics, char *to, size_t max);

/* Appends a part of the page to `text`, whole lines, about METRICS_PART_BYTES; without process_*, because the caller
 * that puts it next to the page of another process has these from there. *from is the step that it begins with, 0 at
 * first, and then that of the next part. 1: there is more; 0: there is not; -1: no memory. A reload makes other steps.
 */
enum { METRICS_PART_BYTES = 8192 };
int metrics_part(const struct admin_view *view, const struct clock *clock, const char *hiredis_version, uint64_t *from,
                 struct buffer *text);

#endif
