/* test_engine_merge_back.c: what the failure table has admitted is charged in the store afterwards: once, no more than
 * the table still counts, and never what the store may have charged itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine_counters.h"
#include "engine/merge_back.h"
#include "fakes/check_all.h"
#include "fakes/engine_suite.h"

#define SECOND_US INT64_C(1000000)
#define DAY_US    (86400 * SECOND_US)

static const struct policy_spec specs[] = {
    {.name = "day",
     .on_failure = ON_FAILURE_LOCAL,
     .merge_back = true,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 100, .window_us = DAY_US}}},
    {.name = "off",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 100, .window_us = DAY_US}}},
    {.name = "second",
     .on_failure = ON_FAILURE_LOCAL,
     .merge_back = true,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 100, .window_us = SECOND_US}}},
    {.name = "bucket",
     .on_failure = ON_FAILURE_LOCAL,
     .merge_back = true,
     .limits = {{.algo = ALGO_BUCKET, .limit = 10, .burst = 20, .window_us = SECOND_US}}},
    {.name = "counter",
     .on_failure = ON_FAILURE_LOCAL,
     .merge_back = true,
     .limits = {{.algo = ALGO_SLIDING_COUNTER, .limit = 100, .window_us = 10 * SECOND_US}}},
    {.name = "several",
     .on_failure = ON_FAILURE_LOCAL,
     .merge_back = true,
     .limits = {{.name = "second", .algo = ALGO_FIXED_WINDOW, .limit = 50, .window_us = SECOND_US},
                {.name = "day", .algo = ALGO_SLIDING_LOG, .limit = 60, .window_us = DAY_US}}},
    {.name = "counted",
     .on_failure = ON_FAILURE_LOCAL,
     .merge_back = true,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 10, .window_us = DAY_US, .count_denied = true}}},
    {.name = "shadow",
     .on_failure = ON_FAILURE_LOCAL,
     .merge_back = true,
     .shadow = true,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 10, .window_us = DAY_US}}},
    {.name = "trial",
     .on_failure = ON_FAILURE_LOCAL,
     .merge_back = true,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 10, .window_us = DAY_US}},
     .candidate = {{.name = "c", .algo = ALGO_FIXED_WINDOW, .limit = 5, .window_us = DAY_US}}},
};
enum { N_SPECS = sizeof specs / sizeof specs[0], LOOK_MS = MERGE_RETRY_US / 1000 };

static struct engine_fixture fixture;
static const struct engine_suite suite = {.fixture = &fixture, .specs = specs, .n_specs = N_SPECS};

static struct asked ask(enum op_kind kind, const char *policy, const char *key, int64_t cost)
{
    return engine_suite_ask(&suite, kind, policy, key, cost);
}

static struct asked ask_down(const char *policy, const char *key, int64_t cost)
{
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    struct asked asked = ask(OP_CHECK, policy, key, cost);
    assert_int_equal(asked.decision.source, SOURCE_LOCAL);
    return asked;
}

static void admit(const char *policy, const char *key, int64_t cost)
{
    assert_true(ask_down(policy, key, cost).decision.allowed);
}

/* The store answers the look whether it is back, with its time; and is asked for merges, which it holds. */
static void come_back(int64_t ahead_us)
{
    fixture.scripted.mode = SCRIPTED_HOLD;
    fixture_advance_ms(&fixture, LOOK_MS);
    assert_int_equal(fixture.scripted.n_held, 1);
    struct op *op = scripted_held(&fixture.scripted, 0);
    assert_int_equal(op->kind, OP_PEEK);
    op->now_us = fixture.clock.wall_us + ahead_us;
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    fixture_advance_ms(&fixture, 0);
}

/* Alice's check of 4, answered locally at its deadline; the store still holds it. */
static void ask_late(const char *policy)
{
    struct asked asked = {0};
    fixture.scripted.mode = SCRIPTED_HOLD;
    assert_true(fixture_ask(&fixture, &asked, OP_CHECK, policy, "alice", 4));
    fixture_advance_ms(&fixture, 20);
    assert_int_equal(asked.decision.source, SOURCE_LOCAL);
}

