/* test_engine_leftovers.c: what one client has left behind in the store counts against no other client. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/engine_counters.h"
#include "engine/fair_cap.h"
#include "engine/slots.h"
#include "fakes/engine_suite.h"

#define SECOND_US INT64_C(1000000)
#define WINDOW                                                                                                         \
    {                                                                                                                  \
        .name = "w", .algo = ALGO_FIXED_WINDOW, .limit = 1000, .window_us = 3600 * SECOND_US                           \
    }

enum { FLOODER = 7, POLITE = 8, MAX = 100, DEADLINE_MS = 20, TTL_MS = 60000 };

static const struct policy_spec specs[] = {
    {.name = "allow", .deadline_ms = DEADLINE_MS, .on_failure = ON_FAILURE_ALLOW, .limits = {WINDOW}},
    {.name = "tried", .deadline_ms = DEADLINE_MS, .limits = {WINDOW}, .candidate = {WINDOW}},
    {.name = "slots", .limits = {{.algo = ALGO_CONCURRENCY, .limit = 1000, .window_us = 30 * SECOND_US}}},
};

static struct engine_fixture fixture;
static struct slot_owner flooder, polite;

static void begin(void)
{
    slot_owner_init(&flooder);
    slot_owner_init(&polite);
}

static void end(void)
{
    slots_end(&flooder);
    slots_end(&polite);
}

static const struct engine_suite suite = {
    .fixture = &fixture, .specs = specs, .n_specs = sizeof specs / sizeof specs[0], .begin = begin, .end = end};

static void ask(struct asked *asked, uint64_t client, enum op_kind kind, const char *policy)
{
    *asked = (struct asked){.reservation = {.ttl_ms = TTL_MS}};
    fixture.client = client;
    assert_true(fixture_ask(&fixture, asked, kind, policy, "k", 1));
}

/* The store has one op more; false: the check was answered `overload` at once. */
static bool is_asked(uint64_t client)
{
    struct asked asked;
    size_t n_held = fixture.scripted.n_held;
    uint64_t n_overload = engine_counters.failure_overload;
    ask(&asked, client, OP_CHECK, "allow");
    if (asked.n_done == 0) fixture_leave(&asked);
    assert_int_equal(fixture.scripted.n_held - n_held + engine_counters.failure_overload - n_overload, 1);
    return fixture.scripted.n_held > n_held;
}

