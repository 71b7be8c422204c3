/*
 * test_deny_cache.c: what the cache of denials keeps, for how long, and what removes it. test_deny_cache_traces.c has
 * random traces.
 */
#include "fakes/deny_cache_fixture.h"

/* ---- what is kept ---- */

static void a_denial_ends_when_enough_has_come_back(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_BUCKET, 10, S);
    (void)check(limit, "k", 10, SOURCE_REDIS);
    struct decision denied = check(limit, "k", 3, SOURCE_REDIS);
    assert_int_equal(denied.retry_after_ms, 300);
    pass(250 * MS);
    denied = check(limit, "k", 3, SOURCE_DENY_CACHE);
    assert_int_equal(denied.retry_after_ms, 50);
    assert_int_equal(denied.remaining, 2);
    assert_int_equal(denied.reset_after_ms, 750);
    assert_int_equal(check(limit, "k", 5, SOURCE_DENY_CACHE).retry_after_ms, 250);
    assert_int_equal(check(limit, "k", 11, SOURCE_DENY_CACHE).retry_after_ms, RETRY_NEVER);
    (void)check(limit, "other", 3, SOURCE_REDIS);
    pass(50 * MS - 1);
    assert_int_equal(check(limit, "k", 3, SOURCE_DENY_CACHE).retry_after_ms, 1);
    pass(1);
    assert_true(check(limit, "k", 3, SOURCE_REDIS).allowed);
}

/* Else it would be answered with the numbers from before that check. */
static void behind_a_check_that_may_be_admitted_redis_is_asked(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_BUCKET, 10, S);
    (void)check(limit, "k", 8, SOURCE_REDIS);
    (void)check(limit, "k", 5, SOURCE_REDIS);
    for (int i = 0; i < 2; i++) {
        struct question first = question(limit, "k", OP_CHECK, i == 0 ? 2 : 5),
                        behind = question(limit, "k", OP_CHECK, 7);
        (void)check(limit, "k", 7, SOURCE_DENY_CACHE);
        submit(&first); /* it costs less than the check that was denied; or as much, and enough has come back */
        assert_false(first.is_cached);
        submit(&behind);
        assert_false(behind.is_cached);
        (void)check(limit, "k", 5, SOURCE_REDIS);
        pass(300 * MS);
    }
}

/* Overrides give the keys of a counter different limits, and a check may wait. */
static void of_two_denials_in_one_call_the_one_that_answers_more_checks_is_kept(void **state)
{
    (void)state;
    struct limit *small = (struct limit *)limit_of("p", ALGO_FIXED_WINDOW, 5, 86400 * S);
    struct limit *waits = (struct limit *)limit_of("w", ALGO_LEAKY_BUCKET, 10, 10 * S);
    const struct limit *large = overridden(small, 20);
    struct diag diag = {0};
    waits->max_wait_us = 3 * S;
    assert_int_equal(policy_prepare_limit(waits, NULL, &diag), 0);
    const struct {
        const struct limit *limit;
        int64_t cost, max_wait_us;
        const struct limit *limit_of_more;
        int64_t cost_of_more, wait_of_more;
    } pairs[] = {{small, 5, 0, small, 1, 0}, {small, 1, 0, large, 1, 0}, {waits, 1, 0, waits, 1, 3 * S}};
    for (size_t i = 0; i < 3; i++) {
        for (int is_later = 0; is_later <= 1; is_later++) {
            struct question less = question(pairs[i].limit, "k", OP_CHECK, pairs[i].cost);
            struct question more = question(pairs[i].limit_of_more, "k", OP_CHECK, pairs[i].cost_of_more), again = more;
            less.member.max_wait_us = pairs[i].max_wait_us;
            more.member.max_wait_us = again.member.max_wait_us = pairs[i].wait_of_more;
            while (deny_cache_clear(&cache), check(pairs[i].limit_of_more, "k", 1, SOURCE_REDIS).allowed) continue;
            deny_cache_clear(&cache);

            struct question *both[] = {is_later ? &less : &more, is_later ? &more : &less};
            for (int k = 0; k < 2; k++) submit(both[k]);
            for (int k = 0; k < 2; k++) send(both[k]);
            for (int k = 0; k < 2; k++) execute(both[k]);
            for (int k = 0; k < 2; k++) reply(both[k]);
            submit(&again);
            assert_true(again.is_cached);
        }
    }
}

