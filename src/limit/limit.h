/*
 * limit.h: one limit of a policy, and what every algorithm must offer.
 *
 * An algorithm is one row of algo.def, one C file here, and one Lua file of the same name in
 * lua/. Both sides speak of the same four things: a *run* (the limit's constants at one `now`), a
 * *state* as of now reduced to two integers s1 and s2, the *room* (units that may still be
 * charged: one integer), and the *charge*. The store that owns the state (Redis through the
 * script, or memory) reads and writes it; the answer to the client is derived here, from s1 and
 * s2, for every store alike.
 *
 * Source of the definitions: lua/ALGORITHMS.md and the comments at the
 * head of each algorithm's file. Integers only; every product stays below 2^53 (limit_prepare
 * refuses what would not), because Lua counts in doubles.
 */
#ifndef RL_LIMIT_LIMIT_H
#define RL_LIMIT_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "limit/decision.h"
#include "limit/diag.h"
#include "limit/key_format.h"

enum { NAME_MAX_LEN = 64, KEY_HEAD_MAX = 192 };

#define LIMIT_MAX (INT64_C(1) << 34) /* of any algorithm; limit_prepare refuses more, after configure */

/* How the state lies in Redis; the script reads all strings with one MGET. */
enum state_kind { STATE_STRING, STATE_OTHER };

enum algo {
#define ALGO(id, name, ...) ALGO_##id,
#include "limit/algo.def"
#undef ALGO
    N_ALGOS
};

struct policy;
struct calendar;

struct limit {
    char name[NAME_MAX_LEN + 1]; /* "" where the policy has one limit without a name */
    const struct policy *policy; /* the policy it stands in */
    enum algo algo;
    int64_t limit; /* units per window; 0 = deny always, without asking the store */
    int64_t
        window_us; /* calendar_window: set by limit_prepare, to more than any of its windows; concurrency: slot_ttl */
    struct calendar *calendar; /* calendar_window: see calendar.h; else NULL */
    int64_t burst;             /* buckets: capacity; else 0 */
    int64_t max_wait_us;       /* leaky_bucket: admitted with a delay up to this; else 0 */
    bool count_denied;         /* denied requests are charged too */
    bool phase;                /* aligned fixed windows: those of each key begin at a moment of its own */
    bool shared;               /* its counters belong to some parts of the key only, which other keys have too */
    key_parts parts;           /* where shared: which, of the policy's format */
    bool debt;                 /* the policy's: what a reservation used beyond its estimate is charged beyond full */

    /* Set by limit_prepare(): */
    int64_t full;                /* what a fresh key admits at once: burst, or limit */
    int64_t max_cost;            /* one check may not charge more (a larger cost that is still <= full is BAD_COST) */
    int64_t a, b, c, d;          /* of the script's run header, as the algorithm's file says; see struct constants */
    char key_head[KEY_HEAD_MAX]; /* what stands before the client's key in the store's key, e.g. "fw1:login/day:";
                                    compat: the foreign prefix with its colon */
    uint16_t key_head_len;
};

/*
 * The constants of a run: what the script is told of a limit before it looks at its own clock. They are a run's, not
 * the limit's, because some follow from the checks (the wait they bring, their key's phase) and some from the time
 * (a calendar's edges). Whoever sends them to the script replays with the same ones.
 */
struct constants {
    int64_t a, b, c, d;
};

/* A limit's constants at one instant. What the fields mean is the algorithm's own business. */
struct run {
    const struct limit *limit;
    int64_t now_us; /* of the store */
    int64_t now;    /* in the algorithm's own unit: us, or ms */
    int64_t a, b, c, d;
    int64_t edge;     /* windows: id or end of the present one */
    const char *slot; /* concurrency: the id of the slot that store() takes; else NULL */
};

/* A state in memory: what the script keeps in a Redis value. Zeroed = fresh. */
struct state {
    int64_t v[3];
    struct time_ring *log;     /* owned; logs only; see time_ring.h */
    struct lease_list *leases; /* owned; concurrency only; see lease_list.h */
};

/* A state for people: numbers by name, none of them an absolute time. */
enum { STATE_TERMS_MAX = 4, WINDOW_NAME_MAX = 24 };

struct state_terms {
    size_t n;
    struct {
        const char *name; /* static; durations end in _ms */
        int64_t value;
    } at[STATE_TERMS_MAX];
};

