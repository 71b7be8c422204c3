#include "fakes/engine_world.h"

#include "base/alloc.h"
#include "base/check.h"

const struct engine_options world_options = {
    .max_inflight = 100, .local_max_keys = 1000, .slots = {.max = 100, .max_per_owner = 50}};

static void open_with(struct engine_world *world, struct store store, const struct policy_spec *specs, size_t n,
                      const struct engine_options *options)
{
    struct policy_set *set = policies_make(specs, n);
    world->engine = engine_new(&world->clock, store, set, options);
    CHECK(world->engine != NULL);
}

static void set_up(struct engine_world *world)
{
    *world = (struct engine_world){.clock = {.frozen = true, .mono_us = 5000000, .wall_us = 1700000000000000}};
    scripted_init(&world->scripted);
}

void world_open(struct engine_world *world, const struct policy_spec *specs, size_t n,
                const struct engine_options *options)
{
    set_up(world);
    open_with(world, scripted_handle(&world->scripted), specs, n, options);
}

void world_open_memory(struct engine_world *world, const struct policy_spec *specs, size_t n,
                       const struct engine_options *options)
{
    struct memory_options memory_options = {.max_keys = 1000, .sweep = true, .counted = true};
    set_up(world);
    struct memory_store *memory = memory_store_new(&world->clock, &memory_options);
    CHECK(memory != NULL);
    open_with(world, memory_store_handle(memory), specs, n, options);
}

void world_mark_closed(void *arg)
{
    struct engine_world *world = arg;
    CHECK(!world->closed);
    world->closed = true;
}

void world_close(struct engine_world *world)
{
    CHECK(!world->closed);
    engine_close(world->engine, world_mark_closed, world);
    CHECK(world->closed && world->scripted.n_held == 0);
}

static void on_done(struct check *check)
{
    struct asked *asked = check->asker;
    CHECK(asked->check == check);
    asked->n_done++;
    asked->error = check->error;
    asked->error_message = check->error_message;
    asked->decision = check->decision;
    asked->removed = check->removed;
    asked->hold = check->hold;
    if (!asked->keep) world_leave(asked);
    if (asked->then != NULL) asked->then(asked);
}

void world_submit(struct engine_world *world, struct asked *asked, enum op_kind kind, const char *policy, int64_t cost)
{
    struct check *check = asked->check;
    check->kind = kind;
    check->policy = policies_get(engine_policies(world->engine), policy);
    check->cost = cost;
    check->deadline_ms = world->deadline_ms;
    check->hold = asked->hold;
    check->local_reason = asked->local_reason;
    check->done = on_done;
    check->asker = asked;
    engine_submit(world->engine, check);
}

bool world_ask(struct engine_world *world, struct asked *asked, enum op_kind kind, const char *policy, const char *key,
               int64_t cost)
{
    *asked = (struct asked){
        .keep = asked->keep,
        .then = asked->then,
        .hold = asked->hold,
        .local_reason = asked->local_reason,
        .check = engine_check_new(world->engine, slice_of(key)),
    };
    if (asked->check == NULL) return false;
    world_submit(world, asked, kind, policy, cost);
    return true;
}

void world_leave(struct asked *asked)
{
    struct check *check = asked->check;
    asked->check = NULL;
    check_release(check);
}

void world_advance_ms(struct engine_world *world, int64_t ms)
{
    world->clock.mono_us += ms * 1000;
    world->clock.wall_us += ms * 1000;
    engine_expire(world->engine);
}