/* The store's answer to it: no. */
static void deny_late(void)
{
    fixture.scripted.decision.allowed = false;
    fixture.scripted.decision.granted = 0;
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
}

/* The i-th merge that the store holds. */
static const struct op *held(size_t i)
{
    const struct op *op = scripted_held(&fixture.scripted, i);
    assert_int_equal(op->kind, OP_SETTLE);
    assert_int_equal(op->n_members, 1);
    assert_true(op->reservation->is_merge);
    assert_int_equal(op->reservation->units, 0);
    return op;
}

static int64_t units_of(size_t i)
{
    return held(i)->reservation->actual;
}

static void answer_merge(size_t i, int64_t charged)
{
    struct op *op = scripted_held(&fixture.scripted, i);
    op->reservation->charged = charged;
    op->reservation->is_known = false;
    scripted_end(&fixture.scripted, i, OP_DECIDED);
}

static void answer_all(void)
{
    while (fixture.scripted.n_held > 0) answer_merge(0, units_of(0));
}

static void assert_counts(uint64_t merged, uint64_t dropped, uint64_t waiting)
{
    assert_int_equal(engine_counters.merged_back, merged);
    assert_int_equal(engine_counters.merge_back_dropped, dropped);
    assert_int_equal(engine_counters.merge_back_waiting, waiting);
}

static void assert_nothing_to_do(void)
{
    fixture.scripted.mode = SCRIPTED_HOLD;
    fixture_advance_ms(&fixture, LOOK_MS);
    assert_int_equal(fixture.scripted.n_held, 0);
    assert_int_equal(engine_counters.merge_back_waiting, 0);
}

/* ---- what is charged ---- */

static void what_the_table_admitted_is_charged_once_the_store_is_back(void **state)
{
    (void)state;
    admit("day", "alice", 30);
    admit("day", "alice", 12);
    admit("day", "bob", 1);
    assert_counts(0, 0, 2);
    come_back(0);
    assert_int_equal(fixture.scripted.n_held, 2);
    assert_true(slice_eq(held(0)->members[0].key, slice_of("alice")) || units_of(0) == 1);
    assert_int_equal(units_of(0) + units_of(1), 43);
    answer_all();
    assert_counts(43, 0, 0);
    assert_nothing_to_do();
}

static void nothing_is_charged_of_a_policy_without_merge_back(void **state)
{
    (void)state;
    admit("off", "alice", 30);
    assert_nothing_to_do();
    assert_counts(0, 0, 0);
}

static void a_denial_is_not_charged_even_where_the_limit_counts_it(void **state)
{
    (void)state;
    admit("day", "alice", 99);
    assert_false(ask_down("day", "alice", 2).decision.allowed);
    admit("counted", "alice", 3);
    assert_false(ask_down("counted", "alice", 9).decision.allowed);
    come_back(0);
    assert_int_equal(units_of(0) + units_of(1), 102);
}

static void what_the_store_does_not_take_is_counted_as_dropped(void **state)
{
    (void)state;
    admit("day", "alice", 30);
    come_back(0);
    answer_merge(0, 20); /* twice the limit is reached */
    assert_counts(20, 10, 0);
    assert_nothing_to_do();
}

static void a_second_outage_charges_only_its_own(void **state)
{
    (void)state;
    admit("day", "alice", 10);
    come_back(0);
    answer_all();
    admit("day", "alice", 3);
    come_back(0);
    assert_int_equal(units_of(0), 3);
    answer_all();
    assert_counts(13, 0, 0);
    assert_false(ask_down("day", "alice", 88).decision.allowed); /* the table still has all of them */
}

static void of_several_limits_each_is_charged_what_it_still_counts(void **state)
{
    (void)state;
    admit("several", "alice", 5);
    fixture_advance_ms(&fixture, 1000);
    admit("several", "alice", 7);
    come_back(0);
    assert_int_equal(fixture.scripted.n_held, 2);
    for (size_t i = 0; i < 2; i++) {
        bool is_of_day = strcmp(held(i)->members[0].limit->name, "day") == 0;
        assert_int_equal(units_of(i), is_of_day ? 12 : 7);
    }
    answer_all();
    assert_counts(19, 5, 0);
}

