/*
 * report_explain.c: `explain` for people: what a check would get, why, and below it each limit with what the store has.
 *
 *   would be allowed, leaving 1 of 2 (search/minute)  [memory]
 *   why       Allowed by limit "minute" (token_bucket, 2 per 1d): ...
 *   policy    search
 *   limit     minute  allows  token_bucket, 2 per 1d
 *     state   tokens 2
 *     key     rl:{b123}:tb1:search/minute:k
 */
#include <inttypes.h>

#include "base/units.h"
#include "client/decode.h"
#include "ctl/report.h"
#include "ctl/text.h"
#include "ctl/words.h"

static void print_verdict(FILE *out, const struct ratelimit_decision *decision, int64_t cost)
{
    char wait[UNITS_TEXT_MAX];
    bool has_number = decision->source != RATELIMIT_SOURCE_UNLIMITED && decision->limit > 0;
    fprintf(out, "would be %s", decision->allowed ? "allowed" : "denied");
    if (!decision->allowed) {
        fputs("  ", out);
        words_remaining(out, decision, cost);
    } else if (has_number) {
        fprintf(out, ", leaving %" PRId64 " of %" PRId64, decision->remaining, decision->limit);
        words_of(out, decision);
    }
    if (decision->delay_ms > 0) fprintf(out, ", to go ahead in %s", units_print_wait(wait, decision->delay_ms));
    words_source(out, decision);
}

static void print_limit(FILE *out, struct pull limit)
{
    struct pull name = words_member(limit, "name"), verdict = words_member(limit, "allowed");
    bool allowed = true, is_asked = pull_bool(&verdict, &allowed) == 0;
    fputs("limit     ", out);
    if (pull_type(&name) == PULL_TEXT) {
        words_value(out, &name);
        fputs("  ", out);
    }
    fputs(!is_asked ? "not asked  " : allowed ? "allows  " : "denies  ", out);
    words_limit(out, limit);
    fputc('\n', out);
}

/* A line for each limit, and below it what the store has of it. */
static void print_limits(FILE *out, struct pull answer)
{
    struct pull limits = words_member(answer, "limits"), keys = words_member(answer, "store_keys"),
                states = words_member(answer, "state");
    uint32_t n = 0, n_keys = 0, n_states = 0;
    pull_array(&limits, &n);
    pull_array(&keys, &n_keys);
    pull_array(&states, &n_states);
    for (uint32_t i = 0; i < n; i++) {
        print_limit(out, limits);
        if (pull_skip(&limits) != 0) return;
        if (i >= n_keys || i >= n_states) continue;
        fputs("  state   ", out);
        words_state(out, states);
        fputs("\n  key     ", out);
        words_value(out, &keys);
        fputc('\n', out);
        if (pull_skip(&states) != 0) return;
    }
}

/* The decision's line is there; what led to it. */
static void print_reasons(FILE *out, struct pull answer)
{
    static const char *const shown[] = {"why", "policy", "override"};
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        struct pull value = words_member(answer, shown[i]);
        struct slice text;
        if (pull_text(&value, &text) != 0) continue; /* no override */
        fprintf(out, "%-8s  ", shown[i]);
        (i == 0 ? text_print_sentence : text_print)(out, text);
        fputc('\n', out);
    }
    print_limits(out, answer);
}

static int print_explained(FILE *out, struct pull answer, const struct asked *asked)
{
    struct decode_order order;
    struct ratelimit_decision decision;
    struct pull at = answer;
    decode_order_init(&order);
    if (decode_decision(&at, &order, 0, &decision) != 0) return -1;
    print_verdict(out, &decision, asked->n_costs > 0 ? asked->costs[0] : 0);
    print_reasons(out, answer);
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