struct algo_ops {
    const char *name;    /* in the configuration, e.g. "fixed_window" */
    const char *key_tag; /* algorithm and format in the key, e.g. "fw1"; NULL for compat */
    enum state_kind kind;
    bool is_compat;
    bool has_s2;   /* the script replies s2 too */
    bool has_wait; /* a denial's retry needs more than s1 and s2 (logs) */
    bool plain;    /* the script has a way of its own for one item per key, without MGET */
    bool merges;   /* equal checks of one key may be decided as one; never where limit->count_denied */
    /* Check what cannot be counted exactly, and set full, max_cost, a, b, c, d. 0, or -1 with `diag` filled. */
    int (*configure)(struct limit *limit, struct diag *diag);
    /* Those of `ret` that follow from the host's clock. NULL where none does. */
    void (*constants)(const struct limit *limit, int64_t wall_us, struct constants *ret);
    void (*prepare)(struct run *run); /* from run->limit and run->now_us */
    /* The state as of now; keep: 1 = stands, 0 = fresh, -1 = clamped: store() must follow even where nothing is
     * charged (a denial, a peek), or every later answer would repeat the clamp until the clock has caught up. */
    void (*view)(const struct run *run, struct state *raw, int64_t *ret_s1, int64_t *ret_s2, int64_t *ret_keep);
    /* May a server that works say these of a state, as view (or refund) leaves them at the run's now? What its clocks,
     * other settings or other daemons have left is all view's to clamp; what is false here makes answers that nobody
     * can act upon, such as a denial without a wait. Both are 0 to 2^53. */
    bool (*plausible)(const struct run *run, int64_t s1, int64_t s2);
    int64_t (*room)(const struct run *run, int64_t s1, int64_t s2); /* units that may be charged; may be <= 0 */
    /* s1, s2 after `units` were charged. */
    void (*charge)(const struct run *run, int64_t *s1, int64_t *s2, int64_t units);
    /* Logs: microseconds until a check of `cost` that is denied now would be admitted, s1 units being live (those
     * charged since `raw` was viewed included; the denied cost itself not, counted or not). NULL where has_wait is
     * false. */
    int64_t (*wait)(const struct run *run, const struct state *raw, int64_t s1, int64_t cost);
    /* Logs: room for that many units more, so that store() cannot fail. 0, or -1 without memory. NULL where store()
     * never fails. */
    int (*reserve)(const struct run *run, struct state *raw, int64_t units);
    /* Write the state after `units` were charged to what view returned. 0, or -1 without memory. */
    int (*store)(const struct run *run, struct state *raw, int64_t s1, int64_t s2, int64_t keep, int64_t units);
    /* What is left when as much as possible of `units`, charged at `made_us`, is given back: s1 and s2, to be written
     * by store() with 0 units; of a log the times in `raw` go here. Returns how many units that is. NULL: not for this
     * algorithm. */
    int64_t (*refund)(const struct run *run, struct state *raw, int64_t *s1, int64_t *s2, int64_t units,
                      int64_t made_us);
    /* remaining, reset_after_ms and, when !allowed, retry_after_ms of a state (after the charge, if any). */
    void (*answer)(const struct run *run, int64_t s1, int64_t s2, bool allowed, int64_t cost, int64_t wait,
                   struct decision *ret);
    /* When the state equals fresh again, in us since the epoch: memory's expiry. */
    int64_t (*expires)(const struct run *run, const struct state *raw);
    /* What s1 and s2 say at the run's now; as view gives them, before any charge. */
    void (*describe)(const struct run *run, int64_t s1, int64_t s2, struct state_terms *ret);
    /* Compat: what the key in Redis ends in, after the client's, in WINDOW_NAME_MAX bytes; NULL where in nothing. */
    void (*name_window)(const struct run *run, char *out);
    const char *compat_prefix; /* compat: the foreign keys' prefix without its last colon; else NULL */
};

extern const struct algo_ops *const algo_table[N_ALGOS];

static inline const struct algo_ops *limit_ops(const struct limit *limit)
{
    return algo_table[limit->algo];
}

/* Has it a burst? */
static inline bool limit_is_bucket(const struct limit *limit)
{
    return limit->algo == ALGO_BUCKET || limit->algo == ALGO_LEAKY_BUCKET;
}

/* `algorithm: fixed_window`, with either start. */
static inline bool limit_is_fixed_window(const struct limit *limit)
{
    return limit->algo == ALGO_FIXED_WINDOW || limit->algo == ALGO_FIRST_HIT;
}

/* The algorithm of a configured name (`algorithm:`, `compat:`); -1 where there is none. `fixed_window` is the aligned
 * one: `start: first_hit` is ALGO_FIRST_HIT. */
