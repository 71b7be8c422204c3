/* test_lease_list.c: the leases of one key in memory, and the algorithm over them where schedules of checks do not
 * reach. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "fakes/policies.h"
#include "limit/lease_list.h"

static const char *id_of(int n)
{
    static char id[SLOT_ID_LEN + 1];
    snprintf(id, sizeof id, "%032d", n);
    return id;
}

static void leases_stand_in_the_order_of_their_ends(void **state)
{
    (void)state;
    struct lease_list *list = NULL;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(lease_list_reserve(&list), 0);
        lease_list_insert(list, id_of(i), 1000 + i * 37 % 100);
    }
    for (size_t i = 0; i < 100; i++) assert_int_equal(lease_list_end(list, i), 1000 + (int64_t)i);
    assert_int_equal(lease_list_count_after(list, 0), 100);
    assert_int_equal(lease_list_count_after(list, 1000), 99);
    assert_int_equal(lease_list_count_after(list, 1099), 0);
    assert_true(lease_list_move(list, id_of(0), 5000));
    assert_false(lease_list_move(list, id_of(100), 5000));
    assert_int_equal(lease_list_end(list, 0), 1001);
    assert_int_equal(lease_list_end(list, 99), 5000);
    lease_list_lower(list, 1050);
    assert_int_equal(lease_list_end(list, 99), 1050);
    lease_list_drop_until(list, 1049);
    assert_int_equal(lease_list_len(list), 51);
    assert_true(lease_list_remove(list, id_of(0)));
    assert_false(lease_list_remove(list, id_of(0)));
    assert_int_equal(lease_list_len(list), 50);
    lease_list_free(list);
}

static void no_list_is_an_empty_one(void **state)
{
    (void)state;
    struct lease_list *list = NULL;
    assert_int_equal(lease_list_len(NULL), 0);
    assert_int_equal(lease_list_bytes(NULL), 0);
    assert_int_equal(lease_list_count_after(NULL, 0), 0);
    assert_false(lease_list_remove(NULL, id_of(0)));
    assert_false(lease_list_move(NULL, id_of(0), 1));
    lease_list_drop_until(NULL, 1);
    lease_list_lower(NULL, 1);
    mem_fail_nth(1);
    assert_int_equal(lease_list_reserve(&list), -1);
    mem_fail_nth(0);
    assert_null(list);
    lease_list_free(NULL);
}

static struct policy_set *set;
static struct state leases;

static struct view view_at(const char *policy, int64_t now_ms)
{
    struct view view;
    limit_here(&view, &policies_get(set, policy)->limits[0], slice_of("k"), 0, now_ms * 1000);
    limit_view(&view, &leases);
    return view;
}

static struct decision peek(const char *policy, int64_t now_ms)
{
    struct view view = view_at(policy, now_ms);
    struct decision decision;
    bool fits = limit_fits(&view, 1, 1) > 0;
    limit_decide(&view, 1, fits, fits, &decision);
    return decision;
}

static void take(const char *policy, int64_t now_ms, int n)
{
    struct view view = view_at(policy, now_ms);
    const struct algo_ops *ops = limit_ops(view.limit);
    view.slot = id_of(n);
    assert_int_equal(ops->reserve(&view, &leases, 1), 0);
    limit_charge(&view, 1);
    ops->save(&view, &leases);
}

static int set_up(void **state)
{
    (void)state;
    static const struct policy_spec specs[] = {
        {.name = "three", .limits = {{.algo = ALGO_CONCURRENCY, .limit = 3, .window_us = 10000000}}},
        {.name = "one", .limits = {{.algo = ALGO_CONCURRENCY, .limit = 1, .window_us = 10000000}}},
        {.name = "brief", .limits = {{.algo = ALGO_CONCURRENCY, .limit = 3, .window_us = 2000000}}},
    };
    set = policies_make(specs, 3);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    state_fini(&leases);
    policy_set_unref(set);
    return 0;
}

static void a_lower_limit_waits_until_enough_leases_have_ended(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) take("three", 1000 * i, i);
    assert_int_equal(peek("three", 2000).retry_after_ms, 8000);
    assert_int_equal(peek("one", 2000).retry_after_ms, 10000);
    assert_int_equal(peek("one", 2000).remaining, 0);
    assert_int_equal(peek("one", 2000).reset_after_ms, 10000);
    assert_true(peek("one", 12000).allowed);
    assert_false(peek("one", 11999).allowed);
}

static void a_lower_slot_ttl_shortens_leases(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) take("three", 0, i);
    assert_int_equal(peek("brief", 1000).retry_after_ms, 2000);
    assert_int_equal(peek("three", 1000).retry_after_ms, 2000);
}

static void an_ended_lease_is_renewed_until_its_place_is_taken(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) take("three", 0, i);
    assert_int_equal(peek("three", 10000).remaining, 2);
    struct view view = view_at("three", 10000);
    assert_true(lease_list_move(leases.leases, id_of(0), view.edge));
    assert_int_equal(peek("three", 10000).remaining, 1);
    take("three", 10000, 3);
    assert_false(lease_list_move(leases.leases, id_of(1), view.edge));
    assert_true(lease_list_move(leases.leases, id_of(0), view.edge));
    assert_true(lease_list_remove(leases.leases, id_of(0)));
    assert_false(lease_list_remove(leases.leases, id_of(0)));
    assert_true(lease_list_remove(leases.leases, id_of(3)));
    assert_int_equal(lease_list_len(leases.leases), 0);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static const struct {
        int64_t limit, ttl_us;
        const char *about;
    } wrong[] = {{10001, 30000000, "limit"},
                 {5, 999000, "slot_ttl"},
                 {5, 1000001, "slot_ttl"},
                 {5, 43200001000, "slot_ttl"},
                 {5, INT64_MAX, "slot_ttl"}};
    struct policy *policy = policy_new("p", 1);
    struct diag diag;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct limit limit = {
            .policy = policy, .algo = ALGO_CONCURRENCY, .limit = wrong[i].limit, .window_us = wrong[i].ttl_us};
        assert_int_equal(policy_prepare_limit(&limit, NULL, &diag), -1);
        assert_string_equal(diag.setting, wrong[i].about);
    }
    policy_free(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases_stand_in_the_order_of_their_ends),
        cmocka_unit_test(no_list_is_an_empty_one),
        cmocka_unit_test_setup_teardown(a_lower_limit_waits_until_enough_leases_have_ended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lower_slot_ttl_shortens_leases, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_ended_lease_is_renewed_until_its_place_is_taken, set_up, tear_down),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
