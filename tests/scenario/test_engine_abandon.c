/* test_engine_abandon.c: what a connection abandons is given back, whatever the store answers and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine_counters.h"
#include "engine/slots.h"
#include "fakes/engine_suite.h"

#define SECOND_US INT64_C(1000000)

enum { TTL_MS = 60000, RETRY_MS = 5000, CLIENT = 7, OTHER_CLIENT = 8 };

#define TEN_AN_HOUR                                                                                                    \
    {                                                                                                                  \
        {                                                                                                              \
            .algo = ALGO_FIXED_WINDOW, .limit = 10, .window_us = 3600 * SECOND_US                                      \
        }                                                                                                              \
    }
#define THREE_SLOTS                                                                                                    \
    {                                                                                                                  \
        {                                                                                                              \
            .algo = ALGO_CONCURRENCY, .limit = 3, .window_us = 30 * SECOND_US                                          \
        }                                                                                                              \
    }

static const struct policy_spec specs[] = {
    {.name = "allow", .on_failure = ON_FAILURE_ALLOW, .limits = TEN_AN_HOUR},
    {.name = "local", .on_failure = ON_FAILURE_LOCAL, .limits = TEN_AN_HOUR},
    {.name = "error", .on_failure = ON_FAILURE_ERROR, .limits = TEN_AN_HOUR},
    {.name = "slots", .on_failure = ON_FAILURE_ERROR, .limits = THREE_SLOTS},
    {.name = "slots-allow", .on_failure = ON_FAILURE_ALLOW, .limits = THREE_SLOTS},
    {.name = "slots-local", .on_failure = ON_FAILURE_LOCAL, .limits = THREE_SLOTS},
};
enum { N_SPECS = sizeof specs / sizeof specs[0] };

static struct engine_fixture fixture;
static struct slot_owner owner;

static void begin(void)
{
    slot_owner_init(&owner);
}

static void end(void)
{
    slots_end(&owner);
    assert_int_equal(slots_counters.slots, 0);
}

static const struct engine_suite suite = {
    .fixture = &fixture, .specs = specs, .n_specs = N_SPECS, .begin = begin, .end = end};

static void reserve_with(struct asked *asked, uint64_t msgid, const char *policy, const char *request_id)
{
    *asked = (struct asked){.check = fixture_check_new(&fixture, "alice"), .reservation.ttl_ms = TTL_MS};
    asked->check->op.client = CLIENT;
    asked->check->msgid = msgid;
    asked->check->request_id = slice_of(request_id);
    assert_true(fixture_submit(&fixture, asked, OP_RESERVE, policy, 4));
}

static void reserve(struct asked *asked, uint64_t msgid, const char *policy)
{
    reserve_with(asked, msgid, policy, "");
}

static struct slot *acquire(struct asked *asked, uint64_t msgid, const char *policy)
{
    *asked = (struct asked){.check = fixture_check_new(&fixture, "alice")};
    asked->check->op.client = CLIENT;
    asked->check->msgid = msgid;
    assert_true(fixture_seal(&fixture, asked->check, OP_ACQUIRE, policy, 1));
    assert_int_equal(engine_acquires(fixture.engine, asked->check, &owner), 0);
    struct slot *slot = asked->check->slot;
    fixture_submit(&fixture, asked, OP_ACQUIRE, policy, 1);
    return slot;
}

static void abandon(uint64_t msgid)
{
    engine_abandon(fixture.engine, CLIENT, msgid);
}

static struct op *held(size_t i)
{
    return scripted_held(&fixture.scripted, i);
}

/* The only op that the store holds. */
static const struct op *only_op(enum op_kind kind)
{
    assert_int_equal(fixture.scripted.n_held, 1);
    assert_int_equal(held(0)->kind, kind);
    return held(0);
}

static int64_t remaining(const char *policy)
{
    struct asked asked = {0};
    fixture_ask(&fixture, &asked, OP_PEEK, policy, "alice", 0);
    assert_int_equal(asked.n_done, 1);
    return asked.decision.remaining;
}

static void a_call_that_waits_ends_at_once_with_an_error(void **state)
{
    (void)state;
    struct asked acquired, reserved;
    acquire(&acquired, 1, "slots-allow");
    reserve(&reserved, 2, "allow");
    abandon(1);
    abandon(2);
    assert_int_equal(acquired.n_done, 1);
    assert_int_equal(acquired.error, ERROR_ABANDONED);
    assert_int_equal(reserved.n_done, 1);
    assert_int_equal(reserved.error, ERROR_ABANDONED);
    assert_int_equal(owner.n, 0);
    assert_int_equal(fixture_n_inflight(&fixture), 0);
    assert_int_equal(engine_counters.abandoned, 2);
    assert_int_equal(engine_counters.failure_allow, 0);
}