/* 4096 checks that their connection had left were `overload` for every other connection. */
static void checks_that_a_client_left_refuse_it_alone(void **state)
{
    (void)state;
    struct asked asked;
    for (int i = 0; i < MAX; i++) {
        ask(&asked, FLOODER, OP_CHECK, "allow");
        fixture_leave(&asked);
    }
    assert_false(is_asked(FLOODER));
    for (int i = 0; i < MAX / 2; i++) assert_true(is_asked(POLITE));
    assert_false(is_asked(POLITE)); /* by now it has left its share, too */
    assert_true(is_asked(POLITE + 1));
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_true(is_asked(FLOODER));
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void checks_that_were_answered_too_late_refuse_their_client_alone(void **state)
{
    (void)state;
    static struct asked asked[MAX];
    for (int i = 0; i < MAX; i++) ask(&asked[i], FLOODER, OP_CHECK, "allow");
    fixture_advance_ms(&fixture, DEADLINE_MS);
    assert_int_equal(engine_counters.failure_deadline, MAX);
    assert_false(is_asked(FLOODER));
    assert_true(is_asked(POLITE));
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void candidates_that_the_store_keeps_skip_no_other_clients(void **state)
{
    (void)state;
    static struct asked asked[MAX];
    for (int i = 0; i < MAX; i++) ask(&asked[i], FLOODER, OP_CHECK, "tried");
    for (int i = 0; i < MAX; i++) scripted_end(&fixture.scripted, (size_t)i, OP_DECIDED); /* not the candidates */
    assert_int_equal(fixture.scripted.n_held, MAX);

    struct asked more, of_polite;
    ask(&more, FLOODER, OP_CHECK, "tried");
    assert_int_equal(engine_counters.candidate_skipped, 1);
    ask(&of_polite, POLITE, OP_CHECK, "tried");
    assert_int_equal(engine_counters.candidate_skipped, 1);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void cancels_on_their_way_take_no_other_clients_place(void **state)
{
    (void)state;
    static struct asked asked[MAX];
    for (int i = 0; i < MAX; i++) ask(&asked[i], FLOODER, OP_RESERVE, "allow");
    for (int i = 0; i < MAX; i++) fixture_leave(&asked[i]);
    for (int i = 0; i < MAX; i++) scripted_end(&fixture.scripted, 0, OP_DECIDED);
    assert_int_equal(fixture.scripted.n_held, MAX);
    for (size_t i = 0; i < MAX; i++) {
        const struct op *op = scripted_held(&fixture.scripted, i);
        assert_int_equal(op->kind, OP_SETTLE);
        assert_int_equal(op->client, FLOODER); /* they wait in its turns */
        assert_false(op->is_awaited);
        assert_int_equal(op->deadline_us, 0);
    }
    assert_int_equal(fixture_n_inflight(&fixture), 0);

    for (int i = 0; i < MAX; i++) ask(&asked[i], POLITE, OP_CHECK, "allow");
    assert_int_equal(engine_counters.overloaded + engine_counters.failure_overload, 0);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_int_equal(engine_n_live(fixture.engine), 0);
}

static bool acquire(uint64_t client, struct slot_owner *owner)
{
    static struct asked asked;
    fixture.client = client;
    asked = (struct asked){.check = fixture_check_new(&fixture, "k")};
    assert_true(fixture_seal(&fixture, asked.check, OP_ACQUIRE, "slots", 1));
    if (engine_acquires(fixture.engine, asked.check, owner) != 0) {
        fixture_leave(&asked);
        return false;
    }
    fixture_submit(&fixture, &asked, OP_ACQUIRE, "slots", 1);
    return true;
}

static void slots_on_their_way_back_take_no_other_clients_place(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        fixture.scripted.mode = SCRIPTED_DECIDE;
        for (int i = 0; i < MAX / 2; i++) assert_true(acquire(FLOODER, &flooder));
        fixture.scripted.mode = SCRIPTED_HOLD;
        slots_end(&flooder);
    }
    assert_int_equal(fixture.scripted.n_held, MAX);
    for (size_t i = 0; i < MAX; i++) assert_int_equal(scripted_held(&fixture.scripted, i)->client, FLOODER);

    assert_false(acquire(FLOODER, &flooder));
    fixture.scripted.mode = SCRIPTED_DECIDE;
    for (int i = 0; i < MAX / 2; i++) assert_true(acquire(POLITE, &polite));
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_true(acquire(FLOODER, &flooder));
}

/* Only so many units of a tick are for ops that have ended: a heavy one must not cost them once nobody waits. */
static void nobody_awaits_what_was_answered_or_left(void **state)
{
    (void)state;
    struct asked left, late, waiting;
    ask(&left, FLOODER, OP_CHECK, "allow");
    ask(&late, FLOODER, OP_CHECK, "allow");
    ask(&waiting, FLOODER, OP_PEEK, "allow");
    for (size_t i = 0; i < 3; i++) assert_true(scripted_held(&fixture.scripted, i)->is_awaited);
    fixture_leave(&left);
    assert_false(scripted_held(&fixture.scripted, 0)->is_awaited);
    assert_true(scripted_held(&fixture.scripted, 1)->is_awaited);
    fixture_advance_ms(&fixture, DEADLINE_MS);
    for (size_t i = 0; i < 3; i++) assert_false(scripted_held(&fixture.scripted, i)->is_awaited);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void a_small_cap_leaves_others_half_of_it(void **state)
{
    (void)state;
    static struct fair_cap cap;
    fair_cap_add(&cap, FLOODER, 4);
    assert_false(fair_cap_allows(&cap, 4, FLOODER));
    assert_true(fair_cap_allows(&cap, 4, POLITE));
    fair_cap_add(&cap, POLITE, 2);
    assert_false(fair_cap_allows(&cap, 4, POLITE));
    assert_false(fair_cap_allows(&cap, 1, POLITE + 1)); /* no half of one */
    fair_cap_remove(&cap, FLOODER, 4);
    fair_cap_remove(&cap, POLITE, 2);
    assert_int_equal(cap.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(checks_that_a_client_left_refuse_it_alone, &suite),
        SCRIPTED_TEST(checks_that_were_answered_too_late_refuse_their_client_alone, &suite),
        SCRIPTED_TEST(candidates_that_the_store_keeps_skip_no_other_clients, &suite),
        SCRIPTED_TEST(cancels_on_their_way_take_no_other_clients_place, &suite),
        SCRIPTED_TEST(slots_on_their_way_back_take_no_other_clients_place, &suite),
        SCRIPTED_TEST(nobody_awaits_what_was_answered_or_left, &suite),
        SCRIPTED_TEST(a_small_cap_leaves_others_half_of_it, &suite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
