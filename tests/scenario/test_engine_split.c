/* test_engine_split.c: a check_all whose limits lie in several places of the store: what is charged, and what comes
 * back, an example for each rule. test_split_traces.c has random traces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine.h"
#include "engine/engine_counters.h"
#include "engine/failure.h"
#include "fakes/all_counters.h"
#include "fakes/check_all.h"
#include "fakes/placed_store.h"
#include "fakes/policies.h"

#define SECOND_US INT64_C(1000000)
#define WINDOW(n)                                                                                                      \
    {                                                                                                                  \
        .algo = ALGO_FIXED_WINDOW, .limit = n, .window_us = 10 * SECOND_US                                             \
    }

static const struct policy_spec specs[] = {
    {.name = "allow", .on_failure = ON_FAILURE_ALLOW, .deadline_ms = 50, .limits = {WINDOW(5)}},
    {.name = "deny", .on_failure = ON_FAILURE_DENY, .deadline_ms = 50, .limits = {WINDOW(5)}},
    {.name = "local", .on_failure = ON_FAILURE_LOCAL, .deadline_ms = 50, .merge_back = true, .limits = {WINDOW(5)}},
    {.name = "spare",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 5, .window_us = 100 * SECOND_US}}},
    {.name = "error", .on_failure = ON_FAILURE_ERROR, .deadline_ms = 50, .limits = {WINDOW(5)}},
    {.name = "one", .on_failure = ON_FAILURE_ALLOW, .deadline_ms = 50, .limits = {WINDOW(1)}},
    {.name = "zero", .on_failure = ON_FAILURE_ALLOW, .limits = {WINDOW(0)}},
    {.name = "counts",
     .on_failure = ON_FAILURE_ALLOW,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 5, .window_us = 10 * SECOND_US, .count_denied = true}}},
    {.name = "log",
     .on_failure = ON_FAILURE_ALLOW,
     .limits = {{.algo = ALGO_SLIDING_LOG, .limit = 5, .window_us = 10 * SECOND_US, .count_denied = true}}},
    {.name = "several",
     .on_failure = ON_FAILURE_ALLOW,
     .limits = {{.name = "second", .algo = ALGO_BUCKET, .limit = 3, .window_us = SECOND_US},
                {.name = "day", .algo = ALGO_SLIDING_LOG, .limit = 8, .window_us = 60 * SECOND_US},
                {.name = "hour", .algo = ALGO_SLIDING_COUNTER, .limit = 9, .window_us = 10 * SECOND_US}}},
    {.name = "waits",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_LEAKY_BUCKET, .limit = 1, .window_us = SECOND_US, .max_wait_us = 3 * SECOND_US}}},
    {.name = "foreign",
     .on_failure = ON_FAILURE_ALLOW,
     .limits = {{.algo = ALGO_COMPAT_FIRST_HIT, .limit = 5, .window_us = 10 * SECOND_US}}},
    {.name = "tried",
     .on_failure = ON_FAILURE_ALLOW,
     .limits = {WINDOW(5)},
     .candidate = {{.algo = ALGO_FIXED_WINDOW, .limit = 1, .window_us = 10 * SECOND_US}}},
};

static struct clock clock_;
static struct placed_store placed;
static struct engine *engine;
static bool is_closed;
static struct check_all all;

static void on_closed(void *arg)
{
    (void)arg;
    is_closed = true;
}

static int set_up(void **state)
{
    (void)state;
    const struct engine_options options = {
        .max_inflight = 100, .local_max_keys = 1000, .slots = {.max = 100, .max_per_owner = 50}};
    all_counters_reset();
    clock_ = (struct clock){.frozen = true, .mono_us = 5000000, .wall_us = 1700000000000000};
    placed_init(&placed, &clock_);
    engine =
        engine_new(&clock_, placed_handle(&placed), policies_make(specs, sizeof specs / sizeof specs[0]), &options);
    assert_non_null(engine);
    is_closed = false;
    all = (struct check_all){0};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (!is_closed) engine_close(engine, on_closed, NULL);
    return is_closed && placed.n_held == 0 ? 0 : -1;
}

#define ASK_ALL(...) assert_true(CHECK_ALL_ASK(&all, engine, __VA_ARGS__))

/* The same, and every reply; `allowed` is what the whole is. */
#define ANSWERED(is_allowed, ...)                                                                                      \
    do {                                                                                                               \
        ASK_ALL(__VA_ARGS__);                                                                                          \
        placed_reply_all(&placed);                                                                                     \
        assert_int_equal(all.whole.allowed, is_allowed);                                                               \
    } while (0)

