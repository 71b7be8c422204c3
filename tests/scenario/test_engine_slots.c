/* test_engine_slots.c: slots from the asking to their end, over a store that answers as the test says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine_counters.h"
#include "engine/slots.h"
#include "fakes/all_counters.h"
#include "fakes/engine_fixture.h"

enum { TTL_MS = 30000, THIRD_MS = TTL_MS / 3 };

static const struct policy_spec specs[] = {
    {.name = "allow",
     .on_failure = ON_FAILURE_ALLOW,
     .limits = {{.algo = ALGO_CONCURRENCY, .limit = 3, .window_us = TTL_MS * 1000}}},
    {.name = "deny",
     .on_failure = ON_FAILURE_DENY,
     .limits = {{.algo = ALGO_CONCURRENCY, .limit = 3, .window_us = TTL_MS * 1000}}},
    {.name = "local",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_CONCURRENCY, .limit = 2, .window_us = TTL_MS * 1000}}},
    {.name = "both",
     .on_failure = ON_FAILURE_DENY,
     .limits = {{.name = "rate", .algo = ALGO_FIXED_WINDOW, .limit = 9, .window_us = 1000000},
                {.name = "slots", .algo = ALGO_CONCURRENCY, .limit = 3, .window_us = TTL_MS * 1000}}},
    {.name = "both_local",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.name = "rate", .algo = ALGO_FIXED_WINDOW, .limit = 9, .window_us = 1000000},
                {.name = "slots", .algo = ALGO_CONCURRENCY, .limit = 3, .window_us = TTL_MS * 1000}}},
    {.name = "none", .limits = {{.algo = ALGO_CONCURRENCY, .limit = 0, .window_us = TTL_MS * 1000}}},
};
enum { N_SPECS = sizeof specs / sizeof specs[0] };

static struct engine_fixture fixture;
static struct slot_owner alice, bob;

/* What was asked, and which slot it is about. */
struct want {
    struct asked asked;
    struct slot *slot;
};

static int set_up(void **state)
{
    (void)state;
    all_counters_reset();
    fixture_open(&fixture, specs, N_SPECS, &fixture_options);
    slot_owner_init(&alice);
    slot_owner_init(&bob);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    slots_end(&alice);
    slots_end(&bob);
    fixture_close(&fixture);
    assert_int_equal(slots_counters.slots, 0);
    assert_int_equal(slots_counters.slots_acquired,
                     slots_counters.slots_released + slots_counters.slots_ended_by_close +
                         slots_counters.slots_settled + slots_counters.slots_lost + slots_counters.slots_taken_back);
    return 0;
}

static bool acquire(struct want *want, struct slot_owner *owner, const char *policy)
{
    *want = (struct want){.asked = {.check = fixture_check_new(&fixture, "k")}};
    if (!fixture_seal(&fixture, want->asked.check, OP_ACQUIRE, policy, 1) ||
        engine_acquires(fixture.engine, want->asked.check, owner) != 0) {
        fixture_leave(&want->asked);
        return false;
    }
    want->slot = want->asked.check->slot;
    fixture_submit(&fixture, &want->asked, OP_ACQUIRE, policy, 1);
    return true;
}

/* Units and a slot. */
static void reserve(struct want *want, struct slot_owner *owner, const char *policy, int64_t ttl_ms)
{
    *want = (struct want){.asked = {.check = fixture_check_new(&fixture, "k"), .reservation = {.ttl_ms = ttl_ms}}};
    assert_true(fixture_seal(&fixture, want->asked.check, OP_RESERVE, policy, 4));
    assert_int_equal(engine_acquires(fixture.engine, want->asked.check, owner), 0);
    want->slot = want->asked.check->slot;
    fixture_submit(&fixture, &want->asked, OP_RESERVE, policy, 4);
}

static void settle(struct asked *asked, const struct want *reserved, const char *policy)
{
    *asked = (struct asked){.reservation = reserved->asked.reservation};
    if (reserved->asked.decision.source == SOURCE_LOCAL) asked->local_reason = reserved->asked.decision.reason;
    assert_true(fixture_ask(&fixture, asked, OP_SETTLE, policy, "k", 0));
}

