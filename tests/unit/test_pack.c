/* test_pack.c: values are written in their shortest form, and a refused write spoils the whole message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "proto/pack.h"

static struct buffer out;

static int set_up(void **state)
{
    (void)state;
    buffer_init(&out, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    buffer_fini(&out);
    return 0;
}

#define EXPECT(text)                                                                                                   \
    do {                                                                                                               \
        assert_int_equal(buffer_len(&out), sizeof(text) - 1);                                                          \
        assert_memory_equal(buffer_data(&out), text, sizeof(text) - 1);                                                \
        buffer_consume(&out, buffer_len(&out));                                                                        \
    } while (0)

static void integers_take_their_shortest_form(void **state)
{
    (void)state;
    struct packer packer = packer_of(&out);
    const int64_t values[] = {0, 127, 128, 255, 256, 65535, 65536, -1, -32, -33, -128, -129, -32769};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) pack_int(&packer, values[i]);
    EXPECT("\x00\x7f\xcc\x80\xcc\xff\xcd\x01\x00\xcd\xff\xff\xce\x00\x01\x00\x00\xff\xe0\xd0\xdf\xd0\x80\xd1\xff\x7f"
           "\xd2\xff\xff\x7f\xff");
    pack_int(&packer, INT64_MIN);
    EXPECT("\xd3\x80\x00\x00\x00\x00\x00\x00\x00");
    pack_int(&packer, INT64_MAX);
    EXPECT("\xcf\x7f\xff\xff\xff\xff\xff\xff\xff");
    pack_uint(&packer, UINT64_MAX);
    EXPECT("\xcf\xff\xff\xff\xff\xff\xff\xff\xff");
    pack_uint(&packer, UINT32_MAX);
    EXPECT("\xce\xff\xff\xff\xff");
    pack_uint(&packer, 5);
    EXPECT("\x05");
    assert_false(packer.failed);
}

static void text_and_containers_take_their_shortest_form(void **state)
{
    (void)state;
    struct packer packer = packer_of(&out);
    pack_nil(&packer);
    pack_bool(&packer, true);
    pack_bool(&packer, false);
    pack_text(&packer, "");
    pack_text(&packer, "ping");
    pack_bin(&packer, slice_of("k"));
    pack_array(&packer, 15);
    pack_array(&packer, 16);
    pack_map(&packer, 15);
    pack_map(&packer, 16);
    EXPECT("\xc0\xc3\xc2\xa0\xa4ping\xc4\x01k\x9f\xdc\x00\x10\x8f\xde\x00\x10");
    pack_text(&packer, "01234567890123456789012345678901"); /* 32 bytes: the first that needs a length byte */
    EXPECT("\xd9\x20"
           "01234567890123456789012345678901");
}

static void a_str_may_be_made_of_pieces(void **state)
{
    (void)state;
    struct packer packer = packer_of(&out);
    const struct slice pieces[] = {slice_of("BAD_KEY"), slice_of(": "), {NULL, 0}, slice_of("empty")};
    pack_str_of(&packer, pieces, 4);
    EXPECT("\xae"
           "BAD_KEY: empty");
}

static void a_field_is_a_name_and_a_value(void **state)
{
    (void)state;
    struct packer packer = packer_of(&out);
    pack_bool_field(&packer, "b", true);
    pack_int_field(&packer, "i", -1);
    pack_uint_field(&packer, "u", 5);
    pack_text_field(&packer, "t", "x");
    EXPECT("\xa1"
           "b\xc3\xa1i\xff\xa1u\x05\xa1t\xa1x");
}

static void nothing_is_written_after_a_refusal(void **state)
{
    (void)state;
    out.max = 4;
    struct packer packer = packer_of(&out);
    pack_array(&packer, 2);
    pack_text(&packer, "too long");
    assert_true(packer.failed);
    size_t len = buffer_len(&out);
    pack_nil(&packer); /* would fit */
    assert_int_equal(buffer_len(&out), len);
    assert_true(packer.failed);
}

static void a_failed_allocation_is_a_refusal(void **state)
{
    (void)state;
    struct packer packer = packer_of(&out);
    mem_fail_nth(1);
    pack_nil(&packer);
    assert_true(packer.failed);
    assert_int_equal(buffer_len(&out), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(integers_take_their_shortest_form),  TEST(text_and_containers_take_their_shortest_form),
        TEST(a_str_may_be_made_of_pieces),        TEST(a_field_is_a_name_and_a_value),
        TEST(nothing_is_written_after_a_refusal), TEST(a_failed_allocation_is_a_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
