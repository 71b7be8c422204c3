/* top.c: asks for who is limited, and draws a page of it, again and again, for ratelimitctl.c. */
#include "ctl/top.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "client/blocking.h"
#include "client/wait.h"
#include "ctl/screen.h"
#include "ctl/text.h"
#include "ctl/views.h"
#include "ctl/words.h"
#include "proto/pack.h"

enum {
    EVERY_MS = 2000,
    ROWS_PLAIN = 20,     /* of each table, without a terminal */
    ROWS_LEAST = 3,      /* on a small one */
    BEGINNINGS_MOST = 10 /* the daemon began anew, because a window ended or it was reloaded */
};

enum table { POLICIES, DENIED, DENIED_COMPLETE, GRANTED, GRANTED_COMPLETE, CLIENTS, N_TABLES };

struct top {
    struct ratelimit *client; /* not owned */
    const struct options *options;
    struct rows tables[N_TABLES];
    struct rows before; /* policies of the page before, in the order of the daemon */
    int64_t before_ms;  /* CLOCK_MONOTONIC of that; 0: this is the first one */
    int64_t now_ms;
    int64_t window_ms, running_ms;
    struct buffer params;
};

/* ---- asking ---- */

static enum exit_code ask(struct top *top)
{
    struct slice next = {0};
    int n_beginnings = 0;
    top->now_ms = wait_now_ms();
    for (int i = 0; i < N_TABLES; i++) rows_clear(&top->tables[i]);

    do {
        struct pull answer = {0};

        struct packer packer = packer_of(&top->params);
        const char *by = top->options->by;
        buffer_truncate(&top->params, 0);
        pack_array(&packer, 1);
        pack_map(&packer, (next.len > 0) + (by != NULL));
        if (by != NULL) pack_text_field(&packer, "by", by);
        if (next.len != 0) {
            pack_text(&packer, "next");
            pack_str(&packer, next);
        }

        enum exit_code code = map_or_complain(top->client, "top", &top->params, top->options->timeout_ms, &answer);
        if (code != EXIT_DONE) return code;

        struct pull more = words_member(answer, "next");
        bool is_first = words_true(answer, "first");
        if (is_first && ++n_beginnings > BEGINNINGS_MOST)
            return complain(blocking_link(top->client), RATELIMIT_PROTOCOL, "",
                            "the daemon began anew again and again while it was asked; try a longer top.window");
        for (int i = 0; i < N_TABLES && is_first; i++) rows_clear(&top->tables[i]);

        struct pull denied = words_member(answer, "denied"), granted = words_member(answer, "granted");
        top->window_ms = words_number(answer, "window_ms", 0);
        top->running_ms = words_number(answer, "running_ms", 0);
        rows_add(&top->tables[POLICIES], words_member(answer, "policies"), "checks");
        rows_add(&top->tables[DENIED], words_member(denied, "running"), "count");
        rows_add(&top->tables[DENIED_COMPLETE], words_member(denied, "complete"), "count");
        rows_add(&top->tables[GRANTED], words_member(granted, "running"), "count");
        rows_add(&top->tables[GRANTED_COMPLETE], words_member(granted, "complete"), "count");
        rows_add(&top->tables[CLIENTS], words_member(answer, "clients"), "requests");

        next = (struct slice){0};
        pull_text(&more, &next);
    } while (next.len > 0);

    for (int i = 0; i < N_TABLES; i++)
        if (top->tables[i].is_cut) return usage_error("no memory", "");
    return EXIT_DONE;
}

/* ---- JSON ---- */

static void print_windows(const char *name, const struct rows *running, const struct rows *complete)
{
    printf("\"%s\": {\"running\": ", name);
    views_rows_json(stdout, running, views_row_json);
    fputs(", \"complete\": ", stdout);
    views_rows_json(stdout, complete, views_row_json);
    fputs("}, ", stdout);
}

static bool shows(const struct top *top, const char *kind)
{
    return top->options->by == NULL || strcmp(top->options->by, kind) == 0;
}

static void print_json(struct top *top)
{
    for (int i = 0; i < N_TABLES; i++) rows_sort(&top->tables[i]);
    fputs("{", stdout);
    if (shows(top, "policy")) {
        fputs("\"policies\": ", stdout);
        views_rows_json(stdout, &top->tables[POLICIES], views_row_json);
        fputs(", ", stdout);
    }
    if (shows(top, "key")) {
        print_windows("denied", &top->tables[DENIED], &top->tables[DENIED_COMPLETE]);
        print_windows("granted", &top->tables[GRANTED], &top->tables[GRANTED_COMPLETE]);
    }
    if (shows(top, "client")) {
        fputs("\"clients\": ", stdout);
        views_rows_json(stdout, &top->tables[CLIENTS], views_client_json);
        fputs(", ", stdout);
    }
    printf("\"window_ms\": %" PRId64 ", \"running_ms\": %" PRId64 "}\n", top->window_ms, top->running_ms);
    fflush(stdout);
}

