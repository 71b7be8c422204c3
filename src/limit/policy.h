/*
 * policy.h: named policies, and the set of them that one configuration makes.
 *
 * A set is immutable once built and counted: the engine holds one reference, every check in flight
 * another, so a reload never pulls a limit from under a late reply.
 */
#ifndef RL_LIMIT_POLICY_H
#define RL_LIMIT_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "base/slice.h"
#include "limit/limit.h"

enum { POLICY_LIMITS_MAX = 16 };

enum on_failure { ON_FAILURE_ALLOW, ON_FAILURE_DENY, ON_FAILURE_LOCAL, ON_FAILURE_ERROR };

const char *on_failure_name(enum on_failure on_failure); /* "allow", as in the configuration */

struct policy {
    struct map_node node;        /* in the set, by name */
    char name[NAME_MAX_LEN + 1]; /* [A-Za-z0-9._-]{1,64} */
    uint32_t version;            /* fingerprint of the settings: equal in every daemon that has the same */
    enum on_failure on_failure;
    uint32_t deadline_ms; /* an answer by then */
    bool shadow;          /* evaluated and counted, and never denies */
    uint16_t n_limits;    /* 1 to POLICY_LIMITS_MAX */
    struct limit limits[];
};

struct policy_set {
    uint32_t n_refs;
    size_t n;
    struct policy **in_order; /* owned; as written in the file */
    size_t cap;
    struct map by_name;
};

/* A policy with room for n limits, zeroed but for name, n_limits and each limit's back pointer; NULL without memory. */
struct policy *policy_new(const char *name, uint16_t n_limits);
void policy_free(struct policy *policy);
/* Once all limits are prepared: computes version. */
void policy_seal(struct policy *policy);

/* The first of its limits that is 0 and so denies always; NULL where there is none. */
const struct limit *policy_zero_limit(const struct policy *policy);
/* The smallest capacity of its limits: more is never admitted at once. */
int64_t policy_capacity(const struct policy *policy);

struct policy_set *policy_set_new(void); /* one reference; NULL without memory */
/* Takes over `policy` on success. 0; -1 without memory; -2 where the name is taken (policy stays the caller's). */
int policy_set_add(struct policy_set *set, struct policy *policy);
struct policy_set *policy_set_ref(struct policy_set *set);
void policy_set_unref(struct policy_set *set); /* the last one frees everything; NULL is fine */
const struct policy *policy_find(const struct policy_set *set, struct slice name); /* NULL where there is none */

#endif
