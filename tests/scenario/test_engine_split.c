/* test_engine_split.c: a check_all whose limits lie in several places of the store: what is charged, and what comes
 * back. */
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
    {.name = "error", .on_failure = ON_FAILURE_ERROR, .deadline_ms = 50, .limits = {WINDOW(5)}},
    {.name = "one", .on_failure = ON_FAILURE_ALLOW, .deadline_ms = 50, .limits = {WINDOW(1)}},
    {.name = "zero", .on_failure = ON_FAILURE_ALLOW, .limits = {WINDOW(0)}},
    {.name = "counts",
     .on_failure = ON_FAILURE_ALLOW,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 5, .window_us = 10 * SECOND_US, .count_denied = true}}},
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

static void advance_ms(int64_t ms)
{
    clock_.mono_us += ms * 1000;
    clock_.wall_us += ms * 1000;
    engine_expire(engine);
}

/* What is left of the policy's limits for a key, in the store. */
static int64_t left_of(const char *policy, const char *key)
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
    return least;
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

static void parts_that_a_client_left_refuse_no_other_client(void **state)
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
    assert_int_equal(engine_counters.failure_overload, 0);
    all.client = FLOODER;
    ASK_ALL({"allow", "a", 1}, {"allow", "b", 1});
    assert_int_equal(engine_counters.failure_overload, 1);
    placed_reply_all(&placed);
}

static void each_place_is_asked_in_the_same_tick_and_all_are_charged(void **state)
{
    (void)state;
    ASK_ALL({"allow", "a", 2}, {"several", "b", 1}, {"deny", "a", 3}, {"one", "c", 1});
    assert_int_equal(placed.n_held, 3);
    assert_int_equal(placed_held(&placed, 0)->n_members, 2);
    assert_int_equal(placed_held(&placed, 2)->deadline_us, engine_next_deadline(engine));
    placed_reply(&placed, 2);
    placed_reply(&placed, 0);
    assert_int_equal(all.n_done, 0);
    placed_reply(&placed, 0);
    assert_int_equal(all.n_done, 1);
    assert_true(all.whole.allowed);
    assert_int_equal(all.whole.granted, 7);
    assert_int_equal(all.whole.source, SOURCE_REDIS);
    assert_int_equal(all.members[2].remaining, 2);
    assert_int_equal(left_of("allow", "a"), 3);
    assert_int_equal(left_of("one", "c"), 0);
    assert_int_equal(engine_counters.checks, 4);
    assert_int_equal(engine_counters.allowed, 4);
    counted(1, 0, 0);
}

static void one_place_is_one_op(void **state)
{
    (void)state;
    ASK_ALL({"allow", "a", 2}, {"deny", "abc", 1});
    assert_int_equal(placed.n_held, 1);
    placed_reply_all(&placed);
    assert_true(all.whole.allowed);
    counted(0, 0, 0);
}

static void if_one_part_denies_the_others_are_given_back_and_the_answer_does_not_wait_for_it(void **state)
{
    (void)state;
    ASK_ALL({"one", "c", 1});
    placed_reply_all(&placed);

    ASK_ALL({"several", "a", 2}, {"one", "c", 1}, {"allow", "b", 3}, {"deny", "a", 0});
    placed_reply(&placed, 0);
    placed_reply(&placed, 0);
    assert_int_equal(left_of("several", "a"), 1);
    (void)engine_take_work(engine);
    placed_reply(&placed, 0);
    assert_int_equal(all.n_done, 2);
    assert_false(all.whole.allowed);
    assert_string_equal(all.whole.bound_by->policy->name, "one");
    assert_int_equal(all.whole.granted, 0);
    assert_true(all.members[0].allowed && all.members[0].granted == 0 && all.members[0].remaining == 3);
    assert_true(all.members[2].allowed && all.members[2].granted == 0 && all.members[2].remaining == 5);
    assert_int_equal(engine_counters.denied, 4);

    assert_int_equal(placed.n_held, 2); /* the two refunds, of the same client and without a deadline */
    assert_int_equal(engine_take_work(engine), op_units(placed_held(&placed, 0)) + op_units(placed_held(&placed, 1)));
    assert_int_equal(placed_held(&placed, 0)->kind, OP_REFUND);
    assert_int_equal(placed_held(&placed, 0)->client, 7);
    assert_int_equal(placed_held(&placed, 0)->n_members, 3); /* "deny" was not charged */
    assert_true(placed_held(&placed, 0)->is_bound);          /* to the server that charged it */
    assert_int_equal(placed_held(&placed, 0)->deadline_us, 0);
    placed_reply_all(&placed);
    assert_int_equal(left_of("several", "a"), 3);
    assert_int_equal(left_of("allow", "b"), 5);
    counted(1, 2, 0);
}

