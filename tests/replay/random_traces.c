/*
 * twin_traces.c: see twin_traces.h.
 *
 * In memory a check or a peek gives back what has ended of its policy and key's holds; in Redis the daemon asks for
 * that (OP_SWEEP). Here it is a step before each check of a key where something may have ended: to Redis alone, or, in
 * other traces, to both, so often that nothing is left. An answer from memory of an earlier one (a request id) looks at
 * no reservation; so before such a check it is always both.
 *
 * A host whose clock is ahead does not know exactly when the calendar's window before its own began, and so which holds
 * were charged in that: where there are holds, it is as Redis'.
 *
 * Fixed windows keep their number mod 2^16 (a key's expiry, which a test's clock does not drive, tells the others
 * apart), so a trace is never as long as 2^15 of its shortest windows.
 */
#include "judge/twin_traces.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "judge/twin_policies.h"
#include "judge/twin_random.h"
#include "store/batch.h"

enum {
    N_KEYS = 4,
    HOLDS_MAX = 64,
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
};

/* A step that is being made. */
struct question {
    struct twin_step step;
    struct asked asked[2];
    int n_asked;
};

/* A policy and key's list of reservations, as far as it must be known to sweep it. */
struct held {
    int64_t first_end_ms; /* none in it ends before */
    int64_t n;            /* it has no more, with its marks */
};

static int64_t now_us;
static int64_t turn_wait_us;            /* what most checks of a turn bring: checks that bring another cut the call */
static enum twin_kind kinds[KINDS_MAX]; /* what a turn is made of; often is often there */
static size_t n_kinds;
static bool is_rich;   /* there is more than checks and peeks in it */
static bool has_slots; /* some of it is slots */
static bool has_holds; /* and some of it reservations */
static bool sweeps_both;
static bool reloads;
static uint32_t keep_ms; /* how long a request id is remembered */

static struct held held[TWIN_POLICIES][N_KEYS];
static struct known_hold {
    struct asked asked;
    struct op_reservation reservation;
} holds[HOLDS_MAX]; /* the last that were asked for */
static struct known_slot {
    struct asked asked;
    char id[SLOT_ID_LEN];
} slots[SLOTS_MAX]; /* the last that were asked for */
static size_t n_reserved_lists, n_slots, n_moments;
static int64_t moments[MOMENTS_MAX]; /* some of the times when something ends */

uint64_t twin_random_state;

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
    return (struct asked){(int)(first + below(n)), once_in(2) ? 0 : (int)below(N_KEYS)};
}

static struct asked random_slots_asked(void)
{
    return random_asked(TWIN_COUNTING, TWIN_POLICIES - TWIN_COUNTING);
}

static int64_t random_cost(const struct policy *policy)
{
    const struct limit *limit = &policy->limits[below(policy->n_limits)];
    int64_t cost = ONE_OF(1, 1, 1, 1, 1, 2, 3, 0, limit->full, limit->full + 1, below(2 * limit->full));
    return cost <= limit->full && cost > limit->max_cost ? limit->max_cost : cost;
}

static int64_t random_wait(void)
{
    return once_in(3) ? ONE_OF(0, 1000, below(2 * twin_window_us)) : INT64_MAX;
}

static void remember_moment(int64_t at_us)
{
    moments[n_moments++ % MOMENTS_MAX] = at_us;
}

/* Is it one of the limits that such an op is about? Not all of those are the key's own, or of slots. */
static bool is_asked(enum op_kind kind, const struct limit *limit)
{
    if (kind == OP_RELEASE || kind == OP_RENEW) return limit->algo == ALGO_CONCURRENCY;
    return kind != OP_RESET || !limit->shared;
}

static void add_members(struct twin_step *step, struct asked asked, int64_t cost, int64_t max_wait_us)
{
    const struct policy *policy = twin_policies[asked.policy];
    struct slice key = key_of(asked), none = {NULL, 0};
    struct key_split split;
    if (policy->format != NULL && !key_format_split(policy->format, key, &split)) return;
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        const struct limit *limit = &policy->limits[i];
        if (!is_asked(step->op.kind, limit)) continue;
        step->members[step->op.n_members++] = (struct op_member){
            .limit = limit,
            .key = limit->shared ? key_format_id(policy->format, &split, limit->parts, NULL) : key,
            .common = policy->shares ? key_format_id(policy->format, &split, policy->common, NULL) : none,
            .reservations_key = policy->reserves ? key : none,
            .cost = cost <= limit->full && cost > limit->max_cost ? limit->max_cost : cost,
            .max_wait_us = limit_max_wait(limit, max_wait_us),
        };
    }
}

