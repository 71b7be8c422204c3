/* report.c: decisions, explanations and other short answers in words, for ratelimitctl.c. */
#include "ctl/report.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/units.h"
#include "client/decode.h"
#include "ctl/text.h"
#include "ctl/words.h"

enum { COST_UNKNOWN = 0 };

/* ---- Decisions ---- */

int report_read(struct pull answer, struct ratelimit_decision *ret)
{
    struct decode_order order;
    decode_order_init(&order);
    return decode_decision(&answer, &order, 0, ret);
}

/* The decision of the check number `index` of those asked for. */
static int print_one(FILE *out, struct pull answer, uint32_t index, const struct asked *asked)
{
    struct ratelimit_decision decision;
    if (report_read(answer, &decision) != 0) return -1;
    int64_t cost = index < asked->n_costs ? asked->costs[index] : COST_UNKNOWN;
    words_decision(out, &decision, cost, asked->waited, asked->at_most);
    return 0;
}

static int print_list(FILE *out, struct pull list, const char *indent, const struct asked *asked)
{
    uint32_t n;
    if (pull_array(&list, &n) != 0 || n != asked->n_costs) return -1;
    for (uint32_t i = 0; i < n; i++) {
        struct pull one = list;
        if (pull_skip(&list) != 0) return -1;
        fprintf(out, "%schecks[%" PRIu32 "]  ", indent, i);
        if (print_one(out, one, i, asked) != 0) return -1;
    }
    return 0;
}

int report_decision(FILE *out, struct pull answer, const struct asked *asked)
{
    return print_one(out, answer, 0, asked);
}

int report_many(FILE *out, struct pull answer, const struct asked *asked)
{
    return print_list(out, answer, "", asked);
}

int report_all(FILE *out, struct pull answer, const struct asked *asked)
{
    struct pull members = words_member(answer, "members");
    struct ratelimit_decision combined;
    if (pull_type(&members) != PULL_ARRAY || report_read(answer, &combined) != 0) return -1;

    if (combined.of[0] != '\0')
        memcpy(combined.bound_by, combined.of, sizeof combined.of); /* of several policies any name tells */
    words_decision(out, &combined, COST_UNKNOWN, asked->waited, asked->at_most);
    return print_list(out, members, "  ", asked);
}

int report_reserved(FILE *out, struct pull answer, const struct asked *asked)
{
    if (print_one(out, answer, 0, asked) != 0) return -1;
    words_text(out, answer, "reservation", "reservation ", "\n");
    return 0;
}

int report_slot(FILE *out, struct pull answer, const struct asked *asked)
{
    struct ratelimit_decision decision;
    if (report_read(answer, &decision) != 0) return -1;

    bool is_full = !decision.allowed && decision.retry_after_ms >= 0 && decision.source != RATELIMIT_SOURCE_DENY;
    if (!is_full) {
        decision.reset_after_ms = decision.of_reset_ms = 0; /* until every holder were gone */
        words_decision(out, &decision, 1, asked->waited, false);
        words_text(out, answer, "slot", "slot ", "\n");
        return 0;
    }

    /* Only its holder knows when a slot comes free, so no time is printed. */
    if (decision.bound_by[0] == '\0') {
        fprintf(out, "denied  %" PRId64 " of %" PRId64 " slots free", decision.remaining, decision.limit);
    } else {
        fprintf(out, "denied  remaining %" PRId64 "/%" PRId64, decision.remaining, decision.limit);
        words_of(out, &decision);
    }
    if (!asked->waited) fputs("; acquire --wait waits for one", out);
    words_source(out, &decision);
    return 0;
}

int report_change(FILE *out, struct pull answer, const struct asked *asked)
{
    struct ratelimit_decision decision;
    (void)asked;
    if (report_read(answer, &decision) != 0) return -1;

    bool is_charged = decision.charged > 0;
    fprintf(out, "%s %" PRId64 "%s  ", is_charged ? "charged" : "refunded",
            is_charged ? decision.charged : decision.refunded, decision.ended ? ", had ended" : "");
    words_remaining(out, &decision, COST_UNKNOWN);
    words_source(out, &decision);
    return 0;
}

/* ---- explain ---- */

/* The limit's line, "limit     minute  allows  token_bucket, 2 per 1d". */
static void print_limit(FILE *out, struct pull limit)
{
    struct pull verdict = words_member(limit, "allowed");
    bool allowed = true, is_asked = pull_bool(&verdict, &allowed) == 0;
    fputs("limit     ", out);
    words_text(out, limit, "name", "", "  ");
    fputs(!is_asked ? "not asked  " : allowed ? "allows  " : "denies  ", out);
    words_limit(out, limit);
    fputc('\n', out);
}