static void what_was_not_sent_is_withdrawn(void **state)
{
    (void)state;
    struct asked acquired, reserved;
    fixture.scripted.holds_unsent = true;
    acquire(&acquired, 1, "slots");
    reserve(&reserved, 2, "error");
    abandon(1);
    abandon(2);
    assert_int_equal(fixture.scripted.n_held, 0);
    assert_int_equal(engine_n_live(fixture.engine), 0);
    assert_int_equal(engine_slots(fixture.engine)->n, 0);
    assert_int_equal(engine_next_deadline(fixture.engine), INT64_MAX);
}

static void a_late_yes_is_given_back(void **state)
{
    (void)state;
    struct asked acquired, reserved;
    acquire(&acquired, 1, "slots");
    reserve(&reserved, 2, "error");
    abandon(1);
    abandon(2);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(fixture.scripted.n_held, 2);
    assert_int_equal(held(0)->kind, OP_RELEASE);
    assert_int_equal(held(1)->kind, OP_SETTLE);
    assert_int_equal(held(1)->reservation->units, 4);
    assert_int_equal(held(1)->reservation->actual, 0);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 0);
    assert_int_equal(engine_slots(fixture.engine)->n, 0);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static void a_late_no_gives_nothing_back(void **state)
{
    (void)state;
    struct asked acquired, reserved;
    acquire(&acquired, 1, "slots");
    reserve(&reserved, 2, "error");
    abandon(1);
    abandon(2);
    fixture.scripted.decision = (struct decision){.limit = 10, .retry_after_ms = 5};
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_n_live(fixture.engine), 0);
    assert_int_equal(engine_slots(fixture.engine)->n, 0);
}

static void what_was_answered_is_given_back(void **state)
{
    (void)state;
    struct asked acquired, reserved;
    acquire(&acquired, 1, "slots");
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_true(acquired.decision.allowed);
    abandon(1);
    assert_int_equal(slots_counters.slots, 0);
    assert_int_equal(only_op(OP_RELEASE)->client, CLIENT); /* in the order of its connection's calls */
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_slots(fixture.engine)->n, 0);

    reserve(&reserved, 2, "error");
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_true(reserved.decision.allowed);
    abandon(2);
    const struct op *op = only_op(OP_SETTLE);
    assert_int_equal(op->client, CLIENT);
    assert_int_equal(op->reservation->id, reserved.reservation.id);
    assert_int_equal(op->reservation->units, 4);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 0);
    assert_int_equal(engine_counters.reservations_settled, 1);
    assert_int_equal(engine_counters.abandoned, 2);
}

static void abandoned_twice_is_once(void **state)
{
    (void)state;
    struct asked acquired, reserved;
    fixture.scripted.mode = SCRIPTED_DECIDE;
    acquire(&acquired, 1, "slots");
    reserve(&reserved, 2, "error");
    for (int i = 0; i < 2; i++) {
        abandon(1);
        abandon(2);
    }
    assert_int_equal(engine_counters.abandoned, 2);
    assert_int_equal(fixture.scripted.n_submitted, 4);
}

static void what_is_not_this_connections_call_stays(void **state)
{
    (void)state;
    struct asked acquired, reserved, checked = {0};
    fixture.scripted.mode = SCRIPTED_DECIDE;
    acquire(&acquired, 1, "slots");
    reserve(&reserved, 2, "error");
    fixture_ask(&fixture, &checked, OP_CHECK, "error", "alice", 1);
    engine_abandon(fixture.engine, OTHER_CLIENT, 1);
    engine_abandon(fixture.engine, OTHER_CLIENT, 2);
    abandon(0); /* a check has no msgid here */
    abandon(3);
    assert_int_equal(engine_counters.abandoned, 0);
    assert_int_equal(slots_counters.slots, 1);
    assert_int_equal(engine_counters.reservations, 1);
}