int algo_of_name(const char *name);
int compat_of_name(const char *name);

/* Complete a limit whose upper half is filled: checks its values, sets the lower half (key_head too; limit->policy
 * and both names must stand; `compat_prefix` replaces the preset's, NULL = its own). 0, or -1 with `diag` filled. */
int limit_prepare(struct limit *limit, const char *compat_prefix, struct diag *diag);

/*
 * The one sharing-out, as in lua/batch.lua: of `k` checks of `cost` units each, how
 * many of the first ones are admitted into `room`? For several limits the caller takes the smallest.
 */
int64_t limit_fit(int64_t room, int64_t cost, int64_t k);
/* The same of a state: room is what it has, and a cost above the limit's capacity never fits, even where there is room
 * (a bucket that lets wait). */
int64_t limit_fits(const struct run *run, int64_t s1, int64_t s2, int64_t cost, int64_t k);

/* How many units, already used, may be charged to a state whatever a check would be told: what fits, and the limit's
 * debt. At least 0. */
int64_t limit_fits_used(const struct run *run, int64_t s1, int64_t s2);

/*
 * Decide one check on one state already viewed: charges s1/s2 where allowed (or counted), fills `ret` but
 * for source, reason and version, and returns the units charged. `wait` is what the store said (logs, denied).
 * A cost of 0 charges nothing and is allowed. `admitted` is the verdict of all the check's limits together: it says
 * what is charged; ret->allowed is this limit's own verdict. A limit that would have allowed, but has counted what
 * another one denied, says in retry_after_ms how long it stands in the way itself now. For a peek, pass copies of s1
 * and s2 and store nothing.
 */
int64_t limit_decide(const struct run *run, int64_t *s1, int64_t *s2, int64_t cost, bool admitted, int64_t wait,
                     struct decision *ret);

/* The answer that was given when `granted` units were charged to s1 and s2: allowed, whatever the limit says by now.
 * Where those are a later state, which holds the charge already, `charged` is 0. */
void limit_answer_again(const struct run *run, int64_t s1, int64_t s2, int64_t charged, int64_t granted,
                        struct decision *ret);

/* The constants for checks on a key of phase_ms (see limit_phase) that wait at most max_wait_us, as seen by a host
 * whose clock says wall_us: a guess of the store's, which is the one that counts. */
void limit_constants(struct constants *ret, const struct limit *limit, int64_t phase_ms, int64_t max_wait_us,
                     int64_t wall_us);

/* Fill `run` for `limit` at `now_us`, the store's time. */
void limit_run(struct run *run, const struct limit *limit, const struct constants *constants, int64_t now_us);
/* The same where the store's clock is the host's own. */
void limit_run_here(struct run *run, const struct limit *limit, struct slice key, int64_t max_wait_us, int64_t now_us);

/* How far the windows of `key` begin behind multiples of their length; 0 but with `phase`. Equal in every daemon. */
int64_t limit_phase(const struct limit *limit, struct slice key);

/* The wait a check is willing to take, as far as the policy lets it. */
static inline int64_t limit_max_wait(const struct limit *limit, int64_t asked_us)
{
    return asked_us < limit->max_wait_us ? asked_us : limit->max_wait_us;
}

/* By how many units a settled reservation may lift the charges above full. */
static inline int64_t limit_debt(const struct limit *limit)
{
    return limit->debt ? limit->full : 0;
}

/* Forget what a state holds on the heap; it is fresh afterwards. */
void state_fini(struct state *state);

/* For the algorithms: one more term of a description. */
static inline void state_say(struct state_terms *terms, const char *name, int64_t value)
{
    if (terms->n == STATE_TERMS_MAX) return;
    terms->at[terms->n].name = name;
    terms->at[terms->n++].value = value;
}

/* For the algorithms: whole milliseconds or quotients, rounded up; a, b >= 0, b > 0. */
static inline int64_t div_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/*
 * Several limits (or several decisions), one decision, all or nothing. retry_after_ms: the longest, never being longer
 * than any; bound_by: limits[i] of the denying member with the longest; delay_ms the largest, remaining the smallest.
 * limit and reset_after_ms: denied, those of bound_by (but not before the retry); allowed, the limit with the smallest
 * remaining, and the longest reset, after which all are whole. granted is the first member's.
 */
void decision_combine(struct decision *ret, const struct decision *members, const struct limit *const *limits,
                      size_t n);

#endif
