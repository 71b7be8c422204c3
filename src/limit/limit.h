/*
 * limit.h: one limit of a policy, and what every algorithm must offer.
 *
 * An algorithm is one row of algo.def, C in this folder, and a Lua file in lua/. Both halves have the same parts:
 * `prepare` (a limit at one time), `view` (a key's state as of then) and `save`. A view says how much is `used` of a
 * `capacity`, and what a unit takes; all else follows from that, here as in lua/batch.lua:
 *
 *   available   floor((capacity - used) / step)
 *   charge      used = used + units * step
 *   give back   what was charged since the state began: at most ceil(used / step) units; used stays at 0 or above
 *
 * The memory store views its own states. Redis' replies report what the script saw. Either way limit_decide() makes the
 * answer of the view. An algorithm adds only what is its own: how its state is read and written, and its answers in
 * time.
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
#include "limit/key_format.h"
#include "limit/penalty.h"

enum { NAME_MAX_LEN = 64, KEY_HEAD_MAX = 192, N_CONSTANTS = 4 };

#define LIMIT_MAX (INT64_C(1) << 34) /* of any algorithm; limit_prepare refuses more, after configure */

/* How the state lies in Redis; the script reads all strings with one MGET. */
enum state_kind { STATE_STRING, STATE_OTHER };

enum algo {
#define ALGO(id, name, ...) ALGO_##id,
#include "limit/algo.def"
#undef ALGO
    N_ALGOS
};

/*
 * An algorithm's parameters, by its own names; its file says what they mean. The script gets them as `wire`, its a to
 * d, so every struct here has them in that order.
 */
struct constants {
    union {
        int64_t wire[N_CONSTANTS];
        struct {
            int64_t tokens, per_us, admitted, highest;
        } bucket;
        struct {
            int64_t limit, window_ms, offset_ms, counts_denied;
        } window; /* fixed_window, first_hit, compat */
        struct {
            int64_t limit, window_us, none, counts_denied;
        } log;
        struct {
            int64_t limit, window_ms, count_max, none;
        } counter;
        struct {
            int64_t limit, begin_ms, end_ms, next_ms;
        } calendar;
        struct {
            int64_t limit, ttl_ms, none[2];
        } slots;
    };
};

struct policy;
struct calendar;

struct limit {
    char name[NAME_MAX_LEN + 1]; /* "" for a single limit without a name */
    const struct policy *policy; /* the policy that has it */
    uint64_t *n_denied;          /* its policy's count of the denials by limits of its name; NULL: not counted */
    enum algo algo;
    int64_t limit;     /* units per window; 0 = deny always, without asking the store */
    int64_t window_us; /* concurrency: slot_ttl; calendar_window: more than any of its windows, by limit_prepare() */
    struct calendar *calendar; /* calendar_window: see calendar.h; else NULL */
    int32_t anchor;            /* calendar_window: YYYYMMDD; 0 = none */
    int64_t burst;             /* buckets: capacity; else 0 */
    int64_t max_wait_us;       /* leaky_bucket: admitted with a delay up to this; else 0 */
    bool count_denied;         /* denied requests are charged too */
    bool counts_checks;        /* `counts: checks`: a check takes one unit, whatever it costs; see limit_takes_one() */
    bool phase;                /* aligned fixed windows: each key's begin at a time of their own */
    bool shared;               /* its counters belong to some parts of the key only, which other keys may share */
    key_parts parts;           /* if shared: which, of the policy's format */
    bool debt;        /* the policy's: units used beyond a reservation's estimate may be charged above `full` */
    int64_t lease_us; /* units of a busy key are charged ahead, for up to this time; 0 = never */
    uint32_t warn_at; /* the policy's: percent of `full`; a decision with more used is near it; 0 = none is */
    bool merge_back;  /* the policy's: units that a failure table admitted are charged afterwards, above `full` too */
    struct penalty penalty;

    /* Set by limit_prepare(), key_head and its hash by limit_set_key_head(): */
    int64_t window_ms;           /* rounded up; 0 for concurrency; of a calendar only limit_window_ms() knows */
    int64_t full;                /* what a fresh key admits at once: burst, or limit */
    int64_t near_below;          /* with less than this remaining, a decision is near; see warn_at */
    int64_t max_cost;            /* one check may not charge more (a larger cost that is still <= full is BAD_COST) */
    uint32_t life_s;             /* in memory no state lasts longer; UINT32_MAX: it may last forever */
    struct constants constants;  /* see limit_constants() */
    uint64_t head_hash;          /* hash_stable() of algorithm and key_head */
    char key_head[KEY_HEAD_MAX]; /* what the store's key has before the client's key, e.g. "fw1:login/day:";
                                    compat: the foreign prefix with its colon */
    uint16_t key_head_len;
    uint16_t epoch; /* 0; of a copy that a failure table is asked by: its policy's (failure.h) */
};