static void windows_that_have_ended_are_dropped(void **state)
{
    (void)state;
    admit("second", "alice", 5);
    admit("bucket", "alice", 20);
    fixture_advance_ms(&fixture, 1000); /* 10 have drained */
    come_back(0);                       /* 2 more */
    assert_int_equal(fixture.scripted.n_held, 1);
    assert_int_equal(units_of(0), 8);
    answer_all();
    assert_counts(8, 17, 0);
}

static void what_drains_first_of_a_bucket_is_what_was_merged_before(void **state)
{
    (void)state;
    admit("bucket", "alice", 10);
    come_back(0); /* 2 have drained */
    answer_all();
    admit("bucket", "alice", 6); /* on top of 8 */
    fixture_advance_ms(&fixture, 600);
    come_back(0); /* of the 14, 8 have drained: those before */
    assert_int_equal(units_of(0), 6);
}

static void a_sliding_counter_is_charged_what_still_counts_of_both_windows(void **state)
{
    (void)state;
    fixture.clock.wall_us = fixture.clock.wall_us / (10 * SECOND_US) * (10 * SECOND_US);
    admit("counter", "alice", 40);
    fixture_advance_ms(&fixture, 15000 - LOOK_MS);
    admit("counter", "alice", 7);
    come_back(0); /* in the middle of the next window: half of the 40 */
    assert_int_equal(units_of(0), 27);
}

static void a_share_of_the_limit_is_charged_as_it_was_admitted(void **state)
{
    (void)state;
    engine_set_n_daemons(fixture.engine, 4);
    admit("day", "alice", 25);
    assert_false(ask_down("day", "alice", 1).decision.allowed);
    come_back(0);
    assert_int_equal(units_of(0), 25);
    assert_int_equal(held(0)->members[0].limit->limit, 100); /* by the whole limit */
}

static void what_was_admitted_by_a_larger_share_is_charged_once_more_daemons_are_back(void **state)
{
    (void)state;
    admit("day", "alice", 80); /* the others were not known */
    admit("bucket", "alice", 20);
    engine_set_n_daemons(fixture.engine, 4); /* Redis is back, and they are counted before anything is merged */
    come_back(0);
    assert_int_equal(units_of(0) + units_of(1), 80 + 18);
}

static void a_shadow_policy_is_charged_what_it_admitted(void **state)
{
    (void)state;
    admit("shadow", "alice", 8);
    admit("shadow", "alice", 5); /* would have been denied */
    come_back(0);
    assert_int_equal(units_of(0), 8);
}

static void a_candidate_is_charged_nothing(void **state)
{
    (void)state;
    admit("trial", "alice", 8);
    come_back(0);
    assert_int_equal(fixture.scripted.n_held, 1);
    assert_string_equal(held(0)->members[0].limit->name, "");
}

static void a_check_all_charges_each_of_its_limits(void **state)
{
    (void)state;
    struct check_all all = {0};
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    assert_true(CHECK_ALL_ASK(&all, fixture.engine, {"day", "alice", 4}, {"several", "bob", 6}));
    assert_counts(0, 0, 3);
    come_back(0);
    assert_int_equal(units_of(0) + units_of(1) + units_of(2), 16);
}

static void a_request_id_that_comes_again_is_charged_once(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    admit("day", "alice", 50);
    for (int i = 0; i < 3; i++) {
        struct asked asked = {.check = fixture_check_new(&fixture, "alice")};
        asked.check->request_id = slice_of("order 7");
        assert_true(fixture_submit(&fixture, &asked, OP_CHECK, "day", 5));
        assert_true(asked.decision.allowed);
        if (i == 0) {
            come_back(0);
            answer_all();
            fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
        }
    }
    assert_counts(55, 0, 0);
    assert_nothing_to_do();
}

