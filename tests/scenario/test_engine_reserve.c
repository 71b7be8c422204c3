/* test_engine_reserve.c: reservations between the engine, its store and its timers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine_counters.h"
#include "engine/reservations.h"
#include "fakes/engine_suite.h"
#include "store/memory_counters.h"

#define SECOND_US INT64_C(1000000)

enum { TTL_MS = 1000 };

#define TEN_AN_HOUR                                                                                                    \
    {                                                                                                                  \
        {                                                                                                              \
            .algo = ALGO_FIXED_WINDOW, .limit = 10, .window_us = 3600 * SECOND_US                                      \
        }                                                                                                              \
    }

static const struct policy_spec specs[] = {
    {.name = "allow", .on_failure = ON_FAILURE_ALLOW, .limits = TEN_AN_HOUR},
    {.name = "deny", .on_failure = ON_FAILURE_DENY, .limits = TEN_AN_HOUR},
    {.name = "local", .on_failure = ON_FAILURE_LOCAL, .limits = TEN_AN_HOUR},
    {.name = "error", .on_failure = ON_FAILURE_ERROR, .limits = TEN_AN_HOUR},
};

static struct engine_fixture fixture;
static const struct engine_suite suite = {
    .fixture = &fixture, .specs = specs, .n_specs = sizeof specs / sizeof specs[0]};

static void ask_reserve(struct asked *asked, const char *policy, int64_t units)
{
    asked->reservation = (struct op_reservation){.ttl_ms = TTL_MS};
    assert_true(fixture_ask(&fixture, asked, OP_RESERVE, policy, "alice", units));
}

/* With a store that keeps its ops. */
static struct asked reserve(const char *policy)
{
    struct asked asked = {0};
    ask_reserve(&asked, policy, 4);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(asked.n_done, 1);
    return asked;
}

static void settle(struct asked *asked, const struct asked *reserved, const char *policy, int64_t actual)
{
    *asked = (struct asked){.reservation = reserved->reservation};
    asked->reservation.actual = actual;
    if (reserved->decision.source == SOURCE_LOCAL) asked->local_reason = reserved->decision.reason;
    assert_true(fixture_ask(&fixture, asked, OP_SETTLE, policy, "alice", 0));
}

static int64_t peek(const char *policy)
{
    struct asked asked = {0};
    fixture_ask(&fixture, &asked, OP_PEEK, policy, "alice", 0);
    assert_int_equal(asked.n_done, 1);
    return asked.decision.remaining;
}

static void each_reservation_has_an_id_of_its_own(void **state)
{
    (void)state;
    struct asked first = reserve("error"), second = reserve("error");
    assert_true(first.reservation.held && second.reservation.held);
    assert_int_equal(first.reservation.units, 4);
    assert_int_not_equal(first.reservation.id, second.reservation.id);
    assert_int_equal(engine_counters.reservations, 2);
    assert_int_equal(engine_counters.checks, 2);
    assert_int_equal(engine_counters.allowed, 2);
}

static void what_ends_is_swept_by_the_engine(void **state)
{
    (void)state;
    reserve("error");
    fixture_advance_ms(&fixture, TTL_MS);
    assert_int_equal(fixture.scripted.n_held, 0);
    assert_int_equal(engine_next_deadline(fixture.engine), fixture.clock.mono_us + 1000);
    fixture_advance_ms(&fixture, 1);
    assert_int_equal(fixture.scripted.n_held, 1);
    assert_int_equal(scripted_held(&fixture.scripted, 0)->kind, OP_SWEEP);
    assert_string_equal(scripted_held(&fixture.scripted, 0)->members[0].limit->policy->name, "error");
    assert_memory_equal(scripted_held(&fixture.scripted, 0)->members[0].reservations_key.data, "alice", 5);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 0);
    assert_int_equal(engine_n_live(fixture.engine), 0);
    assert_int_equal(engine_next_deadline(fixture.engine), INT64_MAX);
}

