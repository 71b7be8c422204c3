#include "ctl/report.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/units.h"
#include "client/decode.h"
#include "ctl/json.h"

enum { TEXT_SIZE = 2048 };

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
    char text[UNITS_TEXT_MAX];
    if (decision->delay_ms > 0) fprintf(out, ", go on after %s", units_print_wait(text, decision->delay_ms));
    if (decision->retry_after_ms < 0) {
        fputs(", waiting does not help", out);
    } else if (!decision->allowed) {
        fprintf(out, ", retry in %s", units_print_wait(text, decision->retry_after_ms));
    } else if (decision->reset_after_ms > 0) {
        fprintf(out, ", whole again in %s", units_print_wait(text, decision->reset_after_ms));
    }
}

/* All but the first word. */
static void print_rest(FILE *out, const struct ratelimit_decision *decision)
{
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
    fprintf(out, "%s  ", decision.allowed ? "allowed" : "denied");
    print_rest(out, &decision);
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

static int print_list(FILE *out, struct pull list, const char *indent)
{
    uint32_t n;
    if (pull_array(&list, &n) != 0) return -1;
    for (uint32_t i = 0; i < n; i++) {
        struct pull one = list;
        if (pull_skip(&list) != 0) return -1;
        fprintf(out, "%schecks[%" PRIu32 "]  ", indent, i);
        if (report_decision(out, one) != 0) return -1;
    }
    return 0;
}

int report_all(FILE *out, struct pull answer)
{
    struct pull members = member(answer, "members");
    if (pull_type(&members) != PULL_ARRAY || report_decision(out, answer) != 0) return -1;
    return print_list(out, members, "  ");
}

int report_many(FILE *out, struct pull answer)
{
    return print_list(out, answer, "");
}

int report_taken(FILE *out, struct pull answer)
{
    static const char *const names[] = {"reservation", "slot"};
    if (report_decision(out, answer) != 0) return -1;
    for (int i = 0; i < 2; i++) {
        struct slice id;
        struct pull value = member(answer, names[i]);
        if (pull_text(&value, &id) == 0) fprintf(out, "%s %.*s\n", names[i], (int)id.len, (const char *)id.data);
    }
    return 0;
}

int report_change(FILE *out, struct pull answer)
{
    struct decode_order order;
    struct ratelimit_decision decision;
    decode_order_init(&order);
    if (decode_decision(&answer, &order, 0, &decision) != 0) return -1;
    bool more = decision.charged > 0;
    fprintf(out, "%s %" PRId64 "%s  ", more ? "charged" : "refunded", more ? decision.charged : decision.refunded,
            decision.ended ? ", had ended" : "");
    print_rest(out, &decision);
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

static bool is_among(struct slice name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (slice_is(name, names[i])) return true;
    return false;
}

/* "algorithm fixed_window, limit 5, window_ms 10000": a map, but for n_skipped of its names. */
static void print_pairs(FILE *out, struct pull map, const char *const *skipped, size_t n_skipped)
{
    uint32_t n = 0;
    struct slice field;
    const char *between = "";
    pull_map(&map, &n);
    for (; n > 0 && pull_text(&map, &field) == 0; n--) {
        if (is_among(field, skipped, n_skipped)) {
            pull_skip(&map);
            continue;
        }
        char printable[TEXT_SIZE];
        fprintf(out, "%s%s ", between, log_escape(printable, sizeof printable, field.data, field.len));
        print_value(out, &map);
        between = ", ";
    }
}

/* "day limit 100, burst 20; week limit 700": what an override changes, or "unlimited". */
static void print_changes(FILE *out, struct pull override)
{
    static const char *const skipped[] = {"name"};
    struct pull limits = member(override, "limits");
    uint32_t n = 0;
    const char *between = "";
    if (pull_array(&limits, &n) != 0)
        fputs("unlimited", out);
    else if (n == 0)
        fputs("as the policy", out);
    for (; n > 0; n--, between = "; ") {
        struct pull limit = limits, name = member(limit, "name");
        fputs(between, out);
        if (pull_type(&name) == PULL_TEXT) {
            print_value(out, &name);
            fputc(' ', out);
        }
        print_pairs(out, limit, skipped, 1);
        if (pull_skip(&limits) != 0) return;
    }
}

/* "  match  partner:*  unlimited": a line for each override, and one for those that were not listed. */
static void print_overrides(FILE *out, struct pull policy)
{
    static const char *const targets[] = {"key", "match"};
    struct pull count = member(policy, "overrides"), list = member(policy, "override_list");
    int64_t n_all = 0;
    uint32_t n = 0;
    if (pull_int(&count, &n_all) != 0 || pull_array(&list, &n) != 0) return;
    for (uint32_t i = 0; i < n; i++) {
        for (int j = 0; j < 2; j++) {
            struct pull target = member(list, targets[j]);
            if (pull_type(&target) != PULL_TEXT) continue;
            fprintf(out, "  %-5s  ", targets[j]);
            print_value(out, &target);
            fputs("  ", out);
        }
        print_changes(out, list);
        fputc('\n', out);
        if (pull_skip(&list) != 0) return;
    }
    if (n_all > n) fprintf(out, "  and %" PRId64 " overrides more, which the answer had no room for\n", n_all - n);
}

/* "login  algorithm fixed_window, limit 5, window_ms 10000" */
static void print_policy(FILE *out, struct pull policy)
{
    static const char *const skipped[] = {"name", "override_list"};
    struct pull name = member(policy, "name");
    print_value(out, &name);
    fputs("  ", out);
    print_pairs(out, policy, skipped, 2);
    fputc('\n', out);
    print_overrides(out, policy);
}

/* A line for each limit, and below it what the store has of it. */
static void print_limits(FILE *out, struct pull answer)
{
    static const char *const skipped[] = {"name", "allowed", "remaining", "retry_after_ms", "reset_after_ms"};
    struct pull limits = member(answer, "limits"), keys = member(answer, "store_keys"),
                states = member(answer, "state");
    uint32_t n = 0, n_keys = 0, n_states = 0;
    pull_array(&limits, &n);
    pull_array(&keys, &n_keys);
    pull_array(&states, &n_states);
    for (uint32_t i = 0; i < n; i++) {
        bool allowed = true;
        struct pull limit = limits, name = member(limit, "name"), verdict = member(limit, "allowed"), state = states;
        bool is_asked = pull_bool(&verdict, &allowed) == 0;
        fputs("limit     ", out);
        if (pull_type(&name) == PULL_TEXT) {
            print_value(out, &name);
            fputs("  ", out);
        }
        fputs(!is_asked ? "not asked  " : allowed ? "allows  " : "denies  ", out);
        print_pairs(out, limit, skipped, sizeof skipped / sizeof skipped[0]);
        fputc('\n', out);
        if (pull_skip(&limits) != 0) return;
        if (i >= n_keys || i >= n_states) continue;
        fputs("  state   ", out);
        print_pairs(out, state, NULL, 0);
        fputs("\n  key     ", out);
        print_value(out, &keys);
        fputc('\n', out);
        if (pull_skip(&states) != 0) return;
    }
}

/* The decision's line is there; what led to it. */
static void print_reasons(FILE *out, struct pull answer)
{
    static const char *const shown[] = {"why", "policy", "override"};
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        struct pull value = member(answer, shown[i]);
        if (pull_type(&value) != PULL_TEXT) continue; /* no override */
        fprintf(out, "%-8s  ", shown[i]);
        print_value(out, &value);
        fputc('\n', out);
    }
    print_limits(out, answer);
}

int report_explain(FILE *out, struct pull answer)
{
    struct pull candidate = member(answer, "candidate");
    if (report_decision(out, answer) != 0) return -1;
    print_reasons(out, answer);
    if (pull_type(&candidate) == PULL_NIL) fputs("candidate does not judge this check\n", out);
    if (pull_type(&candidate) != PULL_MAP) return 0;
    fputs("candidate ", out);
    if (report_decision(out, candidate) != 0) return -1;
    print_reasons(out, candidate);
    return 0;
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