static void a_local_reservation_is_charged_and_what_it_gives_back_before_the_merge_is_not(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    struct asked reserved = {.reservation = {.ttl_ms = 60000}}, settled = {0};
    assert_true(fixture_ask(&fixture, &reserved, OP_RESERVE, "day", "alice", 20));
    settled.reservation = reserved.reservation;
    settled.reservation.actual = 5;
    settled.local_reason = reserved.decision.reason;
    assert_true(fixture_ask(&fixture, &settled, OP_SETTLE, "day", "alice", 0));
    come_back(0);
    assert_int_equal(units_of(0), 5);
}

static void a_local_reservation_that_used_more_after_the_merge_is_charged_that_too(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    struct asked reserved = {.reservation = {.ttl_ms = 60000}}, settled = {0};
    assert_true(fixture_ask(&fixture, &reserved, OP_RESERVE, "day", "alice", 20));
    come_back(0);
    assert_int_equal(units_of(0), 20);
    answer_all();
    settled.reservation = reserved.reservation;
    settled.reservation.actual = 26;
    settled.local_reason = reserved.decision.reason;
    assert_true(fixture_ask(&fixture, &settled, OP_SETTLE, "day", "alice", 0));
    come_back(0);
    assert_int_equal(units_of(0), 6);
}

static void a_local_reservation_that_has_ended_before_the_merge_is_not_charged(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    struct asked reserved = {.reservation = {.ttl_ms = 60000}};
    assert_true(fixture_ask(&fixture, &reserved, OP_RESERVE, "day", "alice", 20));
    admit("day", "alice", 3);
    fixture_advance_ms(&fixture, 61000);
    come_back(0);
    assert_int_equal(units_of(0), 3);
}

/* ---- what the store may have charged itself ---- */

static void a_check_that_the_store_charged_late_is_not_charged_again(void **state)
{
    (void)state;
    ask_late("day");
    assert_counts(0, 0, 0);
    fixture.scripted.decision.granted = 4;
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_nothing_to_do();
}

static void a_check_that_the_store_denied_late_is_charged(void **state)
{
    (void)state;
    ask_late("day");
    deny_late();
    come_back(0);
    assert_int_equal(units_of(0), 4);
}

static void a_check_all_whose_first_cost_is_0_and_that_the_store_charged_late_is_not_charged_again(void **state)
{
    (void)state;
    struct check_all all = {0};
    fixture.scripted.mode = SCRIPTED_HOLD;
    assert_true(CHECK_ALL_ASK(&all, fixture.engine, {"day", "alice", 0}, {"day", "bob", 6}));
    fixture_advance_ms(&fixture, 20);
    assert_int_equal(engine_counters.failure_local, 1);

    struct op *op = scripted_held(&fixture.scripted, 0);
    list_remove(&op->link);
    fixture.scripted.n_held--;
    for (size_t i = 0; i < 2; i++)
        op->members[i].decision = (struct decision){.allowed = true, .granted = i == 0 ? 0 : 6};
    op->done(op, OP_DECIDED);
    assert_nothing_to_do();
}

static void a_denial_that_the_store_counted_late_is_not_charged_again(void **state)
{
    (void)state;
    ask_late("counted");
    deny_late();
    assert_nothing_to_do();
}

static void a_check_whose_answer_made_no_sense_is_not_charged(void **state)
{
    (void)state;
    struct asked nonsense = {0}, late = {0};
    fixture.scripted.mode = SCRIPTED_HOLD;
    assert_true(fixture_ask(&fixture, &nonsense, OP_CHECK, "day", "alice", 4));
    scripted_held(&fixture.scripted, 0)->is_doubtful = true;
    scripted_end(&fixture.scripted, 0, OP_STORE_ERROR);
    assert_true(fixture_ask(&fixture, &late, OP_CHECK, "day", "alice", 4));
    fixture_advance_ms(&fixture, 20);
    scripted_held(&fixture.scripted, 0)->is_doubtful = true;
    scripted_end(&fixture.scripted, 0, OP_STORE_ERROR);
    assert_int_equal(nonsense.decision.source + late.decision.source, 2 * SOURCE_LOCAL);
    assert_nothing_to_do();
}

