/*
 * check.h: one check from admission to release.
 *
 * A check has two owners: the asker (a session's call, or libratelimit's test) until `done` ran or
 * the asker left, and the store from submit until reply or loss. It goes back to the pool when both
 * have let go. It carries everything its life needs; a pooled check keeps its key storage, so a
 * warmed-up daemon allocates nothing here.
 */
#ifndef RL_ENGINE_CHECK_H
#define RL_ENGINE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/heap.h"
#include "base/list.h"
#include "base/slice.h"
#include "limit/policy.h"
#include "proto/error.h"
#include "store/store.h"

struct engine;

enum { CHECK_INLINE_KEY = 96 };

struct check {
    /* the asker's */
    enum op_kind kind;
    const struct policy *policy; /* held through `set` */
    struct slice key;            /* into inline_key or big_key */
    int64_t cost;
    uint32_t deadline_ms;              /* 0 = the policy's */
    void (*done)(struct check *check); /* exactly once; may run within engine_submit(); NULL once abandoned */
    void *asker;                       /* not owned; the engine never looks */
    uint32_t index;                    /* the asker's: place in a check_many */

    /* the answer */
    enum error_code error;     /* ERROR_NONE: the decision counts */
    const char *error_message; /* static */
    struct decision decision;
    bool removed; /* OP_RESET */

    /* the engine's */
    struct engine *engine;
    struct policy_set *set; /* one reference */
    struct heap_node deadline;
    int64_t submitted_us; /* CLOCK_MONOTONIC */
    bool store_holds;     /* between SUBMIT_PENDING and op.done */
    bool answered;        /* `done` ran, or the asker left */
    struct op op;
    struct op_member members[POLICY_LIMITS_MAX];
    uint8_t inline_key[CHECK_INLINE_KEY];
    uint8_t *big_key; /* owned; NULL until a longer key came */
    uint32_t big_cap;
    struct list link; /* in the pool, or in the engine's list of live checks */
};

#endif