static void advance_ms(int64_t ms)
{
    clock_.mono_us += ms * 1000;
    clock_.wall_us += ms * 1000;
    engine_expire(engine);
}

/* What must be left of the policy's limits for a key, in the store. */
static void left(const char *policy, const char *key, int64_t wanted)
{
    const struct policy *of = policies_get(engine_policies(engine), policy);
    struct op_member peeked[SPEC_LIMITS_MAX];
    struct op op = {.kind = OP_PEEK, .n_members = of->n_limits, .members = peeked};
    int64_t least = INT64_MAX;
    for (uint16_t i = 0; i < of->n_limits; i++)
        peeked[i] = (struct op_member){.limit = &of->limits[i], .key = slice_of(key)};
    assert_int_equal(store_submit(&placed.inside, &op), SUBMIT_DECIDED);
    for (uint16_t i = 0; i < of->n_limits; i++)
        if (peeked[i].decision.remaining < least) least = peeked[i].decision.remaining;
    assert_int_equal(least, wanted);
}

static void counted(uint64_t n_checks, uint64_t n_refunds, uint64_t n_lost)
{
    assert_int_equal(engine_counters.split_checks, n_checks);
    assert_int_equal(engine_counters.split_refunds, n_refunds);
    assert_int_equal(engine_counters.split_refunds_lost, n_lost);
    engine_update_counters(engine);
    assert_int_equal(engine_counters.inflight, all.asked != NULL ? all.asked->n_all : 0);
    if (all.asked == NULL && placed.n_held == 0) assert_int_equal(engine_n_live(engine), 0);
}

/* ---- with the store -------------------------------------------------------------------------------------------- */

static void each_place_is_asked_in_the_same_tick_and_all_are_charged(void **state)
{
    (void)state;
    ASK_ALL({"allow", "a", 2}, {"several", "b", 1}, {"deny", "a", 3}, {"one", "c", 1});
    assert_int_equal(placed.n_held, 3);
    placed_reply(&placed, 2);
    placed_reply(&placed, 0);
    assert_int_equal(all.n_done, 0);
    placed_reply(&placed, 0);
    assert_int_equal(all.n_done, 1);
    assert_true(all.whole.allowed && all.whole.granted == 7 && all.whole.source == SOURCE_REDIS);
    assert_int_equal(all.members[2].remaining, 2);
    left("allow", "a", 3);
    assert_int_equal(engine_counters.allowed, 4);
    ANSWERED(true, {"allow", "a", 2}, {"deny", "abc", 1}); /* one place, so one op */
    counted(1, 0, 0);
}

static void parts_are_capped_for_each_client_even_if_it_leaves_and_take_nothing_from_other_checks(void **state)
{
    (void)state;
    enum { FLOODER = 7, POLITE, N = 50 };
    for (uint64_t client = FLOODER; client <= POLITE; client++) {
        all.client = client;
        for (int i = 0; i < (client == FLOODER ? N : 1); i++) {
            ASK_ALL({"allow", "a", 1}, {"allow", "b", 1});
            check_all_release(&all);
        }
    }
    assert_int_equal(placed.n_held, 2 * (N + 1));
    for (size_t i = 0; i < placed.n_held; i++) assert_false(placed_held(&placed, i)->is_awaited);
    all.client = FLOODER;
    assert_int_equal(engine_counters.failure_overload, 0);
    ASK_ALL({"allow", "a", 1}, {"allow", "b", 1});
    assert_int_equal(engine_counters.failure_overload, 1);
    placed_reply_all(&placed);

    for (int i = 0; i < N; i++) ASK_ALL({"allow", "a", 0}, {"allow", "b", 0});
    assert_false(CHECK_ALL_ASK(&all, engine, {"allow", "a", 0}, {"allow", "b", 0})); /* max_inflight */
    advance_ms(60); /* all are answered, and the store still has their parts */
    ASK_ALL({"allow", "a", 0}, {"allow", "b", 0});
    assert_int_equal(all.n_done, N + 2);
    assert_int_equal(all.whole.reason, REASON_OVERLOAD);
    placed_reply_all(&placed);
    all.asked = NULL;
    counted(2 * N + 3, 0, 0);
}

