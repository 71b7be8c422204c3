#include "fakes/engine_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "fakes/all_counters.h"

static void begin(const struct engine_suite *suite)
{
    if (suite->begin != NULL) suite->begin();
}

struct asked engine_suite_ask(const struct engine_suite *suite, enum op_kind kind, const char *policy, const char *key,
                              int64_t cost)
{
    struct asked asked = {0};
    assert_true(fixture_ask(suite->fixture, &asked, kind, policy, key, cost));
    assert_int_equal(asked.n_done, 1);
    return asked;
}

int engine_suite_set_up(void **state)
{
    const struct engine_suite *suite = *state;
    all_counters_reset();
    fixture_open(suite->fixture, suite->specs, suite->n_specs, &fixture_options);
    begin(suite);
    return 0;
}

void engine_suite_open_memory(const struct engine_suite *suite)
{
    all_counters_reset();
    fixture_open_memory(suite->fixture, suite->specs, suite->n_specs, &fixture_options);
    begin(suite);
}

void engine_suite_allocates_nothing(const struct engine_suite *suite, void (*ask)(int i))
{
    uint64_t n_allocs = 0;
    for (int i = 0; i < 2000; i++) {
        if (i == 1000) n_allocs = mem_n_allocs();
        ask(i);
        engine_flush(suite->fixture->engine);
        fixture_advance_ms(suite->fixture, 7);
    }
    assert_int_equal(mem_n_allocs(), n_allocs);
}

int engine_suite_set_up_memory(void **state)
{
    engine_suite_open_memory(*state);
    return 0;
}

int engine_suite_tear_down(void **state)
{
    const struct engine_suite *suite = *state;
    if (suite->fixture->closed) return 0;
    if (suite->end != NULL) suite->end();
    fixture_close(suite->fixture);
    return 0;
}