static enum op_kind op_kind_of(enum twin_kind kind)
{
    switch (kind) {
    case TWIN_PEEK: return OP_PEEK;
    case TWIN_RESET: return OP_RESET;
    case TWIN_REFUND: return OP_REFUND;
    case TWIN_RESERVE: return OP_RESERVE;
    case TWIN_SETTLE:
    case TWIN_CANCEL: return OP_SETTLE;
    case TWIN_SWEEP: return OP_SWEEP;
    case TWIN_ACQUIRE: return OP_ACQUIRE;
    case TWIN_RELEASE: return OP_RELEASE;
    case TWIN_RENEW: return OP_RENEW;
    default: return OP_CHECK;
    }
}

static void begin_step(struct twin_step *step, enum twin_kind kind)
{
    *step = (struct twin_step){.kind = kind, .op = {.kind = op_kind_of(kind), .now_us = -1}};
}

void twin_step_copy(struct twin_step *to, const struct twin_step *from)
{
    *to = *from;
    to->op.members = to->members;
    if (from->op.reservation != NULL) to->op.reservation = &to->reservation;
    if (from->op.slot != NULL) to->op.slot = to->slot;
    if (from->op.record.len > 0) to->op.record = slice_of(to->record);
    list_init(&to->op.link);
}

static void ask_most(struct twin_step *step, struct asked asked)
{
    int64_t most = random_cost(twin_policies[asked.policy]);
    add_members(step, asked, 1, turn_wait_us);
    for (uint16_t i = 0; i < step->op.n_members; i++) most = between(1, most, step->members[i].limit->max_cost);
    step->op.at_most = most;
}

static void ask_check(struct twin_step *step, struct asked asked)
{
    add_members(step, asked, random_cost(twin_policies[asked.policy]), once_in(50) ? random_wait() : turn_wait_us);
}

/* A check of two policies' limits, all or nothing. */
static void ask_several(struct question *question)
{
    struct asked first = question->asked[0], other = random_asked(0, TWIN_COUNTING - 1);
    if (other.policy >= first.policy) other.policy++; /* so it does not have the other's counters */
    question->asked[question->n_asked++] = other;
    ask_check(&question->step, first);
    ask_check(&question->step, other);
}

/* Its first admission is remembered by a name, one of a few. */
static void name_step(struct question *question, const char *head)
{
    struct twin_step *step = &question->step;
    struct asked first = question->asked[0], last = question->asked[question->n_asked - 1];
    int len = snprintf(step->record, sizeof step->record, "%s:%d:%d%d:%d%d:%d", head, question->n_asked, first.policy,
                       first.key, last.policy, last.key, (int)below(4));
    step->op.record = (struct slice){(const uint8_t *)step->record, (size_t)len};
    step->op.record_ms = keep_ms;
    remember_moment(now_us + keep_ms * INT64_C(1000));
}

/* A check that is remembered by a name: any of the others. */
static void ask_once(struct question *question)
{
    struct twin_step *step = &question->step;
    if (once_in(4))
        ask_most(step, question->asked[0]);
    else if (once_in(5))
        ask_several(question);
    else
        ask_check(step, question->asked[0]);
    name_step(question, "note");
}

static void ask_reserve(struct twin_step *step, struct asked asked)
{
    int64_t window_ms = between(1, twin_window_us / 1000, RESERVATION_TTL_MAX_MS);
    int64_t ttl_ms =
        ONE_OF(1, 10, 1000, 60000, window_ms, window_ms / 2, 2 * window_ms + 1, 9 * window_ms, RESERVATION_TTL_MAX_MS);
    int64_t cost = random_cost(twin_policies[asked.policy]);
    add_members(step, asked, cost, INT64_MAX);
    step->reservation = (struct op_reservation){.units = cost, .ttl_ms = between(1, ttl_ms, RESERVATION_TTL_MAX_MS)};
    step->op.reservation = &step->reservation;
}