/* Does a check take one unit of it at most, a slot or a unit of `counts: checks`? Then nothing of it comes back with
 * the units that a reservation gives back. */
static inline bool limit_takes_one(const struct limit *limit)
{
    return limit->counts_checks || limit->algo == ALGO_CONCURRENCY;
}

/* What a check of `cost` units is charged there. */
static inline int64_t limit_cost(const struct limit *limit, int64_t cost)
{
    return cost > 1 && limit_takes_one(limit) ? 1 : cost;
}

/* A state in memory: what the script keeps in a Redis value. Zeroed = fresh. */
struct state {
    union {
        struct {
            int64_t tat_us, rest;
        } bucket;
        struct {
            int64_t number, count;
        } window;
        struct {
            int64_t count, end_ms;
        } span; /* first_hit, calendar_window */
        struct {
            int64_t number, previous, count;
        } counter;
        struct pause pause; /* in an entry of its own, next to the counter's */
    };
    struct time_ring *log;     /* owned; logs only; see time_ring.h */
    struct lease_list *leases; /* owned; concurrency only; see lease_list.h */
};

/* A limit at one time, and a key's state as of then. */
struct view {
    const struct limit *limit;
    struct constants constants;
    int64_t now_us; /* of the store */

    /* Set by prepare: */
    int64_t now;      /* in the algorithm's own unit: us (as limit_at() sets it) or ms */
    int64_t number;   /* windows: of the present one */
    int64_t edge;     /* windows: when the present one ends */
    int64_t step;     /* what a unit adds to `used`; 1 */
    int64_t queue;    /* leaky_bucket: so much of the capacity is admitted with a delay */
    int64_t start;    /* what `extra` becomes with a charge; 0: it stays */
    int64_t capacity; /* up to which `used` may rise; the limit */
    int64_t since_us; /* units charged before this are over and cannot be given back; 0 */

    /* The state, set by view or reported by a server: */
    int64_t used;    /* what is charged now */
    int64_t extra;   /* a second integer, of some algorithms */
    int64_t wait_us; /* logs: until a check that is denied now would pass; reported, or set by limit_decide() */
    const struct state *state; /* what was viewed; NULL: reported */
    bool found;                /* there is a state */
    bool stale; /* it is ahead of the clock and was clamped: save it even if nothing is charged (a denial, a peek),
                   or every later answer would repeat the clamp until the clock has caught up */
    struct pause pause; /* of its penalty, set by limit_pause(); zeroed: none */
    int64_t pause_ms;   /* how long that lasts from now on; 0: no pause runs */
    bool begins_pause;  /* a denial has begun it: save it, unless it was a peek */

    int64_t charged;  /* units since then */
    const char *slot; /* concurrency: the id of the slot that save() takes; else NULL */
};

/* No units of a key are leased below so many that are left. */
enum { LEASE_LEFT_MIN = 64 };

/* A state for explain: numbers by name, none of them an absolute time. */
enum { STATE_TERMS_MAX = 6, WINDOW_NAME_MAX = 24 };

struct state_terms {
    size_t n;
    struct {
        const char *name; /* static; durations end in _ms */
        int64_t value;
    } at[STATE_TERMS_MAX];
};

/* What is wrong with a limit's settings: which one, for the program; and a text for the operator, which no code reads.
 */
struct diag {
    const char *setting; /* its name, as in a file; static */
    char text[256];      /* "is wrong like this; write that" */
};

/* `setting` is wrong. Returns -1. */
int diag_invalid(struct diag *diag, const char *setting, const char *format, ...) __attribute__((format(printf, 3, 4)));

struct algo_ops {
    const char *name;    /* in the configuration, e.g. "fixed_window" */
    const char *key_tag; /* algorithm and format in the key, e.g. "fw1"; NULL for compat */
    enum state_kind kind;
    bool is_compat;
    bool has_extra;            /* `extra` is used */
    bool renews;               /* every charge raises `extra` to `start`; else only one that finds it 0 sets it */
    bool has_wait;             /* a denial's retry needs more than the view (logs) */
    bool refunds;              /* units can be given back */
    bool plain;                /* the script has a way of its own for one item per key, without MGET */
    bool merges;               /* equal checks of one key may be decided as one; never if limit->count_denied */
    const char *compat_prefix; /* compat: the foreign keys' prefix without its last colon; else NULL */

