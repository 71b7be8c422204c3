/*
 * policy.h: named policies, and the set of them that one configuration makes.
 *
 * A set is immutable once built and counted: the engine holds one reference, every check in flight
 * another, so a reload never pulls a limit from under a late reply.
 */
#ifndef RL_POLICY_POLICY_H
#define RL_POLICY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/exact.h"
#include "base/list.h"
#include "base/map.h"
#include "base/slice.h"
#include "limit/key_format.h"
#include "limit/limit.h"
#include "policy/override.h"

enum { POLICY_LIMITS_MAX = 16 };

/* The limit of an unlimited policy, and what remains of it: the largest integer that every client can read. */
#define UNLIMITED EXACT_MAX

enum on_failure {
#define ON_FAILURE(ID, ...) ON_FAILURE_##ID,
#include "policy/on_failure.def"
#undef ON_FAILURE
    N_ON_FAILURE
};

enum on_change { ON_CHANGE_KEEP, ON_CHANGE_RESET }; /* what becomes of counters whose limit a reload changes */

/* local_share: the number of daemons that share the store, as the store last counted them. */
enum { LIVE_SHARE = 0 };

struct slice on_failure_name(enum on_failure on_failure); /* "allow", as in the configuration */

struct decision_counts {
    uint64_t decisions[N_SOURCES][2]; /* denied, allowed */
    uint64_t shadow_denied;           /* of allowed */
    uint64_t granted;                 /* units */
    uint64_t near;                    /* allowed, and near the limit: warn_at, or less than a fifth left */
};

enum { ASKED_MINUTES = 10 };

/* The results of the checks of one policy. A reloaded set with a policy of the same name goes on with its counts. */
struct policy_counts {
    _Atomic uint32_t n_refs;             /* a thread builds a new set while another frees an old one */
    struct policy_counts *_Atomic sum;   /* counted there too: of all inline policies, or of those without a name on the
                                            page of metrics; NULL: nowhere */
    struct policy_counts *next_moved;    /* in its set's list, see policy_set_name() */
    struct limit_counts *_Atomic limits; /* owned; only ever added to */
    struct decision_counts all;
    struct decision_counts *in_other;                       /* owned; see policy_counts_of_name(); NULL: 0 */
    uint64_t denied_by_limit;                               /* by any limit; of the sums alone */
    uint64_t candidate_allowed, candidate_denied;           /* by its candidate alone */
    uint64_t candidate_both_allowed, candidate_both_denied; /* by both */
    uint64_t candidate_only_allowed,
        candidate_only_denied; /* of these, the ones that the enforced limits decided differently */
    /* failure.h's, which alone changes them, so that a decision costs nothing more */
    uint64_t failed;         /* of all decisions: failure answers */
    uint64_t decided_before; /* of all decisions: the store's before the last failure answer */
    uint32_t n_in_row;       /* failure answers without a decision in between, that last one included */
    uint16_t local_epoch;    /* how often its part of the failure table has begun anew */
    int64_t failed_us;       /* CLOCK_MONOTONIC of the last failure answer */
    int64_t anew_from_us;    /* that part does not begin anew before */
    /* policy_set_note_asked()'s: decisions of the last ASKED_MINUTES, each by its number modulo that */
    uint64_t n_noted; /* decisions ever, as of the last call */
    int64_t minute;   /* of that */
    uint32_t asked[ASKED_MINUTES];
    _Atomic uint32_t asked_lately; /* their sum; a reload's thread reads it, too */
};

/* The denials by the limits of a name. */
struct limit_counts {
    struct limit_counts *next;
    uint64_t name_hash;
    uint64_t denied;
    uint64_t in_other; /* of these, as in the policy's counts */
};

/* What is shown of policies that the page of metrics does not name: labels come from the configuration alone, and only
 * so many of them. */
extern struct policy_counts policy_counts_inline, policy_counts_other;

uint64_t policy_counts_allowed(const struct policy_counts *counts);
uint64_t policy_counts_denied(const struct policy_counts *counts);
/* What is shown under the policy's name: all but what it counted in policy_counts_other. Only while it has a name. */
struct decision_counts policy_counts_of_name(const struct policy_counts *counts);
uint64_t policy_limit_denied_of_name(const struct limit *limit);
/* Has the policy been decided since its last failure answer? */
bool policy_counts_recovered(const struct policy_counts *counts);

/* Who decides the checks of a plan. */
enum plan_decider {
    DECIDED_BY_LIMITS, /* the store is asked */
    ALLOWED_ALWAYS,    /* unlimited: no store is asked */
    DENIED_ALWAYS,     /* a limit of 0: what costs something is denied, and no store is asked */
};

/*
 * What a policy comes to for a key. An override, an inline policy and a candidate are policies of their own, so each
 * has its plan; plan_for_key() finds the one that counts, when a request is read. From there on a check knows only its
 * plan. The shares that `local` decides by are copies of its limits (failure.c).
 */
