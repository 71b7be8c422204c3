/* test_redis_options.c: where Redis is and how it is asked for: addresses taken apart, options copied and compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "redis/options.h"

static void addresses_are_taken_apart(void **state)
{
    (void)state;
    struct redis_address address;
    assert_null(redis_address_parse("unix:/run/redis.sock", &address));
    assert_true(address.is_unix);
    assert_string_equal(address.path, "/run/redis.sock");
    assert_null(redis_address_parse("127.0.0.1:6379", &address));
    assert_true(address.is_numeric && !address.is_v6 && !address.is_unix);
    assert_int_equal(address.port, 6379);
    assert_null(redis_address_parse("[::1]:1", &address));
    assert_true(address.is_numeric && address.is_v6);
    assert_string_equal(address.host, "::1");
    assert_null(redis_address_parse("redis.example.com:65535", &address));
    assert_false(address.is_numeric);
    assert_string_equal(address.host, "redis.example.com");
    assert_int_equal(address.port, 65535);
}

static void a_wrong_address_is_reported(void **state)
{
    (void)state;
    struct redis_address address;
    char long_path[128] = "unix:/";
    memset(long_path + 6, 'x', 107);
    char long_host[300];
    memset(long_host, 'h', 254);
    memcpy(long_host + 254, ":6379", 6);
    const char *const wrong[] = {"",        "redis",       ":6379",   "redis:",        "redis:0", "redis:65536",
                                 "redis:x", "redis:6379x", "::1:80",  "unix:relative", "unix:",   "redis:-1",
                                 "[]:6379", "redis: 6379", long_path, long_host};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (redis_address_parse(wrong[i], &address) == NULL) fail_msg("accepted: %s", wrong[i]);
    }
    long_path[6 + 106] = '\0';
    assert_null(redis_address_parse(long_path, &address));
}

static void options_are_copied_deeply_and_compared_by_server(void **state)
{
    (void)state;
    char password[] = "secret";
    struct redis_options options = {.address = "unix:/x", .password = password, .key_prefix = "rl", .database = 1};
    struct redis_options copy;
    assert_int_equal(redis_options_copy(&copy, &options), 0);
    assert_true(redis_options_same_server(&options, &copy));
    password[0] = 'S';
    assert_string_equal(copy.password, "secret");
    assert_false(redis_options_same_server(&options, &copy));
    password[0] = 's';
    options.username = "rl";
    assert_false(redis_options_same_server(&options, &copy));
    redis_options_fini(&copy);
    assert_null(copy.password);
}

static void a_copy_that_memory_does_not_suffice_for_leaves_nothing_behind(void **state)
{
    (void)state;
    const struct redis_options options = {.address = "a", .username = "u", .password = "p", .key_prefix = "k"};
    struct redis_options copy = {.database = 9};
    for (uint64_t n = 1; n <= 4; n++) {
        mem_fail_nth(n);
        assert_int_equal(redis_options_copy(&copy, &options), -1);
        mem_fail_nth(0);
        assert_int_equal(copy.database, 9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_taken_apart),
        cmocka_unit_test(a_wrong_address_is_reported),
        cmocka_unit_test(options_are_copied_deeply_and_compared_by_server),
        cmocka_unit_test(a_copy_that_memory_does_not_suffice_for_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
