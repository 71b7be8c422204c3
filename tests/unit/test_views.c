/* test_views.c: what views are made of: the last checks of a kind, keys as they are kept and shown, places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "server/check_ring.h"
#include "server/places.h"

static struct slice of_x(size_t len)
{
    static uint8_t bytes[4096];
    memset(bytes, 'x', sizeof bytes);
    return (struct slice){bytes, len};
}

static void a_ring_has_the_last_ones_and_numbers_rise_over_a_reset(void **state)
{
    (void)state;
    struct check_ring ring = {0};
    assert_int_equal(check_ring_set(&ring, 4), 0);
    for (uint64_t id = 1; id <= 10; id++) {
        struct kept_check *entry = check_ring_add(&ring);
        assert_int_equal(entry->id, id);
        entry->cost = (int64_t)id;
        assert_int_equal(ring.first_id, id > 4 ? id - 3 : 1);
    }
    for (uint64_t id = 7; id <= 10; id++) assert_int_equal(check_ring_at(&ring, id)->cost, id);

    check_ring_clear(&ring);
    assert_int_equal(ring.first_id, ring.next_id);
    assert_int_equal(check_ring_add(&ring)->id, 11);
    check_ring_fini(&ring);
}

static void another_size_keeps_the_newest(void **state)
{
    (void)state;
    struct check_ring ring = {0};
    assert_int_equal(check_ring_set(&ring, 8), 0);
    for (int64_t cost = 1; cost <= 13; cost++) check_ring_add(&ring)->cost = cost;
    static const uint32_t sizes[] = {5, 100, 3, 7};
    static const uint64_t firsts[] = {9, 9, 11, 11};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        mem_fail_nth(1);
        assert_int_equal(check_ring_set(&ring, sizes[i]), -1);
        mem_fail_nth(0);
        assert_int_equal(check_ring_set(&ring, sizes[i]), 0);
        assert_int_equal(ring.first_id, firsts[i]);
        for (uint64_t id = ring.first_id; id < ring.next_id; id++) assert_int_equal(check_ring_at(&ring, id)->cost, id);
    }
    assert_int_equal(check_ring_set(&ring, 0), 0);
    assert_int_equal(check_ring_set(&ring, 2), 0);
    assert_int_equal(check_ring_add(&ring)->id, 14);
    check_ring_fini(&ring);
}

static void long_keys_are_known_by_their_beginning_and_a_hash(void **state)
{
    (void)state;
    struct kept_key kept;
    char space[KEPT_KEY_SHOWN_MAX];
    for (size_t len = 1; len < 1100; len += len < 70 ? 1 : 100) {
        kept_key_take(&kept, of_x(len));
        assert_true(kept_key_is(&kept, of_x(len)));
        assert_false(kept_key_is(&kept, of_x(len + 1)));
        struct slice shown = kept_key_shown(&kept, space);
        assert_int_equal(shown.len, len <= KEPT_KEY_BYTES ? len : KEPT_KEY_BYTES + 3 + LOG_KEY_HASH_MAX - 1);
        assert_memory_equal(shown.data, of_x(len).data, len < KEPT_KEY_BYTES ? len : KEPT_KEY_BYTES);
    }

    uint8_t other[100];
    memset(other, 'x', sizeof other);
    other[99] = 'y';
    kept_key_take(&kept, of_x(100));
    assert_false(kept_key_is(&kept, (struct slice){other, sizeof other}));
}

static void views_show_keys_as_the_setting_says(void **state)
{
    (void)state;
    struct kept_key kept;
    char space[KEPT_KEY_SHOWN_MAX], hash[LOG_KEY_HASH_MAX];
    static const size_t lens[] = {5, 200};
    for (size_t i = 0; i < 2; i++) {
        kept_key_take(&kept, of_x(lens[i]));
        log_keys_set(LOG_KEYS_HASH, LOG_KEYS_HASH, NULL);
        struct slice shown = kept_key_shown(&kept, space);
        assert_true(slice_is(shown, log_key_hash(hash, of_x(lens[i]))));
        log_keys_set(LOG_KEYS_CLEAR, LOG_KEYS_NONE, NULL);
        assert_int_equal(kept_key_shown(&kept, space).len, 0);
        log_keys_set(LOG_KEYS_HASH, LOG_KEYS_CLEAR, NULL);
    }
}

static void a_place_is_kept_and_then_taken_again(void **state)
{
    (void)state;
    struct places places = {0};
    int items[200];
    uint32_t at[200];
    for (int i = 0; i < 200; i++) assert_int_equal(places_take(&places, &items[i], &at[i]), 0);
    for (int i = 0; i < 200; i++) assert_ptr_equal(places.items[at[i]], &items[i]);
    for (int i = 0; i < 200; i += 2) places_leave(&places, at[i]);
    for (int i = 0; i < 200; i += 2) assert_int_equal(places_take(&places, &items[i], &at[i]), 0);
    assert_int_equal(places.n, 200);
    for (int i = 0; i < 200; i++) assert_ptr_equal(places.items[at[i]], &items[i]);
    for (int i = 0; i < 200; i++) places_leave(&places, at[i]);
    places_fini(&places);
}

static void without_memory_there_is_no_place(void **state)
{
    (void)state;
    struct places places = {0};
    uint32_t at;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        mem_fail_nth(nth);
        assert_int_equal(places_take(&places, &at, &at), -1);
        mem_fail_nth(0);
    }
    assert_int_equal(places_take(&places, &places, &at), 0);
    places_leave(&places, at);
    places_fini(&places);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_has_the_last_ones_and_numbers_rise_over_a_reset),
        cmocka_unit_test(another_size_keeps_the_newest),
        cmocka_unit_test(long_keys_are_known_by_their_beginning_and_a_hash),
        cmocka_unit_test(views_show_keys_as_the_setting_says),
        cmocka_unit_test(a_place_is_kept_and_then_taken_again),
        cmocka_unit_test(without_memory_there_is_no_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