struct plan {
    const struct policy *policy; /* its name, version and counts */
    const struct limit *limits;
    uint16_t n_limits; /* 0 if ALLOWED_ALWAYS */

    enum plan_decider decider;
    bool is_plain;         /* its limits alone decide a check: DECIDED_BY_LIMITS, no shadow, no candidate, no lease */
    bool shadow;           /* evaluated and counted, and never denies */
    bool reserves;         /* units can be reserved: every limit can give them back */
    bool has_slots;        /* a limit is of slots, to be acquired and released; an override's: its policy's */
    bool takes_one;        /* some limit takes one unit of a check, whatever its cost; an override's: its policy's */
    bool takes_units;      /* some limit takes as many as it costs */
    bool merges_back;      /* what `local` admits is charged in the store afterwards */
    bool owns_state;       /* some counter belongs to the whole key */
    bool shares;           /* some limit is shared */
    uint16_t n_joined;     /* ids of one key that key_format_id() needs space for, the one of `shard_parts` too */
    key_parts shard_parts; /* those that all limits count by: they decide the shard of the Redis keys */
    enum on_failure on_failure;     /* what is answered without the store: `allow` if nothing is enforced */
    uint32_t deadline_ms;           /* UINT32_MAX if ALLOWED_ALWAYS */
    const struct limit *zero_limit; /* DENIED_ALWAYS: the first limit of 0; else NULL */
    const struct limit *least;    /* the limit with the smallest capacity, of those that count units if there is one, of
                                     several the first; NULL: no limits */
    int64_t max_cost;             /* no check may charge all limits more at once */
    const struct plan *candidate; /* that of its candidate; NULL = none */
};

struct policy {
    struct map_node node;        /* in the set, by name */
    uint32_t index;              /* in the set's in_order */
    char name[NAME_MAX_LEN + 1]; /* [A-Za-z0-9._-]{1,64}; of an inline policy with an id `id+` and 16 hex digits */
    /* What answers and logs call it: the name, or the one that an inline policy was given. */
    char label[NAME_MAX_LEN + 1];
    uint32_t version; /* fingerprint of the settings: equal in every daemon that has the same */
    enum on_failure on_failure;
    uint32_t deadline_ms;    /* an answer by then */
    uint32_t local_share;    /* with on_failure: local, else LIVE_SHARE: what its limits are divided by */
    uint32_t idempotency_ms; /* a request id is remembered for this time */
    uint32_t on_change;      /* enum on_change; a candidate's is its policy's */
    uint32_t warn_at;        /* percent; its limits' */
    bool shadow;             /* evaluated and counted, and never denies */
    char *id; /* owned, but by a variant; of an inline policy whose limit may move: see policy_name_keys(); else NULL */
    struct key_format *format;       /* owned, but by a variant; NULL = keys have no parts */
    struct overrides *overrides;     /* owned; NULL = none */
    const struct policy *base;       /* of a variant (override.h): the policy whose override it is; else NULL */
    const struct override *override; /* of a variant: its entry */
    bool unlimited;                  /* allows everything and asks no store: it has no limits */
    struct policy *candidate;        /* owned; limits on trial, which deny nothing; NULL = none */
    bool is_candidate;               /* it is a candidate: the keys of its limits show it; its format is the policy's */
    struct policy_counts *counts;    /* one reference; a candidate's and a variant's are their policy's */
    uint64_t name_hash;              /* hash_stable() of the name */

    struct plan plan; /* set by policy_seal() */

    uint16_t n_limits; /* 1 to POLICY_LIMITS_MAX; 0 if unlimited */
    struct limit limits[];
};

struct policy_set {
    uint32_t n_refs;
    struct list link; /* in the list of replaced sets (reload.h) */
    struct map by_name;
    size_t n_on_failure[N_ON_FAILURE];    /* policies that give this failure answer; without unlimited ones */
    size_t n_live_shares;                 /* of those with `local`: LIVE_SHARE */
    const struct policy_set *counts_with; /* policy_set_share_counts() was called with it; only compared */
    struct policy_counts *moved;          /* of its policies, for policy_set_move_counts() */
    size_t n, cap;
    struct policy **by_bytes;  /* the same policies by their names, bytewise: policy_set_sort() sets it */
    struct policy *in_order[]; /* owned; as written in the file; by_bytes has its space behind it */
};

/* A policy of n limits (0: unlimited), zeroed but for name, n_limits and each limit's back pointer; NULL
 * without memory. */
struct policy *policy_new(const char *name, uint16_t n_limits);
void policy_free(struct policy *policy);
/* Sets the label of the policy, its candidate and its overrides; up to NAME_MAX_LEN bytes. */
void policy_set_label(struct policy *policy, const char *label);
/* Give `policy` a candidate of n limits, its name, format and back pointers set. 0, or -1 without memory. */
int policy_add_candidate(struct policy *policy, uint16_t n_limits);
/* Completes a limit whose settings and names are set: limit_prepare(), and what its keys begin with. `compat_prefix`
 * replaces the preset's; NULL: its own. */
