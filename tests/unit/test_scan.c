/* test_scan.c: the scanner finds the end of a message, believes no size, and does not care how the bytes arrive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/scan.h"

enum { FRAME = 64, DEPTH = 8 };

static int64_t scan(const void *bytes, size_t len)
{
    struct scanner scanner;
    scanner_init(&scanner, FRAME, DEPTH);
    return scanner_next(&scanner, bytes, len);
}

#define SCAN(text) scan(text, sizeof text - 1)

static void scanner_finds_the_end_of_a_message(void **state)
{
    (void)state;
    assert_int_equal(SCAN("\x90"), 1);
    assert_int_equal(SCAN("\x94\x00\x01\xa4ping\x90"), 9);
    assert_int_equal(SCAN("\x94\x00\x01\xa4ping\x90\x94\x00"), 9);
    assert_int_equal(SCAN("\x92\x82\xa1k\xc0\xa1m\x91\xc3\x00"), 10);
    assert_int_equal(SCAN("\xdc\x00\x02\xcb\x00\x00\x00\x00\x00\x00\x00\x00\xd8\x01"
                          "0123456789abcdef"),
                     30);
}

static void scanner_waits_for_what_is_missing(void **state)
{
    (void)state;
    const uint8_t message[] = "\x94\x00\xcd\x01\x00\xd9\x04ping\x91\xc7\x02\x05xy";
    struct scanner scanner;
    scanner_init(&scanner, FRAME, DEPTH);
    for (size_t len = 0; len < sizeof message - 1; len++) assert_int_equal(scanner_next(&scanner, message, len), 0);
    assert_int_equal(scanner_next(&scanner, message, sizeof message - 1), sizeof message - 1);
}

static void scanner_is_ready_for_the_next_message(void **state)
{
    (void)state;
    const uint8_t messages[] = "\x93\x01\x02\x03\x91\xa1x\x90";
    struct scanner scanner;
    scanner_init(&scanner, FRAME, DEPTH);
    assert_int_equal(scanner_next(&scanner, messages, 8), 4);
    assert_int_equal(scanner_next(&scanner, messages + 4, 4), 3);
    assert_int_equal(scanner_next(&scanner, messages + 7, 1), 1);
}

/* One step per byte: were it to begin afresh on each call, a message of 60 kB fed in single bytes would be 2 billion.
 */
static void scanner_does_not_look_at_a_byte_twice(void **state)
{
    (void)state;
    static uint8_t message[60003] = {0xdc, 0xea, 0x60};
    struct scanner scanner;
    scanner_init(&scanner, sizeof message, DEPTH);
    for (size_t len = 1; len < sizeof message; len++) {
        assert_int_equal(scanner_next(&scanner, message, len), 0);
        if (len > 3) message[len - 1] = 0xc1; /* would be refused */
    }
    assert_int_equal(scanner_next(&scanner, message, sizeof message), sizeof message);
}

static void scanner_refuses_what_is_no_array_at_its_first_byte(void **state)
{
    (void)state;
    for (int first = 0; first < 256; first++) {
        uint8_t byte = (uint8_t)first;
        int is_array = (first >= 0x90 && first <= 0x9f) || first == 0xdc || first == 0xdd;
        if (is_array) {
            assert_true(scan(&byte, 1) >= 0);
        } else {
            assert_int_equal(scan(&byte, 1), -SCAN_BROKEN);
        }
    }
}

static void scanner_refuses_c1_wherever_a_value_begins(void **state)
{
    (void)state;
    assert_int_equal(SCAN("\x91\xc1"), -SCAN_BROKEN);
    assert_int_equal(SCAN("\x91\x81\xa1k\xc1"), -SCAN_BROKEN);
    assert_int_equal(SCAN("\x91\xa1\xc1"), 3);
}

static void scanner_refuses_a_size_at_its_header(void **state)
{
    (void)state;
    assert_int_equal(SCAN("\xdd\xff\xff\xff\xff"), -SCAN_TOO_LARGE);
    assert_int_equal(SCAN("\xdd\x10\x00\x00\x00"), -SCAN_TOO_LARGE);
    assert_int_equal(SCAN("\xdc\xff\xff"), -SCAN_TOO_LARGE);
    assert_int_equal(SCAN("\x91\xdf\x80\x00\x00\x00"), -SCAN_TOO_LARGE);
    assert_int_equal(SCAN("\x91\xdf\xff\xff\xff\xff"), -SCAN_TOO_LARGE);
    assert_int_equal(SCAN("\x91\xdb\xff\xff\xff\xff"), -SCAN_TOO_LARGE);
    assert_int_equal(SCAN("\x91\xc6\xff\xff\xff\xff"), -SCAN_TOO_LARGE);
    assert_int_equal(SCAN("\x91\xc9\xff\xff\xff\xff\x00"), -SCAN_TOO_LARGE);
    assert_int_equal(SCAN("\x91\xd9\x3e"), -SCAN_TOO_LARGE);
    assert_int_equal(SCAN("\x91\xd9\x3d"), 0);
}