static void a_sweep_that_fails_is_tried_again_while_its_reservation_is_known(void **state)
{
    (void)state;
    reserve("error");
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    fixture_advance_ms(&fixture, TTL_MS + 1);
    size_t n_before = fixture.scripted.n_submitted;
    fixture_advance_ms(&fixture, 4999);
    assert_int_equal(fixture.scripted.n_submitted, n_before);
    fixture_advance_ms(&fixture, 1);
    assert_int_equal(fixture.scripted.n_submitted, n_before + 1);
    for (int i = 0; i < 100; i++) fixture_advance_ms(&fixture, 5000);
    assert_int_equal(fixture.scripted.n_submitted, n_before + 11); /* a minute's */
    assert_int_equal(engine_counters.reservations, 0);
}

static void a_sweep_without_an_answer_is_tried_again(void **state)
{
    (void)state;
    reserve("error");
    fixture_advance_ms(&fixture, TTL_MS + 1);
    fixture_advance_ms(&fixture, 20); /* its deadline */
    assert_int_equal(engine_counters.reservations, 1);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    fixture_advance_ms(&fixture, 5000);
    assert_int_equal(fixture.scripted.n_held, 1);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 0);
}

static void what_is_settled_is_not_swept(void **state)
{
    (void)state;
    struct asked reserved = reserve("error");
    struct asked settled;
    settle(&settled, &reserved, "error", 1);
    assert_int_equal(scripted_held(&fixture.scripted, 0)->kind, OP_SETTLE);
    assert_int_equal(scripted_held(&fixture.scripted, 0)->reservation->actual, 1);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(settled.n_done, 1);
    assert_int_equal(settled.error, ERROR_NONE);
    assert_int_equal(engine_counters.reservations, 0);
    assert_int_equal(engine_counters.reservations_settled, 1);
    fixture_advance_ms(&fixture, 2 * TTL_MS);
    assert_int_equal(fixture.scripted.n_held, 0);
}

static void what_cannot_be_settled_is_an_error_and_stays_reserved(void **state)
{
    (void)state;
    struct asked reserved = reserve("allow");
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    struct asked settled;
    settle(&settled, &reserved, "allow", 1);
    assert_int_equal(settled.n_done, 1);
    assert_int_equal(settled.error, ERROR_STORE_UNAVAILABLE);
    assert_int_equal(engine_counters.reservations, 1);
}

static void a_reserve_gets_the_policys_failure_answer_and_holds_nothing(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    struct asked allowed = {0}, denied = {0}, failed = {0};
    ask_reserve(&allowed, "allow", 4);
    ask_reserve(&denied, "deny", 4);
    ask_reserve(&failed, "error", 4);
    assert_true(allowed.decision.allowed && allowed.decision.source == SOURCE_ALLOW);
    assert_false(allowed.reservation.held);
    assert_true(!denied.decision.allowed && denied.decision.source == SOURCE_DENY);
    assert_int_equal(failed.error, ERROR_STORE_UNAVAILABLE);
    assert_int_equal(engine_counters.reservations, 0);
}

static void what_is_reserved_locally_is_settled_locally(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    struct asked first = {0}, second = {0};
    ask_reserve(&first, "local", 7);
    assert_true(first.decision.allowed && first.reservation.held);
    assert_int_equal(first.decision.source, SOURCE_LOCAL);
    ask_reserve(&second, "local", 4);
    assert_false(second.decision.allowed);
    struct asked settled;
    settle(&settled, &first, "local", 2);
    assert_int_equal(settled.n_done, 1);
    assert_int_equal(settled.decision.source, SOURCE_LOCAL);
    assert_int_equal(settled.decision.reason, REASON_DOWN);
    assert_int_equal(settled.reservation.refunded, 5);
    assert_false(settled.reservation.ended);
    ask_reserve(&second, "local", 8);
    assert_true(second.decision.allowed);
    assert_int_equal(engine_counters.reservations, 0); /* the table takes what has ended itself */
    fixture_advance_ms(&fixture, TTL_MS);
    ask_reserve(&second, "local", 8);
    assert_true(second.decision.allowed);
}

static void what_was_forgotten_with_the_local_table_has_ended(void **state)
{
    (void)state;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    struct asked first = {.reservation.ttl_ms = 60000};
    assert_true(fixture_ask(&fixture, &first, OP_RESERVE, "local", "alice", 7));
    fixture_advance_ms(&fixture, 10000);
    fixture.scripted.mode = SCRIPTED_DECIDE;
    struct asked other = {0};
    ask_reserve(&other, "local", 1);
    struct asked settled;
    settle(&settled, &first, "local", 2);
    assert_true(settled.reservation.ended);
    assert_int_equal(settled.reservation.refunded, 0);
    assert_int_equal(settled.reservation.charged, 2);
}

