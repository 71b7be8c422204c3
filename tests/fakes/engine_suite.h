/*
 * engine_suite.h: cmocka setup and teardown that open and close an engine_fixture for every test of a program.
 *
 * Every counter is 0 when a test begins. If a test closes the fixture itself, teardown does not close it again.
 */
#ifndef RL_TESTS_ENGINE_SUITE_H
#define RL_TESTS_ENGINE_SUITE_H

#include "fakes/engine_fixture.h"

/* The initial state for the tests of a program. */
struct engine_suite {
    struct engine_fixture *fixture; /* the program's: the present test's */
    const struct policy_spec *specs;
    size_t n_specs;
    void (*begin)(void); /* the program's own state, once the fixture is open; NULL = none */
    void (*end)(void);   /* of that state, before the fixture is closed; not if the test closes it; NULL = nothing */
};

/* For a call within a test; close with fixture_close(). */
void engine_suite_open_memory(const struct engine_suite *suite);

/* Asks, and has the answer at once. */
struct asked engine_suite_ask(const struct engine_suite *suite, enum op_kind kind, const char *policy, const char *key,
                              int64_t cost);

/* ask(0), ask(1) ... for 2000 ticks of 7 ms: from the second thousand on, nothing may allocate. */
void engine_suite_allocates_nothing(const struct engine_suite *suite, void (*ask)(int i));

/* For cmocka, which passes the suite. */
int engine_suite_set_up(void **state);
int engine_suite_set_up_memory(void **state);
int engine_suite_tear_down(void **state);

/* A row for cmocka: with a scripted store, or with the memory store. */
#define SCRIPTED_TEST(test, suite)                                                                                     \
    cmocka_unit_test_prestate_setup_teardown(test, engine_suite_set_up, engine_suite_tear_down, (void *)(suite))
#define MEMORY_TEST(test, suite)                                                                                       \
    cmocka_unit_test_prestate_setup_teardown(test, engine_suite_set_up_memory, engine_suite_tear_down, (void *)(suite))

#endif
