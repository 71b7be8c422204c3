/* test_engine_overdue.c: the store is away and more checks are overdue than a tick answers: each client has its turns.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/engine_counters.h"
#include "engine/overdue.h"
#include "fakes/engine_suite.h"

enum { FLOOD = 2 * ENGINE_EXPIRED_UNITS + 500, COST = 1000, FLOODER = 1, POLITE, OTHER };

static const struct policy_spec specs[] = {
    {.name = "local",
     .deadline_ms = 20,
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 3, .window_us = 60000000}}},
    {.name = "log",
     .deadline_ms = 20,
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_SLIDING_LOG, .limit = 2000, .window_us = 60000000}}},
};

static struct engine_fixture fixture;
static const struct engine_suite suite = {
    .fixture = &fixture, .specs = specs, .n_specs = sizeof specs / sizeof specs[0]};

static struct asked flood[FLOOD];

static void ask(uint64_t client, struct asked *asked, const char *policy, const char *key, int64_t cost)
{
    *asked = (struct asked){0};
    fixture.client = client;
    assert_true(fixture_ask(&fixture, asked, OP_CHECK, policy, key, cost));
}

static void ask_flood(size_t n, const char *policy, int64_t cost)
{
    engine_set_options(fixture.engine, &(struct engine_options){.max_inflight = 2 * FLOOD, .local_max_keys = 10});
    for (size_t i = 0; i < n; i++) ask(FLOODER, &flood[i], policy, "flood", cost);
}

static size_t n_answered(size_t n)
{
    size_t n_done = 0;
    for (size_t i = 0; i < n; i++) n_done += (size_t)flood[i].n_done;
    return n_done;
}

/* With Redis stopped, one check waited for the answers to all that 16 connections had in flight, 20 ms. */
static void an_overdue_check_does_not_wait_for_the_answers_to_a_flood(void **state)
{
    (void)state;
    static struct asked polite[3];
    ask_flood(FLOOD, "local", 1);
    for (int i = 0; i < 3; i++) ask(POLITE, &polite[i], "local", "mine", 2);

    fixture_advance_ms(&fixture, 20);
    for (int i = 0; i < 3; i++) assert_int_equal(polite[i].n_done, 1);
    assert_true(polite[0].decision.allowed);
    assert_false(polite[1].decision.allowed); /* in their order */
    assert_int_equal(n_answered(FLOOD), ENGINE_EXPIRED_UNITS - 3);
    assert_true(engine_next_deadline(fixture.engine) <= fixture.clock.mono_us);

    for (int i = 0; i < 3; i++) engine_expire(fixture.engine);
    for (size_t i = 0; i < FLOOD; i++) assert_int_equal(flood[i].n_done, 1);
    for (size_t i = 0; i < FLOOD; i++) assert_int_equal(flood[i].decision.allowed, i < 3);
    assert_int_equal(engine_next_deadline(fixture.engine), INT64_MAX);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void a_client_with_heavy_checks_has_as_much_work_done_as_another(void **state)
{
    (void)state;
    enum { N_LIGHT = 150, UNITS = 1 + COST / 64 };
    static struct asked light[N_LIGHT];
    ask_flood(300, "log", COST);
    for (size_t i = 0; i < N_LIGHT; i++) ask(POLITE, &light[i], "local", "mine", 1);

    fixture_advance_ms(&fixture, 20);
    assert_int_equal(light[N_LIGHT - 1].n_done, 1);
    assert_in_range(n_answered(300) * UNITS, ENGINE_EXPIRED_UNITS - N_LIGHT - UNITS,
                    ENGINE_EXPIRED_UNITS - N_LIGHT + UNITS);
    while (engine_next_deadline(fixture.engine) <= fixture.clock.mono_us) engine_expire(fixture.engine);
    assert_int_equal(n_answered(300), 300);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void clients_whose_numbers_share_a_lane_share_its_turns(void **state)
{
    (void)state;
    static struct asked same_lane, polite;
    ask_flood(FLOOD, "local", 1);
    ask(FLOODER + OVERDUE_LANES, &same_lane, "local", "same", 1);
    ask(POLITE, &polite, "local", "mine", 1);
    fixture_advance_ms(&fixture, 20);
    assert_int_equal(polite.n_done, 1);
    assert_int_equal(same_lane.n_done, 0);
    while (engine_next_deadline(fixture.engine) <= fixture.clock.mono_us) engine_expire(fixture.engine);
    assert_int_equal(same_lane.n_done, 1);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void an_overdue_check_can_still_be_decided_or_left(void **state)
{
    (void)state;
    ask_flood(FLOOD, "local", 1);
    fixture_advance_ms(&fixture, 20);
    assert_int_equal(flood[FLOOD - 1].n_done, 0);
    assert_int_equal(flood[FLOOD - 2].n_done, 0);
    scripted_end(&fixture.scripted, FLOOD - 1, OP_DECIDED);
    assert_int_equal(flood[FLOOD - 1].n_done, 1);
    assert_int_equal(flood[FLOOD - 1].decision.source, SOURCE_REDIS);
    fixture_leave(&flood[FLOOD - 2]);

    while (engine_next_deadline(fixture.engine) <= fixture.clock.mono_us) engine_expire(fixture.engine);
    assert_int_equal(n_answered(FLOOD), FLOOD - 1);
    assert_int_equal(engine_counters.failure_deadline, FLOOD - 2);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
}

static void closing_answers_what_is_overdue(void **state)
{
    (void)state;
    ask_flood(FLOOD, "local", 1);
    fixture_advance_ms(&fixture, 20);
    assert_true(n_answered(FLOOD) < FLOOD);
    fixture_close(&fixture);
    assert_int_equal(n_answered(FLOOD), FLOOD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(an_overdue_check_does_not_wait_for_the_answers_to_a_flood, &suite),
        SCRIPTED_TEST(a_client_with_heavy_checks_has_as_much_work_done_as_another, &suite),
        SCRIPTED_TEST(clients_whose_numbers_share_a_lane_share_its_turns, &suite),
        SCRIPTED_TEST(an_overdue_check_can_still_be_decided_or_left, &suite),
        SCRIPTED_TEST(closing_answers_what_is_overdue, &suite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