static void a_reservation_without_a_delivered_answer_is_cancelled(void **state)
{
    (void)state;
    struct asked late = {0}, gone = {0}, local = {0};
    ask_reserve(&late, "error", 4);
    ask_reserve(&gone, "error", 4);
    ask_reserve(&local, "local", 4);
    fixture_leave(&gone);
    fixture_advance_ms(&fixture, 20);
    assert_int_equal(late.error, ERROR_STORE_UNAVAILABLE);
    assert_true(local.decision.source == SOURCE_LOCAL && local.reservation.held);
    for (int i = 0; i < 3; i++) scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 3);
    assert_int_equal(fixture.scripted.n_held, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(scripted_held(&fixture.scripted, i)->kind, OP_SETTLE);
        assert_int_equal(scripted_held(&fixture.scripted, i)->reservation->units, 4);
        assert_int_equal(scripted_held(&fixture.scripted, i)->reservation->actual, 0);
    }
    struct asked settled; /* what the local table reservations of it is another thing */
    settle(&settled, &local, "local", 1);
    assert_int_equal(settled.reservation.refunded, 3);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 0);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void one_that_could_not_be_cancelled_is_swept(void **state)
{
    (void)state;
    struct asked late = {0};
    ask_reserve(&late, "error", 4);
    fixture_advance_ms(&fixture, 20);
    fixture.scripted.mode = SCRIPTED_REFUSE_OVERLOAD;
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    fixture.scripted.mode = SCRIPTED_HOLD;
    assert_int_equal(engine_counters.reservations, 1);
    fixture_advance_ms(&fixture, TTL_MS + 1);
    assert_int_equal(scripted_held(&fixture.scripted, 0)->kind, OP_SWEEP);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void a_late_denial_cancels_nothing(void **state)
{
    (void)state;
    struct asked late = {0};
    ask_reserve(&late, "local", 4);
    fixture_advance_ms(&fixture, 20);
    assert_true(late.reservation.held);
    fixture.scripted.decision = (struct decision){.limit = 10, .retry_after_ms = 5};
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 0);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void what_may_be_reserved_when_the_connection_was_lost_is_swept(void **state)
{
    (void)state;
    struct asked lost = {0};
    ask_reserve(&lost, "error", 4);
    scripted_end_all(&fixture.scripted, OP_DOWN);
    assert_int_equal(lost.error, ERROR_STORE_UNAVAILABLE);
    fixture_advance_ms(&fixture, TTL_MS + 1);
    assert_int_equal(fixture.scripted.n_held, 1);
    assert_int_equal(scripted_held(&fixture.scripted, 0)->kind, OP_SWEEP);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 0);
}

