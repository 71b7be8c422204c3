/*
 * engine_fixture.h: a fixture with an engine on a frozen clock, with a scripted store or the memory store, and the
 * caller's side of its checks.
 */
#ifndef RL_TESTS_ENGINE_FIXTURE_H
#define RL_TESTS_ENGINE_FIXTURE_H

#include "engine/engine.h"
#include "fakes/policies.h"
#include "fakes/scripted_store.h"
#include "store/memory_store.h"

struct engine_fixture {
    struct clock clock;
    struct scripted_store scripted;
    struct engine *engine;
    uint32_t deadline_ms; /* of checks to come; 0 = the policy's */
    uint64_t client;      /* of checks to come; 0 = the daemon itself */
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
    struct op_reservation reservation; /* the input of a reserve or settle, and then its result */
    enum reason local_reason;          /* of a settle */
    void (*then)(struct asked *asked); /* the caller's action within done, after a release; may be NULL */
};

extern const struct engine_options fixture_options; /* 100 checks, 1000 local keys, 100 slots, 50 of one owner */

void fixture_open(struct engine_fixture *fixture, const struct policy_spec *specs, size_t n,
                  const struct engine_options *options);
/* The same over a memory store of 1000 keys, which decides each check where it is submitted. */
void fixture_open_memory(struct engine_fixture *fixture, const struct policy_spec *specs, size_t n,
                         const struct engine_options *options);
/* The same over a memory store as the daemon has it: its keys are prefetched. */
void fixture_open_prefetching(struct engine_fixture *fixture, const struct policy_spec *specs, size_t n,
                              const struct engine_options *options);
/* Closes the engine, and checks that nothing is left of it. */
void fixture_close(struct engine_fixture *fixture);
void fixture_mark_closed(void *arg); /* an on_closed for engine_close(), arg = the fixture */

/* False if the engine had no check available, or no memory for it. `asked` must stay until done or fixture_leave(). */
bool fixture_ask(struct engine_fixture *fixture, struct asked *asked, enum op_kind kind, const char *policy,
                 const char *key, int64_t cost);
/* The parts of it: get a check, whose key must stay until it is sealed (NULL: none available); seal it (false: no
 * memory); submit it, after sealing it if necessary. */
struct check *fixture_check_new(struct engine_fixture *fixture, const char *key);
bool fixture_seal(struct engine_fixture *fixture, struct check *check, enum op_kind kind, const char *policy,
                  int64_t cost);
bool fixture_submit(struct engine_fixture *fixture, struct asked *asked, enum op_kind kind, const char *policy,
                    int64_t cost);
uint64_t fixture_n_inflight(const struct engine_fixture *fixture);   /* as in `stats` */
void fixture_leave(struct asked *asked);                             /* release: after done, or before */
void fixture_advance_ms(struct engine_fixture *fixture, int64_t ms); /* both clocks, then the due deadlines */

#endif