/* Taken in the store, and held. */
static struct slot *take(struct slot_owner *owner, const char *policy)
{
    struct want want;
    enum scripted_mode mode = fixture.scripted.mode;
    fixture.scripted.mode = SCRIPTED_DECIDE;
    assert_true(acquire(&want, owner, policy));
    fixture.scripted.mode = mode;
    assert_true(want.asked.decision.allowed);
    return want.slot;
}

static void release(struct asked *asked, struct slot *slot)
{
    *asked = (struct asked){.check = fixture_check_new(&fixture, "")};
    engine_releases(asked->check, slot);
    const struct policy *policy = asked->check->plan->policy;
    fixture_submit(&fixture, asked, OP_RELEASE, policy->name, 0);
}

static struct slots *slots(void)
{
    return engine_slots(fixture.engine);
}

static void a_slot_is_held_once_its_owner_has_the_answer(void **state)
{
    (void)state;
    struct want want;
    assert_true(acquire(&want, &alice, "both"));
    const struct op *op = scripted_held(&fixture.scripted, 0);
    assert_int_equal(op->kind, OP_ACQUIRE);
    assert_int_equal(op->n_members, 2);
    assert_int_equal(op->members[0].cost, 1);
    assert_ptr_equal(op->slot, want.slot->id);
    assert_null(slots_find(slots(), &alice, (struct slice){(const uint8_t *)want.slot->id, SLOT_ID_LEN}));
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_true(want.asked.decision.allowed);
    struct slice id = {(const uint8_t *)want.slot->id, SLOT_ID_LEN};
    assert_ptr_equal(slots_find(slots(), &alice, id), want.slot);
    assert_null(slots_find(slots(), &bob, id));
    assert_int_equal(slots_counters.slots, 1);
    assert_int_equal(engine_counters.checks, 1);
    assert_int_equal(engine_counters.allowed, 1);
}

static void a_denied_one_leaves_nothing(void **state)
{
    (void)state;
    struct want want;
    fixture.scripted.mode = SCRIPTED_DECIDE;
    fixture.scripted.decision = (struct decision){.limit = 3, .retry_after_ms = 5};
    assert_true(acquire(&want, &alice, "deny"));
    assert_false(want.asked.decision.allowed);
    assert_true(acquire(&want, &alice, "none"));
    assert_false(want.asked.decision.allowed);
    assert_int_equal(slots()->n, 0);
    assert_int_equal(alice.n, 0);
    assert_int_equal(fixture.scripted.n_submitted, 1);
}

static void a_release_reaches_the_store_and_then_is_true(void **state)
{
    (void)state;
    struct slot *slot = take(&alice, "both");
    struct asked asked;
    release(&asked, slot);
    assert_int_equal(asked.n_done, 0);
    assert_int_equal(scripted_held(&fixture.scripted, 0)->kind, OP_RELEASE);
    assert_int_equal(scripted_held(&fixture.scripted, 0)->n_members, 1);
    assert_int_equal(slots_counters.slots, 0);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_true(asked.removed);
    assert_int_equal(slots()->n, 0);
    slot = take(&alice, "deny");
    fixture.scripted.mode = SCRIPTED_DECIDE;
    fixture.scripted.found = false; /* somebody has reset the key */
    release(&asked, slot);
    assert_false(asked.removed);
    assert_int_equal(slots_counters.slots_released, 2);
}

static void an_owner_that_ends_gives_all_back(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) take(&alice, "deny");
    struct slot *other = take(&bob, "deny");
    slots_end(&alice);
    assert_int_equal(fixture.scripted.n_held, 3);
    for (size_t i = 0; i < 3; i++) assert_int_equal(scripted_held(&fixture.scripted, i)->kind, OP_RELEASE);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(slots()->n, 1);
    assert_ptr_equal(slots_find(slots(), &bob, (struct slice){(const uint8_t *)other->id, SLOT_ID_LEN}), other);
    assert_int_equal(slots_counters.slots_ended_by_close, 3);
}

