/*
 * random_traces.c: see random_traces.h.
 *
 * On the memory store, a check, an acquire or a peek first gives back the units of ended reservations of its policy and key. On
 * Redis, the daemon requests that (OP_SWEEP). So a trace has sweeps before each check of a key that may have ended
 * reservations: in some traces for Redis alone, in others for both sides, and as many as are needed. A repeated answer
 * (a request id) on the memory store does not sweep, so before such a check both sides sweep.
 *
 * A host whose clock is ahead does not know exactly when the previous calendar window began, and which reservations
 * were charged in it. So in traces with reservations, the host's clock is that of Redis.
 *
 * A fixed window stores its number mod 2^16. Only the key's expiry, which a test's clock does not drive, separates
 * other windows. So a trace is always shorter than 2^15 of its shortest windows.
 *
 * A policy's numbers change by an override of its key, and by a reload. A candidate's limits have counters of their
 * own.
 */
#include "replay/random_traces.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "redis/batch.h"
#include "replay/random_policies.h"
#include "replay/trace_random.h"

enum {
    N_KEYS = 4,
    RESERVATIONS_MAX = 64,
    SLOTS_MAX = 64,
    MOMENTS_MAX = 16,
    KINDS_MAX = 64,
    SWEPT_AT_ONCE = 64,
};

#define START_US    INT64_C(4000000000000000) /* in the future, so that no key's expiry has passed */
#define LAST_US     INT64_C(8900000000000000) /* below 2^53 */
#define WINDOWS_MAX 30000

struct asked {
    int policy, key;
    bool of_candidate; /* limits on trial, in place of the policy's own */
};

/* A step under construction. */
struct question {
    struct trace_step step;
    struct asked asked[2];
    int n_asked;
};

/* The data about the reservations of a policy and key that a sweep needs. */
struct held {
    int64_t first_end_ms; /* lower bound of their ends */
    int64_t n;            /* upper bound of their number, with tombstones */
};

static int64_t now_us;
static int64_t usual_wait_us; /* the wait of most checks of a tick: a check with another wait ends the batch */
static enum trace_kind kinds[KINDS_MAX]; /* the kinds of steps of a tick; frequent kinds occur several times */
static size_t n_kinds;
static bool is_rich;          /* not only checks and peeks */
static bool has_slots;        /* with slots */
static bool has_reservations; /* with reservations */
static bool sweeps_both;
static bool reloads;
static uint32_t keep_ms; /* how long a request id is remembered */

static struct held held[TRACE_POLICIES][N_KEYS];
static struct op_member last_charged;     /* of a bucket, in the tick before; cost 0 = none */
static struct op_reservation last_charge; /* when, and the level that it left */
static struct known_reservation {
    struct asked asked;
    struct op_reservation reservation;
} reservations[RESERVATIONS_MAX]; /* the latest reservations */
static struct known_slot {
    struct asked asked;
    char id[SLOT_ID_LEN];
} slots[SLOTS_MAX]; /* the latest slots */
static size_t n_reservations, n_slots, n_moments;
static int64_t moments[MOMENTS_MAX]; /* some of the times when a reservation, lease or record ends */

uint64_t trace_random_state;

