/* test_deadlines.c: deadlines come in their order, whatever their durations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/deadlines.h"

static struct deadlines deadlines;

static int set_up(void **state)
{
    (void)state;
    deadlines_init(&deadlines);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    deadlines_fini(&deadlines);
    return 0;
}

static void set(struct deadline *deadline, int64_t now_us, int64_t duration_us)
{
    deadline_init(deadline);
    assert_int_equal(deadlines_set(&deadlines, deadline, now_us, duration_us), 0);
    assert_true(deadline_is_set(deadline));
}

static void the_earliest_comes_first(void **state)
{
    (void)state;
    enum { N = 1000 };
    static struct deadline all[N];
    for (int i = 0; i < N; i++) set(&all[i], i / 3, 1 + (i * 7919) % 29);
    for (int i = 0; i < N; i += 5) {
        deadlines_unset(&deadlines, &all[i]);
        assert_false(deadline_is_set(&all[i]));
        deadlines_unset(&deadlines, &all[i]);
    }
    int64_t last_us = 0;
    size_t n = 0;
    for (struct deadline *first; (first = deadlines_first(&deadlines)) != NULL; n++) {
        assert_true(first->at_us >= last_us);
        assert_true((first - all) % 5 != 0);
        last_us = first->at_us;
        deadlines_unset(&deadlines, first);
    }
    assert_int_equal(n, N - N / 5);
}

static void of_equals_the_one_set_first_comes_first(void **state)
{
    (void)state;
    struct deadline a, b, c, d;
    set(&a, 0, 30);
    set(&b, 10, 20);
    set(&c, 10, 20);
    set(&d, 20, 10);
    struct deadline *const in_order[] = {&a, &b, &c, &d};
    for (size_t i = 0; i < 4; i++) {
        assert_ptr_equal(deadlines_first(&deadlines), in_order[i]);
        deadlines_unset(&deadlines, in_order[i]);
    }
}

static void a_few_durations_need_no_memory_and_more_only_grow_the_heap(void **state)
{
    (void)state;
    struct deadline all[DEADLINE_LANES + 1];
    uint64_t n_before = mem_n_allocs();
    for (int i = 0; i < DEADLINE_LANES; i++) set(&all[i], 0, 100 + i);
    assert_int_equal(mem_n_allocs(), n_before);
    struct deadline *odd = &all[DEADLINE_LANES];
    deadline_init(odd);
    mem_fail_nth(1);
    assert_int_equal(deadlines_set(&deadlines, odd, 0, 1), -1);
    assert_false(deadline_is_set(odd));
    set(odd, 0, 1);
    assert_ptr_equal(deadlines_first(&deadlines), odd);
    for (int i = 0; i <= DEADLINE_LANES; i++) deadlines_unset(&deadlines, &all[i]);
    assert_null(deadlines_first(&deadlines));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_earliest_comes_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_equals_the_one_set_first_comes_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_few_durations_need_no_memory_and_more_only_grow_the_heap, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
