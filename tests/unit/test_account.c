/* test_account.c: users and groups of this machine, by name and by number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/account.h"

static void a_name_or_a_number_is_found(void **state)
{
    (void)state;
    uid_t uid = 77;
    gid_t gid = 77;
    assert_true(account_user("root", &uid));
    assert_int_equal(uid, 0);
    assert_true(account_group("root", &gid));
    assert_int_equal(gid, 0);
    assert_true(account_user("4711", &uid)); /* there need be no such user */
    assert_int_equal(uid, 4711);
    assert_true(account_group("4711", &gid));
    assert_int_equal(gid, 4711);
}

static void what_is_neither_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {
        "no-such-one", "", "-1", "+5", " 5", "5 ", "5x", "0x5", "4294967295", "4294967296", "99999999999999999999"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uid_t uid = 77;
        gid_t gid = 77;
        assert_false(account_user(names[i], &uid));
        assert_false(account_group(names[i], &gid));
        assert_int_equal(uid, 77);
        assert_int_equal(gid, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_or_a_number_is_found),
        cmocka_unit_test(what_is_neither_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
