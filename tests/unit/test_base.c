/* test_base.c: the small parts of src/base, each against what its header says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/hash.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/nearest.h"

static void buffer_appends_and_consumes(void **state)
{
    (void)state;
    struct buffer buf;
    buffer_init(&buf, 1000);
    for (int i = 0; i < 90; i++) assert_int_equal(buffer_append(&buf, "0123456789", 10), 0);
    buffer_consume(&buf, 895);
    assert_int_equal(buffer_len(&buf), 5);
    assert_memory_equal(buffer_data(&buf), "56789", 5);
    buffer_consume(&buf, 5);
    assert_int_equal(buffer_len(&buf), 0);
    buffer_shrink(&buf, 100);
    assert_null(buf.bytes);
    buffer_fini(&buf);
}

static void buffer_refuses_beyond_its_ceiling(void **state)
{
    (void)state;
    struct buffer buf;
    buffer_init(&buf, 16);
    assert_int_equal(buffer_append(&buf, "0123456789", 10), 0);
    assert_int_equal(buffer_append(&buf, "0123456789", 10), -1);
    assert_int_equal(buffer_len(&buf), 10);
    assert_null(buffer_reserve(&buf, SIZE_MAX));
    buffer_fini(&buf);
}

static void buffer_survives_a_failed_allocation(void **state)
{
    (void)state;
    struct buffer buf;
    buffer_init(&buf, 0);
    mem_fail_nth(1);
    assert_int_equal(buffer_append(&buf, "x", 1), -1);
    assert_int_equal(buffer_append(&buf, "x", 1), 0);
    buffer_fini(&buf);
}

static void heap_gives_the_earliest(void **state)
{
    (void)state;
    enum { N = 500 };
    struct heap heap;
    struct heap_node nodes[N] = {0};
    heap_init(&heap);
    for (int i = 0; i < N; i++) assert_int_equal(heap_push(&heap, &nodes[i], (i * 7919) % 1009), 0);
    for (int i = 0; i < N; i += 3) heap_remove(&heap, &nodes[i]);
    heap_remove(&heap, &nodes[0]);
    int64_t last = -1;
    for (struct heap_node *min; (min = heap_min(&heap)) != NULL; heap_remove(&heap, min)) {
        assert_true(min->at_us >= last);
        assert_true((min - nodes) % 3 != 0);
        last = min->at_us;
    }
    heap_fini(&heap);
}

static void heap_keeps_the_order_of_equals(void **state)
{
    (void)state;
    enum { N = 300 };
    struct heap heap;
    struct heap_node nodes[N] = {0};
    heap_init(&heap);
    for (int i = 0; i < N; i++) assert_int_equal(heap_push(&heap, &nodes[i], i / 100), 0);
    for (int i = 0; i < N; i += 7) heap_remove(&heap, &nodes[i]);
    for (int i = 0; i < N; i++) {
        if (i % 7 == 0) continue;
        assert_ptr_equal(heap_min(&heap), &nodes[i]);
        heap_remove(&heap, &nodes[i]);
    }
    heap_fini(&heap);
}

static void map_finds_among_equal_hashes(void **state)
{
    (void)state;
    struct map map;
    struct map_node a, b, c;
    assert_int_equal(map_init(&map, 100), 0);
    map_insert(&map, &a, 5);
    map_insert(&map, &b, 5);
    map_insert(&map, &c, 5 + map.n_slots);
    assert_ptr_equal(map_first(&map, 5), &b);
    assert_ptr_equal(map_next_same(&b), &a);
    assert_null(map_next_same(&a));
    map_remove(&map, &b);
    assert_ptr_equal(map_first(&map, 5), &a);
    assert_int_equal(map.n, 2);
    map_fini(&map);
}

static void list_keeps_order(void **state)
{
    (void)state;
    struct list head, other, links[4];
    list_init(&head);
    list_init(&other);
    for (int i = 0; i < 2; i++) list_push_back(&head, &links[i]);
    for (int i = 2; i < 4; i++) list_push_back(&other, &links[i]);
    list_append(&head, &other);
    assert_true(list_empty(&other));
    for (int i = 0; i < 4; i++) assert_ptr_equal(list_pop_front(&head), &links[i]);
    assert_null(list_pop_front(&head));
}

/* FNV-1a against its published vector; SipHash only for being keyed and repeatable. */
static void hash_is_stable_and_keyed(void **state)
{
    (void)state;
    assert_true(hash_stable(HASH_STABLE_START, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c)); /* FNV-1a 64 of "a" */
    uint64_t plain = hash_keyed("login:alice", 11);
    hash_seed(1, 2);
    assert_true(hash_keyed("login:alice", 11) != plain);
    hash_seed(0, 0);
    assert_true(hash_keyed("login:alice", 11) == plain);
}