/* Of the last ones asked for, admitted or not. */
static void ask_settle(struct question *question)
{
    size_t i = recent(n_reserved_lists);
    struct twin_step *step = &question->step;
    int64_t units = holds[i].reservation.units;
    question->asked[0] = holds[i].asked;
    add_members(step, holds[i].asked, 0, INT64_MAX);
    step->reservation = holds[i].reservation;
    if (step->kind == TWIN_SETTLE)
        step->reservation.actual =
            ONE_OF(units, units > 0 ? units - 1 : 1, units + 1, 1 + below(3 * units + 3), 1000000);
    step->op.reservation = &step->reservation;
}

static void ask_slot(struct question *question)
{
    size_t i = recent(n_slots);
    struct twin_step *step = &question->step;
    question->asked[0] = once_in(20) ? random_slots_asked() : slots[i].asked; /* it may be unknown there */
    add_members(step, question->asked[0], 1, INT64_MAX);
    memcpy(step->slot, slots[i].id, SLOT_ID_LEN);
    step->op.slot = step->slot;
}

/* Whom a step of this kind is about, where it is not about something made before. */
static struct asked asked_for(enum twin_kind kind)
{
    if (kind == TWIN_ACQUIRE) return random_slots_asked();
    if ((kind == TWIN_PEEK || kind == TWIN_RESET) && has_slots && once_in(4)) return random_slots_asked();
    return random_asked(0, TWIN_COUNTING);
}

/* Can that be asked of the policy? */
static bool may_ask(enum twin_kind kind, const struct policy *policy)
{
    bool has_own = false;
    if (kind == TWIN_RESERVE || kind == TWIN_SWEEP) return policy->reserves;
    for (uint16_t i = 0; i < policy->n_limits; i++) has_own |= !policy->limits[i].shared;
    return kind != TWIN_RESET || has_own;
}

static void make_question(struct question *question, enum twin_kind kind)
{
    struct twin_step *step = &question->step;
    if ((kind == TWIN_SETTLE || kind == TWIN_CANCEL) && n_reserved_lists == 0) kind = TWIN_RESERVE;
    if ((kind == TWIN_RELEASE || kind == TWIN_RENEW) && n_slots == 0) kind = TWIN_ACQUIRE;
    begin_step(step, kind);
    struct asked asked = asked_for(kind);
    while (!may_ask(kind, twin_policies[asked.policy])) asked = asked_for(kind);
    question->asked[0] = asked;
    question->n_asked = 1;
    switch (kind) {
    case TWIN_MOST: ask_most(step, asked); break;
    case TWIN_ONCE: ask_once(question); break;
    case TWIN_REFUND: add_members(step, asked, 1 + random_cost(twin_policies[asked.policy]), INT64_MAX); break;
    case TWIN_RESERVE: ask_reserve(step, asked); break;
    case TWIN_SETTLE:
    case TWIN_CANCEL: ask_settle(question); break;
    case TWIN_SWEEP: add_members(step, asked, 0, INT64_MAX); break;
    case TWIN_ACQUIRE: add_members(step, asked, 1, INT64_MAX); break;
    case TWIN_RELEASE:
    case TWIN_RENEW: ask_slot(question); break;
    case TWIN_CHECK:
        if (once_in(10)) {
            ask_several(question);
            break;
        } /* fallthrough */
    default: ask_check(step, asked); break;
    }
    if ((kind == TWIN_RESERVE || kind == TWIN_REFUND) && once_in(3))
        name_step(question, kind == TWIN_RESERVE ? "reserve" : "refund");
}

/* ---- what is there once only ----------------------------------------------------------------------------------- */

static void add_sweep(struct twin_step *steps, size_t *n, struct asked asked, bool redis_only)
{
    struct twin_step sweep;
    begin_step(&sweep, TWIN_SWEEP);
    sweep.redis_only = redis_only;
    add_members(&sweep, asked, 0, INT64_MAX);
    twin_step_copy(&steps[(*n)++], &sweep);
}

/* Before a check of `asked`. */
static void sweep_if_due(struct twin_step *steps, size_t *n, struct asked asked, bool both)
{
    struct held *list = &held[asked.policy][asked.key];
    if (!twin_policies[asked.policy]->reserves || list->first_end_ms > now_us / 1000) return;
    if (!both) {
        add_sweep(steps, n, asked, true);
        return;
    }
    for (int64_t left = list->n; left >= 0; left -= SWEPT_AT_ONCE) add_sweep(steps, n, asked, false);
    list->first_end_ms = now_us / 1000 + 1;
}