static void of_two_calls_with_one_msgid_the_later_is_meant(void **state)
{
    (void)state;
    struct asked first, second;
    fixture.scripted.mode = SCRIPTED_DECIDE;
    reserve(&first, 1, "error");
    reserve(&second, 1, "error");
    fixture.scripted.mode = SCRIPTED_HOLD;
    abandon(1);
    assert_int_equal(only_op(OP_SETTLE)->reservation->id, second.reservation.id);
    abandon(1);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 1);
}

static void what_was_given_back_before_is_not_abandoned(void **state)
{
    (void)state;
    struct asked acquired, reserved, settled, denied;
    fixture.scripted.mode = SCRIPTED_DECIDE;
    struct slot *slot = acquire(&acquired, 1, "slots");
    slot_leave(slot);
    reserve(&reserved, 2, "error");
    settled = (struct asked){.reservation = reserved.reservation};
    fixture_ask(&fixture, &settled, OP_SETTLE, "error", "alice", 0);
    fixture.scripted.decision = (struct decision){.limit = 10, .retry_after_ms = 5};
    reserve(&denied, 3, "error");
    size_t n_before = fixture.scripted.n_submitted;
    for (uint64_t msgid = 1; msgid <= 3; msgid++) abandon(msgid);
    assert_int_equal(engine_counters.abandoned, 0);
    assert_int_equal(fixture.scripted.n_submitted, n_before);
}

static void with_a_request_id_it_is_given_back_too(void **state)
{
    (void)state;
    struct asked late, failed;
    reserve_with(&late, 1, "error", "id-1");
    abandon(1);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations_settled, 1);

    /* after a failure answer, before the store's own */
    reserve_with(&failed, 2, "allow", "id-2");
    fixture_advance_ms(&fixture, 20);
    assert_int_equal(failed.decision.source, SOURCE_ALLOW);
    abandon(2);
    assert_int_equal(only_op(OP_RESERVE)->client, CLIENT);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    only_op(OP_SETTLE);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 0);
}

static void a_failure_answers_slot_is_left(void **state)
{
    (void)state;
    struct asked allowed, local, again;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    acquire(&allowed, 1, "slots-allow");
    acquire(&local, 2, "slots-local");
    assert_int_equal(local.decision.remaining, 2);
    abandon(1);
    abandon(2);
    assert_int_equal(slots_counters.slots, 0);
    acquire(&again, 3, "slots-local");
    assert_int_equal(again.decision.remaining, 2);
}

static void what_is_reserved_locally_comes_back_there(void **state)
{
    (void)state;
    struct asked first, second;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    reserve(&first, 1, "local");
    assert_true(first.decision.source == SOURCE_LOCAL && first.reservation.held);
    abandon(1);
    reserve(&second, 2, "local");
    assert_int_equal(second.decision.remaining, 6);
    fixture_advance_ms(&fixture, TTL_MS + 1); /* ends by itself, without a sweep */
    abandon(2);
    assert_int_equal(engine_counters.abandoned, 1);
}

static void what_both_the_store_and_the_failure_table_have_comes_back_in_both(void **state)
{
    (void)state;
    struct asked asked, again;
    reserve_with(&asked, 1, "local", "id");
    fixture_advance_ms(&fixture, 20);
    assert_int_equal(asked.decision.source, SOURCE_LOCAL);
    scripted_end(&fixture.scripted, 0, OP_DECIDED); /* kept: its owner may ask again */
    assert_int_equal(engine_counters.reservations, 1);
    abandon(1);
    only_op(OP_SETTLE);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 0);
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    reserve(&again, 2, "local");
    assert_int_equal(again.decision.remaining, 6);
}

static void the_failure_tables_reservation_may_end_before_the_store_answers(void **state)
{
    (void)state;
    struct asked asked = {0};
    reserve_with(&asked, 1, "local", "id");
    fixture_advance_ms(&fixture, 20);
    assert_int_equal(asked.decision.source, SOURCE_LOCAL);
    fixture_advance_ms(&fixture, TTL_MS + 1);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 1);
    abandon(1);
    only_op(OP_SETTLE);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 0);
}

static void while_the_store_is_away_it_is_tried_again(void **state)
{
    (void)state;
    struct asked acquired, reserved;
    fixture.scripted.mode = SCRIPTED_DECIDE;
    acquire(&acquired, 1, "slots");
    reserve(&reserved, 2, "error");
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    abandon(1);
    abandon(2);
    assert_int_equal(slots_counters.slots, 0); /* the owner has it no more */
    fixture_advance_ms(&fixture, RETRY_MS);
    fixture.scripted.mode = SCRIPTED_HOLD;
    fixture_advance_ms(&fixture, RETRY_MS);
    assert_int_equal(fixture.scripted.n_held, 2);
    assert_int_equal(held(0)->kind, OP_SETTLE);
    assert_int_equal(held(1)->kind, OP_RELEASE);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 0);
    assert_int_equal(engine_next_deadline(fixture.engine), INT64_MAX);
}