/*
 * What a check would get, why, and below it each limit with what the store has:
 *
 *   would be allowed, leaving 1 of 2 (search/minute)  [memory]
 *   why       Allowed by limit "minute" (token_bucket, 2 per 1d): ...
 *   policy    search
 *   limit     minute  allows  token_bucket, 2 per 1d
 *     state   tokens 2
 *     key     rl:{b123}:tb1:search/minute:k
 */
static int print_explained(FILE *out, struct pull answer, const struct asked *asked)
{
    struct ratelimit_decision decision;
    struct pull why = words_member(answer, "why");
    struct slice sentence;
    char wait[UNITS_TEXT_MAX];
    if (report_read(answer, &decision) != 0) return -1;

    fprintf(out, "would be %s", decision.allowed ? "allowed" : "denied");
    if (!decision.allowed) {
        fputs("  ", out);
        words_remaining(out, &decision, asked->n_costs > 0 ? asked->costs[0] : COST_UNKNOWN);
    } else if (decision.source != RATELIMIT_SOURCE_UNLIMITED && decision.limit > 0) {
        fprintf(out, ", leaving %" PRId64 " of %" PRId64, decision.remaining, decision.limit);
        words_of(out, &decision);
    }
    if (decision.delay_ms > 0) fprintf(out, ", to go ahead in %s", units_print_wait(wait, decision.delay_ms));
    words_source(out, &decision);

    if (pull_text(&why, &sentence) == 0) {
        fputs("why       ", out);
        text_print_sentence(out, sentence);
        fputc('\n', out);
    }
    words_text(out, answer, "policy", "policy    ", "\n");
    words_text(out, answer, "id", "id        ", "\n");
    words_text(out, answer, "override", "override  ", "\n");

    struct pull limits = words_member(answer, "limits"), keys = words_member(answer, "store_keys"),
                states = words_member(answer, "state");
    uint32_t n = 0, n_keys = 0, n_states = 0;
    pull_array(&limits, &n);
    pull_array(&keys, &n_keys);
    pull_array(&states, &n_states);
    for (uint32_t i = 0; i < n; i++) {
        print_limit(out, limits);
        if (pull_skip(&limits) != 0) break;
        if (i >= n_keys || i >= n_states) continue;
        fputs("  state   ", out);
        words_state(out, states);
        fputs("\n  key     ", out);
        words_value(out, &keys);
        fputc('\n', out);
        if (pull_skip(&states) != 0) break;
    }
    return 0;
}

int report_explain(FILE *out, struct pull answer, const struct asked *asked)
{
    struct pull candidate = words_member(answer, "candidate");
    if (print_explained(out, answer, asked) != 0) return -1;
    if (pull_type(&candidate) == PULL_NIL) fputs("candidate does not decide this check\n", out);
    if (pull_type(&candidate) != PULL_MAP) return 0;
    fputs("candidate ", out);
    return print_explained(out, candidate, asked);
}

/* ---- Flat answers ---- */

int report_removed(FILE *out, struct pull answer, const struct asked *asked)
{
    bool removed;
    struct pull value = words_member(answer, "removed");
    (void)asked;
    if (pull_bool(&value, &removed) != 0) return -1;
    fputs(removed ? "removed" : "nothing to remove", out);
    words_text(out, answer, "reason", " in this daemon; Redis did not answer (",
               "): its own count stays, reset it later");
    fputc('\n', out);
    return 0;
}

int report_value(FILE *out, struct pull answer, const struct asked *asked)
{
    (void)asked;
    words_value(out, &answer);
    fputc('\n', out);
    return 0;
}

int report_hash(FILE *out, struct pull answer, const struct asked *asked)
{
    struct pull hash = words_member(answer, "hash");
    (void)asked;
    if (pull_type(&hash) != PULL_TEXT) return -1;
    words_text(out, answer, "hash", "", "\n");
    return 0;
}

int report_table(FILE *out, struct pull answer, const struct asked *asked)
{
    uint32_t n;
    size_t width = 0;
    struct slice name;
    (void)asked;
    if (pull_map(&answer, &n) != 0) return -1;

    struct pull at = answer;
    for (uint32_t i = 0; i < n && pull_text(&at, &name) == 0 && pull_skip(&at) == 0; i++)
        if (name.len > width) width = name.len;

    for (; n > 0 && pull_text(&answer, &name) == 0; n--) {
        text_print(out, name);
        for (size_t i = name.len; i < width; i++) fputc(' ', out);
        fputs("  ", out);
        words_value(out, &answer);
        fputc('\n', out);
    }
    return 0;
}