static void a_check_whose_answer_is_lost_is_not_charged_and_one_that_was_not_sent_is(void **state)
{
    (void)state;
    struct asked lost = {0}, late = {0}, unsent = {0};
    fixture.scripted.mode = SCRIPTED_HOLD;
    assert_true(fixture_ask(&fixture, &lost, OP_CHECK, "day", "lost", 4));
    scripted_end(&fixture.scripted, 0, OP_DOWN);
    assert_true(fixture_ask(&fixture, &late, OP_CHECK, "day", "lost late", 4));
    fixture_advance_ms(&fixture, 20);
    scripted_end(&fixture.scripted, 0, OP_DOWN);
    fixture.scripted.holds_unsent = true;
    assert_true(fixture_ask(&fixture, &unsent, OP_CHECK, "day", "unsent", 3));
    fixture_advance_ms(&fixture, 20); /* it is withdrawn */
    assert_int_equal(lost.decision.source + late.decision.source + unsent.decision.source, 3 * SOURCE_LOCAL);
    come_back(0);
    assert_int_equal(fixture.scripted.n_held, 1);
    assert_int_equal(units_of(0), 3);
}

static void what_the_breaker_and_a_full_store_refuse_is_charged(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_BREAKER;
    assert_true(ask(OP_CHECK, "day", "alice", 2).decision.allowed);
    fixture.scripted.mode = SCRIPTED_REFUSE_OVERLOAD;
    assert_true(ask(OP_CHECK, "day", "alice", 3).decision.allowed);
    fixture.scripted.mode = SCRIPTED_HOLD;
    struct asked refused = {0};
    assert_true(fixture_ask(&fixture, &refused, OP_CHECK, "day", "alice", 4));
    scripted_end(&fixture.scripted, 0, OP_STORE_ERROR);
    come_back(0);
    assert_int_equal(units_of(0), 9);
}

/* ---- once ---- */

static void a_merge_whose_answer_was_lost_is_sent_again_under_its_id(void **state)
{
    (void)state;
    admit("day", "alice", 10);
    come_back(INT64_C(3600000000)); /* by the store's clock, which is an hour ahead */
    const struct op_reservation first = *held(0)->reservation;
    assert_int_equal(first.made_us, fixture.clock.wall_us + INT64_C(3600000000));
    assert_int_equal(first.ttl_ms, MERGE_TTL_MAX_MS);
    scripted_end(&fixture.scripted, 0, OP_DOWN);
    admit("day", "alice", 3); /* the second outage */
    come_back(INT64_C(3600000000));
    assert_int_equal(held(0)->reservation->id, first.id);
    assert_int_equal(held(0)->reservation->made_us, first.made_us);
    assert_int_equal(units_of(0), 10);
    scripted_held(&fixture.scripted, 0)->reservation->is_known = true; /* it had charged it */
    scripted_held(&fixture.scripted, 0)->reservation->charged = 0;
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_counts(10, 0, 1);
    fixture_advance_ms(&fixture, 0);
    assert_int_not_equal(held(0)->reservation->id, first.id);
    assert_int_equal(units_of(0), 3);
    answer_all();
    assert_counts(13, 0, 0);
}

static void a_merge_that_was_never_sent_goes_with_what_came_since(void **state)
{
    (void)state;
    admit("day", "alice", 10);
    fixture.scripted.holds_unsent = true;
    come_back(0);
    uint64_t id = held(0)->reservation->id;
    scripted_end(&fixture.scripted, 0, OP_EXPIRED);
    admit("day", "alice", 3);
    come_back(0);
    assert_int_equal(units_of(0), 13);
    assert_int_not_equal(held(0)->reservation->id, id);
}

static void of_a_merge_that_is_sent_again_only_what_still_counts_is_charged(void **state)
{
    (void)state;
    admit("bucket", "alice", 20);
    come_back(0);
    assert_int_equal(units_of(0), 18);
    scripted_end(&fixture.scripted, 0, OP_DOWN);
    fixture_advance_ms(&fixture, 800);
    come_back(0);
    assert_int_equal(units_of(0), 8);
    scripted_end(&fixture.scripted, 0, OP_DOWN);
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    fixture_advance_ms(&fixture, 1000);
    assert_counts(0, 20, 0);
}

