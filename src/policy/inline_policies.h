/*
 * inline_policies.h: policies that clients write out in their requests, kept while they are used.
 *
 *   packed map ─▶ seen in this spelling? ───────────────────────────────────────────────────▶ its set
 *        └ no ─▶ tree_unpack, tree_write ─▶ seen as these settings? ─▶ one more spelling ─────┘
 *                     └ no ─▶ policy_read: a policy `inline-<fingerprint of the settings>` ───┘
 *                             or, of settings with an `id`, `id+<hash of the id>`
 *
 * The name depends on the settings alone, so every daemon counts in the same place. At most `max` are kept; for one
 * more, the one that was used least recently goes, of those that no check holds.
 *
 * `name` among the settings is a label: answers and logs call the policy so. It is not one of the settings that count:
 * equal settings under several labels are kept apart here, and have one name, one fingerprint and one set of counters.
 *
 * With an `id` the counters are the id's: its limit may be another one in each request. Each id has one policy,
 * the one that was read last.
 */
#ifndef RL_POLICY_INLINE_POLICIES_H
#define RL_POLICY_INLINE_POLICIES_H

#include <string.h>

#include "base/counters.h"
#include "base/list.h"
#include "base/map.h"
#include "base/slice.h"
#include "policy/policy_read.h"
#include "proto/error.h"

#define INLINE_NAME_HEAD "inline-" /* of the names that are made here; no policy of a configuration has it */
#define INLINE_ID_HEAD   "id+"     /* and of those with an id */

/* Is it of a policy that is made here? */
static inline bool inline_is_name(const char *name)
{
    return strncmp(name, INLINE_NAME_HEAD, sizeof INLINE_NAME_HEAD - 1) == 0 ||
           strncmp(name, INLINE_ID_HEAD, sizeof INLINE_ID_HEAD - 1) == 0;
}

#define INLINE_COUNTERS(COUNTER, GAUGE)                                                                                \
    COUNTER(inline_evicted, "inline policies given up for others because inline.max_policies was reached")             \
    GAUGE(inline_policies, "inline policies kept now")

COUNTERS_DECLARE(inline, INLINE_COUNTERS);

enum {
    INLINE_BYTES_MAX = 4096, /* of one policy's settings, packed */
    INLINE_LISTED = 1000,    /* of one list: the last used ones */
};

struct inline_policy;

struct inline_policies {
    struct map by_name;     /* of all: `inline-...`, `id+...` */
    struct map by_label;    /* of those that have one */
    struct map by_spelling; /* of each policy: as tree_write() writes it, and as clients do, the last few ways */
    struct list by_use;     /* struct inline_policy, owned; the least recently used first */
    size_t n, max;
    size_t n_live_shares; /* of these, policies that are answered locally with LIVE_SHARE */
    uint64_t n_read;      /* maps that were not known and had to be read, ever */
    struct list replaced; /* struct inline_policy, owned: of an earlier configuration, to be freed bit by bit */
    struct inline_policy *listed[INLINE_LISTED]; /* of the list that was begun last; NULL: given up since */
    size_t n_listed, next_listed;
    struct policy_defaults defaults;
};

void inline_policies_init(struct inline_policies *policies); /* configure it next */
void inline_policies_fini(struct inline_policies *policies);
/* New defaults and bounds: what was kept is let go, and made anew with them when it is asked for. 0; -1 without memory
 * for the first table: then nothing can be found. (A later one that is not there leaves the table as wide as it was.)
 */
int inline_policies_configure(struct inline_policies *policies, size_t max, struct policy_defaults defaults);
/* Frees up to `max` of the policies that were let go; to free a million at once would stop the loop for a second. */
void inline_policies_free_replaced(struct inline_policies *policies, size_t max);

/* The set of the one policy that the packed map describes, the cache's own until the next call; or the code and the
 * text of an error, of at most `size` bytes. */
enum error_code inline_policies_find(struct inline_policies *policies, struct slice map, struct policy_set **ret_set,
                                     char *text, size_t size);

/* The same for one that is kept, by its name or its label. ERROR_UNKNOWN_POLICY: none has it, and the text is empty;
 * or the label is that of several. */
enum error_code inline_policies_named(struct inline_policies *policies, struct slice name, struct policy_set **ret_set,
                                      char *text, size_t size);

/* A list of those that are kept now, the last used first, to be read a few at a time; the one before it ends. */
void inline_policies_begin_list(struct inline_policies *policies);
/* The next one of the list that is still kept, borrowed; NULL: no more. */
const struct policy *inline_policies_next_listed(struct inline_policies *policies);

#endif
