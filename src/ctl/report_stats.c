/*
 * report_stats.c: `stats` for people: is it working, and is anything odd? The table of all counters is for `--all`.
 */
#include <inttypes.h>

#include "ctl/report.h"
#include "ctl/words.h"

static int64_t sum(struct pull stats, const char *const *names, size_t n)
{
    int64_t total = 0;
    for (size_t i = 0; i < n; i++) total += words_number(stats, names[i], 0);
    return total;
}

/* "failure answers  5  (down 3, deadline 2)" */
static void print_failures(FILE *out, struct pull stats)
{
    static const char *const kinds[] = {"failure_allow", "failure_deny", "failure_local", "failure_error"};
    static const char *const reasons[] = {"down", "deadline", "overload", "store_error"};
    const char *between = "  (";
    fprintf(out, "failure answers  %" PRId64, sum(stats, kinds, sizeof kinds / sizeof kinds[0]));
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "failure_%s", reasons[i]);
        int64_t n = words_number(stats, name, 0);
        if (n == 0) continue;
        fprintf(out, "%s%s %" PRId64, between, reasons[i], n);
        between = ", ";
    }
    fputs(between[0] == ',' ? ")\n" : "\n", out);
}

static void print_redis(FILE *out, struct pull stats)
{
    int64_t n_ended = words_number(stats, "redis_disconnects", 0);
    int64_t n_failed = words_number(stats, "redis_connect_failures", 0);
    if (words_number(stats, "redis_connects", 0) == 0) {
        fputs("redis            not used: memory store\n", out);
        return;
    }
    fputs(words_number(stats, "redis_up", 0) == 1 ? "redis            up" : "redis            down", out);
    if (n_ended > 0) fprintf(out, ", lost %" PRId64 " times", n_ended);
    if (n_failed > 0) fprintf(out, ", %" PRId64 " attempts to connect failed", n_failed);
    fputc('\n', out);
}

int report_stats(FILE *out, struct pull answer, const struct asked *asked)
{
    if (pull_type(&answer) != PULL_MAP) return -1;
    if (asked->all) return report_table(out, answer, asked);

    fprintf(out, "checks           %" PRId64 "\n", words_number(answer, "checks", 0));
    fprintf(out, "denied           %" PRId64 "\n", words_number(answer, "denied", 0));
    print_failures(out, answer);
    print_redis(out, answer);
    fprintf(out, "connections      %" PRId64 "\n", words_number(answer, "connections", 0));
    return 0;
}