static void units_admitted_while_a_merge_is_under_way_wait_for_the_next(void **state)
{
    (void)state;
    admit("day", "alice", 10);
    come_back(0);
    admit("day", "alice", 4);
    fixture.scripted.mode = SCRIPTED_HOLD;
    fixture_advance_ms(&fixture, LOOK_MS);
    assert_int_equal(fixture.scripted.n_held, 1);
    answer_merge(0, 10);
    fixture_advance_ms(&fixture, 0);
    assert_int_equal(units_of(0), 4);
    answer_all();
    assert_counts(14, 0, 0);
}

static void an_answer_that_is_not_known_any_more_charges_nothing(void **state)
{
    (void)state;
    admit("day", "alice", 10);
    come_back(0);
    answer_merge(0, 0);
    assert_counts(0, 10, 0);
}

/* ---- how many, and when ---- */

static void a_store_that_is_away_is_looked_for_five_times_a_second(void **state)
{
    (void)state;
    admit("day", "alice", 10);
    admit("day", "bob", 10);
    size_t before = fixture.scripted.n_submitted;
    for (int i = 0; i < 100; i++) fixture_advance_ms(&fixture, 10);
    assert_in_range(fixture.scripted.n_submitted - before, 4, 6);
}

static void no_more_than_64_are_under_way(void **state)
{
    (void)state;
    char key[16];
    for (int i = 0; i < 150; i++) {
        snprintf(key, sizeof key, "key%d", i);
        admit("day", key, 1);
    }
    come_back(0);
    assert_int_equal(fixture.scripted.n_held, 64);
    fixture_advance_ms(&fixture, 0);
    assert_int_equal(fixture.scripted.n_held, 64);
    for (int i = 0; i < 10; i++) answer_merge(0, 1);
    fixture_advance_ms(&fixture, 0);
    assert_int_equal(fixture.scripted.n_held, 64);
    for (int i = 0; i < 3; i++) {
        answer_all();
        fixture_advance_ms(&fixture, 0);
    }
    assert_counts(150, 0, 0);
}

static void checks_are_decided_while_merges_are_under_way(void **state)
{
    (void)state;
    admit("day", "alice", 10);
    come_back(0);
    fixture.scripted.mode = SCRIPTED_DECIDE;
    assert_int_equal(ask(OP_CHECK, "day", "alice", 1).decision.source, SOURCE_REDIS);
    answer_all();
    assert_counts(10, 0, 0);
}

static void one_key_that_is_refused_does_not_keep_the_others(void **state)
{
    (void)state;
    admit("day", "alice", 10);
    admit("day", "bob", 7);
    for (int i = 0; i < 4; i++) {
        fixture.scripted.mode = SCRIPTED_HOLD;
        fixture_advance_ms(&fixture, LOOK_MS);
        struct op *look = scripted_held(&fixture.scripted, 0);
        assert_int_equal(look->kind, OP_PEEK);
        if (slice_eq(look->members[0].key, slice_of("bob"))) break;
        scripted_end(&fixture.scripted, 0, OP_STORE_ERROR);
    }
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    fixture_advance_ms(&fixture, 0);
    assert_int_equal(fixture.scripted.n_held, 2);
}

static void a_key_that_holds_another_type_is_given_up(void **state)
{
    (void)state;
    admit("day", "alice", 10);
    come_back(0);
    scripted_held(&fixture.scripted, 0)->members[0].is_foreign = true;
    scripted_end(&fixture.scripted, 0, OP_STORE_ERROR);
    assert_counts(0, 10, 0);
    assert_nothing_to_do();
}

static void beyond_the_bound_of_local_keys_units_are_dropped(void **state)
{
    (void)state;
    struct engine_options options = fixture_options;
    options.local_max_keys = 2;
    engine_set_options(fixture.engine, &options);
    admit("day", "alice", 1);
    admit("day", "bob", 1);
    admit("day", "carol", 5);
    assert_counts(0, 5, 2);
}