static void a_limit_that_counts_denials_keeps_the_charge(void **state)
{
    (void)state;
    ASK_ALL({"one", "c", 1});
    placed_reply_all(&placed);
    ASK_ALL({"counts", "a", 2}, {"one", "c", 1});
    placed_reply_all(&placed);
    assert_false(all.whole.allowed);
    assert_true(all.members[0].allowed && all.members[0].granted == 0 && all.members[0].remaining == 3);
    assert_int_equal(left_of("counts", "a"), 3);
    counted(1, 0, 0);
}

/* The server of "a" is there, and then it is down. */
static void a_part_that_would_wait_or_cannot_be_given_back_does_neither_if_the_whole_is_denied(void **state)
{
    (void)state;
    ASK_ALL({"one", "c", 1});
    placed_reply_all(&placed);
    for (int is_down = 0; is_down <= 1; is_down++) {
        placed.is_down[0] = is_down;
        ASK_ALL({"waits", "a", 1});
        placed_reply_all(&placed);
        ASK_ALL({"allow", "a", 0}, {"waits", "a", 1}, {"foreign", "b", 2}, {"one", "c", 1});
        while (all.asked != NULL) placed_reply(&placed, 0);
        assert_false(all.whole.allowed);
        assert_true(all.members[1].allowed && all.members[1].delay_ms == 0);
        assert_int_equal(placed.n_held, 1 - is_down); /* the refund of "waits" */
        placed_reply_all(&placed);
        assert_int_equal(left_of("foreign", "b"), is_down ? 1 : 3);
    }
    counted(2, 1, 0);
}

static void a_checks_own_wait_is_that_of_its_part(void **state)
{
    (void)state;
    ASK_ALL({"waits", "a", 1});
    placed_reply_all(&placed);
    all.max_wait_us = 2 * SECOND_US;
    ASK_ALL({"waits", "a", 1}, {"allow", "b", 1});
    placed_reply_all(&placed);
    assert_true(all.whole.allowed && all.members[0].delay_ms == 1000);
    all.max_wait_us = SECOND_US;
    ASK_ALL({"waits", "a", 1}, {"allow", "b", 1});
    placed_reply_all(&placed);
    assert_false(all.whole.allowed);
    counted(2, 1, 0);
}

static void a_limit_of_0_denies_before_any_place_is_asked(void **state)
{
    (void)state;
    ASK_ALL({"allow", "a", 1}, {"zero", "b", 1}, {"deny", "c", 1});
    assert_int_equal(placed.n_submitted, 0);
    assert_false(all.whole.allowed);
    counted(0, 0, 0);
}

static void a_peek_is_only_combined(void **state)
{
    (void)state;
    ASK_ALL({"allow", "a", 0}, {"one", "b", 0}, {"zero", "c", 0});
    placed_reply_all(&placed);
    assert_true(all.whole.allowed);
    assert_int_equal(all.whole.granted, 0);
    counted(1, 0, 0);
}

static void the_candidate_learns_the_verdict_of_the_whole(void **state)
{
    (void)state;
    ASK_ALL({"tried", "a", 1}, {"deny", "b", 9});
    placed_reply_all(&placed);
    assert_false(all.whole.allowed);
    assert_int_equal(engine_counters.candidate_allowed, 1);
    assert_int_equal(engine_counters.candidate_only_allowed, 0); /* its own limit would have allowed, too */
    counted(1, 1, 0);
}

/* ---- without it ------------------------------------------------------------------------------------------------ */

