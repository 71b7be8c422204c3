/* The page of metrics as it is made: piece by piece, and without memory. The pages themselves are in
 * tests/integration/test_metrics.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "admin/metrics.h"
#include "base/alloc.h"
#include "fakes/all_counters.h"
#include "fakes/policies.h"

enum { PAGE_MAX = 256 * 1024, PIECE = 4096, PIECE_LINES_MAX = 100 };

static const struct policy_spec specs[] = {
    {.name = "login", .limits = {{.algo = ALGO_BUCKET, .limit = 5, .window_us = 1000000}}},
    {.name = "api",
     .limits = {{.name = "minute", .algo = ALGO_BUCKET, .limit = 5, .window_us = 1000000},
                {.name = "day", .algo = ALGO_BUCKET, .limit = 50, .window_us = 10000000}}},
};

static const struct clock clock_at_rest = {.mono_us = 1000000};

/* The whole page, and the last answer of metrics_read(): METRICS_OVER or METRICS_FAILED. */
static int64_t read_page(struct policy_set *set, uint64_t failing, char text[PAGE_MAX])
{
    const struct admin_view view = {.store = "memory", .policies = set, .n_named = 10};
    struct metrics *metrics = metrics_new(&view, &clock_at_rest, "1.2");
    size_t len = 0;
    int64_t n;
    assert_non_null(metrics);
    mem_fail_nth(failing);
    while ((n = metrics_read(metrics, text + len, PIECE)) >= 0) {
        len += (size_t)n;
        assert_true(len + PIECE < PAGE_MAX);
    }
    mem_fail_nth(0);
    text[len] = '\0';
    metrics_free(metrics);
    return n;
}

/* Each sample's family has its TYPE before it. */
static void assert_has_heads(const char *text)
{
    char line[1024], name[128], head[160];
    for (const char *at = text; *at != '\0'; at += strlen(line) + 1) {
        assert_int_equal(sscanf(at, "%1023[^\n]", line), 1);
        if (line[0] == '#') continue;
        assert_int_equal(sscanf(line, "%127[a-z_0-9]", name), 1);
        for (const char *const *end = (const char *const[]){"_bucket", "_sum", "_count", NULL}; *end != NULL; end++) {
            char *found = strstr(line, "_seconds_") != NULL ? strstr(name, *end) : NULL;
            if (found != NULL && found[strlen(*end)] == '\0') *found = '\0';
        }
        snprintf(head, sizeof head, "# TYPE %s ", name);
        const char *type = strstr(text, head);
        if (type == NULL || type > at) fail_msg("no head before: %s", line);
    }
}

static void without_memory_a_page_fails_and_no_family_lacks_its_head(void **state)
{
    (void)state;
    static char text[PAGE_MAX];
    struct policy_set *set = policies_make(specs, 2);
    uint64_t n_failed = 0;
    while (read_page(set, n_failed + 1, text) == METRICS_FAILED) {
        n_failed++;
        assert_has_heads(text);
        assert_null(strstr(text, "process_max_fds"));
    }
    assert_true(n_failed > 0);
    assert_has_heads(text);
    assert_non_null(strstr(text, "process_max_fds"));
    policy_set_unref(set);
}

static void a_page_ends_with_a_whole_line_however_it_is_read(void **state)
{
    (void)state;
    static char text[PAGE_MAX];
    struct policy_set *set = policies_make(specs, 2);
    assert_int_equal(read_page(set, 0, text), METRICS_OVER);
    assert_int_equal(text[strlen(text) - 1], '\n');
    assert_non_null(
        strstr(text, "ratelimitd_limit_units{policy=\"api\",limit=\"day\",algorithm=\"token_bucket\"} 50\n"));
    policy_set_unref(set);
}

/* All parts; false: memory was short. */
static bool read_parts(struct policy_set *set, uint64_t failing, struct buffer *text)
{
    const struct admin_view view = {.store = "memory", .policies = set, .n_named = 10};
    uint64_t from = 0;
    int more;
    buffer_truncate(text, 0);
    mem_fail_nth(failing);
    do {
        more = metrics_part(&view, &clock_at_rest, "1.2", &from, text);
    } while (more > 0);
    mem_fail_nth(0);
    return more == 0;
}

static void in_parts_it_is_the_same_page_without_the_process(void **state)
{
    (void)state;
    static char text[PAGE_MAX];
    struct policy_set *set = policies_make(specs, 2);
    struct buffer parts = {0};
    assert_false(read_parts(set, 1, &parts));
    buffer_fini(&parts);
    assert_true(read_parts(set, 0, &parts));
    assert_int_equal(read_page(set, 0, text), METRICS_OVER);
    assert_ptr_equal(strstr(text, "# HELP process_"), text + buffer_len(&parts)); /* the times in it are not equal */
    assert_int_equal(buffer_append(&parts, "", 1), 0);
    assert_has_heads((const char *)buffer_data(&parts));
    buffer_fini(&parts);
    policy_set_unref(set);
}

static size_t n_lines(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) n += text[i] == '\n';
    return n;
}

/* The loop goes on between two pieces, so this is how much of a page it waits for, whatever the machine. */
static void no_piece_of_a_long_page_has_many_lines(void **state)
{
    (void)state;
    static char names[POLICIES_MAX][16], piece[PIECE];
    struct policy_spec many[POLICIES_MAX];
    for (int i = 0; i < POLICIES_MAX; i++) {
        const struct limit_spec limit = {.algo = ALGO_BUCKET, .limit = 5, .window_us = 1000000};
        snprintf(names[i], sizeof names[i], "p%d", i);
        many[i] = (struct policy_spec){.name = names[i], .limits = {limit, limit, limit, limit}};
        for (int j = 0; j < SPEC_LIMITS_MAX; j++) many[i].limits[j].name = (const char *[]){"a", "b", "c", "d"}[j];
    }
    struct policy_set *set = policies_make(many, POLICIES_MAX);
    const struct admin_view view = {.store = "memory", .policies = set, .n_named = POLICIES_MAX};
    struct metrics *metrics = metrics_new(&view, &clock_at_rest, "1.2");
    size_t lines = 0;
    int64_t n;
    assert_non_null(metrics);
    while ((n = metrics_read(metrics, piece, PIECE)) >= 0) {
        assert_in_range(n_lines(piece, (size_t)n), 0, PIECE_LINES_MAX);
        lines += n_lines(piece, (size_t)n);
    }
    assert_int_equal(n, METRICS_OVER);
    assert_in_range(lines, 1200, 2000);
    metrics_free(metrics);
    policy_set_unref(set);
}

int main(void)
{
    all_counters_reset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory_a_page_fails_and_no_family_lacks_its_head),
        cmocka_unit_test(a_page_ends_with_a_whole_line_however_it_is_read),
        cmocka_unit_test(in_parts_it_is_the_same_page_without_the_process),
        cmocka_unit_test(no_piece_of_a_long_page_has_many_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
