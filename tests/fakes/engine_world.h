/*
 * engine_world.h: an engine on a frozen clock, over a scripted store or the memory store, and the
 * asker's side of its checks.
 */
#ifndef RL_TESTS_ENGINE_WORLD_H
#define RL_TESTS_ENGINE_WORLD_H

#include "engine/engine.h"
#include "fakes/policies.h"
#include "fakes/scripted_store.h"
#include "store/memory_store.h"

struct engine_world {
    struct clock clock;
    struct scripted_store scripted;
    struct engine *engine;
    uint32_t deadline_ms; /* of checks to come; 0 = the policy's */
    bool closed;
};

struct asked {
    struct check *check; /* NULL once released */
    bool keep;           /* do not release it within done */
    int n_done;
    enum error_code error;
    const char *error_message;
    struct decision decision;
    bool removed;
    struct op_reservation reservation; /* what a reserve or settle brings, and then what became of it */
    enum reason local_reason;          /* of a settle */
    void (*then)(struct asked *asked); /* the asker's own doings within done, after a release; may be NULL */
};

extern const struct engine_options world_options; /* 100 checks, 1000 local keys, 100 slots, 50 of one owner */

void world_open(struct engine_world *world, const struct policy_spec *specs, size_t n,
                const struct engine_options *options);
/* The same over a memory store of 1000 keys, which decides each check where it is submitted. */
void world_open_memory(struct engine_world *world, const struct policy_spec *specs, size_t n,
                       const struct engine_options *options);
/* The same over a memory store as the daemon has it: its keys are prefetched. */
void world_open_prefetching(struct engine_world *world, const struct policy_spec *specs, size_t n,
                            const struct engine_options *options);
/* Closes the engine, and expects that nothing is left of it. */
void world_close(struct engine_world *world);
void world_mark_closed(void *arg); /* an on_closed for engine_close(), arg = the world */

/* False where the engine had no check to give, or no memory for it. `asked` must stay until done or left. */
bool world_ask(struct engine_world *world, struct asked *asked, enum op_kind kind, const char *policy, const char *key,
               int64_t cost);
/* The parts of it: a check, whose key must stay until it is sealed (NULL: the engine had none); sealed, but for memory;
 * submitted, and sealed before if it is not. */
struct check *world_check_new(struct engine_world *world, const char *key);
bool world_seal(struct engine_world *world, struct check *check, enum op_kind kind, const char *policy, int64_t cost);
bool world_submit(struct engine_world *world, struct asked *asked, enum op_kind kind, const char *policy, int64_t cost);
uint64_t world_n_inflight(const struct engine_world *world);   /* as `stats` says it */
void world_leave(struct asked *asked);                         /* release: after done, or before */
void world_advance_ms(struct engine_world *world, int64_t ms); /* both clocks, then what is due */

#endif