static void if_one_part_denies_the_others_are_given_back_and_the_answer_does_not_wait_for_it(void **state)
{
    (void)state;
    ANSWERED(true, {"one", "c", 1});
    ASK_ALL({"several", "a", 2}, {"one", "c", 1}, {"allow", "b", 3}, {"deny", "a", 0});
    placed_reply(&placed, 0);
    placed_reply(&placed, 0);
    left("several", "a", 1);
    (void)engine_take_work(engine);
    placed_reply(&placed, 0);
    assert_int_equal(all.n_done, 2);
    assert_false(all.whole.allowed);
    assert_string_equal(all.whole.bound_by->policy->name, "one");
    assert_true(all.members[0].allowed && all.members[0].granted == 0 && all.members[0].remaining == 3);
    assert_true(all.members[2].allowed && all.members[2].granted == 0 && all.members[2].remaining == 5);
    assert_int_equal(engine_counters.denied, 4);

    assert_int_equal(placed.n_held, 2); /* two refunds, of the same client, for the servers that were charged */
    const struct op *refund = placed_held(&placed, 0);
    assert_int_equal(engine_take_work(engine), op_units(refund) + op_units(placed_held(&placed, 1)));
    assert_true(refund->kind == OP_REFUND && refund->client == 7 && refund->deadline_us == 0);
    assert_true(refund->is_bound);
    assert_int_equal(refund->n_members, 3);                       /* "deny" was not charged */
    assert_int_equal(refund->members[0].reservations_key.len, 0); /* those that ended go to all limits, or none */
    placed_reply_all(&placed);
    left("several", "a", 3);
    left("allow", "b", 5);
    counted(1, 2, 0);
}

/* One that counts denials, one that would have to wait, and one whose algorithm gives nothing back. */
static void of_a_denied_whole_some_charges_stay_and_no_part_waits(void **state)
{
    (void)state;
    ANSWERED(true, {"one", "c", 1}, {"waits", "a", 1});
    ASK_ALL({"counts", "d", 2}, {"allow", "a", 0}, {"waits", "a", 1}, {"foreign", "b", 2}, {"one", "c", 1});
    while (all.asked != NULL) placed_reply(&placed, 0);
    assert_false(all.whole.allowed);
    assert_true(all.members[0].allowed && all.members[0].granted == 0 && all.members[0].remaining == 3);
    assert_true(all.members[2].allowed && all.members[2].delay_ms == 0);
    assert_int_equal(placed.n_held, 1); /* the refund of "waits" */
    placed_reply_all(&placed);
    left("counts", "d", 3);
    left("foreign", "b", 3);

    placed.is_down[0] = true; /* the same of a local answer */
    ANSWERED(true, {"waits", "a", 1});
    ANSWERED(false, {"waits", "a", 1}, {"one", "c", 1});
    assert_true(all.members[0].allowed && all.members[0].delay_ms == 0);
    counted(3, 1, 0);
}

static void a_limit_that_counted_the_denial_and_denies_the_next_check_has_its_wait(void **state)
{
    (void)state;
    ANSWERED(true, {"one", "c", 1}, {"log", "b", 1});
    advance_ms(4000);
    ANSWERED(false, {"counts", "a", 3}, {"log", "b", 1}, {"one", "c", 1});
    assert_int_equal(all.members[0].retry_after_ms, 6000); /* 3 of 5 are used: until the window ends */
    assert_int_equal(all.members[1].retry_after_ms, 0);    /* 2 of 5: the next one fits */
    assert_int_equal(all.whole.retry_after_ms, 6000);
    assert_int_equal(all.whole.reset_after_ms, 6000);
    assert_ptr_equal(all.whole.bound_by, all.members[2].of);

    ANSWERED(false, {"counts", "b", 2}, {"log", "b", 2}, {"one", "c", 1});
    assert_int_equal(all.members[0].retry_after_ms, 0);
    assert_int_equal(all.members[1].retry_after_ms, 10000); /* 4 of 5: at the latest when all have left the window */
    assert_int_equal(all.whole.retry_after_ms, 10000);
}

static void a_checks_own_wait_is_that_of_its_part(void **state)
{
    (void)state;
    ANSWERED(true, {"waits", "a", 1});
    all.max_wait_us = 2 * SECOND_US;
    ANSWERED(true, {"waits", "a", 1}, {"allow", "b", 1});
    assert_int_equal(all.members[0].delay_ms, 1000);
    all.max_wait_us = SECOND_US;
    ANSWERED(false, {"waits", "a", 1}, {"allow", "b", 1});
}