/* A map of n owes 2n bytes, and what outer containers still owe counts too. */
static void scanner_adds_up_what_is_owed(void **state)
{
    (void)state;
    assert_int_equal(SCAN("\xdc\x00\x3d"), 0);
    assert_int_equal(SCAN("\xdc\x00\x3e"), -SCAN_TOO_LARGE);
    assert_int_equal(SCAN("\x91\xde\x00\x1e"), 0);
    assert_int_equal(SCAN("\x91\xde\x00\x1f"), -SCAN_TOO_LARGE);
    assert_int_equal(SCAN("\xdc\x00\x20\xdc\x00\x1b"), 0);
    assert_int_equal(SCAN("\xdc\x00\x20\xdc\x00\x1c"), -SCAN_TOO_LARGE);
}

static void scanner_takes_a_frame_of_exactly_the_maximum(void **state)
{
    (void)state;
    uint8_t message[FRAME + 1] = {0x91, 0xd9, FRAME - 3};
    assert_int_equal(scan(message, FRAME), FRAME);
    message[2] = FRAME - 2;
    assert_int_equal(scan(message, FRAME + 1), -SCAN_TOO_LARGE);
}

/* A session's buffer holds max_frame bytes: a scanner that asked for more then would wait for ever. */
static void scanner_never_asks_for_more_than_a_frame(void **state)
{
    (void)state;
    uint8_t message[FRAME];
    for (int first = 0; first < 256; first++) {
        if (first == 0xc1) continue;
        memset(message, 0xc0, sizeof message);
        message[0] = 0xdc;
        message[1] = 0x00;
        message[2] = FRAME - 3; /* the last byte begins the last value */
        message[FRAME - 1] = (uint8_t)first;
        int64_t length = scan(message, FRAME);
        assert_true(length == FRAME || length == -SCAN_TOO_LARGE);
    }
}

static void scanner_refuses_deep_nesting(void **state)
{
    (void)state;
    uint8_t message[FRAME];
    memset(message, 0x91, sizeof message);
    message[DEPTH - 1] = 0x90;
    assert_int_equal(scan(message, DEPTH), DEPTH);
    message[DEPTH - 1] = 0x91;
    assert_int_equal(scan(message, DEPTH), 0);
    message[DEPTH] = 0x80;
    assert_int_equal(scan(message, DEPTH + 1), -SCAN_TOO_DEEP);
    struct scanner scanner;
    scanner_init(&scanner, FRAME, SCAN_DEPTH_MAX);
    memset(message, 0x91, sizeof message);
    assert_int_equal(scanner_next(&scanner, message, SCAN_DEPTH_MAX + 1), -SCAN_TOO_DEEP);
}

static void scanner_depth_counts_only_what_is_open(void **state)
{
    (void)state;
    uint8_t message[] = {0x93, 0x92, 0x91, 0x90, 0x91, 0xc0, 0x81, 0xc0, 0x91, 0xc0, 0x90};
    struct scanner scanner;
    scanner_init(&scanner, FRAME, 4);
    assert_int_equal(scanner_next(&scanner, message, sizeof message), sizeof message);
    scanner_init(&scanner, FRAME, 3);
    assert_int_equal(scanner_next(&scanner, message, sizeof message), -SCAN_TOO_DEEP);
}

static void scanner_repeats_its_refusal(void **state)
{
    (void)state;
    struct scanner scanner;
    scanner_init(&scanner, FRAME, DEPTH);
    const uint8_t message[] = "\x92\x00\xc1";
    for (int i = 0; i < 3; i++) assert_int_equal(scanner_next(&scanner, message, 3), -SCAN_BROKEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scanner_finds_the_end_of_a_message),
        cmocka_unit_test(scanner_waits_for_what_is_missing),
        cmocka_unit_test(scanner_is_ready_for_the_next_message),
        cmocka_unit_test(scanner_does_not_look_at_a_byte_twice),
        cmocka_unit_test(scanner_refuses_what_is_no_array_at_its_first_byte),
        cmocka_unit_test(scanner_refuses_c1_wherever_a_value_begins),
        cmocka_unit_test(scanner_refuses_a_size_at_its_header),
        cmocka_unit_test(scanner_adds_up_what_is_owed),
        cmocka_unit_test(scanner_takes_a_frame_of_exactly_the_maximum),
        cmocka_unit_test(scanner_never_asks_for_more_than_a_frame),
        cmocka_unit_test(scanner_refuses_deep_nesting),
        cmocka_unit_test(scanner_depth_counts_only_what_is_open),
        cmocka_unit_test(scanner_repeats_its_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