static void leases_are_renewed_before_a_third_of_their_time(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) take(&alice, "deny");
    size_t n_before = fixture.scripted.n_submitted, n_first = 0;
    fixture.scripted.mode = SCRIPTED_DECIDE;
    for (int ms = 0; ms < THIRD_MS; ms += 100) {
        fixture_advance_ms(&fixture, 100);
        if (n_first == 0) n_first = fixture.scripted.n_submitted - n_before;
        assert_true(engine_next_deadline(fixture.engine) > fixture.clock.mono_us);
    }
    assert_int_equal(fixture.scripted.n_submitted - n_before, 20);
    assert_true(n_first < 20); /* spread */
    for (int i = 0; i < 100; i++) fixture_advance_ms(&fixture, THIRD_MS);
    assert_int_equal(fixture.scripted.n_submitted - n_before, 20 + 2000);
    assert_int_equal(slots_counters.slots, 20);
    assert_int_equal(slots_counters.slots_lost, 0);
}

static void a_lease_that_is_gone_is_lost_and_not_taken_again(void **state)
{
    (void)state;
    struct slot *slot = take(&alice, "deny");
    struct slice id = {(const uint8_t *)slot->id, SLOT_ID_LEN};
    fixture.scripted.mode = SCRIPTED_DECIDE;
    fixture.scripted.found = false;
    assert_non_null(slots_find(slots(), &alice, id));
    fixture_advance_ms(&fixture, THIRD_MS);
    assert_int_equal(slots_counters.slots_lost, 1);
    assert_int_equal(slots()->n, 0);
    assert_int_equal(alice.n, 0);
    assert_int_equal(engine_next_deadline(fixture.engine), INT64_MAX);
}

static void what_waits_for_the_store_follows_when_it_is_back(void **state)
{
    (void)state;
    take(&alice, "deny");
    take(&alice, "deny");
    take(&bob, "deny");
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    slots_end(&bob);
    size_t n_before = fixture.scripted.n_submitted;
    fixture_advance_ms(&fixture, 10000);
    assert_true(fixture.scripted.n_submitted - n_before <= 2); /* one look, not one for each */
    assert_int_equal(slots()->n, 3);
    fixture.scripted.mode = SCRIPTED_HOLD;
    fixture_advance_ms(&fixture, 100);
    assert_int_equal(fixture.scripted.n_held, 3);
    unsigned n_released = 0, n_renewed = 0;
    for (size_t i = 0; i < 3; i++) {
        n_released += scripted_held(&fixture.scripted, i)->kind == OP_RELEASE;
        n_renewed += scripted_held(&fixture.scripted, i)->kind == OP_RENEW;
    }
    assert_int_equal(n_released, 1);
    assert_int_equal(n_renewed, 2);
    scripted_end_all(&fixture.scripted, OP_DOWN);
    fixture_advance_ms(&fixture, 100);
    assert_int_equal(fixture.scripted.n_held, 3); /* lost on the way: asked once more */
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(slots()->n, 2);
}

static void what_was_left_is_given_up_when_its_lease_must_have_ended(void **state)
{
    (void)state;
    take(&alice, "deny");
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    slots_end(&alice);
    for (int i = 0; i < 31; i++) fixture_advance_ms(&fixture, 1000);
    assert_int_equal(slots()->n, 0);
    assert_int_equal(engine_next_deadline(fixture.engine), INT64_MAX);
}

static void an_error_of_the_store_is_no_loss(void **state)
{
    (void)state;
    take(&alice, "deny");
    fixture_advance_ms(&fixture, THIRD_MS);
    scripted_end(&fixture.scripted, 0, OP_STORE_ERROR);
    assert_int_equal(slots_counters.slots, 1);
    assert_int_equal(fixture.scripted.n_held, 0);
    fixture_advance_ms(&fixture, THIRD_MS);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(slots_counters.slots, 1);
}

static void a_late_yes_is_kept_if_the_owner_was_answered_yes(void **state)
{
    (void)state;
    struct want want;
    struct asked asked;
    assert_true(acquire(&want, &alice, "allow"));
    fixture_advance_ms(&fixture, 20);
    assert_int_equal(want.asked.decision.source, SOURCE_ALLOW);
    assert_int_equal(slots_counters.slots, 1);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    fixture.scripted.mode = SCRIPTED_DECIDE;
    size_t n_before = fixture.scripted.n_submitted;
    release(&asked, want.slot);
    assert_true(asked.removed);
    assert_int_equal(fixture.scripted.n_submitted - n_before, 1);
    assert_int_equal(slots()->n, 0);
}