static void a_server_that_is_down_does_not_switch_off_the_limits_on_the_others(void **state)
{
    (void)state;
    placed.is_down[1] = true;
    ASK_ALL({"one", "a", 1}, {"allow", "b", 1});
    placed_reply_all(&placed);
    assert_true(all.whole.allowed);
    assert_int_equal(all.whole.granted, 2);
    assert_int_equal(all.whole.source, SOURCE_ALLOW);
    assert_int_equal(all.whole.reason, REASON_DOWN);
    assert_int_equal(all.members[0].source, SOURCE_REDIS);
    assert_int_equal(left_of("one", "a"), 0);

    ASK_ALL({"one", "a", 1}, {"allow", "b", 1});
    placed_reply_all(&placed);
    assert_false(all.whole.allowed);
    assert_int_equal(all.whole.source, SOURCE_REDIS);
    assert_int_equal(all.whole.reason, REASON_NONE);
    assert_string_equal(all.whole.bound_by->policy->name, "one");
    assert_int_equal(all.members[1].source, SOURCE_ALLOW);
    assert_int_equal(all.members[1].granted, 0);
    counted(2, 0, 0);
}

static void each_part_is_answered_by_its_own_policies(void **state)
{
    (void)state;
    placed.is_down[1] = true;
    ASK_ALL({"deny", "a", 2}, {"allow", "b", 1});
    placed_reply_all(&placed);
    assert_true(all.whole.allowed);
    ASK_ALL({"allow", "a", 2}, {"deny", "b", 1});
    placed_reply_all(&placed);
    assert_false(all.whole.allowed);
    assert_int_equal(all.whole.source, SOURCE_DENY);
    assert_int_equal(all.whole.retry_after_ms, 1000);
    assert_int_equal(left_of("allow", "a"), 5);
    ASK_ALL({"allow", "a", 2}, {"error", "b", 1});
    placed_reply_all(&placed);
    assert_int_equal(all.n_done, 3);
    assert_int_equal(all.error, ERROR_STORE_UNAVAILABLE);
    assert_int_equal(left_of("allow", "a"), 5);
    counted(3, 2, 0);
}

static void what_the_failure_table_was_charged_comes_back_there(void **state)
{
    (void)state;
    placed.is_down[1] = true;
    ASK_ALL({"one", "a", 1});
    placed_reply_all(&placed);
    for (int i = 0; i < 3; i++) {
        ASK_ALL({"one", "a", 1}, {"local", "b", 5});
        placed_reply_all(&placed);
        assert_false(all.whole.allowed);
        assert_true(all.members[1].allowed && all.members[1].granted == 0);
    }
    assert_int_equal(engine_counters.merge_back_waiting, 0); /* and nothing is charged in the store later */
    ASK_ALL({"allow", "a", 1}, {"local", "b", 5});
    placed_reply_all(&placed);
    assert_true(all.whole.allowed);
    assert_int_equal(all.whole.source, SOURCE_LOCAL);
    assert_int_equal(engine_counters.merge_back_waiting, 1);
    ASK_ALL({"allow", "a", 1}, {"local", "b", 1});
    placed_reply_all(&placed);
    assert_false(all.whole.allowed);
    counted(5, 1, 0);
}

static void a_late_reply_of_a_denied_check_gives_back_what_it_says_was_charged(void **state)
{
    (void)state;
    ASK_ALL({"deny", "a", 2}, {"allow", "b", 3});
    placed_reply(&placed, 1);
    advance_ms(60);
    assert_int_equal(all.n_done, 1);
    assert_false(all.whole.allowed);
    assert_int_equal(all.whole.reason, REASON_DEADLINE);
    assert_int_equal(placed.n_held, 2); /* the late one, and the refund of the other */
    placed_reply_all(&placed);
    assert_int_equal(left_of("deny", "a"), 5);
    assert_int_equal(left_of("allow", "b"), 5);
    assert_int_equal(engine_counters.late_replies, 1);
    counted(1, 2, 0);
}

