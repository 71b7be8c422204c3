#include "ctl/report.h"

#include <inttypes.h>

#include "base/log.h"
#include "client/decode.h"
#include "ctl/json.h"

enum { TEXT_SIZE = 256, SECOND_MS = 1000, MINUTE_S = 60, HOUR_S = 3600, DAY_S = 86400 };

static const char *two_units(char *out, int64_t s, int64_t large_s, char large, int64_t small_s, char small)
{
    int64_t n_small = (s + small_s - 1) / small_s, per_large = large_s / small_s;
    int len = snprintf(out, REPORT_DURATION_SIZE, "%" PRId64 "%c", n_small / per_large, large);
    if (n_small % per_large > 0) {
        snprintf(out + len, (size_t)(REPORT_DURATION_SIZE - len), " %" PRId64 "%c", n_small % per_large, small);
    }
    return out;
}

const char *report_duration(char *out, int64_t duration_ms)
{
    int64_t tenths = (duration_ms + 99) / 100, s = (duration_ms + SECOND_MS - 1) / SECOND_MS;
    if (duration_ms < SECOND_MS) {
        snprintf(out, REPORT_DURATION_SIZE, "%" PRId64 "ms", duration_ms);
    } else if (duration_ms < MINUTE_S * SECOND_MS && tenths % 10 != 0) {
        snprintf(out, REPORT_DURATION_SIZE, "%" PRId64 ".%" PRId64 "s", tenths / 10, tenths % 10);
    } else if (s < MINUTE_S) {
        snprintf(out, REPORT_DURATION_SIZE, "%" PRId64 "s", s);
    } else if (s < HOUR_S) {
        two_units(out, s, MINUTE_S, 'm', 1, 's');
    } else if (s < DAY_S) {
        two_units(out, s, HOUR_S, 'h', MINUTE_S, 'm');
    } else {
        two_units(out, s, DAY_S, 'd', HOUR_S, 'h');
    }
    return out;
}

/* What is left and when, or, without the store, why not. */
static void print_state(FILE *out, const struct ratelimit_decision *decision)
{
    if (decision->source == RATELIMIT_SOURCE_UNLIMITED) {
        fputs("unlimited", out);
    } else if (decision->source == RATELIMIT_SOURCE_ALLOW || decision->source == RATELIMIT_SOURCE_DENY) {
        fputs("without the store", out);
    } else {
        fprintf(out, "%" PRId64 " of %" PRId64 " left", decision->remaining, decision->limit);
    }
}

static void print_waits(FILE *out, const struct ratelimit_decision *decision)
{
    char text[REPORT_DURATION_SIZE];
    if (decision->delay_ms > 0) fprintf(out, ", go on after %s", report_duration(text, decision->delay_ms));
    if (decision->retry_after_ms < 0) {
        fputs(", waiting does not help", out);
    } else if (!decision->allowed) {
        fprintf(out, ", retry in %s", report_duration(text, decision->retry_after_ms));
    } else if (decision->reset_after_ms > 0) {
        fprintf(out, ", whole again in %s", report_duration(text, decision->reset_after_ms));
    }
}

static void print_decision(FILE *out, const struct ratelimit_decision *decision)
{
    fprintf(out, "%s  ", decision->allowed ? "allowed" : "denied");
    print_state(out, decision);
    print_waits(out, decision);
    if (decision->bound_by[0] != '\0') fprintf(out, ", bound by %s", decision->bound_by);
    if (decision->shadow_denied) fputs(", would be denied if it were enforced", out);
    fprintf(out, "  (%s", ratelimit_source_name(decision->source));
    if (decision->reason != RATELIMIT_REASON_NONE) fprintf(out, ": %s", ratelimit_reason_name(decision->reason));
    fputs(")\n", out);
}

int report_decision(FILE *out, struct pull answer)
{
    struct decode_order order;
    struct ratelimit_decision decision;
    decode_order_init(&order);
    if (decode_decision(&answer, &order, 0, &decision) != 0) return -1;
    print_decision(out, &decision);
    return 0;
}

/* The value of `name` in a map, or a pull at its end. */
static struct pull member(struct pull map, const char *name)
{
    uint32_t n = 0;
    struct slice text;
    pull_map(&map, &n);
    for (; n > 0 && pull_text(&map, &text) == 0; n--) {
        if (slice_is(text, name)) return map;
        if (pull_skip(&map) != 0) break;
    }
    return pull_of(map.end, 0);
}

int report_all(FILE *out, struct pull answer)
{
    struct pull members = member(answer, "members");
    uint32_t n;
    if (pull_array(&members, &n) != 0 || report_decision(out, answer) != 0) return -1;
    for (uint32_t i = 0; i < n; i++) {
        struct pull one = members;
        if (pull_skip(&members) != 0) return -1;
        fprintf(out, "  checks[%" PRIu32 "]  ", i);
        if (report_decision(out, one) != 0) return -1;
    }
    return 0;
}

int report_removed(FILE *out, struct pull answer)
{
    bool removed;
    struct pull value = member(answer, "removed");
    if (pull_bool(&value, &removed) != 0) return -1;
    fputs(removed ? "removed\n" : "nothing to remove\n", out);
    return 0;
}

/* A text as it is where it is printable, all else as JSON. */
static void print_value(FILE *out, struct pull *pull)
{
    char printable[TEXT_SIZE];
    struct slice text;
    if (pull_text(pull, &text) == 0) {
        fputs(log_escape(printable, sizeof printable, text.data, text.len), out);
    } else {
        json_value(out, pull);
    }
}

static size_t widest_name(struct pull map, uint32_t n)
{
    size_t width = 0;
    struct slice name;
    for (; n > 0 && pull_text(&map, &name) == 0 && pull_skip(&map) == 0; n--) {
        if (name.len > width) width = name.len;
    }
    return width < TEXT_SIZE ? width : TEXT_SIZE - 1;
}

int report_table(FILE *out, struct pull answer)
{
    uint32_t n;
    if (pull_map(&answer, &n) != 0) return -1;
    size_t width = widest_name(answer, n);
    struct slice name;
    for (; n > 0 && pull_text(&answer, &name) == 0; n--) {
        char printable[TEXT_SIZE];
        fprintf(out, "%-*s  ", (int)width, log_escape(printable, sizeof printable, name.data, name.len));
        print_value(out, &answer);
        fputc('\n', out);
    }
    return 0;
}

/* "login  algorithm fixed_window, limit 5, window_ms 10000" */
static void print_policy(FILE *out, struct pull policy)
{
    uint32_t n = 0;
    struct slice field;
    struct pull name = member(policy, "name");
    const char *between = "  ";
    print_value(out, &name);
    pull_map(&policy, &n);
    for (; n > 0 && pull_text(&policy, &field) == 0; n--) {
        if (slice_is(field, "name")) {
            pull_skip(&policy);
            continue;
        }
        char printable[TEXT_SIZE];
        fprintf(out, "%s%s ", between, log_escape(printable, sizeof printable, field.data, field.len));
        print_value(out, &policy);
        between = ", ";
    }
    fputc('\n', out);
}

int report_policies(FILE *out, struct pull answer)
{
    uint32_t n;
    if (pull_array(&answer, &n) != 0) return -1;
    for (; n > 0; n--) {
        struct pull policy = answer;
        if (pull_type(&policy) != PULL_MAP || pull_skip(&answer) != 0) return -1;
        print_policy(out, policy);
    }
    return 0;
}

int report_value(FILE *out, struct pull answer)
{
    print_value(out, &answer);
    fputc('\n', out);
    return 0;
}