static void a_cancel_without_an_answer_is_tried_again_until_the_end(void **state)
{
    (void)state;
    struct asked reserved;
    fixture.scripted.mode = SCRIPTED_DECIDE;
    reserve(&reserved, 1, "error");
    fixture.scripted.mode = SCRIPTED_HOLD;
    abandon(1);
    fixture_advance_ms(&fixture, 20); /* its deadline */
    scripted_end_all(&fixture.scripted, OP_DOWN);
    fixture_advance_ms(&fixture, RETRY_MS);
    only_op(OP_SETTLE);
    scripted_end_all(&fixture.scripted, OP_DOWN);
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    for (int ms = 0; ms < TTL_MS; ms += RETRY_MS) fixture_advance_ms(&fixture, RETRY_MS);
    fixture.scripted.mode = SCRIPTED_HOLD;
    fixture_advance_ms(&fixture, RETRY_MS);
    only_op(OP_SWEEP); /* it has ended */
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 0);
}

static void what_was_lost_on_the_way_is_swept_at_its_end(void **state)
{
    (void)state;
    struct asked reserved, waiting;
    reserve(&reserved, 1, "allow");
    scripted_end_all(&fixture.scripted, OP_DOWN);
    assert_true(reserved.decision.allowed);
    abandon(1); /* nobody knows whether and when it was made */
    assert_int_equal(fixture.scripted.n_held, 0);
    reserve(&waiting, 2, "allow");
    abandon(2);
    scripted_end_all(&fixture.scripted, OP_DOWN);
    assert_int_equal(fixture.scripted.n_held, 0);
    fixture_advance_ms(&fixture, TTL_MS + 1);
    assert_int_equal(fixture.scripted.n_held, 2);
    for (size_t i = 0; i < 2; i++) assert_int_equal(held(i)->kind, OP_SWEEP);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void a_full_engine_gives_back_later(void **state)
{
    (void)state;
    struct asked acquired, reserved, others[100] = {0};
    fixture.scripted.mode = SCRIPTED_DECIDE;
    acquire(&acquired, 1, "slots");
    reserve(&reserved, 2, "error");
    fixture.scripted.mode = SCRIPTED_HOLD;
    fixture.deadline_ms = 60000;
    for (size_t i = 0; i < 100; i++) fixture_ask(&fixture, &others[i], OP_CHECK, "error", "bob", 1);
    abandon(1);
    abandon(2);
    assert_int_equal(fixture.scripted.n_held, 101); /* a slot needs no check of the engine */
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    fixture_advance_ms(&fixture, RETRY_MS);
    only_op(OP_SETTLE);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_counters.reservations, 0);
}

static void what_its_owner_left_cannot_be_abandoned(void **state)
{
    (void)state;
    struct asked acquired, reserved;
    acquire(&acquired, 1, "slots");
    reserve(&reserved, 2, "error");
    fixture_leave(&acquired);
    fixture_leave(&reserved);
    abandon(1);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_slots(fixture.engine)->n, 0);
    assert_int_equal(engine_counters.reservations, 0);
}

static void a_policy_that_is_gone_gives_nothing_back(void **state)
{
    (void)state;
    struct asked reserved;
    fixture.scripted.mode = SCRIPTED_DECIDE;
    reserve(&reserved, 1, "error");
    fixture.scripted.mode = SCRIPTED_HOLD;
    engine_set_policies(fixture.engine, policies_make(specs, 1));
    abandon(1);
    assert_int_equal(fixture.scripted.n_held, 0);
}

static void a_set_clock_gives_back_too(void **state)
{
    (void)state;
    struct asked reserved;
    fixture.clock.manual = true;
    reserve(&reserved, 1, "error");
    assert_int_equal(remaining("error"), 6);
    abandon(1);
    assert_int_equal(remaining("error"), 10);
    assert_int_equal(engine_next_deadline(fixture.engine), INT64_MAX);
}