static void a_late_reply_of_an_allowed_check_stays_charged_here_or_there(void **state)
{
    (void)state;
    for (int is_charged = 1; is_charged >= 0; is_charged--) {
        ASK_ALL({"local", "a", 2}, {"allow", "b", 1});
        placed_reply(&placed, 1);
        advance_ms(60);
        assert_true(all.whole.allowed);
        assert_int_equal(all.whole.source, SOURCE_LOCAL);
        if (is_charged)
            placed_reply_all(&placed);
        else
            placed_end(&placed, 0, OP_EXPIRED);
        assert_int_equal(left_of("local", "a"), 3);
        assert_int_equal(engine_counters.merge_back_waiting, is_charged ? 0 : 1); /* for the store */
    }
    counted(2, 0, 0);
}

/* Locally charged, and then in the store too: both come back. */
static void a_late_reply_after_a_local_answer_gives_back_twice(void **state)
{
    (void)state;
    ASK_ALL({"local", "a", 2}, {"deny", "b", 3});
    advance_ms(60);
    assert_false(all.whole.allowed);
    placed_reply_all(&placed);
    assert_int_equal(left_of("local", "a"), 5);
    assert_int_equal(left_of("deny", "b"), 5);
    assert_int_equal(engine_counters.merge_back_waiting, 0);

    ASK_ALL({"local", "a", 2}, {"deny", "b", 3});
    advance_ms(60);
    placed_end(&placed, 0, OP_EXPIRED); /* the store has not charged it, and is not to */
    placed_reply_all(&placed);
    assert_int_equal(engine_counters.merge_back_waiting, 0);
    placed.is_down[0] = true;
    ASK_ALL({"local", "a", 5});
    assert_true(all.whole.allowed);
    counted(2, 3, 0);
}

static void what_was_not_sent_by_the_deadline_is_not_done(void **state)
{
    (void)state;
    placed.holds_unsent = true;
    ASK_ALL({"deny", "a", 2}, {"allow", "b", 3});
    placed_reply(&placed, 1);
    advance_ms(60);
    assert_false(all.whole.allowed);
    assert_int_equal(placed.n_held, 1);
    placed_reply_all(&placed);
    assert_int_equal(left_of("deny", "a"), 5);
    assert_int_equal(left_of("allow", "b"), 5);
    counted(1, 1, 0);
}

static void a_charge_without_a_reply_stays_and_is_counted(void **state)
{
    static const enum op_outcome ends[] = {OP_DOWN, OP_STORE_ERROR};
    (void)state;
    for (uint64_t i = 0; i < 2; i++) {
        ASK_ALL({"deny", "a", 2}, {"allow", "b", 3});
        placed_held(&placed, 0)->is_doubtful = ends[i] == OP_STORE_ERROR;
        placed_decide(&placed, 0);
        placed_end(&placed, 0, ends[i]);
        placed_reply_all(&placed);
        assert_false(all.whole.allowed);
        assert_int_equal(left_of("deny", "a"), i == 0 ? 3 : 1);
        assert_int_equal(left_of("allow", "b"), 5);
        counted(i + 1, i + 1, i + 1);
    }
}

static void a_refund_is_sent_once(void **state)
{
    (void)state;
    ASK_ALL({"deny", "a", 6}, {"allow", "b", 3});
    placed_reply(&placed, 0);
    placed_reply(&placed, 0);
    assert_false(all.whole.allowed);
    placed_decide(&placed, 0);
    placed_end(&placed, 0, OP_DOWN);
    assert_int_equal(placed.n_held, 0);
    advance_ms(10000);
    assert_int_equal(placed.n_held, 0);
    counted(1, 0, 1);

    ASK_ALL({"deny", "a", 6}, {"allow", "b", 3});
    placed_reply(&placed, 0);
    placed.is_down[1] = true; /* between the charge and its return */
    placed_reply(&placed, 0);
    counted(2, 0, 2);
}

/* ---- what happens in between ----------------------------------------------------------------------------------- */

static void a_reload_in_between_changes_nothing(void **state)
{
    (void)state;
    ASK_ALL({"deny", "a", 6}, {"allow", "b", 3});
    placed_reply(&placed, 1);
    engine_set_policies(engine, policies_make(specs, 1)); /* "deny" is gone */
    placed_reply_all(&placed);
    assert_false(all.whole.allowed);
    assert_int_equal(left_of("allow", "b"), 5);
    counted(1, 1, 0);
}

