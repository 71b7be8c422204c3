#include "fakes/memory_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fakes/all_counters.h"

void memory_fixture_open(struct memory_fixture *fixture, int64_t wall_us, const struct memory_options *options)
{
    all_counters_reset();
    *fixture = (struct memory_fixture){.now = {.frozen = true, .mono_us = 1000000, .wall_us = wall_us}};
    fixture->memory = memory_store_new(&fixture->now, options);
    assert_non_null(fixture->memory);
    fixture->store = memory_store_handle(fixture->memory);
    fixture->set = policy_set_new(16);
    assert_non_null(fixture->set);
}

static void note_closed(void *arg)
{
    ++*(int *)arg;
}

int memory_fixture_close(struct memory_fixture *fixture)
{
    int n_closed = 0;
    store_close(&fixture->store, note_closed, &n_closed);
    policy_set_unref(fixture->set);
    return n_closed == 1 ? 0 : -1;
}

void memory_fixture_advance(struct memory_fixture *fixture, int64_t us)
{
    fixture->now.mono_us += us;
    fixture->now.wall_us += us;
}