/* One of n, mostly one of the last. */
static size_t recent(size_t n)
{
    size_t few = n < 4 ? n : 4;
    return n - 1 - (size_t)below((int64_t)(once_in(5) ? n : few));
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

static struct slice key_of(struct asked asked)
{
    static const char *const keys[N_KEYS] = {"a:a", "a:b", "b:a", "b:b"};
    return slice_of(keys[asked.key]);
}

static struct asked random_asked(int64_t first, int64_t n)
{
    return (struct asked){.policy = (int)(first + below(n)), .key = once_in(2) ? 0 : (int)below(N_KEYS)};
}

/* What counts for the key. */
static const struct policy *policy_of(struct asked asked)
{
    const struct policy *policy = trace_policies[asked.policy];
    return asked.of_candidate ? policy->candidate : policy_for_key(policy, key_of(asked));
}

static struct asked random_slots_asked(void)
{
    return random_asked(TRACE_COUNTING, TRACE_POLICIES - TRACE_COUNTING);
}

static int64_t random_cost(const struct policy *policy)
{
    const struct limit *limit = &policy->limits[below(policy->n_limits)];
    int64_t cost = ONE_OF(1, 1, 1, 1, 1, 2, 3, 0, limit->full, limit->full + 1, below(2 * limit->full));
    return cost <= limit->full && cost > limit->max_cost ? limit->max_cost : cost;
}

static int64_t random_wait(void)
{
    return once_in(3) ? ONE_OF(0, 1000, below(2 * trace_window_us)) : INT64_MAX;
}

static void remember_moment(int64_t at_us)
{
    moments[n_moments++ % MOMENTS_MAX] = at_us;
}

/* Does this kind of op use the limit? Some use only the key's own limits, or only concurrency limits. */
static bool is_asked(enum op_kind kind, const struct limit *limit)
{
    if (kind == OP_RELEASE || kind == OP_RENEW) return limit->algo == ALGO_CONCURRENCY;
    return kind != OP_RESET || !limit->shared;
}

/* A refund of the policy is of units: what other limits took stays. */
static int64_t cost_at(const struct trace_step *step, const struct limit *limit, int64_t cost)
{
    bool is_refund = step->kind == TRACE_REFUND;
    if (limit_takes_one(limit) && is_refund && limit->name[0] != '\0') return 0;
    if (!is_refund) cost = limit_cost(limit, cost);
    return cost <= limit->full && cost > limit->max_cost ? limit->max_cost : cost;
}

static void add_members(struct trace_step *step, struct asked asked, int64_t cost, int64_t max_wait_us)
{
    const struct policy *policy = policy_of(asked);
    struct slice key = key_of(asked), none = {NULL, 0};
    struct key_split split;
    if (policy->format != NULL && !key_format_split(policy->format, key, &split)) return;
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        const struct limit *limit = &policy->limits[i];
        if (!is_asked(step->op.kind, limit)) continue;
        step->members[step->op.n_members++] = (struct op_member){
            .limit = limit,
            .key = limit->shared ? key_format_id(policy->format, &split, limit->parts, NULL) : key,
            .shard_id =
                policy->plan.shares ? key_format_id(policy->format, &split, policy->plan.shard_parts, NULL) : none,
            .reservations_key = policy->plan.reserves ? key : none,
            .cost = cost_at(step, limit, cost),
            .max_wait_us = limit_max_wait(limit, max_wait_us),
        };
    }
}

static enum op_kind op_kind_of(enum trace_kind kind)
{
    switch (kind) {
    case TRACE_PEEK: return OP_PEEK;
    case TRACE_RESET: return OP_RESET;
    case TRACE_REFUND:
    case TRACE_RETURN:
    case TRACE_UNDO: return OP_REFUND;
    case TRACE_RESERVE: return OP_RESERVE;
    case TRACE_SETTLE:
    case TRACE_CANCEL: return OP_SETTLE;
    case TRACE_SWEEP: return OP_SWEEP;
    case TRACE_ACQUIRE: return OP_ACQUIRE;
    case TRACE_RELEASE: return OP_RELEASE;
    case TRACE_RENEW: return OP_RENEW;
    default: return OP_CHECK;
    }
}

static void begin_step(struct trace_step *step, enum trace_kind kind)
{
    *step = (struct trace_step){.kind = kind, .op = {.kind = op_kind_of(kind), .now_us = -1}};
}

void trace_step_copy(struct trace_step *to, const struct trace_step *from)
{
    *to = *from;
    to->op.members = to->members;
    if (from->op.reservation != NULL) to->op.reservation = &to->reservation;
    if (from->op.slot != NULL) to->op.slot = to->slot;
    if (from->op.record.len > 0) to->op.record = slice_of(to->record);
    list_init(&to->op.link);
}