/* How many steps it takes to ask once. */
static size_t n_steps_for(const struct question *question)
{
    int64_t n = 1;
    for (int i = 0; i < question->n_asked; i++)
        n += 1 + held[question->asked[i].policy][question->asked[i].key].n / SWEPT_AT_ONCE;
    return (size_t)n;
}

static void note_hold(struct asked asked, int64_t end_ms)
{
    struct held *list = &held[asked.policy][asked.key];
    list->n++;
    if (end_ms < list->first_end_ms) list->first_end_ms = end_ms;
    remember_moment((end_ms + (once_in(3) ? RESERVATION_GRACE_MS : 0)) * 1000);
}

static void forget_hold(size_t i)
{
    memmove(&holds[i], &holds[i + 1], (--n_reserved_lists - i) * sizeof holds[0]);
}

static void forget_slot(size_t i)
{
    memmove(&slots[i], &slots[i + 1], (--n_slots - i) * sizeof slots[0]);
}

/* Most of those that were not admitted are not worth being settled or released in a later turn. */
void twin_trace_denied(const struct twin_step *step)
{
    enum { KEPT = 8 };
    for (size_t i = 0; i < n_reserved_lists && step->op.kind == OP_RESERVE && step->reservation.id % KEPT != 0; i++)
        if (holds[i].reservation.id == step->reservation.id) forget_hold(i);
    for (size_t i = 0; i < n_slots && step->op.kind == OP_ACQUIRE && step->slot[0] != '0'; i++)
        if (memcmp(slots[i].id, step->slot, SLOT_ID_LEN) == 0) forget_slot(i);
}

static void make_hold(struct twin_step *step, struct asked asked)
{
    step->reservation.id = random_next(&twin_random_state);
    step->reservation.made_us = now_us;
    if (n_reserved_lists == HOLDS_MAX) forget_hold(0);
    holds[n_reserved_lists++] = (struct known_hold){asked, step->reservation};
    note_hold(asked, reservation_end_ms(&step->reservation));
}

static void make_slot(struct twin_step *step, struct asked asked)
{
    char id[SLOT_ID_LEN + 1];
    uint64_t first = random_next(&twin_random_state), last = random_next(&twin_random_state);
    snprintf(id, sizeof id, "%016" PRIx64 "%016" PRIx64, first, last);
    memcpy(step->slot, id, SLOT_ID_LEN);
    step->op.slot = step->slot;
    if (n_slots == SLOTS_MAX) forget_slot(0);
    slots[n_slots].asked = asked;
    memcpy(slots[n_slots++].id, id, SLOT_ID_LEN);
    remember_moment(now_us + twin_policies[asked.policy]->limits[0].window_us);
}

static void ask(struct twin_step *steps, size_t *n, struct question *question)
{
    struct twin_step *step = &question->step;
    enum op_kind kind = step->op.kind;
    bool sweeps = kind == OP_CHECK || kind == OP_PEEK || step->op.record.len > 0;
    for (int i = 0; i < question->n_asked && sweeps; i++)
        sweep_if_due(steps, n, question->asked[i], sweeps_both || step->op.record.len > 0);
    if (kind == OP_RESERVE) make_hold(step, question->asked[0]);
    if (kind == OP_SETTLE) note_hold(question->asked[0], reservation_end_ms(&step->reservation) + RESERVATION_GRACE_MS);
    if (kind == OP_ACQUIRE) make_slot(step, question->asked[0]);
    twin_step_copy(&steps[(*n)++], step);
}

/* ---- turns ----------------------------------------------------------------------------------------------------- */

static enum twin_kind random_kind(bool rich, bool resets)
{
    if (resets && once_in(4)) return TWIN_RESET;
    if (rich) return kinds[below((int64_t)n_kinds)];
    return once_in(12) ? TWIN_PEEK : TWIN_CHECK;
}

/* Some steps come many times in a row, as they do from a busy client: those are what the turn merges. So many holds are
 * more than what is given back at once. */
static int64_t n_times(const struct twin_step *step)
{
    if (step->op.kind == OP_SETTLE || step->op.slot != NULL) return ONE_OF(1, 1, 1, 1, 2);
    return step->op.kind == OP_RESERVE ? ONE_OF(1, 1, 2, 4, 100) : ONE_OF(1, 1, 2, 4, 40);
}