static void a_limit_of_0_denies_before_any_place_is_asked_and_a_peek_is_only_combined(void **state)
{
    (void)state;
    ANSWERED(false, {"allow", "a", 1}, {"zero", "b", 1}, {"deny", "c", 1});
    assert_int_equal(placed.n_submitted, 0);
    ANSWERED(true, {"allow", "a", 0}, {"one", "b", 0}, {"zero", "c", 0});
    assert_int_equal(all.whole.granted, 0);
    counted(1, 0, 0);
}

static void the_candidate_learns_the_verdict_of_the_whole(void **state)
{
    (void)state;
    ANSWERED(false, {"tried", "a", 1}, {"deny", "b", 9});
    assert_int_equal(engine_counters.candidate_allowed, 1);
    assert_int_equal(engine_counters.candidate_only_allowed, 0); /* its own limit would have allowed, too */
}

/* ---- without it ------------------------------------------------------------------------------------------------ */

static void each_part_is_answered_by_its_own_policies(void **state)
{
    (void)state;
    placed.is_down[1] = true;
    ANSWERED(true, {"deny", "a", 2}, {"allow", "b", 1});
    ANSWERED(false, {"allow", "a", 2}, {"deny", "b", 1});
    assert_true(all.whole.source == SOURCE_DENY && all.whole.retry_after_ms == 1000);
    ANSWERED(false, {"deny", "a", 6}, {"spare", "b", 0}); /* of which nothing comes back */
    ANSWERED(false, {"allow", "a", 2}, {"error", "b", 1});
    assert_int_equal(all.error, ERROR_STORE_UNAVAILABLE);
    left("allow", "a", 5);
    counted(4, 2, 0);
}

/* Without a failure answer for a while, and with those of parts, the failure table begins anew. */
static void the_answer_of_a_part_shows_that_the_store_is_back(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        placed.is_down[1] = true;
        ANSWERED(true, {"allow", "a", 1}, {"spare", "b", 5});
        placed.is_down[1] = false;
        advance_ms(11000);
        ANSWERED(true, {"allow", "c", 1}, {"allow", "d", 1});
    }
}

static void what_the_failure_table_was_charged_comes_back_there(void **state)
{
    (void)state;
    placed.is_down[1] = true;
    ANSWERED(true, {"one", "a", 1});
    for (int i = 0; i < 3; i++) {
        ANSWERED(false, {"one", "a", 1}, {"local", "b", 5});
        assert_true(all.members[1].allowed && all.members[1].granted == 0);
    }
    assert_int_equal(engine_counters.merge_back_waiting, 0); /* and nothing is charged in the store later */
    ANSWERED(true, {"allow", "a", 1}, {"local", "b", 5});
    assert_int_equal(all.whole.source, SOURCE_LOCAL);
    assert_int_equal(engine_counters.merge_back_waiting, 1);
    for (int i = 0; i < 2; i++) ANSWERED(false, {"allow", "a", 1}, {"local", "b", 1}); /* a denial gives nothing back */
    counted(6, 2, 0);
}

/* Its deadline denies it: what was not sent by then is not done, and what the late reply reports as charged comes back. */
static void a_late_reply_of_a_denied_check_gives_back_what_it_says_was_charged(void **state)
{
    (void)state;
    for (int is_sent = 1; is_sent >= 0; is_sent--) {
        placed.holds_unsent = !is_sent;
        ASK_ALL({"deny", "a", 2}, {"allow", "b", 3});
        placed_reply(&placed, 1);
        uint64_t work = op_units(placed_held(&placed, 0));
        (void)engine_take_work(engine);
        advance_ms(60);
        assert_true(all.n_done == 1 && !all.whole.allowed && all.whole.reason == REASON_DEADLINE);
        assert_int_equal(placed.n_held, 1 + is_sent); /* the late one, and the refund of the other */
        work += op_units(placed_held(&placed, is_sent));
        assert_int_equal(engine_take_work(engine), work);
        placed_reply_all(&placed);
        left("deny", "a", 5);
        left("allow", "b", 5);
        all.n_done = 0;
    }
    counted(2, 3, 0);
}