    /* Check what cannot be counted exactly, and set full, max_cost, constants. 0, or -1 with `diag` filled. */
    int (*configure)(struct limit *limit, struct diag *diag);
    /* The view's second part, from its first. */
    void (*prepare)(struct view *view);
    /* The third part, from a state in memory, whose times ahead of now become now. */
    void (*view)(struct view *view, struct state *state);
    /* May a server that works report this state, as view (or refund) leaves it? What its clocks, other settings or
     * other daemons have left is all view's to clamp; what is false here makes answers that no client can act upon,
     * such as a denial without a wait. used and extra are 0 to 2^53. */
    bool (*plausible)(const struct view *view);
    /* Write the state, with what was charged. It cannot fail after reserve(). Returns when the state equals fresh
     * again, in us since the epoch: memory's expiry. */
    int64_t (*save)(const struct view *view, struct state *state);
    /* Until the whole limit is available again, without further charges. */
    int64_t (*reset_ms)(const struct view *view);
    /* Until a check of `cost`, at most `full`, that does not pass now would pass; what it was charged is in the view.
     */
    int64_t (*retry_ms)(const struct view *view, int64_t cost);
    /* What used and extra mean, before any charge. */
    void (*describe)(const struct view *view, struct state_terms *ret);

    /* NULL for an algorithm that needs none: */

