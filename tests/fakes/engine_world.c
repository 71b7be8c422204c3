#include "fakes/engine_world.h"

#include "base/alloc.h"
#include "base/check.h"
#include "engine/engine_counters.h"

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

static struct store memory_handle(struct engine_world *world)
{
    struct memory_options options = {.max_keys = 1000, .sweep = true, .counted = true};
    struct memory_store *memory = memory_store_new(&world->clock, &options);
    CHECK(memory != NULL);
    return memory_store_handle(memory);
}

void world_open_memory(struct engine_world *world, const struct policy_spec *specs, size_t n,
                       const struct engine_options *options)
{
    static struct store_ops at_once;
    set_up(world);
    struct store store = memory_handle(world);
    at_once = *store.ops;
    at_once.prefetch = NULL;
    store.ops = &at_once;
    open_with(world, store, specs, n, options);
}

void world_open_prefetching(struct engine_world *world, const struct policy_spec *specs, size_t n,
                            const struct engine_options *options)
{
    set_up(world);
    open_with(world, memory_handle(world), specs, n, options);
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
    struct asked *asked = check->owner;
    CHECK(asked->check == check);
    asked->n_done++;
    asked->error = check->error;
    asked->error_message = check->error_message;
    asked->decision = check->parts->decision;
    asked->removed = check->removed;
    asked->reservation = check->reservation;
    if (!asked->keep) world_leave(asked);
    if (asked->then != NULL) asked->then(asked);
}

struct check *world_check_new(struct engine_world *world, const char *key)
{
    struct check *check = engine_check_new(world->engine);
    if (check != NULL) check->parts->key = slice_of(key);
    return check;
}

bool world_seal(struct engine_world *world, struct check *check, enum op_kind kind, const char *policy, int64_t cost)
{
    check->op.kind = kind;
    check->parts->policy = policies_get(engine_policies(world->engine), policy);
    check->parts->cost = cost;
    return check_seal(check) == 0;
}

bool world_submit(struct engine_world *world, struct asked *asked, enum op_kind kind, const char *policy, int64_t cost)
{
    struct check *check = asked->check;
    if (!check->is_sealed && kind != OP_RELEASE && !world_seal(world, check, kind, policy, cost)) {
        world_leave(asked);
        return false;
    }
    check->deadline_ms = world->deadline_ms;
    check->reservation = asked->reservation;
    check->local_reason = asked->local_reason;
    check->done = on_done;
    check->owner = asked;
    engine_submit(world->engine, check);
    return true;
}

bool world_ask(struct engine_world *world, struct asked *asked, enum op_kind kind, const char *policy, const char *key,
               int64_t cost)
{
    *asked = (struct asked){
        .keep = asked->keep,
        .then = asked->then,
        .reservation = asked->reservation,
        .local_reason = asked->local_reason,
        .check = world_check_new(world, key),
    };
    if (asked->check == NULL) return false;
    return world_submit(world, asked, kind, policy, cost);
}

uint64_t world_n_inflight(const struct engine_world *world)
{
    engine_update_gauges(world->engine);
    return engine_counters.inflight;
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
