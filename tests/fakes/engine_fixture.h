/*
 * engine_fixture.h: cmocka setup and teardown that open and close an engine_world for every test of a program.
 *
 * Every counter is 0 when a test begins. If a test closes the world itself, teardown does not close it again.
 */
#ifndef RL_TESTS_ENGINE_FIXTURE_H
#define RL_TESTS_ENGINE_FIXTURE_H

#include "fakes/engine_world.h"

/* The initial state for the tests of a program. */
struct engine_fixture {
    struct engine_world *world; /* the program's: the present test's */
    const struct policy_spec *specs;
    size_t n_specs;
    void (*begin)(void); /* the program's own state, once the world is open; NULL = none */
};

/* For a call within a test; close with world_close(). */
void engine_fixture_open_memory(const struct engine_fixture *fixture);

/* For cmocka, which passes the fixture. */
int engine_fixture_set_up(void **state);
int engine_fixture_set_up_memory(void **state);
int engine_fixture_tear_down(void **state);

/* A row for cmocka: with a scripted store, or with the memory store. */
#define SCRIPTED_TEST(test, fixture)                                                                                   \
    cmocka_unit_test_prestate_setup_teardown(test, engine_fixture_set_up, engine_fixture_tear_down, (void *)(fixture))
#define MEMORY_TEST(test, fixture)                                                                                     \
    cmocka_unit_test_prestate_setup_teardown(test, engine_fixture_set_up_memory, engine_fixture_tear_down,             \
                                             (void *)(fixture))

#endif
