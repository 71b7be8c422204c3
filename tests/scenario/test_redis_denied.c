/* test_redis_denied.c: denials that are answered without Redis (deny_cache.h), by the store over a real redis-server.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "fakes/served_store.h"
#include "redis/counters.h"

enum { KEPT_MS = 60000 };

/* The store, with denials kept for longer than a test lasts, and a limit of 2. */
static void open_store(void)
{
    store_fixture->options.deny_max_keys = 100;
    store_fixture->options.deny_max_age_ms = KEPT_MS;
    served_store_open();
    store_fixture->limit = store_fixture_limit("two", ALGO_FIXED_WINDOW, 2);
}

static struct ask *check_now(const char *key)
{
    struct ask *ask = store_fixture_check(key);
    store_fixture_settle();
    return ask;
}

/* Until Redis denies it. */
static void use_up(const char *key)
{
    for (int i = 0; i < 3; i++) {
        struct ask *ask = check_now(key);
        assert_int_equal(ask->submitted, SUBMIT_PENDING);
        assert_int_equal(ask->op.source, SOURCE_REDIS);
        assert_int_equal(ask->member.decision.allowed, i < 2);
    }
}

static void is_denied_here(const char *key)
{
    struct ask *ask = store_fixture_check(key);
    assert_int_equal(ask->submitted, SUBMIT_DECIDED);
    assert_int_equal(ask->op.source, SOURCE_DENY_CACHE);
    assert_false(ask->member.decision.allowed);
    assert_in_range(ask->member.decision.retry_after_ms, 1, INT64_C(3600000) * 1000);
}

/* Also for what overtakes it, and for what is asked while it is on its way. */
static void what_gives_units_back_is_seen_by_every_later_check(void **state)
{
    (void)state;
    static const enum op_kind givers[] = {OP_REFUND, OP_RESET};
    open_store();
    for (size_t i = 0; i < 2; i++) {
        const char *key = i == 0 ? "refunded" : "reset";
        use_up(key);
        is_denied_here(key);
        struct ask *giver = store_fixture_ask(key, givers[i], i == 0);
        assert_int_equal(giver->submitted, SUBMIT_PENDING);
        struct ask *behind = store_fixture_check(key);
        assert_int_equal(behind->submitted, SUBMIT_PENDING);
        store_fixture_settle();
        assert_true(behind->member.decision.allowed);
    }
}

static void a_refund_that_is_withdrawn_or_lost_ends(void **state)
{
    (void)state;
    open_store();
    use_up("k");
    struct ask *refund = store_fixture_ask("k", OP_REFUND, 1);
    assert_true(store_withdraw(&store_fixture->store, &refund->op));
    store_fixture->n_pending--;
    (void)check_now("k");
    is_denied_here("k");

    refund = store_fixture_ask("k", OP_REFUND, 1);
    store_flush(&store_fixture->store);
    real_redis_signal(&redis, SIGSTOP);
    (void)store_fixture_ask("k", OP_REFUND, 1);
    real_redis_kill(&redis);
    store_fixture_settle();
    real_redis_start(&redis, NULL);
    store_fixture_until(store_is_ready);
    use_up("k");
    is_denied_here("k");
}

static void entries_go_with_the_connection(void **state)
{
    (void)state;
    open_store();
    use_up("k");
    is_denied_here("k");
    real_redis_kill(&redis);
    store_fixture_until(store_is_not_ready);
    assert_int_equal(store_fixture_check("k")->submitted, SUBMIT_DOWN);
    real_redis_start(&redis, NULL);
    store_fixture_until(store_is_ready);
    assert_true(check_now("k")->member.decision.allowed);
}

static void entries_go_at_a_reload_which_may_turn_it_off(void **state)
{
    (void)state;
    open_store();
    use_up("k");
    is_denied_here("k");
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    assert_int_equal(check_now("k")->submitted, SUBMIT_PENDING);
    is_denied_here("k");

    struct ask *under_way = store_fixture_check("other");
    store_fixture->options.deny_max_keys = 0;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    store_fixture_settle();
    assert_int_equal(under_way->outcome, OP_DECIDED);
    for (int i = 0; i < 3; i++) assert_int_equal(check_now("k")->submitted, SUBMIT_PENDING);
    store_fixture->options.deny_max_keys = 1;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    assert_int_equal(check_now("k")->submitted, SUBMIT_PENDING);
    is_denied_here("k");
}

/* The other database knows nothing of the keys. */
static void a_move_to_other_counters_takes_no_denial_along(void **state)
{
    (void)state;
    open_store();
    use_up("k");
    use_up("other");
    store_fixture->options.deny_max_age_ms--; /* forgets them */
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    struct ask *in_flight = store_fixture_check("k");
    store_flush(&store_fixture->store);
    store_fixture->options.database = 1;
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
    store_fixture_until(store_has_no_trial);
    struct ask *waiting = store_fixture_check("other");
    assert_int_equal(waiting->submitted, SUBMIT_PENDING);
    store_fixture_settle();
    assert_false(in_flight->member.decision.allowed);
    assert_true(waiting->member.decision.allowed);
    assert_true(check_now("k")->member.decision.allowed);
}

static void a_full_window_does_not_matter_to_what_is_denied_here(void **state)
{
    (void)state;
    store_fixture->options.max_inflight = 1;
    store_fixture->options.batch_max_keys = 1;
    open_store();
    use_up("k");
    real_redis_signal(&redis, SIGSTOP);
    (void)store_fixture_check("one");
    store_flush(&store_fixture->store);
    assert_int_equal(store_fixture_check("two")->submitted, SUBMIT_OVERLOAD);
    is_denied_here("k");
    real_redis_signal(&redis, SIGCONT);
    store_fixture_settle();
}

static void merged_checks_leave_the_state_behind_them_all(void **state)
{
    (void)state;
    open_store();
    store_fixture->limit = store_fixture_limit("bucket", ALGO_BUCKET, 5);
    struct ask *asks[9];
    for (int i = 0; i < 9; i++) asks[i] = store_fixture_check("k");
    store_fixture_settle();
    assert_int_equal(redis_counters.redis_batches, 1);
    assert_int_equal(store_fixture->n_allowed, 5);
    struct ask *here = store_fixture_check("k");
    assert_int_equal(here->submitted, SUBMIT_DECIDED);
    assert_int_equal(here->member.decision.remaining, 0);
    assert_in_range(here->member.decision.retry_after_ms, asks[8]->member.decision.retry_after_ms - 10000,
                    asks[8]->member.decision.retry_after_ms);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, served_store_setup, served_store_teardown)

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    if (!real_redis_is_installed()) {
        puts("skipped: redis-server is not installed");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        SERVED(what_gives_units_back_is_seen_by_every_later_check),
        SERVED(a_refund_that_is_withdrawn_or_lost_ends),
        SERVED(entries_go_with_the_connection),
        SERVED(entries_go_at_a_reload_which_may_turn_it_off),
        SERVED(a_move_to_other_counters_takes_no_denial_along),
        SERVED(a_full_window_does_not_matter_to_what_is_denied_here),
        SERVED(merged_checks_leave_the_state_behind_them_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