int policy_prepare_limit(struct limit *limit, const char *compat_prefix, struct diag *diag);
/* The second part of that once more, for a limit without compat whose settings have changed since. With on_change:
 * reset, the names have a fingerprint of the limit's settings; in a policy with an id, of those but `limit`: counts and
 * levels go on under another limit, but two windows that take turns on one counter would be no limit at all. */
void policy_name_keys(struct limit *limit);
/* A copy of a policy that is not sealed yet, as an override of it: to be changed, prepared and added to its overrides.
 * `unlimited`: without its limits. NULL without memory. */
struct policy *policy_variant(const struct policy *base, bool unlimited);
/* Once all limits are prepared and all overrides are there: computes the version and the plan, and those of its
 * variants and its candidate. */
void policy_seal(struct policy *policy);
/* The plan of a policy with these limits, which it does not own; the policy's own, or others with the same names. */
void plan_make(struct plan *plan, const struct policy *policy, const struct limit *limits, key_parts shard_parts);

/* What counts for `key`: an override of the policy, or the policy itself. */
static inline const struct policy *policy_for_key(const struct policy *policy, struct slice key)
{
    const struct policy *variant =
        policy->overrides != NULL ? overrides_find(policy->overrides, policy->format, key) : NULL;
    return variant != NULL ? variant : policy;
}

static inline const struct plan *plan_for_key(const struct policy *policy, struct slice key)
{
    return &policy_for_key(policy, key)->plan;
}

/* The smallest capacity of its limits, or UNLIMITED: more is never admitted at once. */
static inline int64_t plan_capacity(const struct plan *plan)
{
    return plan->least != NULL ? plan->least->full : UNLIMITED;
}

/* The first limit that would charge one counter for both keys, by other numbers for the one than for the other because
 * of an override, or of an id with other numbers; NULL: none. */
const struct limit *policy_conflict(const struct policy *a, struct slice key_a, const struct policy *b,
                                    struct slice key_b);

/* The limit of that name, or NULL. The name is empty if the policy has a single limit without a name. */
const struct limit *policy_find_limit(const struct policy *policy, struct slice name);
/* Does the key fit the policy's format? */
static inline bool policy_takes_key(const struct policy *policy, struct slice key)
{
    return policy->format == NULL || key_format_takes(policy->format, key);
}

/* Two with one name: an inline policy, and the same settings under another label. */
static inline bool policy_is_same(const struct policy *a, const struct policy *b)
{
    return a->name_hash == b->name_hash && strcmp(a->name, b->name) == 0;
}

/* Writes the limit's name on the wire into `out`, which is returned: `policy/limit`, or `policy` if the limit has no
 * name; an inline policy goes by its label. */
enum { LIMIT_PATH_MAX = 2 * NAME_MAX_LEN + 2 };
const char *limit_path(const struct limit *limit, char out[LIMIT_PATH_MAX]);

/* Is `cost` something the policy can be asked for? NULL, or the message for BAD_COST (static). */
const char *policy_cost_fault(const struct policy *policy, int64_t cost);

/* One reference; a set for at most cap policies. NULL without memory. */
struct policy_set *policy_set_new(size_t cap);
void policy_set_add(struct policy_set *set, struct policy *policy); /* takes it over; no other has its name */
void policy_set_free(struct policy_set *set);                       /* policy_set_unref() does */
/* Once all are there. It takes a while if there are many: not on the event loop. */
void policy_set_sort(struct policy_set *set);
/* The index in by_bytes of the first policy whose name comes after `name`, which need not be one of them. */
size_t policy_set_after(const struct policy_set *set, struct slice name);

static inline struct policy_set *policy_set_ref(struct policy_set *set)
{
    CHECK(set->n_refs > 0);
    set->n_refs++;
    return set;
}

/* The last one frees everything; NULL is fine. */
static inline void policy_set_unref(struct policy_set *set)
{
    if (set == NULL) return;
    CHECK(set->n_refs > 0);
    if (--set->n_refs == 0) policy_set_free(set);
}

/* From now on, the policies of `set` share the counts of the policies of `before` with the same names. The second call
 * with the same two sets does nothing: a reload makes the first, which looks up every name, in a thread. */
void policy_set_share_counts(struct policy_set *set, const struct policy_set *before);
/* Policies behind the first n_named, in the order of the file, are also counted in policy_counts_other: from the second
 * call on, which takes time only for those that move. A reload makes the first one in a thread. */
void policy_set_name(struct policy_set *set, size_t n_named);
void policy_set_move_counts(struct policy_set *set);
/* Brings asked_lately up to date, of up to `max` policies from the `cursor`th on; called again and again, it goes
 * round. */
void policy_set_note_asked(struct policy_set *set, size_t *cursor, size_t max, int64_t minute);
const struct policy *policy_find(const struct policy_set *set, struct slice name); /* NULL: there is none */

#endif
