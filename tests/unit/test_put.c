/* test_put.c: what is put into reserved space has the forms that msgpack-c chooses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/list.h"
#include "proto/pack.h"
#include "proto/put.h"

enum { SPACE = 16 };

static struct buffer packed;

static int set_up(void **state)
{
    (void)state;
    buffer_init(&packed, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    buffer_fini(&packed);
    return 0;
}

static void expect_packed(const uint8_t *start, const uint8_t *end)
{
    assert_int_equal(end - start, buffer_len(&packed));
    assert_memory_equal(start, buffer_data(&packed), buffer_len(&packed));
    buffer_truncate(&packed, 0);
}

static void an_integer_is_put_as_it_is_packed(void **state)
{
    (void)state;
    uint8_t space[SPACE];
    for (int bit = 0; bit < 64; bit++) {
        for (int64_t near = -2; near <= 2; near++) {
            uint64_t value = (UINT64_C(1) << bit) + (uint64_t)near;
            struct packer packer = packer_of(&packed);
            pack_uint(&packer, value);
            expect_packed(space, put_uint(space, value));
            pack_int(&packer, (int64_t)value);
            expect_packed(space, put_int(space, (int64_t)value));
            pack_int(&packer, (int64_t)-value);
            expect_packed(space, put_int(space, (int64_t)-value));
        }
    }
}

static void a_head_is_put_as_it_is_packed(void **state)
{
    (void)state;
    const uint32_t lens[] = {0, 1, 15, 16, 31, 32, 255, 256, 65535};
    char text[UINT8_MAX];
    uint8_t space[SPACE + sizeof text];
    memset(text, 'x', sizeof text);
    for (size_t i = 0; i < N_OF(lens); i++) {
        struct packer packer = packer_of(&packed);
        pack_array(&packer, lens[i]);
        expect_packed(space, put_array(space, lens[i]));
        pack_map(&packer, lens[i]);
        expect_packed(space, put_map(space, lens[i]));

        if (lens[i] > sizeof text) continue;
        pack_str(&packer, (struct slice){(const uint8_t *)text, lens[i]});
        expect_packed(space, put_raw(put_str_head(space, lens[i]), text, lens[i]));
    }
}

static void nil_and_bools_are_put_as_they_are_packed(void **state)
{
    (void)state;
    uint8_t space[SPACE];
    struct packer packer = packer_of(&packed);
    pack_nil(&packer);
    pack_bool(&packer, true);
    pack_bool(&packer, false);
    expect_packed(space, put_bool(put_bool(put_nil(space), true), false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_integer_is_put_as_it_is_packed),
        cmocka_unit_test(a_head_is_put_as_it_is_packed),
        cmocka_unit_test(nil_and_bools_are_put_as_they_are_packed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