/* ---- for people ---- */

/* The policies of the page before are in the same order, unless a reload came between. */
static int64_t since_before(const struct top *top, size_t i, const char *name)
{
    struct pull now = rows_at(&top->tables[POLICIES], i);
    struct pull label = words_member(now, "policy"), label_before;
    struct slice text = {0}, text_before = {0};
    int64_t number = words_number(now, name, 0);
    if (i >= top->before.n) return number;

    struct pull before = rows_at(&top->before, i);
    label_before = words_member(before, "policy");
    pull_text(&label, &text);
    pull_text(&label_before, &text_before);
    return slice_eq(text, text_before) ? number - words_number(before, name, 0) : number;
}

static double part_of(int64_t part, int64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

/* A policy's numbers since the page before; row: its place in the daemon's order. */
struct rate {
    int64_t checks, denied, near;
    size_t row;
};

static int compare_rates(const void *a_, const void *b_)
{
    const struct rate *a = a_, *b = b_;
    if (a->checks != b->checks) return a->checks > b->checks ? -1 : 1;
    return a->row < b->row ? -1 : 1;
}

/* What came since the page before, a second; on the first one all since the daemon's start. */
static void print_policies(FILE *out, const struct top *top, size_t n_most)
{
    const struct rows *rows = &top->tables[POLICIES];
    bool has_before = top->before_ms > 0;
    double seconds = has_before ? (double)(top->now_ms - top->before_ms) / 1000 : 1;
    if (seconds <= 0) seconds = 1;
    struct rate *rates = calloc(rows->n + 1, sizeof *rates);
    if (rates == NULL) return;
    for (size_t i = 0; i < rows->n; i++)
        rates[i] = (struct rate){since_before(top, i, "checks"), since_before(top, i, "denied"),
                                 since_before(top, i, "near"), i};
    qsort(rates, rows->n, sizeof *rates, compare_rates);

    fprintf(out, "%-24s%12s%12s%9s%9s\n", "POLICY", has_before ? "CHECKS/S" : "CHECKS",
            has_before ? "DENIED/S" : "DENIED", "DENIED%", "NEAR%");
    for (size_t i = 0; i < rows->n && i < n_most; i++) {
        const struct rate *rate = &rates[i];
        struct pull name = words_member(rows_at(rows, rate->row), "policy");
        struct slice text = {0};
        pull_text(&name, &text);
        fprintf(out, "%-24.*s%12.0f%12.0f%9.1f%9.1f\n", (int)text.len, (const char *)text.data,
                (double)rate->checks / seconds, (double)rate->denied / seconds, part_of(rate->denied, rate->checks),
                part_of(rate->near, rate->checks));
    }
    free(rates);
}

static void print_keys(FILE *out, const struct rows *rows, const char *what, const char *when, size_t n_most)
{
    if (rows->n == 0) return;
    fprintf(out, "\n%10s%10s  %-24s%s, %s\n", what, "ERROR", strcmp(what, "DENIED") == 0 ? "LIMIT" : "POLICY", "KEY",
            when);
    for (size_t i = 0; i < rows->n && i < n_most; i++) {
        struct pull row = rows_at(rows, i), limit = words_member(row, "limit");
        struct slice text = {0};
        char error[24];
        if (pull_text(&limit, &text) != 0) {
            limit = words_member(row, "policy");
            pull_text(&limit, &text);
        }
        snprintf(error, sizeof error, "<=%" PRId64, words_number(row, "error", 0));
        fprintf(out, "%10" PRId64 "%10s  %-24.*s", words_number(row, "count", 0), error, (int)text.len,
                (const char *)text.data);
        words_text(out, row, "key", text.len < 24 ? "" : "  ", "\n");
    }
}

/* ratelimitd 0.1.0  up 3h 2m  p50 41us  p99 190us; and why the store does not decide. */
static void print_head(FILE *out, const struct top *top)
{
    static const uint8_t no_parameters[] = {0x90};
    char text[UNITS_TEXT_MAX];
    const void *result;
    size_t len;
    uint32_t timeout_ms = (uint32_t)top->options->timeout_ms;
    if (ratelimit_call(top->client, "version", no_parameters, sizeof no_parameters, timeout_ms, &result, &len) ==
        RATELIMIT_OK) {
        struct pull version = pull_of(result, len);
        words_text(out, version, "version", "ratelimitd ", "");
        fprintf(out, "  up %s", units_print_wait(text, words_number(version, "uptime_ms", 0)));
    }
    if (ratelimit_call(top->client, "stats", no_parameters, sizeof no_parameters, timeout_ms, &result, &len) ==
        RATELIMIT_OK) {
        struct pull stats = pull_of(result, len);
        fprintf(out, "  %" PRId64 " connections  p50 %" PRId64 "us  p99 %" PRId64 "us\n",
                words_number(stats, "connections", 0), words_number(stats, "check_p50_us", 0),
                words_number(stats, "check_p99_us", 0));
        words_text(out, stats, "redis_trouble", "Redis is ", "\n");
    }
}

static enum exit_code print_page(struct top *top)
{
    char *page = NULL, window[UNITS_TEXT_MAX], gone[UNITS_TEXT_MAX], running[2 * UNITS_TEXT_MAX + 24],
         complete[UNITS_TEXT_MAX + 24];
    size_t size = 0;
    FILE *out = open_memstream(&page, &size);
    if (out == NULL) return usage_error("no memory", "");

    int n_tables = 0;
    for (int i = 0; i < N_TABLES; i++) n_tables += i == POLICIES || i == CLIENTS || top->tables[i].n > 0;
    size_t n_most = ROWS_PLAIN;
    int lines = screen_lines();
    if (lines != INT_MAX) n_most = lines / n_tables > ROWS_LEAST + 2 ? (size_t)(lines / n_tables - 2) : ROWS_LEAST;

    print_head(out, top);
    if (shows(top, "policy")) print_policies(out, top, n_most);
    for (int i = DENIED; i < N_TABLES; i++) rows_sort(&top->tables[i]);
    units_print_duration(window, top->window_ms * 1000);
    snprintf(running, sizeof running, "in %s of this %s", units_print_wait(gone, top->running_ms), window);
    snprintf(complete, sizeof complete, "in the last full %s", window);
    print_keys(out, &top->tables[DENIED_COMPLETE], "DENIED", complete, n_most);
    print_keys(out, &top->tables[DENIED], "DENIED", running, n_most);
    print_keys(out, &top->tables[GRANTED_COMPLETE], "GRANTED", complete, n_most);
    print_keys(out, &top->tables[GRANTED], "GRANTED", running, n_most);
    if (shows(top, "key") && top->tables[DENIED].n == 0 && top->tables[DENIED_COMPLETE].n == 0)
        fputs("\nno key was denied\n", out);

    if (shows(top, "client")) {
        fprintf(out, "\n%-8s%-16s%12s%10s%16s%16s  %s\n", "PID", "USER", "REQUESTS", "INFLIGHT", "BYTES IN",
                "BYTES OUT", "PROGRAM");
        for (size_t i = 0; i < top->tables[CLIENTS].n && i < n_most; i++) {
            struct pull row = rows_at(&top->tables[CLIENTS], i);
            fprintf(out, "%-8" PRId64 "%-16s%12" PRId64 "%10" PRId64 "%16" PRId64 "%16" PRId64,
                    words_number(row, "pid", 0), views_user(words_number(row, "uid", -1)),
                    words_number(row, "requests", 0), words_number(row, "inflight", 0),
                    words_number(row, "bytes_in", 0), words_number(row, "bytes_out", 0));
            words_text(out, row, "program", "  ", "\n");
        }
    }

    bool is_whole = fclose(out) == 0 && page != NULL;
    if (is_whole) screen_draw(page);
    free(page);
    return is_whole ? EXIT_DONE : usage_error("no memory", "");
}

enum exit_code top_run(struct ratelimit *client, const struct options *options)
{
    struct top top = {.client = client, .options = options};
    enum exit_code code = EXIT_DONE;
    if (!options->json) screen_open();

    for (int64_t page = 0; options->turns == 0 || page < options->turns; page++) {
        if (page > 0 && !screen_wait(EVERY_MS)) break;
        code = ask(&top);
        if (code == EXIT_DONE && options->json)
            print_json(&top);
        else if (code == EXIT_DONE)
            code = print_page(&top);
        if (code != EXIT_DONE || ferror(stdout)) break;

        struct rows policies = top.tables[POLICIES]; /* what the next page compares with */
        top.tables[POLICIES] = top.before;
        top.before = policies;
        top.before_ms = top.now_ms;
        if (page + 1 != options->turns && !options->json && screen_lines() == INT_MAX) putchar('\n');
    }

    for (int i = 0; i < N_TABLES; i++) rows_fini(&top.tables[i]);
    rows_fini(&top.before);
    buffer_fini(&top.params);
    return code;
}