int report_version(FILE *out, struct pull answer, const struct asked *asked)
{
    uint32_t n;
    struct slice name;
    int64_t ms;
    char time[UNITS_TEXT_MAX];
    (void)asked;
    if (pull_map(&answer, &n) != 0) return -1;

    for (; n > 0 && pull_text(&answer, &name) == 0; n--) {
        if (slice_is(name, "uptime_ms") && pull_int(&answer, &ms) == 0) {
            fprintf(out, "uptime         %s\n", units_print_wait(time, ms));
        } else if (slice_is(name, "configuration_age_ms") && pull_int(&answer, &ms) == 0) {
            fprintf(out, "configuration  read %s ago\n", units_print_wait(time, ms));
        } else {
            if (slice_is(name, "configuration")) name = slice_of("file");
            if (slice_is(name, "configuration_hash")) name = slice_of("hash");
            text_print(out, name);
            for (size_t i = name.len; i < strlen("configuration  "); i++) fputc(' ', out);
            words_value(out, &answer);
            fputc('\n', out);
        }
    }
    return 0;
}

/* Is it working, and is anything odd? */
int report_stats(FILE *out, struct pull answer, const struct asked *asked)
{
    static const char *const kinds[] = {"failure_allow", "failure_deny", "failure_local", "failure_error"};
    static const char *const reasons[] = {"failure_down", "failure_breaker", "failure_deadline", "failure_overload",
                                          "failure_store_error"};
    if (pull_type(&answer) != PULL_MAP) return -1;
    if (asked->all) return report_table(out, answer, asked);

    fprintf(out, "checks           %" PRId64 "\n", words_number(answer, "checks", 0));
    fprintf(out, "denied           %" PRId64 "\n", words_number(answer, "denied", 0));
    if (words_number(answer, "shadow_default", 0) > 0)
        fprintf(
            out,
            "shadow           defaults.shadow is on: nothing is denied, except by policies with shadow: false; %" PRId64
            " would have been\n",
            words_number(answer, "shadow_denied", 0));

    int64_t n_failures = 0;
    const char *between = "  (";
    for (size_t i = 0; i < N_OF(kinds); i++) n_failures += words_number(answer, kinds[i], 0);
    fprintf(out, "failure answers  %" PRId64, n_failures);
    for (size_t i = 0; i < N_OF(reasons); i++) { /* "  (down 3, deadline 2)" */
        int64_t n = words_number(answer, reasons[i], 0);
        if (n == 0) continue;
        fprintf(out, "%s%s %" PRId64, between, reasons[i] + strlen("failure_"), n);
        between = ", ";
    }
    fputs(between[0] == ',' ? ")\n" : "\n", out);

    int64_t n_ended = words_number(answer, "redis_disconnects", 0);
    int64_t n_failed = words_number(answer, "redis_connect_failures", 0);
    if (words_number(answer, "redis_connects", 0) == 0) {
        fputs("redis            not used: memory store\n", out);
    } else {
        bool is_up = words_number(answer, "redis_up", 0) > 0;
        struct pull trouble = words_member(answer, "redis_trouble"); /* "down for 3m 12s: WRONGPASS ..." */
        bool is_known = pull_type(&trouble) == PULL_TEXT;
        fprintf(out, "redis            %s", is_up ? "up" : is_known ? "" : "down");
        words_text(out, answer, "redis_trouble", is_up ? ", " : "", "");
        int64_t n_daemons = words_number(answer, "live_daemons", 0);
        if (n_daemons > 1) fprintf(out, ", shared by %" PRId64 " daemons", n_daemons);
        if (words_number(answer, "breaker_open", 0) > 0 && !is_known) fputs(", not asked: its breaker is open", out);
        if (n_ended > 0) fprintf(out, ", lost %" PRId64 " times", n_ended);
        if (n_failed > 0) fprintf(out, ", %" PRId64 " attempts to connect failed", n_failed);
        fputc('\n', out);
        words_text(out, answer, "redis_trial", "redis settings   ", "\n");
    }
    fprintf(out, "connections      %" PRId64 "\n", words_number(answer, "connections", 0));
    int64_t n_errors = words_number(answer, "request_errors", 0);
    if (n_errors > 0) fprintf(out, "request errors   %" PRId64 ", the log has the last ones of each kind\n", n_errors);
    return 0;
}