static void ask_most(struct trace_step *step, struct asked asked)
{
    int64_t most = random_cost(policy_of(asked));
    add_members(step, asked, 1, usual_wait_us);
    for (uint16_t i = 0; i < step->op.n_members; i++) most = between(1, most, step->members[i].limit->max_cost);
    step->op.at_most = most;
}

static void ask_check(struct trace_step *step, struct asked asked)
{
    add_members(step, asked, random_cost(policy_of(asked)), once_in(50) ? random_wait() : usual_wait_us);
}

/* A check of two policies' limits, all or nothing. */
static void ask_several(struct question *question)
{
    struct asked first = question->asked[0], other = random_asked(0, TRACE_COUNTING - 1);
    if (other.policy >= first.policy) other.policy++; /* so they share no counter */
    question->asked[question->n_asked++] = other;
    ask_check(&question->step, first);
    ask_check(&question->step, other);
}

/* With a request id, one of a few: the store remembers the first admission. */
static void name_step(struct question *question, const char *head)
{
    struct trace_step *step = &question->step;
    struct asked first = question->asked[0], last = question->asked[question->n_asked - 1];
    int len = snprintf(step->record, sizeof step->record, "%s:%d:%d%d:%d%d:%d", head, question->n_asked, first.policy,
                       first.key, last.policy, last.key, (int)below(4));
    step->op.record = (struct slice){(const uint8_t *)step->record, (size_t)len};
    step->op.record_ms = keep_ms;
    remember_moment(now_us + keep_ms * INT64_C(1000));
}

/* Any kind of check, with a request id. */
static void ask_once(struct question *question)
{
    struct trace_step *step = &question->step;
    if (once_in(4))
        ask_most(step, question->asked[0]);
    else if (once_in(5))
        ask_several(question);
    else
        ask_check(step, question->asked[0]);
    name_step(question, "note");
}

static void ask_reserve(struct trace_step *step, struct asked asked)
{
    int64_t window_ms = between(1, trace_window_us / 1000, RESERVATION_TTL_MAX_MS);
    int64_t ttl_ms =
        ONE_OF(1, 10, 1000, 60000, window_ms, window_ms / 2, 2 * window_ms + 1, 9 * window_ms, RESERVATION_TTL_MAX_MS);
    int64_t cost = random_cost(policy_of(asked));
    add_members(step, asked, cost, INT64_MAX);
    step->reservation = (struct op_reservation){.units = cost, .ttl_ms = between(1, ttl_ms, RESERVATION_TTL_MAX_MS)};
    step->op.reservation = &step->reservation;
}

/* One of the latest reservations, admitted or not. */
static void ask_settle(struct question *question)
{
    size_t i = recent(n_reservations);
    struct trace_step *step = &question->step;
    int64_t units = reservations[i].reservation.units;
    question->asked[0] = reservations[i].asked;
    add_members(step, reservations[i].asked, 0, INT64_MAX);
    step->reservation = reservations[i].reservation;
    if (step->kind == TRACE_SETTLE)
        step->reservation.actual =
            ONE_OF(units, units > 0 ? units - 1 : 1, units + 1, 1 + below(3 * units + 3), 1000000);
    step->op.reservation = &step->reservation;
}

/* A charge of some time ago, which may never have been. */
static void ask_undo(struct trace_step *step, struct asked asked)
{
    add_members(step, asked, 1 + random_cost(policy_of(asked)), INT64_MAX);
    for (uint16_t i = 0; i < step->op.n_members; i++) {
        step->members[i].reservations_key = (struct slice){NULL, 0};
        if (once_in(2)) step->members[i].cost = between(1, below(9), step->members[i].cost);
    }
    step->reservation.made_us = now_us - (once_in(3) ? 0 : below(trace_window_us));
    step->op.reservation = &step->reservation;
}

