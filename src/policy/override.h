/*
 * override.h: other numbers for some of a policy's keys.
 *
 * An override is a whole policy of its own, a *variant*: the same name, limits and Redis keys, other
 * numbers. The most specific one counts: a key written out before a pattern, and of several patterns as pattern.h says.
 */
#ifndef RL_POLICY_OVERRIDE_H
#define RL_POLICY_OVERRIDE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/map.h"
#include "base/slice.h"
#include "policy/pattern.h"

struct policy;

struct override {
    struct map_node node; /* by text */
    char *text;           /* owned; the key, or the pattern */
    bool is_pattern;
    struct pattern pattern; /* if it is one: in the set */
    struct policy *variant; /* owned by the policy that has the overrides */
};

struct overrides {
    struct override *items; /* owned; as written */
    size_t n, cap;
    struct map by_text;
    struct pattern_set patterns; /* of items */
};

struct overrides *overrides_new(size_t cap);      /* NULL without memory */
void overrides_free(struct overrides *overrides); /* the variants are the caller's; NULL is fine */

/* Takes over `variant` on success and sets its `override` to the text. At most cap of them. 0, or -1 without memory. */
int overrides_add(struct overrides *overrides, const char *text, bool is_pattern, struct policy *variant);
/* The variant of exactly this key or pattern, or NULL. */
const struct override *overrides_written(const struct overrides *overrides, struct slice text, bool is_pattern);
/* Call it after the last overrides_add() and before the first search. */
void overrides_seal(struct overrides *overrides);
/* The variant that counts for `key`, or NULL. */
const struct policy *overrides_find(const struct overrides *overrides, struct slice key);

#endif