static void redis_is_asked_again_after_max_age(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    (void)check(limit, "k", 1, SOURCE_REDIS);
    (void)check(limit, "k", 1, SOURCE_REDIS);
    for (int i = 0; i < 3; i++) {
        pass(MAX_AGE_S * S - 1);
        (void)check(limit, "k", 1, SOURCE_DENY_CACHE);
        pass(1);
        (void)check(limit, "k", 1, SOURCE_REDIS);
    }
    clock_now.mono_us -= 1; /* which it does not do */
    (void)check(limit, "k", 1, SOURCE_REDIS);
}

/* Each of the units that are missing comes back at a time of its own, which only Redis knows. */
static void a_logs_denial_is_kept_for_the_cost_that_fits_next(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_SLIDING_LOG, 4, S);
    for (int i = 0; i < 4; i++) {
        (void)check(limit, "k", 1, SOURCE_REDIS);
        pass(100 * MS);
    }
    assert_int_equal(check(limit, "k", 1, SOURCE_REDIS).retry_after_ms, 600);
    pass(1);
    struct decision again = check(limit, "k", 1, SOURCE_DENY_CACHE);
    assert_int_equal(again.retry_after_ms, 600);
    assert_int_equal(again.reset_after_ms, 900);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    (void)check(limit, "k", 1, SOURCE_DENY_CACHE);
    pass(600 * MS - 2);
    (void)check(limit, "k", 1, SOURCE_DENY_CACHE);
    pass(1); /* the first unit is back, and 2 are what fits next, */
    (void)check(limit, "k", 2, SOURCE_REDIS);
    (void)check(limit, "k", 2, SOURCE_DENY_CACHE);
    assert_true(check(limit, "k", 1, SOURCE_REDIS).allowed);
}

static void only_plain_checks_are_asked_and_kept(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    (void)check(limit, "k", 1, SOURCE_REDIS);

    struct question named = question(limit, "k", OP_CHECK, 1);
    named.op.record = slice_of("note1:x");
    named.op.record_ms = 1000;
    struct question of_all = question(limit, "k", OP_CHECK, 1);
    of_all.op.is_all = true;
    struct question peek = question(limit, "k", OP_PEEK, 1);
    struct question free_of_cost = question(limit, "k", OP_CHECK, 0);
    struct question *others[] = {&named, &of_all, &peek, &free_of_cost};
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            ask(others[i]);
            assert_false(others[i]->is_cached);
        }
        assert_int_equal(counter_table_is_reserved(&cache.table), round); /* none of them makes an entry */
        (void)check(limit, "k", 1, round == 0 ? SOURCE_REDIS : SOURCE_DENY_CACHE);
    }
}

static void some_policies_are_not_kept(void **state)
{
    (void)state;
    const struct limit_spec day = {.name = "day", .algo = ALGO_FIXED_WINDOW, .limit = 1, .window_us = LONG_WAIT_S * S};
    struct limit_spec counted = day, hour = day, slots = day, foreign = day;
    counted.name = slots.name = foreign.name = NULL;
    counted.count_denied = true;
    hour.name = "hour";
    slots.algo = ALGO_CONCURRENCY;
    foreign.algo = ALGO_COMPAT_FIRST_HIT; /* which does not count denials */
    const struct policy_spec specs[] = {{.name = "shadow", .shadow = true, .limits = {day}},
                                        {.name = "counted", .limits = {counted}},
                                        {.name = "two", .limits = {day, hour}},
                                        {.name = "slots", .limits = {slots}},
                                        {.name = "foreign", .limits = {foreign}},
                                        {.name = "tried", .limits = {day}, .candidate = {day}}};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        const struct policy *policy = policies_add(fixture.set, &specs[i]);
        const struct limit *limit = policy->candidate != NULL ? &policy->candidate->limits[0] : &policy->limits[0];
        for (int n = 0; n < 3; n++) { /* a denial, by whatever limit */
            struct question q = question(limit, "k", OP_CHECK, 1);
            submit(&q);
            assert_false(q.is_cached);
            q.member.decision = (struct decision){.retry_after_ms = 1000};
            q.member.used = 1;
            q.op.now_us = clock_now.wall_us;
            reply(&q);
        }
        assert_false(counter_table_is_reserved(&cache.table));
    }
}

static void long_keys_are_not_kept(void **state)
{
    (void)state;
    char key[COUNTER_KEY_MAX + 2];
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    memset(key, 'k', sizeof key);
    key[COUNTER_KEY_MAX + 1] = '\0';
    (void)check(limit, key, 2, SOURCE_REDIS);
    (void)check(limit, key, 2, SOURCE_REDIS);
    key[COUNTER_KEY_MAX] = '\0';
    (void)check(limit, key, 2, SOURCE_REDIS);
    (void)check(limit, key, 2, SOURCE_DENY_CACHE);
}