/* Some of what was charged last, if the bucket still has the level of then. */
static void add_return(struct trace_step *steps, size_t *n)
{
    struct trace_step step;
    begin_step(&step, TRACE_RETURN);
    const struct limit *limit = last_charged.limit;
    step.members[step.op.n_members++] = last_charged;
    step.members[0].cost = between(1, ONE_OF(1, 1, 2, last_charged.cost, limit->full), limit->full);
    step.reservation = last_charge;
    int64_t drained = (now_us - last_charge.made_us) * limit->constants.bucket.tokens;
    if (once_in(3) && drained >= 0 && drained < last_charge.level) {
        step.reservation.made_us = now_us;
        step.reservation.level -= drained;
    }
    if (once_in(8)) step.reservation.level += ONE_OF(1, step.reservation.level > 1 ? -1 : 1);
    step.op.reservation = &step.reservation;
    trace_step_copy(&steps[(*n)++], &step);
    last_charged.cost = 0;
}

static void ask_slot(struct question *question)
{
    size_t i = recent(n_slots);
    struct trace_step *step = &question->step;
    question->asked[0] = once_in(20) ? random_slots_asked() : slots[i].asked; /* the slot may be unknown there */
    add_members(step, question->asked[0], 1, INT64_MAX);
    memcpy(step->slot, slots[i].id, SLOT_ID_LEN);
    step->op.slot = step->slot;
}

/* The policy and key of a new step, if the step does not use an earlier reservation or slot. */
static struct asked asked_for(enum trace_kind kind)
{
    if (kind == TRACE_ACQUIRE) return random_slots_asked();
    if (kind == TRACE_RESERVE && has_slots && once_in(3)) return random_slots_asked();
    if ((kind == TRACE_PEEK || kind == TRACE_RESET) && has_slots && once_in(4)) return random_slots_asked();
    return random_asked(0, TRACE_COUNTING);
}

/* Does the policy support that kind? */
static bool may_ask(enum trace_kind kind, const struct policy *policy)
{
    bool has_own = false;
    if (kind == TRACE_RESERVE || kind == TRACE_SWEEP) return policy->plan.reserves;
    for (uint16_t i = 0; i < policy->n_limits; i++) has_own |= !policy->limits[i].shared;
    return kind != TRACE_RESET || has_own;
}

static void make_question(struct question *question, enum trace_kind kind)
{
    struct trace_step *step = &question->step;
    if ((kind == TRACE_SETTLE || kind == TRACE_CANCEL) && n_reservations == 0) kind = TRACE_RESERVE;
    if ((kind == TRACE_RELEASE || kind == TRACE_RENEW) && n_slots == 0) kind = TRACE_ACQUIRE;
    begin_step(step, kind);
    struct asked asked = asked_for(kind);
    while (!may_ask(kind, trace_policies[asked.policy])) asked = asked_for(kind);
    bool may_try = kind == TRACE_CHECK || kind == TRACE_PEEK || kind == TRACE_RESET;
    asked.of_candidate = may_try && trace_policies[asked.policy]->candidate != NULL && once_in(2);
    question->asked[0] = asked;
    question->n_asked = 1;
    switch (kind) {
    case TRACE_MOST: ask_most(step, asked); break;
    case TRACE_ONCE: ask_once(question); break;
    case TRACE_REFUND: add_members(step, asked, 1 + random_cost(policy_of(asked)), INT64_MAX); break;
    case TRACE_UNDO: ask_undo(step, asked); break;
    case TRACE_RESERVE: ask_reserve(step, asked); break;
    case TRACE_SETTLE:
    case TRACE_CANCEL: ask_settle(question); break;
    case TRACE_SWEEP: add_members(step, asked, 0, INT64_MAX); break;
    case TRACE_ACQUIRE: add_members(step, asked, 1, INT64_MAX); break;
    case TRACE_RELEASE:
    case TRACE_RENEW: ask_slot(question); break;
    case TRACE_CHECK:
        if (once_in(10)) {
            ask_several(question);
            break;
        } /* fallthrough */
    default: ask_check(step, asked); break;
    }
    bool may_name = kind == TRACE_REFUND || (kind == TRACE_RESERVE && !trace_policies[asked.policy]->plan.has_slots);
    if (may_name && once_in(3)) name_step(question, kind == TRACE_RESERVE ? "reserve" : "refund");
}

