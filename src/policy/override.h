/*
 * override.h: other numbers for some of a policy's keys.
 *
 * An override is a whole policy of its own, a *variant*: the same name, limits and Redis keys, other
 * numbers. The most specific one counts: a key written out, then a network that the key's address is in, then a
 * pattern; of several networks or patterns as network.h and pattern.h say.
 */
#ifndef RL_POLICY_OVERRIDE_H
#define RL_POLICY_OVERRIDE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/map.h"
#include "base/slice.h"
#include "policy/network.h"
#include "policy/pattern.h"

struct policy;

enum override_kind { OVERRIDE_OF_KEY, OVERRIDE_OF_PATTERN, OVERRIDE_OF_NETWORKS };

struct override {
    struct map_node node; /* by text */
    char *text;           /* owned; the key, the pattern, or the networks, one a line */
    enum override_kind kind;
    int part;               /* of the networks: that of the key which is an address; else 0 */
    struct pattern pattern; /* if it is one: in the set */
    struct policy *variant; /* owned by the policy that has the overrides */
};

struct overrides {
    struct override *items; /* owned; as written */
    size_t n, cap;
    struct map by_text;
    struct pattern_set patterns; /* of items */
    struct network_set networks; /* of items */
};

struct overrides *overrides_new(size_t cap);      /* NULL without memory */
void overrides_free(struct overrides *overrides); /* the variants are the caller's; NULL is fine */

/* Takes over `variant` on success and sets its `override`. At most cap of them. 0, or -1 without memory. Networks are
 * added to the set as well, by the override's index. After the last one both sets are sealed: the networks by the reader,
 * because that can fail, the patterns by policy_seal(). */
int overrides_add(struct overrides *overrides, const char *text, enum override_kind kind, int part,
                  struct policy *variant);
/* That of exactly this key or pattern, or of these networks of that part; or NULL. */
const struct override *overrides_written(const struct overrides *overrides, struct slice text, enum override_kind kind,
                                         int part);
/* The variant that counts for `key`, or NULL. `format` is the policy's. */
const struct policy *overrides_find(const struct overrides *overrides, const struct key_format *format,
                                    struct slice key);
/* Which key or pattern this is, or which of its networks counts for `key`: then in `out`. */
const char *override_counting(const struct override *override, struct slice key, char out[NETWORK_TEXT_MAX]);

#endif
