#include "fakes/engine_fixture.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "engine/engine_counters.h"

const struct engine_options fixture_options = {
    .max_inflight = 100, .local_max_keys = 1000, .slots = {.max = 100, .max_per_owner = 50}};

static void open_with(struct engine_fixture *fixture, struct store store, const struct policy_spec *specs, size_t n,
                      const struct engine_options *options)
{
    struct policy_set *set = policies_make(specs, n);
    fixture->engine = engine_new(&fixture->clock, store, set, options);
    CHECK(fixture->engine != NULL);
}

static void set_up(struct engine_fixture *fixture)
{
    *fixture = (struct engine_fixture){.clock = {.frozen = true, .mono_us = 5000000, .wall_us = 1700000000000000}};
    scripted_init(&fixture->scripted);
}

void fixture_open(struct engine_fixture *fixture, const struct policy_spec *specs, size_t n,
                  const struct engine_options *options)
{
    set_up(fixture);
    open_with(fixture, scripted_handle(&fixture->scripted), specs, n, options);
}

static struct store memory_handle(struct engine_fixture *fixture)
{
    struct memory_options options = {.max_keys = 1000, .sweep = true, .counted = true};
    struct memory_store *memory = memory_store_new(&fixture->clock, &options);
    CHECK(memory != NULL);
    return memory_store_handle(memory);
}

void fixture_open_memory(struct engine_fixture *fixture, const struct policy_spec *specs, size_t n,
                         const struct engine_options *options)
{
    static struct store_ops at_once;
    set_up(fixture);
    struct store store = memory_handle(fixture);
    at_once = *store.ops;
    at_once.prefetch = NULL;
    store.ops = &at_once;
    open_with(fixture, store, specs, n, options);
}

void fixture_open_prefetching(struct engine_fixture *fixture, const struct policy_spec *specs, size_t n,
                              const struct engine_options *options)
{
    set_up(fixture);
    open_with(fixture, memory_handle(fixture), specs, n, options);
}

void fixture_mark_closed(void *arg)
{
    struct engine_fixture *fixture = arg;
    CHECK(!fixture->closed);
    fixture->closed = true;
}

void fixture_close(struct engine_fixture *fixture)
{
    CHECK(!fixture->closed);
    engine_close(fixture->engine, fixture_mark_closed, fixture);
    CHECK(fixture->closed && fixture->scripted.n_held == 0);
}

static void on_done(struct check *check)
{
    struct asked *asked = check->owner;
    CHECK(asked->check == check);
    asked->n_done++;
    asked->error = check->error;
    asked->error_message = check->error_message;
    asked->decision = check->decision;
    asked->removed = check->removed;
    asked->reservation = check->reservation;
    if (!asked->keep) fixture_leave(asked);
    if (asked->then != NULL) asked->then(asked);
}

struct check *fixture_check_new(struct engine_fixture *fixture, const char *key)
{
    struct check *check = engine_check_new(fixture->engine, OP_CHECK, fixture->client);
    if (check != NULL) check->key = slice_of(key);
    return check;
}

bool fixture_seal(struct engine_fixture *fixture, struct check *check, enum op_kind kind, const char *policy,
                  int64_t cost)
{
    check->op.kind = kind;
    check->plan = &policies_get(engine_policies(fixture->engine), policy)->plan;
    check->cost = cost;
    return check_seal(check) == 0;
}

bool fixture_submit(struct engine_fixture *fixture, struct asked *asked, enum op_kind kind, const char *policy,
                    int64_t cost)
{
    struct check *check = asked->check;
    if (!check->is_sealed && kind != OP_RELEASE && !fixture_seal(fixture, check, kind, policy, cost)) {
        fixture_leave(asked);
        return false;
    }
    check->deadline_ms = fixture->deadline_ms;
    check->reservation = asked->reservation;
    check->local_reason = asked->local_reason;
    check->done = on_done;
    check->owner = asked;
    engine_submit(fixture->engine, check);
    return true;
}

bool fixture_ask(struct engine_fixture *fixture, struct asked *asked, enum op_kind kind, const char *policy,
                 const char *key, int64_t cost)
{
    *asked = (struct asked){
        .keep = asked->keep,
        .then = asked->then,
        .reservation = asked->reservation,
        .local_reason = asked->local_reason,
        .check = fixture_check_new(fixture, key),
    };
    if (asked->check == NULL) return false;
    return fixture_submit(fixture, asked, kind, policy, cost);
}

uint64_t fixture_n_inflight(const struct engine_fixture *fixture)
{
    engine_update_counters(fixture->engine);
    return engine_counters.inflight;
}

void fixture_leave(struct asked *asked)
{
    struct check *check = asked->check;
    asked->check = NULL;
    check_release(check);
}

void fixture_advance_ms(struct engine_fixture *fixture, int64_t ms)
{
    fixture->clock.mono_us += ms * 1000;
    fixture->clock.wall_us += ms * 1000;
    engine_expire(fixture->engine);
}