/* ---- state that a step may use only once ----------------------------------------------------------------------- */

static void add_sweep(struct trace_step *steps, size_t *n, struct asked asked, bool redis_only)
{
    struct trace_step sweep;
    begin_step(&sweep, TRACE_SWEEP);
    sweep.redis_only = redis_only;
    add_members(&sweep, asked, 0, INT64_MAX);
    trace_step_copy(&steps[(*n)++], &sweep);
}

/* Before a check of `asked`. */
static void sweep_if_due(struct trace_step *steps, size_t *n, struct asked asked, bool both)
{
    struct held *list = &held[asked.policy][asked.key];
    if (asked.of_candidate || !trace_policies[asked.policy]->plan.reserves || list->first_end_ms > now_us / 1000)
        return;
    if (!both) {
        add_sweep(steps, n, asked, true);
        return;
    }
    for (int64_t left = list->n; left >= 0; left -= SWEPT_AT_ONCE) add_sweep(steps, n, asked, false);
    list->first_end_ms = now_us / 1000 + 1;
}

/* The number of steps for one question. */
static size_t n_steps_for(const struct question *question)
{
    int64_t n = 1;
    for (int i = 0; i < question->n_asked; i++)
        n += 1 + held[question->asked[i].policy][question->asked[i].key].n / SWEPT_AT_ONCE;
    return (size_t)n;
}

static void note_reservation(struct asked asked, int64_t end_ms)
{
    struct held *list = &held[asked.policy][asked.key];
    list->n++;
    if (end_ms < list->first_end_ms) list->first_end_ms = end_ms;
    remember_moment((end_ms + (once_in(3) ? RESERVATION_GRACE_MS : 0)) * 1000);
}

static void forget_reservation(size_t i)
{
    memmove(&reservations[i], &reservations[i + 1], (--n_reservations - i) * sizeof reservations[0]);
}

static void forget_slot(size_t i)
{
    memmove(&slots[i], &slots[i + 1], (--n_slots - i) * sizeof slots[0]);
}

void trace_allowed(const struct trace_step *step)
{
    const struct op_member *member = &step->members[0];
    if (step->op.kind != OP_CHECK || step->op.n_members > 1 || step->op.record.len > 0) return;
    if (!limit_is_bucket(member->limit) || member->decision.granted == 0) return;

    int64_t level = member->used + member->decision.granted * member->limit->constants.bucket.per_us;
    last_charge = (struct op_reservation){.made_us = now_us, .level = level};
    last_charged = *member;
    last_charged.cost = member->decision.granted;
    last_charged.reservations_key = (struct slice){NULL, 0};
}

/* Later ticks settle or release only a few of the denied ones. */
void trace_denied(const struct trace_step *step)
{
    enum { KEPT = 8, PAUSED_ONE_IN = 50 };
    for (uint16_t i = 0; i < step->op.n_members; i++) { /* a pause ends, or is forgotten */
        const struct op_member *member = &step->members[i];
        if (member->pause.level == 0 || !once_in(PAUSED_ONE_IN)) continue;
        remember_moment((member->pause.end_ms + (once_in(2) ? 0 : member->limit->penalty.forget_ms)) * 1000);
    }
    for (size_t i = 0; i < n_reservations && step->op.kind == OP_RESERVE && step->reservation.id % KEPT != 0; i++)
        if (reservations[i].reservation.id == step->reservation.id) forget_reservation(i);
    for (size_t i = 0; i < n_slots && step->op.kind == OP_ACQUIRE && step->slot[0] != '0'; i++)
        if (memcmp(slots[i].id, step->slot, SLOT_ID_LEN) == 0) forget_slot(i);
}

