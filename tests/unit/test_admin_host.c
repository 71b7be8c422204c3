/* test_admin_host.c: which names a Host may have, and which addresses admin.listen may be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "admin/routes.h"
#include "base/listen_address.h"

static void addresses_and_localhost_are_always_known(void **state)
{
    static const char *const known[] = {"127.0.0.1",      "127.0.0.1:7429", "10.1.2.3:80",   "[::1]",
                                        "[fd00::7]:7429", "localhost",      "LocalHost:7429"};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) assert_true(host_is_known(known[i], NULL));
}

static void a_name_is_known_only_if_it_is_listed(void **state)
{
    static const char *const foreign[] = {"evil.example",
                                          "localhost.evil.example",
                                          "127.0.0.1.evil.example",
                                          "a.example:80:80",
                                          "a.example:x",
                                          "",
                                          "[::1",
                                          "[::1]x",
                                          "[a.example]",
                                          "a.example b.other",
                                          ":7429",
                                          "a.exampl"};
    (void)state;
    assert_true(host_is_known("a.example", "a.example\nb.example"));
    assert_true(host_is_known("B.example:7429", "a.example\nb.example"));
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        assert_false(host_is_known(foreign[i], "a.example\nb.example"));
}

static void an_address_to_listen_on_is_a_literal_with_a_port_or_a_path(void **state)
{
    static const char *const right[] = {"127.0.0.1:7429", "0.0.0.0:0", "[::]:7429", "localhost:7429", "unix:/a b"};
    static const char *const wrong[] = {"",
                                        "7429",
                                        ":7429",
                                        "127.0.0.1",
                                        "127.0.0.1:",
                                        "a.b:1",
                                        "127.0.0.1:x",
                                        "[::]",
                                        "::1:7429",
                                        "127.0.0.1:65536",
                                        "unix:a",
                                        "[::1:7429",
                                        "[]:7429",
                                        "[::]]:7429",
                                        "127.0.0.1:-1",
                                        "127.0.0.1 :1"};
    struct listen_address address;
    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) assert_true(listen_address_parse(&address, right[i]));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(listen_address_parse(&address, wrong[i]));
    assert_true(listen_address_parse(&address, "unix:/run/x"));
    assert_string_equal(address.unix_path, "/run/x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_and_localhost_are_always_known),
        cmocka_unit_test(a_name_is_known_only_if_it_is_listed),
        cmocka_unit_test(an_address_to_listen_on_is_a_literal_with_a_port_or_a_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
