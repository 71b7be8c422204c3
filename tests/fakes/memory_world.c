#include "fakes/memory_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fakes/all_counters.h"

void memory_world_open(struct memory_world *world, int64_t wall_us, const struct memory_options *options)
{
    all_counters_reset();
    *world = (struct memory_world){.now = {.frozen = true, .mono_us = 1000000, .wall_us = wall_us}};
    world->memory = memory_store_new(&world->now, options);
    assert_non_null(world->memory);
    world->store = memory_store_handle(world->memory);
    world->set = policy_set_new(16);
    assert_non_null(world->set);
}

static void note_closed(void *arg)
{
    ++*(int *)arg;
}

int memory_world_close(struct memory_world *world)
{
    int n_closed = 0;
    store_close(&world->store, note_closed, &n_closed);
    policy_set_unref(world->set);
    return n_closed == 1 ? 0 : -1;
}

void memory_world_advance(struct memory_world *world, int64_t us)
{
    world->now.mono_us += us;
    world->now.wall_us += us;
}
