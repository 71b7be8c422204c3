#include "ctl/report.h"

#include <inttypes.h>
#include <string.h>

#include "client/decode.h"
#include "ctl/text.h"
#include "ctl/words.h"

enum { COST_UNKNOWN = 0 };

static int read_decision(struct pull answer, struct ratelimit_decision *ret)
{
    struct decode_order order;
    decode_order_init(&order);
    return decode_decision(&answer, &order, 0, ret);
}

static int print_one(FILE *out, struct pull answer, int64_t cost, const struct asked *asked)
{
    struct ratelimit_decision decision;
    if (read_decision(answer, &decision) != 0) return -1;
    words_decision(out, &decision, cost, asked->waited, asked->at_most);
    return 0;
}

int report_decision(FILE *out, struct pull answer, const struct asked *asked)
{
    return print_one(out, answer, asked->n_costs > 0 ? asked->costs[0] : COST_UNKNOWN, asked);
}

static int print_list(FILE *out, struct pull list, const char *indent, const struct asked *asked)
{
    uint32_t n;
    if (pull_array(&list, &n) != 0) return -1;
    for (uint32_t i = 0; i < n; i++) {
        struct pull one = list;
        if (pull_skip(&list) != 0) return -1;
        fprintf(out, "%schecks[%" PRIu32 "]  ", indent, i);
        if (print_one(out, one, i < asked->n_costs ? asked->costs[i] : COST_UNKNOWN, asked) != 0) return -1;
    }
    return 0;
}

int report_all(FILE *out, struct pull answer, const struct asked *asked)
{
    struct pull members = words_member(answer, "members");
    struct ratelimit_decision whole;
    if (pull_type(&members) != PULL_ARRAY || read_decision(answer, &whole) != 0) return -1;

    if (whole.of[0] != '\0') memcpy(whole.bound_by, whole.of, sizeof whole.of); /* of several policies any name tells */
    words_decision(out, &whole, COST_UNKNOWN, asked->waited, asked->at_most);
    return print_list(out, members, "  ", asked);
}

int report_many(FILE *out, struct pull answer, const struct asked *asked)
{
    return print_list(out, answer, "", asked);
}

/* The reservation or the slot, where there is one, on a line of its own. */
static void print_id(FILE *out, struct pull answer, const char *name)
{
    struct pull value = words_member(answer, name);
    struct slice id;
    if (pull_text(&value, &id) != 0) return;
    fprintf(out, "%s ", name);
    text_print(out, id);
    fputc('\n', out);
}

int report_reserved(FILE *out, struct pull answer, const struct asked *asked)
{
    if (report_decision(out, answer, asked) != 0) return -1;
    print_id(out, answer, "reservation");
    return 0;
}

/* Only its holder knows when a slot comes free, so no time is printed. */
static void print_no_slot(FILE *out, const struct ratelimit_decision *decision, bool waited)
{
    if (decision->bound_by[0] == '\0') {
        fprintf(out, "denied  %" PRId64 " of %" PRId64 " slots free", decision->remaining, decision->limit);
    } else {
        fprintf(out, "denied  remaining %" PRId64 "/%" PRId64, decision->remaining, decision->limit);
        words_of(out, decision);
    }
    if (!waited) fputs("; acquire --wait waits for one", out);
    words_source(out, decision);
}

int report_slot(FILE *out, struct pull answer, const struct asked *asked)
{
    struct ratelimit_decision decision;
    if (read_decision(answer, &decision) != 0) return -1;

    bool is_full = !decision.allowed && decision.retry_after_ms >= 0 && decision.source != RATELIMIT_SOURCE_DENY;
    if (is_full) {
        print_no_slot(out, &decision, asked->waited);
        return 0;
    }

    decision.reset_after_ms = decision.of_reset_ms = 0; /* until every holder were gone */
    words_decision(out, &decision, 1, asked->waited, false);
    print_id(out, answer, "slot");
    return 0;
}

int report_change(FILE *out, struct pull answer, const struct asked *asked)
{
    struct ratelimit_decision decision;
    (void)asked;
    if (read_decision(answer, &decision) != 0) return -1;
    bool more = decision.charged > 0;
    fprintf(out, "%s %" PRId64 "%s  ", more ? "charged" : "refunded", more ? decision.charged : decision.refunded,
            decision.ended ? ", had ended" : "");
    words_remaining(out, &decision, COST_UNKNOWN);
    words_source(out, &decision);
    return 0;
}

int report_removed(FILE *out, struct pull answer, const struct asked *asked)
{
    bool removed;
    struct pull value = words_member(answer, "removed");
    (void)asked;
    if (pull_bool(&value, &removed) != 0) return -1;
    fputs(removed ? "removed\n" : "nothing to remove\n", out);
    return 0;
}

static size_t widest_name(struct pull map, uint32_t n)
{
    size_t width = 0;
    struct slice name;
    for (; n > 0 && pull_text(&map, &name) == 0 && pull_skip(&map) == 0; n--) {
        if (name.len > width) width = name.len;
    }
    return width;
}

int report_table(FILE *out, struct pull answer, const struct asked *asked)
{
    uint32_t n;
    (void)asked;
    if (pull_map(&answer, &n) != 0) return -1;
    size_t width = widest_name(answer, n);
    struct slice name;
    for (; n > 0 && pull_text(&answer, &name) == 0; n--) {
        text_print(out, name);
        for (size_t i = name.len; i < width; i++) fputc(' ', out);
        fputs("  ", out);
        words_value(out, &answer);
        fputc('\n', out);
    }
    return 0;
}

int report_value(FILE *out, struct pull answer, const struct asked *asked)
{
    (void)asked;
    words_value(out, &answer);
    fputc('\n', out);
    return 0;
}