static void make_reservation(struct trace_step *step, struct asked asked)
{
    step->reservation.id = random_next(&trace_random_state);
    step->reservation.made_us = now_us;
    if (n_reservations == RESERVATIONS_MAX) forget_reservation(0);
    reservations[n_reservations++] = (struct known_reservation){asked, step->reservation};
    note_reservation(asked, reservation_end_ms(&step->reservation));
}

static void make_slot(struct trace_step *step, struct asked asked)
{
    char id[SLOT_ID_LEN + 1];
    uint64_t first = random_next(&trace_random_state), last = random_next(&trace_random_state);
    snprintf(id, sizeof id, "%016" PRIx64 "%016" PRIx64, first, last);
    memcpy(step->slot, id, SLOT_ID_LEN);
    step->op.slot = step->slot;
    if (n_slots == SLOTS_MAX) forget_slot(0);
    slots[n_slots].asked = asked;
    memcpy(slots[n_slots++].id, id, SLOT_ID_LEN);
    remember_moment(now_us + trace_policies[asked.policy]->limits[0].window_us);
}

static void ask(struct trace_step *steps, size_t *n, struct question *question)
{
    struct trace_step *step = &question->step;
    enum op_kind kind = step->op.kind;
    bool sweeps = kind == OP_CHECK || kind == OP_PEEK || kind == OP_ACQUIRE || step->op.record.len > 0;
    for (int i = 0; i < question->n_asked && sweeps; i++)
        sweep_if_due(steps, n, question->asked[i], sweeps_both || step->op.record.len > 0);
    if (kind == OP_RESERVE) make_reservation(step, question->asked[0]);
    if (kind == OP_SETTLE)
        note_reservation(question->asked[0], reservation_end_ms(&step->reservation) + RESERVATION_GRACE_MS);
    if (kind == OP_ACQUIRE) make_slot(step, question->asked[0]);
    trace_step_copy(&steps[(*n)++], step);
}

/* ---- ticks ----------------------------------------------------------------------------------------------------- */

static enum trace_kind random_kind(bool rich, bool resets)
{
    if (resets && once_in(4)) return TRACE_RESET;
    if (rich) return kinds[below((int64_t)n_kinds)];
    return once_in(12) ? TRACE_PEEK : TRACE_CHECK;
}

/* Some steps come many times in a row, as from a busy client: the batch merges those. Some series of reservations are
 * longer than what one sweep gives back. */
static int64_t n_times(const struct trace_step *step)
{
    if (step->op.kind == OP_SETTLE || step->op.slot != NULL) return ONE_OF(1, 1, 1, 1, 2);
    return step->op.kind == OP_RESERVE ? ONE_OF(1, 1, 2, 4, 100) : ONE_OF(1, 1, 2, 4, 40);
}

size_t trace_tick(struct trace_step *steps)
{
    bool resets = once_in(12), rich = is_rich && !once_in(4);
    size_t n = 0, wanted = (size_t)ONE_OF(1, 3, 40, 400, TRACE_STEPS_MAX);
    if (reloads && once_in(4)) {
        trace_policies_reload_one();
        last_charged.cost = 0; /* its policy may be gone */
    }
    if (is_rich && last_charged.cost > 0) add_return(steps, &n);
    if (reloads && once_in(16)) keep_ms = (keep_ms + 1) / 2; /* Redis forgets longer ones by its own clock */
    usual_wait_us = random_wait();
    while (n < wanted) {
        struct question question;
        make_question(&question, random_kind(rich, resets));
        for (int64_t again = n_times(&question.step); again > 0; again--) {
            if (n + n_steps_for(&question) > TRACE_STEPS_MAX) return n;
            ask(steps, &n, &question);
        }
    }
    return n;
}

