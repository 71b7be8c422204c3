/* views.c: prints denials, slow checks and clients, for ratelimitctl.c and top.c. */
#include "ctl/views.h"

#include <inttypes.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/units.h"
#include "ctl/json.h"
#include "ctl/text.h"
#include "ctl/words.h"
#include "proto/pack.h"

enum { USERS_REMEMBERED = 64, USER_MAX = 40, FOLLOW_EVERY_US = 500000, NEXT_MAX = 128 };

/* ---- users ---- */

const char *views_user(int64_t uid)
{
    static struct {
        int64_t uid;
        char name[USER_MAX];
    } known[USERS_REMEMBERED];
    size_t at = (size_t)uid % USERS_REMEMBERED;
    if (known[at].name[0] != '\0' && known[at].uid == uid) return known[at].name;

    const struct passwd *user = uid >= 0 ? getpwuid((uid_t)uid) : NULL;
    known[at].uid = uid;
    if (user != NULL)
        snprintf(known[at].name, USER_MAX, "%s", user->pw_name);
    else
        snprintf(known[at].name, USER_MAX, "%" PRId64, uid);
    return known[at].name;
}

/* ---- JSON ---- */

void views_row_json(FILE *out, struct pull row)
{
    json_value(out, &row);
}

void views_client_json(FILE *out, struct pull client)
{
    int64_t uid = words_number(client, "uid", -1);
    const char *between = "";
    uint32_t n = 0;
    struct slice name;
    fputc('{', out);
    for (pull_map(&client, &n); n > 0 && pull_text(&client, &name) == 0; n--, between = ", ") {
        fputs(between, out);
        json_text(out, name);
        fputs(": ", out);
        json_value(out, &client);
        if (!slice_is(name, "uid")) continue;
        fputs(", \"user\": ", out);
        json_text(out, slice_of(views_user(uid)));
    }
    fputc('}', out);
}

void views_rows_json(FILE *out, const struct rows *rows, void (*print)(FILE *out, struct pull row))
{
    fputc('[', out);
    for (size_t i = 0; i < rows->n; i++) {
        if (i > 0) fputs(", ", out);
        print(out, rows_at(rows, i));
    }
    fputc(']', out);
}

/* ---- denials and slowlog ---- */

void views_print_time(FILE *out, int64_t time_ms)
{
    time_t seconds = time_ms / 1000;
    struct tm local;
    char text[32] = "?";
    if (localtime_r(&seconds, &local) != NULL) strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
    fprintf(out, "%s.%03d", text, (int)(time_ms % 1000));
}

/* 2026-11-28 06:31:02.123  login/day  key alice  cost 1  uid 1000 pid 4242  [memory] */
static void print_check(FILE *out, struct pull row)
{
    struct pull limit = words_member(row, "limit");
    int64_t total_us = words_number(row, "total_us", -1);
    views_print_time(out, words_number(row, "time_ms", 0));
    if (pull_type(&limit) == PULL_TEXT)
        words_text(out, row, "limit", "  ", "");
    else
        words_text(out, row, "policy", "  ", "");
    words_text(out, row, "key", "  key ", "");
    if (total_us >= 0)
        fprintf(out, "  %" PRId64 " us: %" PRId64 " waiting, %" PRId64 " in the store", total_us,
                words_number(row, "queue_us", 0), words_number(row, "store_us", 0));
    else
        fprintf(out, "  cost %" PRId64, words_number(row, "cost", 0));
    fprintf(out, "  uid %" PRId64 " pid %" PRId64, words_number(row, "uid", -1), words_number(row, "pid", 0));
    words_text(out, row, "source", "  [", "");
    words_text(out, row, "reason", ": ", "");
    fputs("]\n", out);
}

static void on_interrupt(int number)
{
    _exit(EXIT_SIGNALLED + number);
}

/* One object of all rows; of those that are followed, which have no end, one for each. */
static void print_rows(const char *method, struct pull answer, const struct options *options, bool *is_first)
{
    struct pull list = words_member(answer, method);
    bool follows = (options->given & OPTION_FOLLOW) != 0;
    uint32_t n = 0;
    for (pull_array(&list, &n); n > 0; n--) {
        struct pull row = list;
        if (pull_skip(&list) != 0) return;
        if (!options->json) {
            print_check(stdout, row);
            continue;
        }
        if (!follows && !*is_first) fputs(", ", stdout);
        *is_first = false;
        json_value(stdout, &row);
        if (follows) fputc('\n', stdout);
    }
}