static void a_late_yes_that_nobody_holds_is_given_back(void **state)
{
    (void)state;
    struct want denied, left, released;
    struct asked asked;
    assert_true(acquire(&denied, &alice, "deny"));
    assert_true(acquire(&left, &bob, "allow"));
    assert_true(acquire(&released, &alice, "allow"));
    fixture_leave(&left.asked);
    fixture_advance_ms(&fixture, 20);
    assert_false(denied.asked.decision.allowed);
    assert_true(released.asked.decision.allowed);
    release(&asked, released.slot);
    assert_true(asked.removed); /* nothing to ask the store for yet */
    assert_int_equal(fixture.scripted.n_held, 3);
    for (int i = 0; i < 3; i++) scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(fixture.scripted.n_held, 3);
    for (size_t i = 0; i < 3; i++) assert_int_equal(scripted_held(&fixture.scripted, i)->kind, OP_RELEASE);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(slots()->n, 0);
    assert_int_equal(alice.n + bob.n, 0);
}

static void a_late_no_takes_nothing(void **state)
{
    (void)state;
    struct want allowed, denied;
    assert_true(acquire(&allowed, &alice, "allow"));
    assert_true(acquire(&denied, &alice, "deny"));
    fixture_advance_ms(&fixture, 20);
    fixture.scripted.decision = (struct decision){.limit = 3, .retry_after_ms = 5};
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(slots()->n, 1); /* the one that was allowed without the store */
    slots_end(&alice);
    assert_int_equal(fixture.scripted.n_held, 0);
    assert_int_equal(slots()->n, 0);
}

static void what_the_store_may_have_is_given_back_when_the_connection_was_lost(void **state)
{
    (void)state;
    struct want denied, left, allowed;
    struct asked asked;
    assert_true(acquire(&denied, &alice, "deny"));
    assert_true(acquire(&left, &bob, "deny"));
    assert_true(acquire(&allowed, &alice, "allow"));
    fixture_leave(&left.asked);
    for (int i = 0; i < 3; i++) scripted_end(&fixture.scripted, 0, OP_DOWN);
    assert_false(denied.asked.decision.allowed);
    assert_true(allowed.asked.decision.allowed);
    assert_int_equal(fixture.scripted.n_held, 2); /* of whom nobody has them */
    for (size_t i = 0; i < 2; i++) assert_int_equal(scripted_held(&fixture.scripted, i)->kind, OP_RELEASE);
    fixture_advance_ms(&fixture, TTL_MS / 3 + 1);
    assert_int_equal(fixture.scripted.n_held, 2); /* the other is not renewed behind the store's back */
    release(&asked, allowed.slot);
    assert_true(asked.removed);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(slots()->n, 0);
}

static void what_the_store_may_have_is_given_up_when_its_lease_must_have_ended(void **state)
{
    (void)state;
    struct want want;
    assert_true(acquire(&want, &alice, "deny"));
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    scripted_end(&fixture.scripted, 0, OP_DOWN);
    assert_int_equal(slots()->n, 1);
    fixture_advance_ms(&fixture, TTL_MS);
    assert_int_equal(slots()->n, 0);
}

static void a_release_is_answered_by_its_deadline_and_followed_up(void **state)
{
    (void)state;
    struct slot *slot = take(&alice, "deny");
    struct asked asked;
    release(&asked, slot);
    fixture_advance_ms(&fixture, 20);
    assert_int_equal(asked.n_done, 1);
    assert_true(asked.removed);
    assert_int_equal(asked.error, ERROR_NONE);
    scripted_end(&fixture.scripted, 0, OP_DOWN);
    assert_int_equal(slots()->n, 1);
    fixture_advance_ms(&fixture, 1000);
    assert_int_equal(scripted_held(&fixture.scripted, 0)->kind, OP_RELEASE);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(slots()->n, 0);
}

