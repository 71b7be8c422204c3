/*
 * errand.h: checks that the engine needs for itself, and that no request waits for.
 *
 *   errand_new      from the pool of all checks; the caller fills it, or its op: with errand_about(), if it has one member
 *   errand_submit   its `done` runs exactly once, now or later; or engine_submit(), then the engine ends it
 *   errand_end      back to the pool
 *
 * They are counted apart from the clients' checks, and each kind apart from the others, with a cap that one client
 * cannot use up (fair_cap.h): a store that never answers them takes nothing from the checks.
 */
#ifndef RL_ENGINE_ERRAND_H
#define RL_ENGINE_ERRAND_H

#include "engine/check.h"
#include "engine/fair_cap.h"

enum errand_kind {
    ERRAND_GIVE_BACK, /* give_back.c: sweeps and cancels */
    ERRAND_CANDIDATE, /* candidate.h */
    ERRAND_PART,      /* split.h: parts of a check_all, and their refunds */
    ERRAND_LEASE,     /* unit_leases.h: units that go back */
    ERRAND_MERGE,     /* merge_back.h */
    N_ERRAND_KINDS,
};

enum { ERRAND_LEASES_MAX = 1024, ERRAND_MERGES_MAX = 64 }; /* under way; of the other kinds errands->max */

struct errands {
    struct check_pool *pool;                   /* not owned */
    struct store *store;                       /* not owned */
    size_t max;                                /* of a kind; the owner may set another */
    void (*on_ended)(struct errands *errands); /* one is back in the pool; may be the end of all this */
    size_t n;                                  /* out of the pool, of all kinds */
    struct fair_cap of[N_ERRAND_KINDS];
};

/* The store serves it as that client's. NULL: the client has too many of this kind, or memory is short. */
struct check *errand_new(struct errands *errands, enum errand_kind kind, enum op_kind op_kind, struct policy_set *set,
                         uint64_t client);
/* Its op has this member alone. */
void errand_about(struct check *errand, const struct op_member *member);
/* True: the store has it, and `done` is still to come. Else it ran, and the errand may be gone. */
bool errand_submit(struct check *errand, void (*done)(struct check *errand, enum op_outcome outcome));
/* With those joined to it. Nothing of the engine may be touched after this: it may be gone. */
void errand_end(struct check *errand);

#endif
