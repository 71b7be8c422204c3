/* test_client_long_key.c: a long key becomes its first 64 bytes, `#`, and the SHA-256 of all of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/long_key.h"
#include "client/ratelimit.h"

enum { LONGEST = 5000, PERIOD = 251 };

static uint8_t key[LONGEST];

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < LONGEST; i++) key[i] = (uint8_t)(i % PERIOD);
    return 0;
}

static void a_key_up_to_512_bytes_stays_as_it_is(void **state)
{
    (void)state;
    uint8_t buffer[LONG_KEY_SIZE];
    for (size_t len = 0; len <= RATELIMIT_KEY_MAX; len++) {
        struct slice sent = long_key_shortened((struct slice){key, len}, buffer);
        assert_ptr_equal(sent.data, key);
        assert_int_equal(sent.len, len);
    }
}

/* Lengths at which the last block is full, nearly full, or one of two. */
static void a_longer_one_ends_in_its_sha_256(void **state)
{
    (void)state;
    static const struct {
        size_t len;
        const char *digest;
    } cases[] = {
        {513, "c2525d534358baf2020a2560015aa2adbd23d94eeec6455c24092aafdd8cf1b5"},
        {567, "26e3cf14fce2d6334991f252a4b76abb6920840f575c89c06cbeb1816e6c8ed7"},
        {568, "4885ae0a5bb91fafc380cc7f3bbeb40e0fd9555c1841ef3fee34ea81f83dde49"},
        {575, "4abd95e24f3e42e7854b01bd0a94b8e60d7b86dd11cf457eb6291cc114950f2a"},
        {576, "07a3e1ebe4e22f987efe19fce3b9ccc038e6706888def2c5044d754fcbb48d78"},
        {640, "c7fb9ec6ab8f31c5045fcfaee6a91d89f5c0c4baf62d1ee84a905f6f340878b5"},
        {5000, "69dbee893909fa17d1be397e0c07691336fe42049c29d403467d3d4a1fc3b5a1"},
    };
    uint8_t buffer[LONG_KEY_SIZE];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct slice sent = long_key_shortened((struct slice){key, cases[i].len}, buffer);
        assert_int_equal(sent.len, LONG_KEY_SIZE);
        assert_memory_equal(sent.data, key, LONG_KEY_KEPT);
        assert_int_equal(sent.data[LONG_KEY_KEPT], '#');
        assert_memory_equal(sent.data + LONG_KEY_KEPT + 1, cases[i].digest, 64);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_up_to_512_bytes_stays_as_it_is),
        cmocka_unit_test(a_longer_one_ends_in_its_sha_256),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