static void a_release_meets_a_renewal_on_its_way(void **state)
{
    (void)state;
    struct slot *slot = take(&alice, "deny");
    struct asked asked;
    fixture_advance_ms(&fixture, THIRD_MS);
    assert_int_equal(scripted_held(&fixture.scripted, 0)->kind, OP_RENEW);
    release(&asked, slot);
    assert_int_equal(scripted_held(&fixture.scripted, 1)->kind, OP_RELEASE);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(asked.n_done, 0);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_true(asked.removed);
    assert_int_equal(slots()->n, 0);
    take(&alice, "deny");
    fixture_advance_ms(&fixture, THIRD_MS);
    slots_end(&alice); /* while the renewal is on its way */
    assert_int_equal(fixture.scripted.n_held, 1);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(scripted_held(&fixture.scripted, 0)->kind, OP_RELEASE);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(slots()->n, 0);
}

static void local_slots_count_in_the_failure_table_and_are_renewed_there(void **state)
{
    (void)state;
    struct want first, second, third;
    struct asked asked;
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    assert_true(acquire(&first, &alice, "local"));
    assert_true(acquire(&second, &bob, "local"));
    assert_int_equal(second.asked.decision.remaining, 0);
    for (int i = 0; i < 20; i++) fixture_advance_ms(&fixture, THIRD_MS / 2);
    assert_true(acquire(&third, &bob, "local"));
    assert_false(third.asked.decision.allowed);
    release(&asked, first.slot);
    assert_true(asked.removed);
    assert_true(acquire(&third, &bob, "local"));
    assert_true(third.asked.decision.allowed);
    slots_end(&bob);
    assert_true(acquire(&third, &alice, "local"));
    assert_int_equal(third.asked.decision.remaining, 1);
}

static void slots_are_bounded_and_refused_before_anything_is_asked(void **state)
{
    (void)state;
    struct want want;
    fixture.scripted.mode = SCRIPTED_DECIDE;
    for (int i = 0; i < 50; i++) assert_true(acquire(&want, &alice, "deny"));
    size_t n_before = fixture.scripted.n_submitted;
    assert_false(acquire(&want, &alice, "deny"));
    assert_int_equal(fixture.scripted.n_submitted, n_before);
    assert_int_equal(engine_counters.overloaded, 1);
    for (int i = 0; i < 50; i++) assert_true(acquire(&want, &bob, "deny"));
    slots_end(&alice);
    assert_true(acquire(&want, &alice, "deny"));
}

static void a_lack_of_memory_refuses_and_warm_slots_need_none(void **state)
{
    (void)state;
    struct want want;
    fixture.scripted.mode = SCRIPTED_DECIDE;
    for (int i = 0; i < 3; i++) {
        struct check *check = fixture_check_new(&fixture, "k");
        assert_true(fixture_seal(&fixture, check, OP_ACQUIRE, "deny", 1));
        mem_fail_nth(1);
        assert_int_equal(engine_acquires(fixture.engine, check, &alice), -1);
        mem_fail_nth(0);
        check_release(check);
    }
    for (int i = 0; i < 20; i++) assert_true(acquire(&want, &alice, "deny"));
    slots_end(&alice);
    uint64_t n_before = mem_n_allocs();
    for (int i = 0; i < 20; i++) assert_true(acquire(&want, &alice, "deny"));
    for (int i = 0; i < 20; i++) fixture_advance_ms(&fixture, THIRD_MS);
    slots_end(&alice);
    assert_int_equal(mem_n_allocs(), n_before);
}