static int64_t random_pause_us(void)
{
    if (once_in(16)) return -ONE_OF(1, 1000, below(trace_window_us), below(3 * trace_window_us));
    int64_t to_edge = trace_window_us - now_us % trace_window_us;
    return ONE_OF(0, 1, 1000, below(1 + trace_window_us / 30), below(trace_window_us), trace_window_us - 1,
                  trace_window_us, trace_window_us + 1, to_edge, to_edge - 1, below(8 * trace_window_us));
}

/* To the end of a reservation, lease or record, if it is not too far away. */
static bool find_moment(int64_t *ret_us)
{
    size_t known = n_moments < MOMENTS_MAX ? n_moments : MOMENTS_MAX;
    if (known == 0 || !once_in(3)) return false;
    int64_t at_us = moments[below((int64_t)known)] + ONE_OF(-1000, -1, 0, 0, 1, 999);
    if (at_us < now_us || at_us > LAST_US || at_us - START_US > WINDOWS_MAX * trace_window_us) return false;
    *ret_us = at_us;
    return true;
}

int64_t trace_later(void)
{
    int64_t later = now_us + random_pause_us();
    if (find_moment(&later)) return now_us = later;
    return now_us = later > START_US ? later : START_US;
}

/* ---- traces ---------------------------------------------------------------------------------------------------- */

static void add_kind(enum trace_kind kind, size_t times)
{
    while (times-- > 0) kinds[n_kinds++] = kind;
}

/* The kinds of steps of this trace, besides checks. */
static void choose_kinds(void)
{
    int64_t some = once_in(3) ? 0 : below(16);
    n_kinds = 0;
    is_rich = some != 0;
    has_slots = some & 8;
    has_reservations = some & 4;
    add_kind(TRACE_CHECK, 8);
    add_kind(TRACE_PEEK, 2);
    if (some & 1) add_kind(TRACE_MOST, 3), add_kind(TRACE_REFUND, 3), add_kind(TRACE_UNDO, 3);
    if (some & 2) add_kind(TRACE_ONCE, 6);
    if (has_reservations)
        add_kind(TRACE_RESERVE, 3), add_kind(TRACE_SETTLE, 10), add_kind(TRACE_CANCEL, 5), add_kind(TRACE_SWEEP, 1);
    if (has_slots) add_kind(TRACE_ACQUIRE, 4), add_kind(TRACE_RELEASE, 10), add_kind(TRACE_RENEW, 6);
    sweeps_both = once_in(2);
    reloads = once_in(3);
    int64_t window_ms = between(1, trace_window_us / 1000, 86400000);
    keep_ms = (uint32_t)ONE_OF(1, 1000, 60000, window_ms, 3 * window_ms);
}

void trace_begin(uint64_t seed, struct trace *ret)
{
    trace_random_state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    trace_policies_make();
    choose_kinds();
    n_reservations = n_slots = n_moments = 0;
    last_charged.cost = 0;
    for (size_t i = 0; i < TRACE_POLICIES * N_KEYS; i++)
        held[i / N_KEYS][i % N_KEYS] = (struct held){.first_end_ms = INT64_MAX};
    now_us = START_US + below(2 * trace_window_us);
    *ret = (struct trace){
        .now_us = now_us,
        .skew_us = has_reservations || once_in(2) ? 0 : below(1200000000) - 600000000,
        .max_keys = (uint32_t)ONE_OF(BATCH_KEYS_MAX, BATCH_KEYS_MAX, BATCH_KEYS_MAX, TRACE_MEMBERS_MAX),
        .merge = !once_in(6),
    };
}

void trace_end(void)
{
    trace_policies_free();
}
