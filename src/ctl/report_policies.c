/*
 * report_policies.c: `policies` for people: a table with a line for each limit, then the policy's overrides and other
 * extras.
 *
 *   POLICY  LIMITS                          ON FAILURE  ALLOWED  DENIED
 *   login   fixed_window, 5 per 10s         local            12       0
 *   search  minute: token_bucket, 2 per 1m  local             3       1
 *           day: sliding_log, 3 per 1d
 *     match  partner:*  unlimited
 */
#include <inttypes.h>
#include <stdlib.h>

#include "ctl/report.h"
#include "ctl/text.h"
#include "ctl/words.h"

struct widths {
    int name, limits;
};

/* "minute: token_bucket, 2 per 1m": owned by the caller; NULL without memory. */
static char *limit_text(struct pull limit)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) return NULL;
    words_text(out, limit, "name", "", ": ");
    words_limit(out, limit);
    fclose(out);
    return text;
}

/* Widen the columns to what the policy needs. */
static void measure(struct pull policy, struct widths *widths)
{
    struct pull name_value = words_member(policy, "name"), limits = words_member(policy, "limits");
    struct slice name;
    uint32_t n = 0;
    if (pull_text(&name_value, &name) == 0 && (int)name.len > widths->name && name.len < INT16_MAX)
        widths->name = (int)name.len;

    pull_array(&limits, &n);
    for (; n > 0; n--) {
        char *text = limit_text(limits);
        size_t len = text != NULL ? strlen(text) : 0;
        if ((int)len > widths->limits && len < INT16_MAX) widths->limits = (int)len;
        free(text);
        if (pull_skip(&limits) != 0) return;
    }
}

/* The text `name` of the policy, as wide as its column. */
static void print_padded(FILE *out, struct pull policy, const char *name, int width)
{
    struct pull value = words_member(policy, name);
    struct slice text = {0};
    pull_text(&value, &text);
    text_print(out, text);
    for (int i = (int)text.len; i < width; i++) fputc(' ', out);
}

/* A line for each limit, the first with all that the policy has; also for one without limits. */
static void print_limit_lines(FILE *out, struct pull policy, const struct widths *widths)
{
    struct pull limits = words_member(policy, "limits");
    uint32_t n = 0;
    pull_array(&limits, &n);
    for (uint32_t i = 0; i == 0 || i < n; i++) {
        char *text = n > 0 ? limit_text(limits) : NULL;
        const char *shown = n == 0 ? "unlimited" : text != NULL ? text : "";
        if (i == 0) {
            print_padded(out, policy, "name", widths->name);
            fprintf(out, "  %-*s  ", widths->limits, shown);
            print_padded(out, policy, "on_failure", (int)sizeof "ON FAILURE" - 1);
            fprintf(out, "  %7" PRId64 "  %6" PRId64 "\n", words_number(policy, "allowed", 0),
                    words_number(policy, "denied", 0));
        } else {
            fprintf(out, "%*s  %s\n", widths->name, "", shown);
        }
        free(text);
        if (pull_skip(&limits) != 0) return;
    }
}

/* "day limit 100, burst 20; week limit 700": what an override changes, or "unlimited". */
static void print_changes(FILE *out, struct pull override)
{
    struct pull limits = words_member(override, "limits");
    uint32_t n = 0;
    const char *between = "";
    if (pull_array(&limits, &n) != 0)
        fputs("unlimited", out);
    else if (n == 0)
        fputs("as the policy", out);
    for (; n > 0; n--, between = "; ") {
        fputs(between, out);
        words_text(out, limits, "name", "", " ");
        words_changes(out, limits);
        if (pull_skip(&limits) != 0) return;
    }
}

/* "  match  ip in 10.0.0.0/8, 2001:db8::/32 and 40 more  ": the networks of an override. */
static void print_networks(FILE *out, struct pull override)
{
    enum { N_SHOWN = 4 };
    struct pull networks = words_member(override, "cidr");
    const char *between = "";
    uint32_t n;
    if (pull_array(&networks, &n) != 0) return;

    fputs("  match  ", out);
    words_text(out, override, "part", "", " in ");
    for (uint32_t i = 0; i < n && i < N_SHOWN; i++, between = ", ") {
        struct slice text;
        if (pull_text(&networks, &text) != 0) return;
        fputs(between, out);
        text_print(out, text);
    }
    if (n > N_SHOWN) fprintf(out, " and %u more", n - N_SHOWN);
    fputs("  ", out);
}