static void a_reload_reaches_leases_that_exist(void **state)
{
    (void)state;
    static const struct policy_spec longer[] = {
        {.name = "deny", .limits = {{.algo = ALGO_CONCURRENCY, .limit = 1, .window_us = 10 * TTL_MS * 1000}}}};
    struct slot *slot = take(&alice, "deny"), *gone = take(&alice, "allow");
    engine_set_policies(fixture.engine, policies_make(longer, 1));
    fixture_advance_ms(&fixture, 1);
    assert_int_equal(fixture.scripted.n_held, 2);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(slot->members[0].limit->window_us, 10 * TTL_MS * 1000);
    assert_int_equal(gone->members[0].limit->window_us, TTL_MS * 1000);
    fixture_advance_ms(&fixture, THIRD_MS);
    assert_int_equal(fixture.scripted.n_held, 1);
    assert_ptr_equal(scripted_held(&fixture.scripted, 0)->slot, gone->id);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void a_stop_waits_for_what_can_be_given_back(void **state)
{
    (void)state;
    take(&alice, "deny");
    take(&alice, "deny");
    slots_end(&alice);
    slots_stop(slots());
    assert_int_equal(slots()->n, 2);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(slots()->n, 1);
    assert_int_equal(slots()->n_given_up, 0);
    scripted_end(&fixture.scripted, 0, OP_DOWN);
    assert_int_equal(slots()->n, 0);
    assert_int_equal(slots()->n_given_up, 1);
}

static void a_stop_does_not_wait_for_the_next_try_of_a_slot_whose_key_has_another_type(void **state)
{
    (void)state;
    take(&alice, "deny");
    slots_end(&alice);
    scripted_end(&fixture.scripted, 0, OP_STORE_ERROR);
    assert_int_equal(slots()->n, 1); /* for another try */
    assert_int_equal(fixture.scripted.n_held, 0);

    slots_stop(slots());
    fixture_advance_ms(&fixture, 0);
    assert_int_equal(fixture.scripted.n_held, 1);
    scripted_end(&fixture.scripted, 0, OP_STORE_ERROR);
    assert_int_equal(slots()->n, 0);
    assert_int_equal(slots()->n_given_up, 1);
}

static void a_stop_does_not_wait_for_a_store_that_is_away(void **state)
{
    (void)state;
    take(&alice, "deny");
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    slots_stop(slots());
    slots_end(&alice);
    assert_int_equal(slots()->n, 0);
    assert_int_equal(slots()->n_given_up, 1);
}

static void a_stop_gives_up_all_that_waits_for_the_store_together(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) take(&alice, "deny");
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    slots_end(&alice);
    assert_int_equal(slots()->n, 40);
    slots_stop(slots());
    fixture_advance_ms(&fixture, 100);
    assert_int_equal(slots()->n, 0);
}

static void closing_ends_what_is_on_its_way(void **state)
{
    (void)state;
    take(&alice, "deny");
    take(&bob, "deny");
    slots_end(&alice);
    fixture.scripted.mode = SCRIPTED_REFUSE_DOWN;
    slots_end(&bob); /* waits for the store */
    assert_int_equal(slots()->n, 2);
}

static void a_reserved_slot_goes_by_its_reservation_and_ends_with_its_settlement(void **state)
{
    (void)state;
    struct want want;
    struct asked asked;
    char id[SLOT_ID_LEN];
    reserve(&want, &alice, "both", 60000);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_true(want.asked.reservation.held);
    assert_int_equal(slots_counters.slots, 1);

    reservation_slot(want.asked.reservation.id, id);
    assert_memory_equal(want.slot->id, id, SLOT_ID_LEN);
    assert_null(slots_find(slots(), &alice, (struct slice){(const uint8_t *)id, SLOT_ID_LEN})); /* release knows none */

    settle(&asked, &want, "both");
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(slots_counters.slots_settled, 1);
    assert_int_equal(fixture.scripted.n_held, 0); /* the settlement has given it back */
    assert_int_equal(slots()->n, 0);
}

static void a_reserved_slot_is_renewed_until_its_reservation_ends(void **state)
{
    (void)state;
    struct want want;
    reserve(&want, &alice, "both", TTL_MS);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    fixture.scripted.mode = SCRIPTED_DECIDE;
    fixture_advance_ms(&fixture, THIRD_MS);
    fixture_advance_ms(&fixture, THIRD_MS);
    assert_int_equal(slots_counters.slots, 1);
    fixture_advance_ms(&fixture, THIRD_MS + 1);
    assert_int_equal(slots_counters.slots, 0);
    assert_int_equal(slots_counters.slots_settled, 1);
    assert_int_equal(slots()->n, 0);
}

static void a_reserved_slot_that_another_daemon_settled_is_not_lost(void **state)
{
    (void)state;
    struct want want;
    reserve(&want, &alice, "both", 60000);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    fixture.scripted.mode = SCRIPTED_DECIDE;
    fixture.scripted.found = false;
    fixture_advance_ms(&fixture, THIRD_MS);
    assert_int_equal(slots_counters.slots_lost, 0);
    assert_int_equal(slots_counters.slots_settled, 1);
    assert_int_equal(slots()->n, 0);
}