static void what_ends_at_once_is_swept_in_several_ticks(void **state)
{
    (void)state;
    for (int i = 0; i < 80; i++) reserve("error");
    fixture_advance_ms(&fixture, TTL_MS + 1);
    assert_int_equal(fixture.scripted.n_held, 64);
    assert_true(engine_next_deadline(fixture.engine) <= fixture.clock.mono_us);
    fixture_advance_ms(&fixture, 0);
    assert_int_equal(fixture.scripted.n_held, 80);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void a_full_engine_sweeps_later(void **state)
{
    (void)state;
    struct asked others[100] = {0};
    reserve("error");
    fixture.deadline_ms = 60000;
    for (size_t i = 0; i < 100; i++) fixture_ask(&fixture, &others[i], OP_CHECK, "error", "bob", 1);
    fixture_advance_ms(&fixture, TTL_MS + 1);
    assert_int_equal(fixture.scripted.n_held, 100);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    fixture_advance_ms(&fixture, 5000);
    assert_int_equal(fixture.scripted.n_held, 1);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void a_policy_that_is_gone_is_not_swept(void **state)
{
    (void)state;
    reserve("error");
    engine_set_policies(fixture.engine, policies_make(specs, 1));
    fixture_advance_ms(&fixture, TTL_MS + 1);
    assert_int_equal(fixture.scripted.n_held, 0);
    assert_int_equal(engine_counters.reservations, 0);
}

static void a_clock_that_is_set_has_no_timers(void **state)
{
    (void)state;
    fixture.clock.manual = true;
    reserve("error");
    assert_int_equal(engine_counters.reservations, 0);
    assert_int_equal(engine_counters.reservations_made, 1);
}

static void closing_leaves_no_reservation(void **state)
{
    (void)state;
    reserve("error");
    fixture_advance_ms(&fixture, TTL_MS + 1);
    reserve("error");
    assert_int_equal(fixture.scripted.n_held, 0);
    reserve("error");
    fixture_advance_ms(&fixture, TTL_MS + 1);
    assert_int_equal(fixture.scripted.n_held, 2);
    fixture_close(&fixture);
    assert_int_equal(engine_counters.reservations, 0);
}

static void without_memory_a_reservation_has_no_timer(void **state)
{
    (void)state;
    struct asked asked = {0};
    ask_reserve(&asked, "error", 4);
    mem_fail_nth(1);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    mem_fail_nth(0);
    assert_true(asked.decision.allowed && asked.reservation.held);
    assert_int_equal(engine_counters.reservations, 0);
    assert_int_equal(engine_counters.reservations_untimed, 1);
}

static void in_memory_what_ends_comes_back_by_itself(void **state)
{
    (void)state;
    struct asked asked = {0};
    ask_reserve(&asked, "error", 4);
    assert_true(asked.reservation.held);
    assert_int_equal(peek("error"), 6);
    uint64_t n_keys = memory_counters.memory_keys;
    fixture_advance_ms(&fixture, TTL_MS + 1);
    assert_int_equal(memory_counters.memory_keys, n_keys - 1); /* the list of reservations is gone */
    assert_int_equal(peek("error"), 10);
}

static void in_memory_a_check_without_memory_makes_no_reservation(void **state)
{
    (void)state;
    bool decided = false;
    peek("error"); /* a pool of checks is there */
    for (uint64_t nth = 1; !decided; nth++) {
        struct asked asked = {0};
        mem_fail_nth(nth);
        ask_reserve(&asked, "error", 4);
        mem_fail_nth(0);
        decided = asked.error == ERROR_NONE;
        assert_true(decided || (asked.error == ERROR_STORE_UNAVAILABLE && !asked.reservation.held));
        assert_int_equal(peek("error"), decided ? 6 : 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(each_reservation_has_an_id_of_its_own, &suite),
        SCRIPTED_TEST(what_ends_is_swept_by_the_engine, &suite),
        SCRIPTED_TEST(a_sweep_that_fails_is_tried_again_while_its_reservation_is_known, &suite),
        SCRIPTED_TEST(a_sweep_without_an_answer_is_tried_again, &suite),
        SCRIPTED_TEST(what_is_settled_is_not_swept, &suite),
        SCRIPTED_TEST(what_cannot_be_settled_is_an_error_and_stays_reserved, &suite),
        SCRIPTED_TEST(a_reserve_gets_the_policys_failure_answer_and_holds_nothing, &suite),
        SCRIPTED_TEST(what_is_reserved_locally_is_settled_locally, &suite),
        SCRIPTED_TEST(what_was_forgotten_with_the_local_table_has_ended, &suite),
        SCRIPTED_TEST(a_reservation_without_a_delivered_answer_is_cancelled, &suite),
        SCRIPTED_TEST(one_that_could_not_be_cancelled_is_swept, &suite),
        SCRIPTED_TEST(a_late_denial_cancels_nothing, &suite),
        SCRIPTED_TEST(what_may_be_reserved_when_the_connection_was_lost_is_swept, &suite),
        SCRIPTED_TEST(what_ends_at_once_is_swept_in_several_ticks, &suite),
        SCRIPTED_TEST(a_full_engine_sweeps_later, &suite),
        SCRIPTED_TEST(a_policy_that_is_gone_is_not_swept, &suite),
        SCRIPTED_TEST(a_clock_that_is_set_has_no_timers, &suite),
        SCRIPTED_TEST(closing_leaves_no_reservation, &suite),
        SCRIPTED_TEST(without_memory_a_reservation_has_no_timer, &suite),
        MEMORY_TEST(in_memory_what_ends_comes_back_by_itself, &suite),
        MEMORY_TEST(in_memory_a_check_without_memory_makes_no_reservation, &suite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