static void short_memory_drops_units_or_lets_them_wait(void **state)
{
    (void)state;
    uint64_t n_admitted = 0;
    admit("off", "alice", 1); /* the table is there */
    for (uint64_t n = 1; n < 6; n++) {
        fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
        mem_fail_nth(n);
        struct asked asked = ask(OP_CHECK, "day", "alice", 2);
        mem_fail_nth(0);
        n_admitted += asked.error == ERROR_NONE ? 2 : 0;
    }
    uint64_t dropped = engine_counters.merge_back_dropped;
    assert_int_equal(engine_counters.merge_back_waiting, 1);
    struct check *others[64]; /* as many as the pool has */
    for (size_t i = 0; i < 64; i++) others[i] = fixture_check_new(&fixture, "bob");
    mem_fail_nth(1);
    fixture.scripted.mode = SCRIPTED_HOLD;
    fixture_advance_ms(&fixture, LOOK_MS);
    mem_fail_nth(0);
    for (size_t i = 0; i < 64; i++) check_release(others[i]);
    assert_int_equal(fixture.scripted.n_held, 0);
    come_back(0);
    answer_all();
    assert_int_equal(engine_counters.merge_back_dropped, dropped);
    assert_true(dropped > 0);
    assert_int_equal(engine_counters.merged_back + dropped, n_admitted);
}

static void what_the_table_has_forgotten_is_dropped(void **state)
{
    (void)state;
    admit("day", "alice", 10);
    fixture.scripted.mode = SCRIPTED_DECIDE;
    fixture.clock.mono_us += 10 * SECOND_US; /* ten seconds without a failure answer, and without a merge */
    (void)ask(OP_CHECK, "off", "bob", 1);
    fixture.scripted.mode = SCRIPTED_HOLD;
    fixture_advance_ms(&fixture, 0);
    assert_counts(0, 10, 0);
}

/* ---- changes ---- */

static void a_policy_that_has_changed_or_is_gone_is_not_charged(void **state)
{
    (void)state;
    struct policy_spec changed[N_SPECS];
    memcpy(changed, specs, sizeof changed);
    changed[0].limits[0].limit = 90;
    changed[2].name = "renamed";
    changed[3].merge_back = false;
    admit("day", "alice", 1);
    admit("second", "alice", 2);
    admit("bucket", "alice", 4);
    admit("counter", "alice", 8);
    engine_set_policies(fixture.engine, policies_make(changed, N_SPECS));
    come_back(0);
    assert_int_equal(fixture.scripted.n_held, 1);
    assert_int_equal(units_of(0), 8); /* as it was, in another set */
    assert_counts(0, 7, 1);
    admit("day", "alice", 3);
    answer_merge(0, 8);
    fixture.scripted.mode = SCRIPTED_HOLD;
    fixture_advance_ms(&fixture, LOOK_MS);
    assert_int_equal(units_of(0), 3);
}

static void a_reload_while_a_merge_is_under_way_keeps_its_limit_alive(void **state)
{
    (void)state;
    admit("day", "alice", 10);
    come_back(0);
    engine_set_policies(fixture.engine, policies_make(specs + 1, N_SPECS - 1));
    assert_int_equal(held(0)->members[0].limit->limit, 100);
    scripted_end(&fixture.scripted, 0, OP_DOWN);
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    fixture_advance_ms(&fixture, LOOK_MS);
    assert_counts(0, 10, 0);
}

/* Earlier the reset freed the counter that the peek is about. */
static void a_reset_while_the_store_is_asked_for_its_time_drops_what_waits(void **state)
{
    static const enum op_outcome outcomes[] = {OP_DOWN, OP_DECIDED};
    (void)state;
    for (size_t i = 0; i < N_OF(outcomes); i++) {
        admit("day", "alice", 10);
        admit("day", "bob", 5);
        fixture.scripted.mode = SCRIPTED_HOLD;
        fixture_advance_ms(&fixture, LOOK_MS);
        assert_int_equal(scripted_held(&fixture.scripted, 0)->kind, OP_PEEK);
        fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
        assert_true(ask(OP_RESET, "day", i == 0 ? "alice" : "bob", 0).removed);
        assert_true(ask(OP_RESET, "day", i == 0 ? "bob" : "alice", 0).removed);
        scripted_end(&fixture.scripted, 0, outcomes[i]);
        assert_nothing_to_do();
    }
    assert_counts(0, 0, 0);
}