size_t twin_trace_turn(struct twin_step *steps)
{
    bool resets = once_in(12), rich = is_rich && !once_in(4);
    size_t n = 0, wanted = (size_t)ONE_OF(1, 3, 40, 400, TWIN_STEPS_MAX);
    if (reloads && once_in(4)) twin_policies_reload_one();
    if (reloads && once_in(16)) keep_ms = (keep_ms + 1) / 2; /* longer ones Redis forgets by its own clock */
    turn_wait_us = random_wait();
    while (n < wanted) {
        struct question question;
        make_question(&question, random_kind(rich, resets));
        for (int64_t again = n_times(&question.step); again > 0; again--) {
            if (n + n_steps_for(&question) > TWIN_STEPS_MAX) return n;
            ask(steps, &n, &question);
        }
    }
    return n;
}

static int64_t random_pause_us(void)
{
    if (once_in(16)) return -ONE_OF(1, 1000, below(twin_window_us), below(3 * twin_window_us));
    int64_t to_edge = twin_window_us - now_us % twin_window_us;
    return ONE_OF(0, 1, 1000, below(1 + twin_window_us / 30), below(twin_window_us), twin_window_us - 1, twin_window_us,
                  twin_window_us + 1, to_edge, to_edge - 1, below(8 * twin_window_us));
}

/* To where something ends, where that is not too far. */
static bool find_moment(int64_t *ret_us)
{
    size_t known = n_moments < MOMENTS_MAX ? n_moments : MOMENTS_MAX;
    if (known == 0 || !once_in(3)) return false;
    int64_t at_us = moments[below((int64_t)known)] + ONE_OF(-1000, -1, 0, 0, 1, 999);
    if (at_us < now_us || at_us > LAST_US || at_us - START_US > WINDOWS_MAX * twin_window_us) return false;
    *ret_us = at_us;
    return true;
}

int64_t twin_trace_later(void)
{
    int64_t later = now_us + random_pause_us();
    if (find_moment(&later)) return now_us = later;
    return now_us = later > START_US ? later : START_US;
}

/* ---- traces ---------------------------------------------------------------------------------------------------- */

static void add_kind(enum twin_kind kind, size_t times)
{
    while (times-- > 0) kinds[n_kinds++] = kind;
}

/* What this trace asks for beside checks. */
static void choose_kinds(void)
{
    int64_t some = once_in(3) ? 0 : below(16);
    n_kinds = 0;
    is_rich = some != 0;
    has_slots = some & 8;
    has_holds = some & 4;
    add_kind(TWIN_CHECK, 8);
    add_kind(TWIN_PEEK, 2);
    if (some & 1) add_kind(TWIN_MOST, 3), add_kind(TWIN_REFUND, 3);
    if (some & 2) add_kind(TWIN_ONCE, 6);
    if (has_holds)
        add_kind(TWIN_RESERVE, 3), add_kind(TWIN_SETTLE, 10), add_kind(TWIN_CANCEL, 5), add_kind(TWIN_SWEEP, 1);
    if (has_slots) add_kind(TWIN_ACQUIRE, 4), add_kind(TWIN_RELEASE, 10), add_kind(TWIN_RENEW, 6);
    sweeps_both = once_in(2);
    reloads = once_in(3);
    int64_t window_ms = between(1, twin_window_us / 1000, 86400000);
    keep_ms = (uint32_t)ONE_OF(1, 1000, 60000, window_ms, 3 * window_ms);
}

void twin_trace_begin(uint64_t seed, struct twin_trace *ret)
{
    twin_random_state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    twin_policies_make();
    choose_kinds();
    n_reserved_lists = n_slots = n_moments = 0;
    for (size_t i = 0; i < TWIN_POLICIES * N_KEYS; i++)
        held[i / N_KEYS][i % N_KEYS] = (struct held){.first_end_ms = INT64_MAX};
    now_us = START_US + below(2 * twin_window_us);
    *ret = (struct twin_trace){
        .now_us = now_us,
        .skew_us = has_holds || once_in(2) ? 0 : below(1200000000) - 600000000,
        .max_keys = (uint32_t)ONE_OF(BATCH_KEYS_MAX, BATCH_KEYS_MAX, BATCH_KEYS_MAX, TWIN_MEMBERS_MAX),
        .merge = !once_in(6),
    };
}

void twin_trace_end(void)
{
    twin_policies_free();
}