enum exit_code views_print_checks(struct ratelimit *client, const char *method, const struct options *options)
{
    bool follows = (options->given & OPTION_FOLLOW) != 0, is_object = options->json && !follows, is_first = true;
    struct buffer params = {0};
    int64_t after = 0;
    bool is_more = true;
    enum exit_code code = EXIT_DONE;
    signal(SIGINT, on_interrupt);

    while (is_more || follows) {
        struct pull answer = {0};

        struct packer packer = packer_of(&params);
        uint32_t n = 1 + (options->policy != NULL) + (options->key != NULL) + ((options->given & OPTION_UID) != 0) +
                     ((options->given & OPTION_RESET) != 0);
        buffer_truncate(&params, 0);
        pack_array(&packer, 1);
        pack_map(&packer, n);
        pack_int_field(&packer, "after", after);
        if (options->policy != NULL) pack_text_field(&packer, "policy", options->policy);
        if (options->key != NULL) pack_text_field(&packer, "key", options->key);
        if (options->given & OPTION_UID) pack_int_field(&packer, "uid", options->uid);
        if (options->given & OPTION_RESET) pack_bool_field(&packer, "reset", true);

        code = map_or_complain(client, method, &params, options->timeout_ms, &answer);
        if (code != EXIT_DONE) break;

        if (is_object && after == 0 && is_first) printf("{\"%s\": [", method);
        print_rows(method, answer, options, &is_first);
        after = words_number(answer, "last", after);
        is_more = words_true(answer, "more");
        if (follows && fflush(stdout) != 0) break;
        if (follows && !is_more) usleep(FOLLOW_EVERY_US);
    }
    if (is_object && code == EXIT_DONE) puts("]}");
    buffer_fini(&params);
    return code;
}

/* ---- clients ---- */

enum exit_code views_print_clients(struct ratelimit *client, const struct options *options)
{
    struct buffer params = {0};
    struct rows rows = {0};
    char next[NEXT_MAX] = "";
    enum exit_code code;
    do {
        struct packer packer = packer_of(&params);
        struct pull answer = {0};
        struct slice text = {0};
        buffer_truncate(&params, 0);
        pack_array(&packer, 1);
        pack_map(&packer, next[0] != '\0');
        if (next[0] != '\0') pack_text_field(&packer, "next", next);
        code = map_or_complain(client, "clients", &params, options->timeout_ms, &answer);
        if (code != EXIT_DONE) break;

        struct pull more = words_member(answer, "next");
        rows_add(&rows, words_member(answer, "clients"), "requests");
        pull_text(&more, &text);
        snprintf(next, sizeof next, "%.*s", (int)text.len, (const char *)text.data);
    } while (next[0] != '\0');

    rows_sort(&rows);
    if (code == EXIT_DONE && options->json) {
        fputs("{\"clients\": ", stdout);
        views_rows_json(stdout, &rows, views_client_json);
        puts("}");
    } else if (code == EXIT_DONE) {
        printf("%-8s%-16s%10s%10s%14s%14s%12s%12s  %s\n", "PID", "USER", "REQUESTS", "INFLIGHT", "BYTES IN",
               "BYTES OUT", "CONNECTED", "IDLE", "RULE  PROGRAM");

        for (size_t i = 0; i < rows.n; i++) {
            struct pull row = rows_at(&rows, i);
            char connected[UNITS_TEXT_MAX], idle[UNITS_TEXT_MAX];
            fprintf(stdout, "%-8" PRId64 "%-16s", words_number(row, "pid", 0),
                    views_user(words_number(row, "uid", -1)));
            fprintf(stdout, "%10" PRId64 "%10" PRId64 "%14" PRId64 "%14" PRId64, words_number(row, "requests", 0),
                    words_number(row, "inflight", 0), words_number(row, "bytes_in", 0),
                    words_number(row, "bytes_out", 0));
            fprintf(stdout, "%12s%12s", units_print_wait(connected, words_number(row, "connected_ms", 0)),
                    units_print_wait(idle, words_number(row, "idle_ms", 0)));
            words_text(stdout, row, "rule", "  ", "");
            words_text(stdout, row, "program", "  ", "\n");
        }
    }
    rows_fini(&rows);
    buffer_fini(&params);
    return code;
}
