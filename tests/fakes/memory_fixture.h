/*
 * memory_fixture.h: a fixture with only a memory store, a clock that the test sets, and policies.
 */
#ifndef RL_TESTS_MEMORY_FIXTURE_H
#define RL_TESTS_MEMORY_FIXTURE_H

#include "base/clock.h"
#include "policy/policy.h"
#include "store/memory_store.h"

struct memory_fixture {
    struct clock now;            /* stopped; the test sets it */
    struct memory_store *memory; /* owned */
    struct store store;          /* its handle */
    struct policy_set *set;      /* owned; empty at first */
};

/* The counters at 0, the clock at `wall_us`, the store empty. */
void memory_fixture_open(struct memory_fixture *fixture, int64_t wall_us, const struct memory_options *options);
/* 0, or -1 if the store did not close at once. */
int memory_fixture_close(struct memory_fixture *fixture);
void memory_fixture_advance(struct memory_fixture *fixture, int64_t us);

#endif