/* "a" of policy "pa" is not "aa" of policy "p". */
static void an_entry_belongs_to_a_policy_and_a_version_of_it(void **state)
{
    (void)state;
    const struct limit *one = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    const struct limit *other = limit_of("pa", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    (void)check(one, "k", 2, SOURCE_REDIS);
    (void)check(other, "k", 2, SOURCE_REDIS);
    (void)check(one, "k", 2, SOURCE_DENY_CACHE);

    struct policy_set *set = policy_set_new(16);
    const struct policy_spec raised = {
        .name = "p", .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 2, .window_us = LONG_WAIT_S * S}}};
    const struct limit *now = &policies_add(set, &raised)->limits[0];
    assert_true(check(now, "k", 2, SOURCE_REDIS).allowed);
    (void)check(now, "k", 2, SOURCE_REDIS);
    (void)check(now, "k", 2, SOURCE_DENY_CACHE);
    (void)check(one, "k", 2, SOURCE_REDIS); /* of a request from before the reload */
    policy_set_unref(set);
}

/* A pause denies every cost; of a log, which is kept for one cost, also if that would fit. */
static void a_pause_is_kept_from_its_first_denial_on(void **state)
{
    (void)state;
    for (int is_log = 0; is_log <= 1; is_log++) {
        struct limit *limit =
            (struct limit *)limit_of(is_log ? "l" : "w", is_log ? ALGO_SLIDING_LOG : ALGO_FIXED_WINDOW, 2, S / 10);
        struct diag diag = {0};
        limit->penalty = (struct penalty){.time_ms = 300, .factor = 2, .max_ms = 600, .forget_ms = 1000};
        assert_int_equal(policy_prepare_limit(limit, NULL, &diag), 0);
        policy_seal((struct policy *)limit->policy);
        (void)check(limit, "k", 2, SOURCE_REDIS);
        assert_int_equal(check(limit, "k", 2, SOURCE_REDIS).retry_after_ms, 300); /* the breach */
        pass(200 * MS);                                                           /* all units are back */
        int64_t cost = 1 + is_log;
        if (is_log) (void)check(limit, "k", cost, SOURCE_REDIS);
        assert_int_equal(check(limit, "k", cost, SOURCE_DENY_CACHE).retry_after_ms, 100);
        pass(100 * MS);
        assert_true(check(limit, "k", 2, SOURCE_REDIS).allowed);
        assert_int_equal(check(limit, "k", 1, SOURCE_REDIS).retry_after_ms, 600);
        assert_int_equal(check(limit, "k", 1, SOURCE_DENY_CACHE).retry_after_ms, 600);
    }
}

/* When checks are under way together, the reply that is sent last counts longest, and one to another version is its own. */
static void the_newer_of_two_denials_is_kept(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    struct policy_set *set = policy_set_new(16);
    const struct policy_spec raised = {
        .name = "p", .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 2, .window_us = LONG_WAIT_S * S}}};
    const struct limit *const versions[] = {limit, &policies_add(set, &raised)->limits[0]};
    (void)check(versions[1], "k", 2, SOURCE_REDIS);
    for (int is_newer = 0; is_newer <= 1; is_newer++) {
        const struct limit *then = versions[is_newer];
        struct question old = question(limit, "k", OP_CHECK, 1), new = question(then, "k", OP_CHECK, is_newer ? 3 : 1);
        deny_cache_clear(&cache);
        submit(&old);
        submit(&new);
        send(&old);
        pass(S / 10);
        send(&new);
        execute(&old);
        execute(&new);
        reply(&old);
        reply(&new);
        pass(MAX_AGE_S * S - 1);
        (void)check(then, "k", is_newer ? 3 : 1, SOURCE_DENY_CACHE);
    }
    policy_set_unref(set);
}

/* ---- what removes it ---- */

static void whatever_gives_units_back_removes_the_entry(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    static const enum op_kind givers[] = {OP_RESET, OP_REFUND, OP_RESERVE, OP_SETTLE, OP_SWEEP};
    for (size_t i = 0; i < sizeof givers / sizeof givers[0]; i++) {
        (void)check(limit, "k", 2, SOURCE_REDIS);
        (void)check(limit, "k", 2, SOURCE_DENY_CACHE);
        give(limit, "k", givers[i], givers[i] == OP_REFUND);
        (void)check(limit, "k", 2, SOURCE_REDIS);
        give(limit, "other", givers[i], 0);
        (void)check(limit, "k", 2, SOURCE_DENY_CACHE);
        deny_cache_clear(&cache);
    }
}