static void in_memory_it_is_back_at_once(void **state)
{
    (void)state;
    struct asked acquired, reserved;
    acquire(&acquired, 1, "slots");
    reserve(&reserved, 2, "error");
    assert_int_equal(remaining("slots"), 2);
    assert_int_equal(remaining("error"), 6);
    abandon(1);
    abandon(2);
    assert_int_equal(remaining("slots"), 3);
    assert_int_equal(remaining("error"), 10);
    assert_int_equal(engine_counters.reservations, 0);
}

static void in_memory_a_repeated_call_takes_over_the_reservation(void **state)
{
    (void)state;
    struct asked first, again;
    reserve_with(&first, 1, "error", "id");
    reserve_with(&again, 2, "error", "id");
    assert_int_equal(again.reservation.id, first.reservation.id);
    abandon(1);
    assert_int_equal(remaining("error"), 6);
    abandon(2);
    assert_int_equal(remaining("error"), 10);
    assert_int_equal(engine_counters.reservations, 0);
    reserve_with(&again, 3, "error", "id"); /* the same answer, and nothing is charged */
    assert_true(again.decision.allowed);
    assert_int_equal(remaining("error"), 10);
}

static void in_memory_without_memory_nothing_is_charged_twice_or_kept(void **state)
{
    (void)state;
    remaining("error"); /* a pool of checks is there */
    for (uint64_t nth = 1; nth < 12; nth++) {
        struct asked reserved;
        reserve(&reserved, nth, "error");
        assert_true(reserved.decision.allowed);
        mem_fail_nth(nth);
        abandon(nth);
        mem_fail_nth(0);
        fixture_advance_ms(&fixture, RETRY_MS);
        assert_int_equal(remaining("error"), 10);
    }
}

static void closing_leaves_nothing(void **state)
{
    (void)state;
    struct asked asked[4];
    acquire(&asked[0], 1, "slots");
    reserve(&asked[1], 2, "error");
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    acquire(&asked[2], 3, "slots");
    reserve(&asked[3], 4, "error");
    for (uint64_t msgid = 1; msgid <= 4; msgid++) abandon(msgid);
    assert_int_equal(fixture.scripted.n_held, 4);
    fixture_close(&fixture);
    assert_int_equal(engine_counters.reservations, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(a_call_that_waits_ends_at_once_with_an_error, &suite),
        SCRIPTED_TEST(what_was_not_sent_is_withdrawn, &suite),
        SCRIPTED_TEST(a_late_yes_is_given_back, &suite),
        SCRIPTED_TEST(a_late_no_gives_nothing_back, &suite),
        SCRIPTED_TEST(what_was_answered_is_given_back, &suite),
        SCRIPTED_TEST(abandoned_twice_is_once, &suite),
        SCRIPTED_TEST(what_is_not_this_connections_call_stays, &suite),
        SCRIPTED_TEST(of_two_calls_with_one_msgid_the_later_is_meant, &suite),
        SCRIPTED_TEST(what_was_given_back_before_is_not_abandoned, &suite),
        SCRIPTED_TEST(with_a_request_id_it_is_given_back_too, &suite),
        SCRIPTED_TEST(a_failure_answers_slot_is_left, &suite),
        SCRIPTED_TEST(what_is_reserved_locally_comes_back_there, &suite),
        SCRIPTED_TEST(what_both_the_store_and_the_failure_table_have_comes_back_in_both, &suite),
        SCRIPTED_TEST(the_failure_tables_reservation_may_end_before_the_store_answers, &suite),
        SCRIPTED_TEST(while_the_store_is_away_it_is_tried_again, &suite),
        SCRIPTED_TEST(a_cancel_without_an_answer_is_tried_again_until_the_end, &suite),
        SCRIPTED_TEST(what_was_lost_on_the_way_is_swept_at_its_end, &suite),
        SCRIPTED_TEST(a_full_engine_gives_back_later, &suite),
        SCRIPTED_TEST(what_its_owner_left_cannot_be_abandoned, &suite),
        SCRIPTED_TEST(a_policy_that_is_gone_gives_nothing_back, &suite),
        SCRIPTED_TEST(closing_leaves_nothing, &suite),
        MEMORY_TEST(a_set_clock_gives_back_too, &suite),
        MEMORY_TEST(in_memory_it_is_back_at_once, &suite),
        MEMORY_TEST(in_memory_a_repeated_call_takes_over_the_reservation, &suite),
        MEMORY_TEST(in_memory_without_memory_nothing_is_charged_twice_or_kept, &suite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