static void a_daemon_that_stops_answers_and_lets_go(void **state)
{
    (void)state;
    ASK_ALL({"deny", "a", 2}, {"allow", "b", 3});
    placed_reply(&placed, 1);
    size_t n_flushed = placed.n_flushed;
    engine_close(engine, on_closed, NULL);
    assert_true(is_closed);
    assert_int_equal(all.n_done, 1);
    assert_false(all.whole.allowed);
    assert_true(placed.n_flushed > n_flushed);               /* the refund of "b" is sent before the store closes */
    assert_int_equal(engine_counters.split_refunds_lost, 2); /* whether it is done is not known, nor about "a" */
}

static void parts_take_nothing_from_other_checks_and_are_capped(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) ASK_ALL({"allow", "a", 0}, {"allow", "b", 0});
    assert_int_equal(placed.n_held, 100);
    assert_false(CHECK_ALL_ASK(&all, engine, {"allow", "a", 0}, {"allow", "b", 0})); /* max_inflight */
    advance_ms(60); /* all are answered, and the store still has their parts */
    assert_int_equal(all.n_done, 50);
    all.n_done = 0;
    ASK_ALL({"allow", "a", 0}, {"allow", "b", 0});
    assert_int_equal(all.n_done, 1);
    assert_int_equal(all.whole.reason, REASON_OVERLOAD);
    placed_reply_all(&placed);
    all.asked = NULL;
    counted(51, 0, 0);
}

static void any_failed_allocation_is_answered_and_charges_nothing(void **state)
{
    (void)state;
    bool was_answered = false;
    for (uint64_t n = 1; n < 40; n++) {
        all.n_done = 0;
        mem_fail_nth(n);
        bool was_asked = CHECK_ALL_ASK(&all, engine, {"deny", "a", 1}, {"deny", "b", 6}, {"several", "c", 1});
        mem_fail_nth(0);
        if (was_asked) placed_reply_all(&placed);
        assert_int_equal(all.n_done, was_asked);
        was_answered |= was_asked && all.whole.reason == REASON_OVERLOAD;
        assert_int_equal(left_of("deny", "a"), 5);
        assert_int_equal(left_of("several", "c"), 3);
        assert_int_equal(engine_n_live(engine), 0);
    }
    assert_true(was_answered);
}

#define SPLIT_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPLIT_TEST(each_place_is_asked_in_the_same_tick_and_all_are_charged),
        SPLIT_TEST(one_place_is_one_op),
        SPLIT_TEST(parts_that_a_client_left_refuse_no_other_client),
        SPLIT_TEST(if_one_part_denies_the_others_are_given_back_and_the_answer_does_not_wait_for_it),
        SPLIT_TEST(a_limit_that_counts_denials_keeps_the_charge),
        SPLIT_TEST(a_part_that_would_wait_or_cannot_be_given_back_does_neither_if_the_whole_is_denied),
        SPLIT_TEST(a_checks_own_wait_is_that_of_its_part),
        SPLIT_TEST(a_limit_of_0_denies_before_any_place_is_asked),
        SPLIT_TEST(a_peek_is_only_combined),
        SPLIT_TEST(the_candidate_learns_the_verdict_of_the_whole),
        SPLIT_TEST(a_server_that_is_down_does_not_switch_off_the_limits_on_the_others),
        SPLIT_TEST(each_part_is_answered_by_its_own_policies),
        SPLIT_TEST(what_the_failure_table_was_charged_comes_back_there),
        SPLIT_TEST(a_late_reply_of_a_denied_check_gives_back_what_it_says_was_charged),
        SPLIT_TEST(a_late_reply_of_an_allowed_check_stays_charged_here_or_there),
        SPLIT_TEST(a_late_reply_after_a_local_answer_gives_back_twice),
        SPLIT_TEST(what_was_not_sent_by_the_deadline_is_not_done),
        SPLIT_TEST(a_charge_without_a_reply_stays_and_is_counted),
        SPLIT_TEST(a_refund_is_sent_once),
        SPLIT_TEST(a_reload_in_between_changes_nothing),
        SPLIT_TEST(a_daemon_that_stops_answers_and_lets_go),
        SPLIT_TEST(parts_take_nothing_from_other_checks_and_are_capped),
        SPLIT_TEST(any_failed_allocation_is_answered_and_charges_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