    /* Those constants that follow from the host's clock. */
    void (*constants)(const struct limit *limit, int64_t wall_us, struct constants *ret);
    /* If it depends on `extra`. */
    int64_t (*capacity)(const struct view *view);
    /* How long the present window is, if not all are equal. */
    int64_t (*window_ms)(const struct limit *limit, int64_t now_us);
    /* How long to wait for what was admitted into the queue. */
    int64_t (*delay_ms)(const struct view *view);
    /* With has_wait: the view's wait_us for a check of `cost` that does not pass now, from a state in memory. */
    int64_t (*wait_us)(const struct view *view, int64_t cost);
    /* Lists: make space for so many units more. 0, or -1 without memory. */
    int (*reserve)(const struct view *view, struct state *state, int64_t units);
    /* Lists: limit_refund() of theirs; what it gives back goes from `state` here. */
    int64_t (*refund)(struct view *view, struct state *state, int64_t units, int64_t charged_us);
    /* Compat: what the key in Redis ends in, after the client's, in WINDOW_NAME_MAX bytes. */
    void (*name_window)(const struct view *view, char *out);
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

/* The algorithm of a configured name (`algorithm:`, `compat:`); or -1. `fixed_window` is the aligned
 * one: `start: first_hit` is ALGO_FIRST_HIT. */
int algo_of_name(const char *name);
int compat_of_name(const char *name);

/* Checks the values of the upper half, and sets the lower half but for its key_head. 0, or -1 with `diag` filled. */
int limit_prepare(struct limit *limit, struct diag *diag);
/* Of a limit that is prepared: from when on its decisions are near it, 0 to 100; see warn_at. */
void limit_set_warn_at(struct limit *limit, uint32_t percent);
/* `limit` divided among n: limit, burst and slots, rounded up, with the same keys. What they share out once is never
 * more than n - 1 above the whole. A rate that cannot be counted exactly when it is rounded up is divided without
 * rounding, or rounded down, and then the burst may be, too. */
void limit_share(struct limit *ret, const struct limit *limit, int64_t n);
/* Sets key_head and its hash. `owner`: what the policy's counters go by, or the prefix of a compat limit.
 * `fingerprint`: of settings with which the keys change their names; 0: of none. */
void limit_set_key_head(struct limit *limit, const char *owner, uint32_t fingerprint);

/*
 * The constants for checks on a key of phase_ms (see limit_phase) that wait at most max_wait_us, as seen by a host
 * whose clock says wall_us: a guess of the store's, which is the one that counts. They are not the limit's alone,
 * because some follow from the checks (the wait they bring, their key's phase) and some from the time (a calendar's
 * edges). Who sends them to the script views its reply with the same ones.
 */
void limit_constants(struct constants *ret, const struct limit *limit, int64_t phase_ms, int64_t max_wait_us,
                     int64_t wall_us);

/* Begins a view: `limit` at now_us, the store's time, without a state yet. */
void limit_at(struct view *view, const struct limit *limit, const struct constants *constants, int64_t now_us);
/* The same for a store whose clock is the host's. */
void limit_here(struct view *view, const struct limit *limit, struct slice key, int64_t max_wait_us, int64_t now_us);

/* Adds a state in memory, which must not move while the view is used. */
void limit_view(struct view *view, struct state *state);
/* Adds a state that a server has reported. wait_us: for a denial's retry, if the algorithm has_wait. */
void limit_report(struct view *view, int64_t used, int64_t extra, int64_t wait_us);

static inline bool limit_has_penalty(const struct limit *limit)
{
    return limit->penalty.time_ms > 0;
}

/* Adds the pause that was stored with the state: of a limit with a penalty. While it runs, the view's answers have
 * nothing available. True: it was clamped, and is to be written. */
bool limit_pause(struct view *view, struct pause stored);

/* Units that its counter could be charged now, without a delay; at least 0. */
static inline int64_t limit_remaining(const struct view *view)
{
    int64_t available = view->capacity - view->queue - view->used;
    return available > 0 ? available / view->step : 0;
}

/* Of `k` checks of `cost` units each, how many of the first ones are admitted? A cost above the limit's capacity never
 * is, even if a bucket that lets wait could take it. For several limits the caller takes the smallest. */
static inline int64_t limit_fits(const struct view *view, int64_t cost, int64_t k)
{
    if (cost == 0) return k;
    if (cost > view->limit->full || view->used + cost * view->step > view->capacity) return 0;
    if (limit_has_penalty(view->limit) && view->pause_ms > 0) return 0;
    if (k <= 1) return k;
    int64_t fit = (view->capacity - view->used) / (cost * view->step);
    return fit < k ? fit : k;
}

/* How many units, already used, may be charged whatever a check's answer would be: what fits, and `debt` units. */
int64_t limit_fits_used(const struct view *view, int64_t debt);

static inline void limit_charge(struct view *view, int64_t units)
{
    view->used += units * view->step;
    view->charged += units;
    if (view->start == 0) return;
    bool is_raised = limit_ops(view->limit)->renews && view->extra < view->start;
    if (view->extra == 0 || is_raised) view->extra = view->start;
}

/* Give back as much as possible of `units` that were charged at charged_us; `state` is the viewed one. Returns how many
 * units that is. */
int64_t limit_refund(struct view *view, struct state *state, int64_t units, int64_t charged_us);

/* Take back a charge of `units` at charged_us, as if it had not been: the same, but never more than it still takes.
 * What has drained from a bucket since then would have drained without it, too, so others that were charged meanwhile
 * stay charged.
 * `level` > 0: a bucket's at charged_us. Then whole units come off it, and only if nothing but what drains has changed
 * it since: so no charge came behind these units. */
int64_t limit_undo(struct view *view, struct state *state, int64_t units, int64_t charged_us, int64_t level);

/*
 * Decides one check, charges it to the view, and returns the units charged: the cost of a check that is admitted, or
 * whose denial the limit counts. A cost of 0 charges nothing and is allowed. Fills `ret` but for source, reason and
 * version.
 *
 * `fits` is this limit's own verdict (limit_fits() has admitted one such check), which becomes ret->allowed.
 * `admitted`, the verdict of all the check's limits together, decides what is charged. If this limit fits, but has
 * counted what another one denied, retry_after_ms is how long it denies from now on. A denial that finds nothing
 * available begins the pause of a penalty. After a peek the caller drops the view.
 */
int64_t limit_decide(struct view *view, int64_t cost, bool fits, bool admitted, struct decision *ret);

/* The answer to a check that was charged `granted` units, which the view includes: allowed, even if the limit would
 * deny it by now. */
void limit_answer(const struct view *view, int64_t granted, struct decision *ret);

/* How long the limit's window is at now_us, rounded up; 0 for concurrency, which has none. */
int64_t limit_window_ms(const struct limit *limit, int64_t now_us);

/* How long after multiples of their length the windows of `key` begin; 0 without `phase`. Equal in every daemon. */
int64_t limit_phase(const struct limit *limit, struct slice key);

/* The check's max_wait, at most the limit's. */
static inline int64_t limit_max_wait(const struct limit *limit, int64_t asked_us)
{
    return asked_us < limit->max_wait_us ? asked_us : limit->max_wait_us;
}

/* By how many units reservations and merges may lift the charges above full. */
static inline int64_t limit_most_debt(const struct limit *limit)
{
    return limit->debt || limit->merge_back ? limit->full : 0;
}

/* How many times `full` its charges may reach. */
static inline int64_t limit_depth(const struct limit *limit)
{
    return limit->debt || limit->merge_back ? 2 : 1;
}

/* The setting because of which they may rise above full, for messages. */
static inline const char *limit_debt_name(const struct limit *limit)
{
    return limit->debt ? "debt" : "merge_back";
}

/* Forget what a state holds on the heap; it is fresh afterwards. */
void state_fini(struct state *state);

/* For the algorithms: one more term of a description. */
static inline void state_add(struct state_terms *terms, const char *name, int64_t value)
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

#endif
