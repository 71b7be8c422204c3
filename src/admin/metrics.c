#include "admin/metrics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buffer.h"
#include "base/counters.h"

enum { LINE_MAX_BYTES = 1024, PIECE_ROWS = 16 };

struct metrics {
    struct policy_set *policies; /* one reference */
    const struct clock *clock;
    struct admin_view view;
    const char *hiredis_version;
    struct buffer text; /* owned; made and not read yet */
    size_t part;        /* the next one of the table below */
    size_t at;          /* where it goes on: the index of a group's row, a policy ... */
    struct counter_group *const *group;
};

/* ---- lines ---- */

/* A line that memory is short for is left out, and so is the rest: a page that ends early has no family cut in two. */
__attribute__((format(printf, 2, 3))) static void put(struct metrics *metrics, const char *format, ...)
{
    char *to = (char *)buffer_reserve(&metrics->text, LINE_MAX_BYTES);
    if (to == NULL) return;

    va_list args;
    va_start(args, format);
    int n = vsnprintf(to, LINE_MAX_BYTES, format, args);
    va_end(args);
    CHECK(n >= 0 && n < LINE_MAX_BYTES);
    buffer_grew(&metrics->text, (size_t)n);
}

static void put_head(struct metrics *metrics, const char *name, const char *type, const char *help)
{
    put(metrics, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* ---- the parts: each adds a piece, and returns whether it has more ---- */

static bool put_daemon(struct metrics *metrics)
{
    const struct admin_view *view = &metrics->view;
    const struct clock *clock = metrics->clock;
    put_head(metrics, "ratelimitd_build_info", "gauge", "always 1; what runs, in the labels");
    put(metrics, "ratelimitd_build_info{version=\"%s\",protocol=\"1\",libuv=\"%s\",hiredis=\"%s\",store=\"%s\"} 1\n",
        RL_VERSION, uv_version_string(), metrics->hiredis_version, view->store);

    struct timespec now; /* not the clock's, which a test may set */
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t ahead_us = now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000 - clock->mono_us;
    int64_t started_us = view->started_us + ahead_us, configured_us = view->configured_us + ahead_us;
    put_head(metrics, "ratelimitd_start_time_seconds", "gauge", "when the counters began, in seconds since the epoch");
    put(metrics, "ratelimitd_start_time_seconds %" PRId64 ".%06d\n", started_us / 1000000, (int)(started_us % 1000000));

    put_head(metrics, "ratelimitd_config_last_reload_successful", "gauge",
             "1 while the configuration's file is in force as it was last read, 0 if that was refused");
    put(metrics, "ratelimitd_config_last_reload_successful %d\n", !view->reload_failed);
    put_head(metrics, "ratelimitd_config_last_reload_success_timestamp_seconds", "gauge",
             "when the configuration in force was read, in seconds since the epoch");
    put(metrics, "ratelimitd_config_last_reload_success_timestamp_seconds %" PRId64 ".%06d\n", configured_us / 1000000,
        (int)(configured_us % 1000000));
    return false;
}

/* Is row i of the group the first of its family? */
static bool begins_family(const struct counter_group *group, size_t i)
{
    const struct counter_row *row = &group->rows[i], *before = row - 1;
    return i == 0 || row->family == NULL || before->family == NULL || strcmp(row->family, before->family) != 0;
}

static void put_row(struct metrics *metrics, const struct counter_group *group, size_t i)
{
    const struct counter_row *row = &group->rows[i];
    const char *name = row->family != NULL ? row->family : row->name;
    const char *total = row->kind == KIND_COUNTER ? "_total" : "";
    if (row->family != NULL && strcmp(row->family, COUNTED_BY_LABEL) == 0) return;
    if (begins_family(group, i))
        put(metrics, "# HELP ratelimitd_%s%s %s\n# TYPE ratelimitd_%s%s %s\n", name, total, row->help, name, total,
            row->kind == KIND_COUNTER ? "counter" : "gauge");

    for (; group != NULL; group = group->other) {
        const char *own = row->labels != NULL ? row->labels : "", *all = group->labels != NULL ? group->labels : "";
        bool has_labels = own[0] != '\0' || all[0] != '\0', has_both = own[0] != '\0' && all[0] != '\0';
        put(metrics, "ratelimitd_%s%s%s%s%s%s%s %" PRIu64 "\n", name, total, has_labels ? "{" : "", own,
            has_both ? "," : "", all, has_labels ? "}" : "", group->values[i]);
    }
}

static bool put_counters(struct metrics *metrics)
{
    for (int n = 0; *metrics->group != NULL && n < PIECE_ROWS; n++) {
        if (metrics->at < (*metrics->group)->n) {
            put_row(metrics, *metrics->group, metrics->at++);
        } else {
            metrics->group++;
            metrics->at = 0;
        }
    }
    return *metrics->group != NULL;
}

static bool (*const parts[])(struct metrics *metrics) = {put_daemon, put_counters};

/* ---- the page ---- */

struct metrics *metrics_new(const struct admin_view *view, const struct clock *clock, const char *hiredis_version)
{
    struct metrics *metrics = mem_zalloc(sizeof *metrics);
    if (metrics == NULL) return NULL;
    metrics->view = *view;
    metrics->policies = policy_set_ref(view->policies);
    metrics->clock = clock;
    metrics->hiredis_version = hiredis_version;
    metrics->group = counters_groups;
    buffer_init(&metrics->text, 0);
    return metrics;
}

void metrics_free(struct metrics *metrics)
{
    policy_set_unref(metrics->policies);
    buffer_fini(&metrics->text);
    mem_free(metrics);
}

size_t metrics_read(struct metrics *metrics, char *to, size_t max)
{
    while (metrics->part < N_OF(parts) && buffer_len(&metrics->text) < max) {
        if (parts[metrics->part](metrics)) continue;
        metrics->part++;
        metrics->at = 0;
    }

    size_t n = buffer_len(&metrics->text) < max ? buffer_len(&metrics->text) : max;
    if (n > 0) memcpy(to, buffer_data(&metrics->text), n);
    buffer_consume(&metrics->text, n);
    return n;
}
