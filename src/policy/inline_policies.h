/*
 * inline_policies.h: policies that clients write out in their requests, kept while they are used.
 *
 *   packed map ─▶ seen in this very form? ─────────────────────────────────────────────────▶ its set
 *        └ no ─▶ tree_unpack, tree_write ─▶ seen as these settings? ─▶ one more form of them ─┘
 *                     └ no ─▶ policy_read: a policy `inline-<fingerprint of the settings>` ───┘
 *
 * The name depends on the settings alone, so every daemon counts in the same place. At most `max` are kept; for one
 * more, the one that was used least recently goes, of those that no check holds.
 */
#ifndef RL_POLICY_INLINE_POLICIES_H
#define RL_POLICY_INLINE_POLICIES_H

#include "base/counters.h"
#include "base/list.h"
#include "base/map.h"
#include "base/slice.h"
#include "policy/policy_read.h"
#include "proto/error.h"

#define INLINE_COUNTERS(COUNTER, GAUGE)                                                                                \
    COUNTER(inline_evicted, "inline policies given up for others because inline.max_policies was reached")             \
    GAUGE(inline_policies, "inline policies kept now")

COUNTERS_DECLARE(inline, INLINE_COUNTERS);

enum { INLINE_BYTES_MAX = 4096 /* of one policy's settings, packed */ };

struct inline_policies {
    struct map by_form; /* of each policy: as tree_write() writes it, and as clients do, the last few ways */
    struct list by_use; /* struct inline_policy, owned; the least recently used first */
    size_t n, max;
    struct policy_defaults defaults;
};

int inline_policies_init(struct inline_policies *policies); /* 0, or -1 without memory; configure it next */
void inline_policies_fini(struct inline_policies *policies);
/* New defaults and bounds: what was kept is let go, and made anew with them when it is asked for. */
void inline_policies_configure(struct inline_policies *policies, size_t max, struct policy_defaults defaults);

/* The set of the one policy that the packed map describes, the cache's own until the next call; or the code and the
 * text of an error, of at most `size` bytes. */
enum error_code inline_policies_find(struct inline_policies *policies, struct slice map, struct policy_set **ret_set,
                                     char *text, size_t size);

#endif