static void a_late_yes_to_a_reserve_that_was_answered_locally_is_cancelled_with_its_slot(void **state)
{
    (void)state;
    struct want want;
    struct asked asked;
    reserve(&want, &alice, "both_local", 60000);
    fixture_advance_ms(&fixture, 20);
    assert_true(want.asked.decision.source == SOURCE_LOCAL && want.asked.reservation.held);
    assert_int_equal(slots_counters.slots, 1);
    scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(fixture.scripted.n_held, 1);
    assert_int_equal(scripted_held(&fixture.scripted, 0)->kind, OP_SETTLE);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(slots_counters.slots, 1); /* in the failure table */

    settle(&asked, &want, "both_local");
    assert_int_equal(slots_counters.slots_settled, 1);
    assert_int_equal(slots()->n, 0);
}

static void a_reserved_slot_without_an_owner_is_given_back(void **state)
{
    (void)state;
    struct want denied, left;
    reserve(&denied, &alice, "both", 60000);
    reserve(&left, &bob, "both", 60000);
    fixture_leave(&left.asked);
    fixture_advance_ms(&fixture, 20);
    assert_false(denied.asked.decision.allowed);
    for (int i = 0; i < 2; i++) scripted_end(&fixture.scripted, 0, OP_DECIDED);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(slots()->n, 0);
    assert_int_equal(alice.n + bob.n, 0);
}

static void ids_do_not_repeat(void **state)
{
    (void)state;
    char seen[40][SLOT_ID_LEN];
    for (size_t i = 0; i < 40; i++) {
        memcpy(seen[i], take(&alice, "deny")->id, SLOT_ID_LEN);
        for (size_t j = 0; j < i; j++) assert_memory_not_equal(seen[i], seen[j], SLOT_ID_LEN);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_slot_is_held_once_its_owner_has_the_answer),
        TEST(a_denied_one_leaves_nothing),
        TEST(a_release_reaches_the_store_and_then_is_true),
        TEST(an_owner_that_ends_gives_all_back),
        TEST(leases_are_renewed_before_a_third_of_their_time),
        TEST(a_lease_that_is_gone_is_lost_and_not_taken_again),
        TEST(what_waits_for_the_store_follows_when_it_is_back),
        TEST(what_was_left_is_given_up_when_its_lease_must_have_ended),
        TEST(an_error_of_the_store_is_no_loss),
        TEST(a_late_yes_is_kept_if_the_owner_was_answered_yes),
        TEST(a_late_yes_that_nobody_holds_is_given_back),
        TEST(a_late_no_takes_nothing),
        TEST(what_the_store_may_have_is_given_back_when_the_connection_was_lost),
        TEST(what_the_store_may_have_is_given_up_when_its_lease_must_have_ended),
        TEST(a_release_is_answered_by_its_deadline_and_followed_up),
        TEST(a_release_meets_a_renewal_on_its_way),
        TEST(local_slots_count_in_the_failure_table_and_are_renewed_there),
        TEST(slots_are_bounded_and_refused_before_anything_is_asked),
        TEST(a_lack_of_memory_refuses_and_warm_slots_need_none),
        TEST(a_reload_reaches_leases_that_exist),
        TEST(a_stop_waits_for_what_can_be_given_back),
        TEST(a_stop_does_not_wait_for_the_next_try_of_a_slot_whose_key_has_another_type),
        TEST(a_stop_does_not_wait_for_a_store_that_is_away),
        TEST(a_stop_gives_up_all_that_waits_for_the_store_together),
        TEST(closing_ends_what_is_on_its_way),
        TEST(a_reserved_slot_goes_by_its_reservation_and_ends_with_its_settlement),
        TEST(a_reserved_slot_is_renewed_until_its_reservation_ends),
        TEST(a_reserved_slot_that_another_daemon_settled_is_not_lost),
        TEST(a_late_yes_to_a_reserve_that_was_answered_locally_is_cancelled_with_its_slot),
        TEST(a_reserved_slot_without_an_owner_is_given_back),
        TEST(ids_do_not_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
