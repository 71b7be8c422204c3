/* metrics.c: the page of metrics, out of the counters, the policies and the histograms; for http.c and daemon/. */
#include "admin/metrics.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buffer.h"
#include "base/counters.h"
#include "base/latency.h"
#include "limit/limit.h"

enum {
    LINE_MAX_BYTES = 1024,
    STEPS_MOST = 256,  /* of a piece: policies that have no line in a family take time too */
    STEP_US = 1000000, /* of the system's clock: less is how unevenly the two clocks run, or late reading of one */
};

struct metrics {
    struct policy_set *policies; /* one reference */
    const struct clock *clock;
    struct admin_view view;
    const char *hiredis_version;
    struct buffer text; /* owned; made and not read yet */
    uint64_t step;      /* the next one, counted over all parts */
    bool is_short;      /* there was no memory for a line: no more lines follow */
};

/* ---- lines ---- */

/* A line that memory is short for ends the page with a failure: a family without its head, or without some of its
 * series, would be read as if it were right. */
__attribute__((format(printf, 2, 3))) static void put(struct metrics *metrics, const char *format, ...)
{
    char *to = metrics->is_short ? NULL : (char *)buffer_reserve(&metrics->text, LINE_MAX_BYTES);
    if (to == NULL) {
        metrics->is_short = true;
        return;
    }

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

/* ---- the parts, in steps: each adds the lines of a row or of a policy ---- */

static size_t one_step(const struct metrics *metrics)
{
    (void)metrics;
    return 1;
}

/* By how much the epoch's clock, the system's and not the daemon's own, is ahead of CLOCK_MONOTONIC. It is a little
 * different each time; only a step of the clock counts, so that the times on two pages are equal: else they would seem
 * to have changed. */
static int64_t epoch_ahead_us(const struct clock *clock)
{
    static int64_t kept_us;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t ahead_us = now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000 - clock->mono_us;
    if (ahead_us < kept_us - STEP_US || ahead_us > kept_us + STEP_US) kept_us = ahead_us;
    return kept_us;
}

static void put_daemon(struct metrics *metrics, size_t step)
{
    (void)step;
    const struct admin_view *view = &metrics->view;
    put_head(metrics, "ratelimitd_build_info", "gauge", "always 1; what runs, in the labels");
    put(metrics, "ratelimitd_build_info{version=\"%s\",protocol=\"1\",libuv=\"%s\",hiredis=\"%s\",store=\"%s\"} 1\n",
        RL_VERSION, uv_version_string(), metrics->hiredis_version, view->store);

    int64_t ahead_us = epoch_ahead_us(metrics->clock);
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
}

static void put_row(struct metrics *metrics, const struct counter_group *group, size_t i)
{
    const struct counter_row *row = &group->rows[i];
    const char *name = row->family != NULL ? row->family : row->name;
    const char *total = row->kind == KIND_COUNTER ? "_total" : "";
    if (row->family != NULL && strcmp(row->family, COUNTED_BY_LABEL) == 0) return;

    bool begins_family =
        i == 0 || row->family == NULL || row[-1].family == NULL || strcmp(row->family, row[-1].family) != 0;
    if (begins_family)
        put(metrics, "# HELP ratelimitd_%s%s %s\n# TYPE ratelimitd_%s%s %s\n", name, total, row->help, name, total,
            row->kind == KIND_COUNTER ? "counter" : "gauge");

    for (; group != NULL; group = group->other) {
        const char *own = row->labels != NULL ? row->labels : "", *all = group->labels != NULL ? group->labels : "";
        bool has_labels = own[0] != '\0' || all[0] != '\0', has_both = own[0] != '\0' && all[0] != '\0';
        put(metrics, "ratelimitd_%s%s%s%s%s%s%s %" PRIu64 "\n", name, total, has_labels ? "{" : "", own,
            has_both ? "," : "", all, has_labels ? "}" : "", group->values[i]);
    }
}

static size_t steps_of_counters(const struct metrics *metrics)
{
    (void)metrics;
    return counters_n();
}

static void put_counters(struct metrics *metrics, size_t step)
{
    struct counter_group *const *group = counters_groups;
    for (; step >= (*group)->n; group++) step -= (*group)->n;
    put_row(metrics, *group, step);
}

/* Families of the counters whose label has one of some values. */
static void put_families(struct metrics *metrics, size_t step)
{
    (void)step;
    for (const struct counter_family *const *one = counters_families; *one != NULL; one++) {
        const struct counter_family *family = *one;
        put(metrics, "# HELP ratelimitd_%s_total %s\n# TYPE ratelimitd_%s_total counter\n", family->name, family->help,
            family->name);
        for (size_t i = 0; i < family->n; i++)
            put(metrics, "ratelimitd_%s_total{%s=\"%s\"} %" PRIu64 "\n", family->name, family->label, family->value(i),
                family->counts[i]);
    }
}

/* ---- policies ---- */

/* What a line is about: a policy by its name, or a sum of several. */
struct subject {
    const char *name;
    struct decision_counts counts;
    const struct policy *policy; /* NULL: a sum */
    uint64_t denied_by_limit;    /* of a sum */
};

/* A series is there from 0 if it can come to count, and else as soon as it has: only some sources ever deny, and a
 * failure answer of another kind comes with a check_all at most. */
static bool is_expected(const struct metrics *metrics, const struct subject *subject, enum source source, bool allowed)
{
    bool is_redis = strcmp(metrics->view.store, "redis") == 0;
    const struct policy *policy = subject->policy;
    if (subject->counts.decisions[source][allowed] > 0) return true;
    if (policy == NULL) return false;
    switch (source) {
    case SOURCE_REDIS: return is_redis && !policy->unlimited;
    case SOURCE_MEMORY: return !is_redis && !policy->unlimited;
    case SOURCE_DENY_CACHE: return is_redis && !allowed && policy->n_limits == 1 && !policy->shadow;
    case SOURCE_LEASE: return is_redis && allowed && policy->n_limits == 1 && policy->limits[0].lease_us > 0;
    case SOURCE_UNLIMITED: return policy->unlimited && allowed;
    case SOURCE_ALLOW: return is_redis && policy->plan.on_failure == ON_FAILURE_ALLOW && allowed && !policy->unlimited;
    case SOURCE_DENY: return is_redis && policy->plan.on_failure == ON_FAILURE_DENY && !allowed && !policy->unlimited;
    case SOURCE_LOCAL: return is_redis && policy->plan.on_failure == ON_FAILURE_LOCAL && !policy->unlimited;
    default: return false;
    }
}

static void put_decisions(struct metrics *metrics, const char *metric, const struct subject *subject)
{
    for (int source = 0; source < N_SOURCES; source++)
        for (int allowed = 1; allowed >= 0; allowed--)
            if (is_expected(metrics, subject, (enum source)source, allowed))
                put(metrics, "%s{policy=\"%s\",result=\"%s\",source=\"%s\"} %" PRIu64 "\n", metric, subject->name,
                    allowed ? "allowed" : "denied", source_name((enum source)source),
                    subject->counts.decisions[source][allowed]);
}

static void put_count(struct metrics *metrics, const char *metric, const struct subject *subject, uint64_t value)
{
    put(metrics, "%s{policy=\"%s\"} %" PRIu64 "\n", metric, subject->name, value);
}

static void put_granted(struct metrics *metrics, const char *metric, const struct subject *subject)
{
    put_count(metrics, metric, subject, subject->counts.granted);
}

static void put_near(struct metrics *metrics, const char *metric, const struct subject *subject)
{
    put_count(metrics, metric, subject, subject->counts.near);
}

static void put_shadow(struct metrics *metrics, const char *metric, const struct subject *subject)
{
    put_count(metrics, metric, subject, subject->counts.shadow_denied);
}

/* A single limit without a name goes by its policy's. */
static const char *limit_label(const struct limit *limit)
{
    return limit->name[0] != '\0' ? limit->name : limit->policy->name;
}

static void put_limit_denials(struct metrics *metrics, const char *metric, const struct subject *subject)
{
    const struct policy *policy = subject->policy;
    if (policy == NULL)
        put(metrics, "%s{policy=\"%s\",limit=\"%s\"} %" PRIu64 "\n", metric, subject->name, subject->name,
            subject->denied_by_limit);
    for (uint16_t i = 0; policy != NULL && i < policy->n_limits; i++) {
        const struct limit *limit = &policy->limits[i];
        put(metrics, "%s{policy=\"%s\",limit=\"%s\"} %" PRIu64 "\n", metric, subject->name, limit_label(limit),
            policy_limit_denied_of_name(limit));
    }
}

static void put_candidate(struct metrics *metrics, const char *metric, const struct subject *subject)
{
    if (subject->policy == NULL || subject->policy->candidate == NULL) return;
    const struct policy_counts *counts = subject->policy->counts;
    const uint64_t values[2][2] = {{counts->candidate_both_denied, counts->candidate_only_denied},
                                   {counts->candidate_only_allowed, counts->candidate_both_allowed}};
    static const char *const words[] = {"denied", "allowed"};
    for (int candidate = 1; candidate >= 0; candidate--)
        for (int enforced = 1; enforced >= 0; enforced--)
            put(metrics, "%s{policy=\"%s\",candidate=\"%s\",enforced=\"%s\"} %" PRIu64 "\n", metric, subject->name,
                words[candidate], words[enforced], values[candidate][enforced]);
}

static void put_limit_values(struct metrics *metrics, const char *metric, const struct subject *subject, bool is_window)
{
    const struct policy *policy = subject->policy;
    for (uint16_t i = 0; policy != NULL && i < policy->n_limits; i++) {
        const struct limit *limit = &policy->limits[i];
        int64_t us = limit_window_ms(limit, metrics->clock->wall_us) * 1000;
        put(metrics, "%s{policy=\"%s\",limit=\"%s\",algorithm=\"%s\"} ", metric, subject->name, limit_label(limit),
            limit_ops(limit)->name);
        if (is_window)
            put(metrics, "%" PRId64 ".%03d\n", us / 1000000, (int)(us % 1000000 / 1000));
        else
            put(metrics, "%" PRId64 "\n", limit->limit);
    }
}

static void put_units(struct metrics *metrics, const char *metric, const struct subject *subject)
{
    put_limit_values(metrics, metric, subject, false);
}

static void put_windows(struct metrics *metrics, const char *metric, const struct subject *subject)
{
    put_limit_values(metrics, metric, subject, true);
}

static const struct {
    const char *metric, *type, *help;
    void (*put)(struct metrics *metrics, const char *metric, const struct subject *subject);
} of_policies[] = {
    {"ratelimitd_decisions_total", "counter", "decisions, by policy, result and where they were made", put_decisions},
    {"ratelimitd_granted_units_total", "counter", "units that were granted: requests, tokens, bytes", put_granted},
    {"ratelimitd_limit_denials_total", "counter", "denials, by the limit that denied", put_limit_denials},
    {"ratelimitd_near_limit_total", "counter",
     "allowed near the limit: with more used than warn_at, or without one with less than a fifth left", put_near},
    {"ratelimitd_shadow_denied_total", "counter", "decisions of shadow policies that would have denied", put_shadow},
    {"ratelimitd_candidate_checks_total", "counter", "checks, by what a candidate and what the enforced limits said",
     put_candidate},
    {"ratelimitd_limit_units", "gauge", "units of a limit, as configured", put_units},
    {"ratelimitd_limit_window_seconds", "gauge", "window of a limit, of a calendar the present one; 0: slots",
     put_windows},
};

/* Those with series of their own. */
static size_t n_named(const struct metrics *metrics)
{
    return metrics->policies->n < metrics->view.n_named ? metrics->policies->n : metrics->view.n_named;
}

/* Each family has a step for each policy, and one for the two sums. */
static size_t steps_of_policies(const struct metrics *metrics)
{
    return N_OF(of_policies) * (n_named(metrics) + 1);
}

static void put_policies(struct metrics *metrics, size_t step)
{
    const struct policy_set *set = metrics->policies;
    size_t n = n_named(metrics), family = step / (n + 1), at = step % (n + 1);
    const char *metric = of_policies[family].metric;
    if (at == 0) put_head(metrics, metric, of_policies[family].type, of_policies[family].help);

    if (at < n) {
        const struct policy *policy = set->in_order[at];
        const struct subject subject = {policy->name, policy_counts_of_name(policy->counts), policy, 0};
        of_policies[family].put(metrics, metric, &subject);
        return;
    }

    const struct policy_counts *others = &policy_counts_other, *inlines = &policy_counts_inline;
    const struct subject other = {"(other)", others->all, NULL, others->denied_by_limit},
                         inlined = {"(inline)", inlines->all, NULL, inlines->denied_by_limit};
    if (n < set->n || policy_counts_allowed(others) + policy_counts_denied(others) > 0)
        of_policies[family].put(metrics, metric, &other);
    of_policies[family].put(metrics, metric, &inlined);
}

/* ---- durations, and the process ---- */

/* As Go prints them, so that a series keeps its name whatever reads the page. */
static const struct {
    int64_t us;
    const char *seconds;
} bounds[] = {{5, "5e-06"},     {10, "1e-05"},    {25, "2.5e-05"}, {50, "5e-05"},    {100, "0.0001"},
              {250, "0.00025"}, {500, "0.0005"},  {1000, "0.001"}, {2500, "0.0025"}, {5000, "0.005"},
              {10000, "0.01"},  {25000, "0.025"}, {50000, "0.05"}, {100000, "0.1"}};

static size_t steps_of_durations(const struct metrics *metrics)
{
    (void)metrics;
    return N_LATENCY_STAGES;
}

static void put_durations(struct metrics *metrics, size_t step)
{
    const struct latency_row *row = &latency_rows[step];
    struct histogram *histogram = &latencies[step];
    char name[64];
    snprintf(name, sizeof name, "ratelimitd_%s", row->metric);
    histogram_add_run(histogram);
    put_head(metrics, name, "histogram", row->help);
    for (size_t i = 0; i < N_OF(bounds); i++)
        put(metrics, "%s_bucket{le=\"%s\"} %" PRIu64 "\n", name, bounds[i].seconds,
            histogram_below(histogram, bounds[i].us));
    put(metrics, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %" PRIu64 ".%06u\n%s_count %" PRIu64 "\n", name,
        histogram->n, name, histogram->sum_us / 1000000, (unsigned)(histogram->sum_us % 1000000), name, histogram->n);
}

/* Bytes of memory that are in it; 0: the kernel does not report it. */
static uint64_t resident_bytes(void)
{
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    const char *resident = n > 0 ? strchr(text, ' ') : NULL; /* pages; the size of the program stands before it */
    return resident == NULL ? 0 : strtoull(resident, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void put_redis_clock(struct metrics *metrics, size_t step)
{
    (void)step;
    if (!metrics->view.has_redis_clock) return;
    int64_t us = metrics->view.redis_ahead_us;
    put_head(metrics, "ratelimitd_redis_clock_offset_seconds", "gauge",
             "clock of Redis less ours, at the middle of the last round trip");
    put(metrics, "ratelimitd_redis_clock_offset_seconds %s%" PRId64 ".%06d\n", us < 0 ? "-" : "",
        (us < 0 ? -us : us) / 1000000, (int)((us < 0 ? -us : us) % 1000000));
}

/* Under the names that every library for Prometheus gives them. */
static void put_process(struct metrics *metrics, size_t step)
{
    (void)step;
    struct rusage usage;
    struct rlimit files;
    struct stat st;
    int64_t started_us = metrics->view.started_us + epoch_ahead_us(metrics->clock);
    put_head(metrics, "process_start_time_seconds", "gauge", "when the process began, in seconds since the epoch");
    put(metrics, "process_start_time_seconds %" PRId64 ".%06d\n", started_us / 1000000, (int)(started_us % 1000000));
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        int64_t us = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * INT64_C(1000000) + usage.ru_utime.tv_usec +
                     usage.ru_stime.tv_usec;
        put_head(metrics, "process_cpu_seconds_total", "counter", "processor time of the daemon, in seconds");
        put(metrics, "process_cpu_seconds_total %" PRId64 ".%06d\n", us / 1000000, (int)(us % 1000000));
    }
    put_head(metrics, "process_resident_memory_bytes", "gauge", "memory of the daemon, in bytes");
    put(metrics, "process_resident_memory_bytes %" PRIu64 "\n", resident_bytes());

    /* To list them would take milliseconds with many connections. Linux 6.2 and later have their number at hand. */
    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0) {
        put_head(metrics, "process_open_fds", "gauge", "open file descriptors");
        put(metrics, "process_open_fds %" PRId64 "\n", (int64_t)st.st_size);
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        put_head(metrics, "process_max_fds", "gauge", "file descriptors that it may open");
        put(metrics, "process_max_fds %" PRIu64 "\n", (uint64_t)files.rlim_cur);
    }
}

/* The last one is for the daemon's own page alone: next to the page of another process it would come twice. */
static const struct part {
    size_t (*n_steps)(const struct metrics *metrics);
    void (*put)(struct metrics *metrics, size_t step);
} parts[] = {{one_step, put_daemon},
             {steps_of_counters, put_counters},
             {one_step, put_families},
             {steps_of_policies, put_policies},
             {steps_of_durations, put_durations},
             {one_step, put_redis_clock},
             {one_step, put_process}};

/* ---- the page ---- */

/* Adds lines until there are `enough` bytes, or a piece is enough work. False: there are no more. */
static bool put_piece(struct metrics *metrics, size_t n_parts, size_t enough)
{
    uint64_t first = 0; /* of the part */
    unsigned n = 0;
    for (size_t i = 0; i < n_parts; i++) {
        size_t n_steps = parts[i].n_steps(metrics);
        for (; metrics->step < first + n_steps; metrics->step++) {
            if (n++ == STEPS_MOST || buffer_len(&metrics->text) >= enough) return true;
            parts[i].put(metrics, (size_t)(metrics->step - first));
        }
        first += n_steps;
    }
    return false;
}

static struct metrics metrics_of(const struct admin_view *view, const struct clock *clock, const char *hiredis_version)
{
    return (struct metrics){
        .view = *view, .policies = view->policies, .clock = clock, .hiredis_version = hiredis_version};
}

struct metrics *metrics_new(const struct admin_view *view, const struct clock *clock, const char *hiredis_version)
{
    struct metrics *metrics = mem_zalloc(sizeof *metrics);
    if (metrics == NULL) return NULL;
    *metrics = metrics_of(view, clock, hiredis_version);
    policy_set_ref(metrics->policies);
    return metrics;
}

void metrics_free(struct metrics *metrics)
{
    if (metrics == NULL) return;
    policy_set_unref(metrics->policies);
    buffer_fini(&metrics->text);
    mem_free(metrics);
}

int64_t metrics_read(struct metrics *metrics, char *to, size_t max)
{
    CHECK(max > 0);
    bool is_more = put_piece(metrics, N_OF(parts), max);
    size_t n = buffer_len(&metrics->text) < max ? buffer_len(&metrics->text) : max;
    if (n > 0) memcpy(to, buffer_data(&metrics->text), n);
    buffer_consume(&metrics->text, n);
    if (metrics->is_short) return METRICS_FAILED;
    return n == 0 && !is_more ? METRICS_OVER : (int64_t)n;
}

int metrics_part(const struct admin_view *view, const struct clock *clock, const char *hiredis_version, uint64_t *from,
                 struct buffer *text)
{
    struct metrics metrics = metrics_of(view, clock, hiredis_version);
    metrics.step = *from;
    metrics.text = *text;
    bool is_more = put_piece(&metrics, N_OF(parts) - 1, buffer_len(text) + METRICS_PART_BYTES);
    *text = metrics.text;
    *from = metrics.step;
    return metrics.is_short ? -1 : is_more;
}
