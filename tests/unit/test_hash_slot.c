/* test_hash_slot.c: the slot of a key, as Redis' own documents and servers say it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "redis/cluster_map.h"

static uint16_t slot_of(const char *key)
{
    return hash_slot_of((const uint8_t *)key, strlen(key));
}

static void slots_are_those_that_redis_publishes(void **state)
{
    (void)state;
    assert_int_equal(slot_of("123456789"), 0x31c3); /* the check value of CRC-16/XMODEM, below 16384 */
    assert_int_equal(slot_of("foo"), 12182);
    assert_int_equal(slot_of("somekey"), 11058);
    assert_int_equal(slot_of("foo{hash_tag}"), 2515);
    assert_int_equal(slot_of("hello"), 866);
    assert_int_equal(slot_of(""), 0);
    assert_int_equal(hash_slot_of(NULL, 0), 0);
}

static void only_what_the_first_braces_enclose_counts(void **state)
{
    (void)state;
    assert_int_equal(slot_of("{user1000}.following"), slot_of("user1000"));
    assert_int_equal(slot_of("foo{bar}{zap}"), slot_of("bar"));
    assert_int_equal(slot_of("foo{{bar}}zap"), slot_of("{bar"));
    assert_int_not_equal(slot_of("foo{}{bar}"), slot_of("bar"));
    assert_int_equal(slot_of("foo{}{bar}"), 8363); /* the whole key */
    assert_int_equal(slot_of("}foo{bar}"), slot_of("bar"));
    assert_int_not_equal(slot_of("foo{bar"), slot_of("bar"));
    assert_int_not_equal(slot_of("foo}bar{"), slot_of("bar"));
    assert_int_equal(slot_of("rl:{b017}:fw1:p:{x}"), slot_of("b017"));
}

static void the_buckets_spread_over_all_hash_slots(void **state)
{
    (void)state;
    uint32_t of_third[3] = {0};
    for (int i = 0; i < 256; i++) {
        char key[8];
        snprintf(key, sizeof key, "b%03d", i);
        of_third[slot_of(key) / (HASH_SLOTS / 3 + 1)]++;
    }
    for (int i = 0; i < 3; i++) assert_in_range(of_third[i], 60, 110);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_those_that_redis_publishes),
        cmocka_unit_test(only_what_the_first_braces_enclose_counts),
        cmocka_unit_test(the_buckets_spread_over_all_hash_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