/* A check of another connection, submitted behind the refund, is sent before it. */
static void a_denial_that_overtook_a_refund_is_not_kept(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    (void)check(limit, "k", 1, SOURCE_REDIS);
    struct question refund = question(limit, "k", OP_REFUND, 1), denied = question(limit, "k", OP_CHECK, 1);
    submit(&refund);
    submit(&denied);
    send(&denied);
    send(&refund);
    execute(&denied);
    reply(&denied);
    execute(&refund);
    reply(&refund);
    assert_true(check(limit, "k", 1, SOURCE_REDIS).allowed);
}

static void everything_goes_with_the_connection_and_at_a_reload(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    struct question under_way = question(limit, "other", OP_CHECK, 2);
    submit(&under_way);
    send(&under_way);
    deny_cache_clear(&cache);
    execute(&under_way);
    reply(&under_way);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    (void)check(limit, "other", 2, SOURCE_REDIS);
    (void)check(limit, "k", 2, SOURCE_DENY_CACHE);

    deny_cache_set_options(&cache, 64, 2 * S);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    pass(2 * S - 1);
    (void)check(limit, "k", 2, SOURCE_DENY_CACHE);
    deny_cache_set_options(&cache, 0, 2 * S);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    deny_cache_set_options(&cache, 1, 2 * S);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    (void)check(limit, "k", 2, SOURCE_DENY_CACHE);
}

/* ---- memory ---- */

static void memory_is_taken_at_the_first_denial_and_once(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    assert_true(check(limit, "k", 1, SOURCE_REDIS).allowed);
    assert_false(counter_table_is_reserved(&cache.table));

    struct question q = question(limit, "k", OP_CHECK, 1);
    submit(&q);
    execute(&q);
    mem_fail_nth(1);
    reply(&q);
    mem_fail_nth(0);
    assert_false(counter_table_is_reserved(&cache.table));
    (void)check(limit, "k", 1, SOURCE_REDIS);
    assert_true(counter_table_is_reserved(&cache.table));

    char key[24];
    uint64_t before = mem_n_allocs();
    for (int i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "k%d", i);
        (void)check(limit, key, 2, SOURCE_REDIS); /* leaves no state in the memory store */
    }
    assert_int_equal(mem_n_allocs(), before);
}

static size_t n_kept(const struct limit *limit, int n)
{
    char key[24];
    size_t kept = 0;
    for (int i = 0; i < n; i++) {
        snprintf(key, sizeof key, "k%d", i);
        struct question q = question(limit, key, OP_CHECK, 2);
        submit(&q);
        kept += q.is_cached;
    }
    return kept;
}

static void a_full_table_keeps_as_many_as_it_may_the_newest_of_each_set(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 5, 8, 64, 100};
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    char key[24];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        deny_cache_set_options(&cache, sizes[i], LONG_WAIT_S * S);
        for (int n = 0; n < 2000; n++) {
            snprintf(key, sizeof key, "k%d", n);
            (void)check(limit, key, 2, SOURCE_REDIS);
            (void)check(limit, key, 2, SOURCE_DENY_CACHE);
            pass(1);
        }
        assert_int_equal(n_kept(limit, 2000), sizes[i] / 8 * 8 + (sizes[i] < 8 ? sizes[i] : 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(behind_a_check_that_may_be_admitted_redis_is_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(of_two_denials_in_one_call_the_one_that_answers_more_checks_is_kept, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_denial_ends_when_enough_has_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(redis_is_asked_again_after_max_age, setup, teardown),
        cmocka_unit_test_setup_teardown(a_logs_denial_is_kept_for_the_cost_that_fits_next, setup, teardown),
        cmocka_unit_test_setup_teardown(only_plain_checks_are_asked_and_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(some_policies_are_not_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(long_keys_are_not_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(an_entry_belongs_to_a_policy_and_a_version_of_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_pause_is_kept_from_its_first_denial_on, setup, teardown),
        cmocka_unit_test_setup_teardown(the_newer_of_two_denials_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(whatever_gives_units_back_removes_the_entry, setup, teardown),
        cmocka_unit_test_setup_teardown(a_denial_that_overtook_a_refund_is_not_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(everything_goes_with_the_connection_and_at_a_reload, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_is_taken_at_the_first_denial_and_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_table_keeps_as_many_as_it_may_the_newest_of_each_set, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