static void an_engine_that_closes_lets_go_of_what_waits_and_of_what_is_under_way(void **state)
{
    (void)state;
    char key[16];
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "key%d", i);
        admit("day", key, 1);
    }
    come_back(0);
    assert_int_equal(fixture.scripted.n_held, 64);
    fixture_close(&fixture);
    assert_counts(0, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) SCRIPTED_TEST(name, &suite)
        TEST(what_the_table_admitted_is_charged_once_the_store_is_back),
        TEST(nothing_is_charged_of_a_policy_without_merge_back),
        TEST(a_denial_is_not_charged_even_where_the_limit_counts_it),
        TEST(what_the_store_does_not_take_is_counted_as_dropped),
        TEST(a_second_outage_charges_only_its_own),
        TEST(of_several_limits_each_is_charged_what_it_still_counts),
        TEST(windows_that_have_ended_are_dropped),
        TEST(what_drains_first_of_a_bucket_is_what_was_merged_before),
        TEST(a_sliding_counter_is_charged_what_still_counts_of_both_windows),
        TEST(a_share_of_the_limit_is_charged_as_it_was_admitted),
        TEST(what_was_admitted_by_a_larger_share_is_charged_once_more_daemons_are_back),
        TEST(a_shadow_policy_is_charged_what_it_admitted),
        TEST(a_candidate_is_charged_nothing),
        TEST(a_check_all_charges_each_of_its_limits),
        TEST(a_request_id_that_comes_again_is_charged_once),
        TEST(a_local_reservation_is_charged_and_what_it_gives_back_before_the_merge_is_not),
        TEST(a_local_reservation_that_used_more_after_the_merge_is_charged_that_too),
        TEST(a_local_reservation_that_has_ended_before_the_merge_is_not_charged),
        TEST(a_check_that_the_store_charged_late_is_not_charged_again),
        TEST(a_check_that_the_store_denied_late_is_charged),
        TEST(a_check_all_whose_first_cost_is_0_and_that_the_store_charged_late_is_not_charged_again),
        TEST(a_denial_that_the_store_counted_late_is_not_charged_again),
        TEST(a_check_whose_answer_made_no_sense_is_not_charged),
        TEST(a_check_whose_answer_is_lost_is_not_charged_and_one_that_was_not_sent_is),
        TEST(what_the_breaker_and_a_full_store_refuse_is_charged),
        TEST(a_merge_whose_answer_was_lost_is_sent_again_under_its_id),
        TEST(a_merge_that_was_never_sent_goes_with_what_came_since),
        TEST(of_a_merge_that_is_sent_again_only_what_still_counts_is_charged),
        TEST(units_admitted_while_a_merge_is_under_way_wait_for_the_next),
        TEST(an_answer_that_is_not_known_any_more_charges_nothing),
        TEST(a_store_that_is_away_is_looked_for_five_times_a_second),
        TEST(no_more_than_64_are_under_way),
        TEST(checks_are_decided_while_merges_are_under_way),
        TEST(one_key_that_is_refused_does_not_keep_the_others),
        TEST(a_key_that_holds_another_type_is_given_up),
        TEST(beyond_the_bound_of_local_keys_units_are_dropped),
        TEST(short_memory_drops_units_or_lets_them_wait),
        TEST(what_the_table_has_forgotten_is_dropped),
        TEST(a_policy_that_has_changed_or_is_gone_is_not_charged),
        TEST(a_reload_while_a_merge_is_under_way_keeps_its_limit_alive),
        TEST(a_reset_while_the_store_is_asked_for_its_time_drops_what_waits),
        TEST(an_engine_that_closes_lets_go_of_what_waits_and_of_what_is_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