static void a_late_reply_of_an_allowed_check_stays_charged_here_or_there(void **state)
{
    (void)state;
    for (int is_charged = 1; is_charged >= 0; is_charged--) {
        ASK_ALL({"local", "a", 2}, {"allow", "b", 1});
        placed_reply(&placed, 1);
        advance_ms(60);
        assert_true(all.whole.allowed && all.whole.source == SOURCE_LOCAL);
        if (is_charged)
            placed_reply_all(&placed);
        else
            placed_end(&placed, 0, OP_EXPIRED);
        left("local", "a", 3);
        assert_int_equal(engine_counters.merge_back_waiting, is_charged ? 0 : 1); /* for the store */
    }
    counted(2, 0, 0);
}

/* Locally charged, and then in the store too, or never: both come back, and nothing is left for the store. */
static void a_late_reply_after_a_local_answer_gives_back_twice(void **state)
{
    (void)state;
    for (int is_charged = 1; is_charged >= 0; is_charged--) {
        ASK_ALL({"local", "a", 2}, {"deny", "b", 3});
        advance_ms(60);
        assert_false(all.whole.allowed);
        if (!is_charged) placed_end(&placed, 0, OP_EXPIRED);
        placed_reply_all(&placed);
        left("local", "a", 5);
        left("deny", "b", 5);
        assert_int_equal(engine_counters.merge_back_waiting, 0);
    }
    placed.is_down[0] = true;
    ANSWERED(true, {"local", "a", 5});
    counted(2, 3, 0);
}

/* ---- what happens in between ----------------------------------------------------------------------------------- */

static void a_daemon_that_stops_answers_and_lets_go(void **state)
{
    (void)state;
    ASK_ALL({"deny", "a", 2}, {"allow", "b", 3});
    placed_reply(&placed, 1);
    size_t n_flushed = placed.n_flushed;
    engine_close(engine, on_closed, NULL);
    assert_true(is_closed && all.n_done == 1 && !all.whole.allowed);
    assert_true(placed.n_flushed > n_flushed);               /* the refund of "b" is sent before the store closes */
    assert_int_equal(engine_counters.split_refunds_lost, 2); /* whether it is done is not known, nor about "a" */
}

static void any_failed_allocation_is_answered_and_charges_nothing(void **state)
{
    bool was_answered = false;
    for (uint64_t n = 1; n < 40; n++) {
        assert_int_equal(tear_down(state), 0); /* else its checks have their memory */
        assert_int_equal(set_up(state), 0);
        mem_fail_nth(n);
        bool was_asked = CHECK_ALL_ASK(&all, engine, {"deny", "a", 1}, {"deny", "b", 6}, {"several", "c", 1});
        mem_fail_nth(0);
        if (was_asked) placed_reply_all(&placed);
        assert_int_equal(all.n_done, was_asked);
        was_answered |= was_asked && all.whole.reason == REASON_OVERLOAD;
        left("deny", "a", 5);
        left("several", "c", 3);
        assert_int_equal(engine_n_live(engine), 0);
    }
    assert_true(was_answered);
}

#define SPLIT_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPLIT_TEST(each_place_is_asked_in_the_same_tick_and_all_are_charged),
        SPLIT_TEST(parts_are_capped_for_each_client_even_if_it_leaves_and_take_nothing_from_other_checks),
        SPLIT_TEST(if_one_part_denies_the_others_are_given_back_and_the_answer_does_not_wait_for_it),
        SPLIT_TEST(of_a_denied_whole_some_charges_stay_and_no_part_waits),
        SPLIT_TEST(a_limit_that_counted_the_denial_and_denies_the_next_check_has_its_wait),
        SPLIT_TEST(a_checks_own_wait_is_that_of_its_part),
        SPLIT_TEST(a_limit_of_0_denies_before_any_place_is_asked_and_a_peek_is_only_combined),
        SPLIT_TEST(the_candidate_learns_the_verdict_of_the_whole),
        SPLIT_TEST(each_part_is_answered_by_its_own_policies),
        SPLIT_TEST(the_answer_of_a_part_shows_that_the_store_is_back),
        SPLIT_TEST(what_the_failure_table_was_charged_comes_back_there),
        SPLIT_TEST(a_late_reply_of_a_denied_check_gives_back_what_it_says_was_charged),
        SPLIT_TEST(a_late_reply_of_an_allowed_check_stays_charged_here_or_there),
        SPLIT_TEST(a_late_reply_after_a_local_answer_gives_back_twice),
        SPLIT_TEST(a_daemon_that_stops_answers_and_lets_go),
        SPLIT_TEST(any_failed_allocation_is_answered_and_charges_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