static void bytes_in_use_are_counted_until_they_are_freed(void **state)
{
    (void)state;
    uint64_t before = mem_in_use();
    char *bytes = mem_alloc(100), *text = mem_strdup("text");
    bytes = mem_realloc(bytes, 100000);
    assert_true(mem_in_use() >= before + 100000 + 5);
    mem_fail_nth(1);
    assert_null(mem_realloc(bytes, 200000));
    mem_fail_nth(0);
    mem_free(bytes);
    mem_free(text);
    mem_free(NULL);
    assert_int_equal(mem_in_use(), before);
}

static bool is_in_pipe(int fd, const char *text)
{
    static char got[65536];
    ssize_t n = read(fd, got, sizeof got - 1);
    assert_true(n >= 0);
    got[n] = '\0';
    return strstr(got, text) != NULL;
}

static void a_log_that_nobody_reads_drops_lines_and_says_how_many(void **state)
{
    (void)state;
    char expected[64];
    int ends[2], kept = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    log_counters.log_lines_dropped = 0;
    while (log_counters.log_lines_dropped < 3) log_line(LOG_LEVEL_ERROR, "%0500d", 7); /* would wait here for ever */
    bool was_full = !log_report_dropped(), was_read = is_in_pipe(ends[0], "7\n"), was_reported = log_report_dropped();
    dup2(kept, STDERR_FILENO);
    assert_true(was_full && was_read && was_reported);
    snprintf(expected, sizeof expected, "warning: %d log lines were dropped here", 3);
    assert_true(is_in_pipe(ends[0], expected));
    close(kept);
    close(ends[0]);
    close(ends[1]);
}

static const char *guess(const char *written, size_t most, const char *const *names)
{
    struct nearest nearest = nearest_within(slice_of(written), most);
    for (; *names != NULL; names++) nearest_offer(&nearest, *names);
    return nearest.name != NULL ? nearest.name : "";
}

static void nearest_is_the_name_with_the_fewest_edits_and_none_beyond_the_bound(void **state)
{
    (void)state;
    static const char *const names[] = {"login", "logins", "api", "tenant-api", "fw", NULL};
    assert_string_equal(guess("login", 2, names), "login");
    assert_string_equal(guess("lgoin", 2, names), "login"); /* a swap is one edit */
    assert_string_equal(guess("loginss", 2, names), "logins");
    assert_string_equal(guess("olgnis", 2, names), "logins"); /* two swaps */
    assert_string_equal(guess("lggin", 1, names), "login");
    assert_string_equal(guess("lgg", 2, names), ""); /* of three letters only one may be wrong */
    assert_string_equal(guess("fv", 2, names), "fw");
    assert_string_equal(guess("tenent-ip", 2, names), ""); /* three */
    assert_string_equal(guess("tennt-ap", 2, names), "tenant-api");
    assert_string_equal(guess("tenent-ip", 9, names), "tenant-api");
    assert_string_equal(guess("", 2, names), "");
    char longer[100];
    memset(longer, 'x', sizeof longer);
    struct nearest nearest = nearest_within((struct slice){(const uint8_t *)longer, sizeof longer}, 2);
    nearest_offer(&nearest, "x");
    assert_null(nearest.name);
}

static void log_escape_leaves_no_control_bytes(void **state)
{
    (void)state;
    char out[32];
    assert_string_equal(log_escape(out, sizeof out, "a\r\n\xff", 4), "a\\x0d\\x0a\\xff");
    assert_string_equal(log_escape(out, 12, "aaaaaaaaaaaaaaaaaaaaaaaa", 24), "aaaaa...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffer_appends_and_consumes),
        cmocka_unit_test(buffer_refuses_beyond_its_ceiling),
        cmocka_unit_test(buffer_survives_a_failed_allocation),
        cmocka_unit_test(heap_gives_the_earliest),
        cmocka_unit_test(heap_keeps_the_order_of_equals),
        cmocka_unit_test(map_finds_among_equal_hashes),
        cmocka_unit_test(list_keeps_order),
        cmocka_unit_test(hash_is_stable_and_keyed),
        cmocka_unit_test(bytes_in_use_are_counted_until_they_are_freed),
        cmocka_unit_test(a_log_that_nobody_reads_drops_lines_and_says_how_many),
        cmocka_unit_test(nearest_is_the_name_with_the_fewest_edits_and_none_beyond_the_bound),
        cmocka_unit_test(log_escape_leaves_no_control_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
