/* find.c: asks for keys by a pattern, and makes one row of all that is known of a key, for ratelimitctl.c. */
#include "ctl/find.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/blocking.h"
#include "ctl/json.h"
#include "ctl/rows.h"
#include "ctl/text.h"
#include "ctl/views.h"
#include "ctl/words.h"
#include "proto/pack.h"

enum { NEXT_MAX = 128 };

/* All that is known of a key. */
struct found {
    struct slice name; /* one for all rows of a key: of a long one the short form */
    struct slice key;  /* the longest form */
    int64_t denied;    /* in the last two windows of top */
    int64_t last_ms;   /* its last denial that is remembered, since the epoch; 0: none is */
    bool counted;      /* the store has a counter of it */
};

static int compare_slices(struct slice a, struct slice b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len > 0 ? memcmp(a.data, b.data, len) : 0;
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

static int by_name(const void *a_, const void *b_)
{
    const struct found *a = a_, *b = b_;
    return compare_slices(a->name, b->name);
}

static int by_denied(const void *a_, const void *b_)
{
    const struct found *a = a_, *b = b_;
    if (a->denied != b->denied) return a->denied > b->denied ? -1 : 1;
    return compare_slices(a->name, b->name);
}

/* One for each key, those that are denied most first; to be freed. NULL: no memory. */
static struct found *merge(const struct rows *rows, size_t *ret_n)
{
    struct found *all = calloc(rows->n + 1, sizeof *all);
    size_t n = 0;
    if (all == NULL) return NULL;
    for (size_t i = 0; i < rows->n; i++) {
        const struct pull row = rows_at(rows, i);
        struct pull key = words_member(row, "key"), name = words_member(row, "short"), from = words_member(row, "from");
        struct slice part = {0};
        pull_text(&key, &all[i].key);
        if (pull_text(&name, &all[i].name) != 0) all[i].name = all[i].key;
        pull_text(&from, &part);
        all[i].counted = slice_is(part, "store");
        all[i].denied = words_number(row, "count", 0);
        all[i].last_ms = words_number(row, "time_ms", 0);
    }
    qsort(all, rows->n, sizeof *all, by_name);

    for (size_t i = 0; i < rows->n; i++) {
        if (n == 0 || compare_slices(all[n - 1].name, all[i].name) != 0) {
            all[n++] = all[i];
            continue;
        }
        struct found *same = &all[n - 1];
        if (all[i].key.len > same->key.len) same->key = all[i].key;
        if (all[i].last_ms > same->last_ms) same->last_ms = all[i].last_ms;
        same->denied += all[i].denied;
        same->counted |= all[i].counted;
    }
    qsort(all, n, sizeof *all, by_denied);
    *ret_n = n;
    return all;
}

/* ---- printing ---- */

static void print_json(const struct found *found, size_t n, const struct rows *redis)
{
    fputs("{\"keys\": [", stdout);
    for (size_t i = 0; i < n; i++) {
        fputs(i > 0 ? ", {\"key\": " : "{\"key\": ", stdout);
        json_text(stdout, found[i].key);
        printf(", \"denied\": %" PRId64 ", \"last_denied_ms\": ", found[i].denied);
        if (found[i].last_ms > 0)
            printf("%" PRId64, found[i].last_ms);
        else
            fputs("null", stdout);
        printf(", \"counted\": %s}", found[i].counted ? "true" : "false");
    }
    fputs("]", stdout);
    if (redis->n > 0) fputs(", \"redis\": ", stdout);
    if (redis->n > 0) views_rows_json(stdout, redis, views_row_json);
    puts("}");
}

static void print_text(const struct found *found, size_t n, const struct rows *redis)
{
    if (n > 0) printf("%10s  %-23s  %-7s  %s\n", "DENIED", "LAST DENIED", "COUNTED", "KEY");
    for (size_t i = 0; i < n; i++) {
        printf("%10" PRId64 "  ", found[i].denied);
        if (found[i].last_ms > 0)
            views_print_time(stdout, found[i].last_ms);
        else
            printf("%-23s", "-");
        printf("  %-7s  ", redis->n > 0 ? "?" : found[i].counted ? "yes" : "no");
        text_print(stdout, found[i].key);
        fputc('\n', stdout);
    }
    printf("%zu %s\n", n, n == 1 ? "key" : "keys");
    for (size_t i = 0; i < redis->n; i++) {
        struct pull line = rows_at(redis, i);
        if (i == 0) puts("The counters are in Redis, where this finds them (add -h, -p and --user):");
        fputs("  ", stdout);
        words_value(stdout, &line);
        fputc('\n', stdout);
    }
}

/* ---- asking ---- */

enum exit_code find_print(struct ratelimit *client, const struct buffer *policy, const struct options *options,
                          bool resets)
{
    struct buffer params = {0};
    struct rows rows = {0}, redis = {0};
    char next[NEXT_MAX] = "";
    int64_t n_removed = 0;
    enum exit_code code;
    do {
        struct pull answer = {0};
        struct slice text = {0};

        struct packer packer = packer_of(&params);
        buffer_truncate(&params, 0);
        pack_array(&packer, 3);
        /* The policy is the list's only member. */
        packer.failed |= buffer_append(&params, buffer_data(policy) + 1, buffer_len(policy) - 1) != 0;
        pack_text(&packer, options->match);
        pack_map(&packer, (uint32_t)resets + (next[0] != '\0'));
        if (resets) pack_bool_field(&packer, "reset", true);
        if (next[0] != '\0') pack_text_field(&packer, "next", next);

        code = map_or_complain(client, "find", &params, options->timeout_ms, &answer);
        if (code != EXIT_DONE) break;

        struct pull more = words_member(answer, "next");
        if (words_true(answer, "first")) rows_clear(&rows);
        rows_add(&rows, words_member(answer, "keys"), "count");
        rows_clear(&redis);
        rows_add(&redis, words_member(answer, "redis"), "");
        n_removed += words_number(answer, "removed", 0);
        pull_text(&more, &text);
        snprintf(next, sizeof next, "%.*s", (int)text.len, (const char *)text.data);
    } while (next[0] != '\0');

    size_t n = 0;
    struct found *found = code == EXIT_DONE && !rows.is_cut ? merge(&rows, &n) : NULL;
    if (code == EXIT_DONE && found == NULL)
        code =
            complain(blocking_link(client), RATELIMIT_NO_MEMORY, "", "no memory for the keys; write a longer pattern");
    else if (code == EXIT_DONE && resets)
        printf(options->json ? "{\"removed\": %" PRId64 "}\n" : "removed %" PRId64 "\n", n_removed);
    else if (code == EXIT_DONE)
        (options->json ? print_json : print_text)(found, n, &redis);
    else if (n_removed > 0)
        fprintf(stderr, "ratelimitctl: %" PRId64 " were removed before that\n", n_removed);
    free(found);
    rows_fini(&rows);
    rows_fini(&redis);
    buffer_fini(&params);
    return code;
}
