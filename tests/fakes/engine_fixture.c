#include "fakes/engine_fixture.h"

#include "fakes/all_counters.h"

static void begin(const struct engine_fixture *fixture)
{
    if (fixture->begin != NULL) fixture->begin();
}

int engine_fixture_set_up(void **state)
{
    const struct engine_fixture *fixture = *state;
    all_counters_reset();
    world_open(fixture->world, fixture->specs, fixture->n_specs, &world_options);
    begin(fixture);
    return 0;
}

void engine_fixture_open_memory(const struct engine_fixture *fixture)
{
    all_counters_reset();
    world_open_memory(fixture->world, fixture->specs, fixture->n_specs, &world_options);
    begin(fixture);
}

int engine_fixture_set_up_memory(void **state)
{
    engine_fixture_open_memory(*state);
    return 0;
}

int engine_fixture_tear_down(void **state)
{
    const struct engine_fixture *fixture = *state;
    if (!fixture->world->closed) world_close(fixture->world);
    return 0;
}