/* "  match  partner:*  unlimited": a line for each override, and one for those that were not listed. */
static void print_overrides(FILE *out, struct pull policy)
{
    struct pull list = words_member(policy, "override_list");
    int64_t n_all = words_number(policy, "overrides", 0);
    uint32_t n = 0;
    if (pull_array(&list, &n) != 0) return;
    for (uint32_t i = 0; i < n; i++) {
        words_text(out, list, "key", "  key    ", "  ");
        words_text(out, list, "match", "  match  ", "  ");
        print_networks(out, list);
        print_changes(out, list);
        fputc('\n', out);
        if (pull_skip(&list) != 0) return;
    }
    if (n_all > n) fprintf(out, "  and %" PRId64 " more overrides, which did not fit into the answer\n", n_all - n);
}

static void print_candidate(FILE *out, struct pull policy)
{
    struct pull limits = words_member(policy, "candidate");
    uint32_t n = 0;
    if (pull_array(&limits, &n) != 0) return;
    for (; n > 0; n--) {
        char *text = limit_text(limits);
        fprintf(out, "  candidate  %s\n", text != NULL ? text : "");
        free(text);
        if (pull_skip(&limits) != 0) return;
    }
    fprintf(out, "  candidate  would have allowed %" PRId64 ", %" PRId64 " of them were denied",
            words_number(policy, "candidate_allowed", 0), words_number(policy, "candidate_only_allowed", 0));
    fprintf(out, "; denied %" PRId64 ", %" PRId64 " of them were allowed\n",
            words_number(policy, "candidate_denied", 0), words_number(policy, "candidate_only_denied", 0));
}

/* What most policies do not have. */
static void print_specials(FILE *out, struct pull policy)
{
    struct pull shadow = words_member(policy, "shadow"), debt = words_member(policy, "debt"),
                merge_back = words_member(policy, "merge_back"), on_change = words_member(policy, "on_change");
    words_text(out, policy, "id", "  id     ", "\n");
    words_text(out, policy, "label", "  called ", "\n");
    words_text(out, policy, "key_format", "  keys   ", "\n");
    if (pull_type(&shadow) == PULL_BOOL)
        fprintf(out, "  shadow denies nobody; would have denied %" PRId64 "\n",
                words_number(policy, "shadow_denied", 0));
    int64_t share = words_number(policy, "local_share", 0); /* the text live, if it is not written */
    if (share == 1) fputs("  local  has the whole limit\n", out);
    if (share > 1) fprintf(out, "  local  has 1/%" PRId64 " of the limit and burst\n", share);
    if (pull_type(&merge_back) == PULL_BOOL)
        fputs("  local  what it admits is charged in Redis once that is back\n", out);
    if (pull_type(&on_change) == PULL_TEXT) fputs("  reset  counters start afresh when their limit changes\n", out);
    if (pull_type(&debt) == PULL_BOOL) fputs("  debt   a settlement may charge more than remains\n", out);
}

int report_policies(FILE *out, struct pull answer, const struct asked *asked)
{
    uint32_t n;
    struct widths widths = {.name = sizeof "POLICY" - 1, .limits = sizeof "LIMITS" - 1};
    (void)asked;
    if (pull_array(&answer, &n) != 0) return -1;
    struct pull first = answer;
    for (uint32_t i = 0; i < n; i++) {
        if (pull_type(&answer) != PULL_MAP) return -1;
        measure(answer, &widths);
        if (pull_skip(&answer) != 0) return -1;
    }

    fprintf(out, "%-*s  %-*s  %-10s  %7s  %6s\n", widths.name, "POLICY", widths.limits, "LIMITS", "ON FAILURE",
            "ALLOWED", "DENIED");
    for (answer = first; n > 0; n--) {
        print_limit_lines(out, answer, &widths);
        print_specials(out, answer);
        print_overrides(out, answer);
        print_candidate(out, answer);
        pull_skip(&answer);
    }
    return 0;
}
