/* unit_leases.c: keys with units that are charged ahead, and what gives them back, for engine.c. */
#include "engine/unit_leases.h"

#include "base/assert.h"
#include "base/clock.h"
#include "engine/engine_counters.h"

enum {
    KEYS_MAX = 8192,
    HEATS = 16,   /* of keys without an entry, for each set of those that have one */
    BUSY = 16,    /* checks of a key within the age of a lease, from which on it may have one */
    SIZE_MIN = 8, /* a smaller lease is not worth it */
    PART = 8,     /* of what is left a lease is at most one of so many parts */
    GROWTH = 4,   /* from one lease to the next */
    ENDS_PER_TICK = 256,
};

/* How busy a key is: so many checks in this period. One of some hundred keys is taken for another one. */
struct heat {
    uint16_t tag : 8, period : 3, n : 5;
};
_Static_assert(HEATS * sizeof(struct heat) == COUNTER_EXTRA_SIZE, "");
_Static_assert(SIZE_MIN *PART == LEASE_LEFT_MIN, "the configuration warns of limits below that");

struct unit_lease {
    struct deadline age;    /* set while units > 0 */
    struct policy_set *set; /* one reference while units > 0 */
    const struct limit *limit;
    uint32_t version;  /* of its policy */
    bool is_asking;    /* a check that asks for units is under way */
    bool is_unwanted;  /* and another op of the key behind it: what is granted goes back */
    bool is_forgotten; /* which has taken back what others were charged: what is granted may be gone */
    bool is_alone;     /* of a bucket: the store's last two answers show no charge but this daemon's */
    bool is_unsure;    /* the next answer does not show that */
    int64_t full;      /* of the limit that the units were granted under */
    int64_t units;     /* charged and not used */
    int64_t asked_us;  /* CLOCK_MONOTONIC: the store has granted them later than this */
    int64_t now_us;    /* the store's time when it did */
    int64_t seen_us;   /* CLOCK_MONOTONIC: last asked for */
    int64_t left;      /* what the store had left when it last answered; -1 = it has not yet */
    int64_t used;      /* of the lease, by checks */
    int64_t size;      /* of the lease, less what was lost with a window's end */
    int64_t next_size;
    struct state state; /* after the grant, and what else this daemon was charged since; without units, a bucket's as
                           the store last had it */
};

void unit_leases_init(struct unit_leases *leases, const struct clock *clock, struct errands *errands)
{
    *leases = (struct unit_leases){.clock = clock, .errands = errands};
    deadlines_init(&leases->ages);
    counter_table_init(&leases->keys, KEYS_MAX, sizeof(struct unit_lease), COUNTER_EXTRA_SIZE,
                       KEY_HEAD_MAX + COUNTER_KEY_MAX);
}

void unit_leases_fini(struct unit_leases *leases)
{
    CHECK(deadlines_first(&leases->ages) == NULL);
    counter_table_fini(&leases->keys);
    deadlines_fini(&leases->ages);
}

/* ---- which checks, and their entries ---- */

/* May the op free units that others were charged? */
static bool gives_back(const struct op *op)
{
    return op->kind == OP_RESET || op->kind == OP_REFUND || op->kind == OP_SETTLE || op->kind == OP_SWEEP;
}

bool unit_leases_concern(const struct unit_leases *leases, const struct check *check)
{
    if (counter_table_is_reserved(&leases->keys) && gives_back(&check->op))
        return true; /* units outlive a policy's `lease` */
    for (uint16_t i = 0; i < check->op.n_members; i++)
        if (check->op.members[i].limit->lease_us > 0) return true;
    return false;
}

/* One that leaves nothing but a charge. */
static bool is_plain(const struct check *check)
{
    const struct op *op = &check->op;
    const struct op_member *member = op->members;
    bool is_single = op_is_single_check(op) && !op->is_all && op->at_most == 0 && member->cost > 0;
    if (!is_single) return false;
    return member->limit->lease_us > 0 && !member->limit->policy->shadow && member->key.len <= COUNTER_KEY_MAX;
}

/* It is not busy any more: it has to be so again before it has an entry. */
static void forget(struct unit_leases *leases, struct unit_lease *lease)
{
    CHECK(lease->units == 0 && !lease->is_asking);
    counter_table_remove(&leases->keys, lease);
}

/* Is this one more of many checks of the key within a lease's age? */
static bool is_busy(const struct unit_leases *leases, struct op_member *member)
{
    uint64_t hash = op_member_hash(member);
    struct heat *heats = counter_table_extra(&leases->keys, member), *heat = &heats[hash % HEATS];
    unsigned tag = (hash >> 8) % 256, period = (unsigned)(leases->clock->mono_us / member->limit->lease_us % 8);
    if (heat->period != period || (heat->tag != tag && heat->n < 2))
        *heat = (struct heat){.tag = tag & 255, .period = period & 7};
    if (heat->tag != tag) {
        heat->n--; /* of two keys that meet here the busier one stays */
        return false;
    }
    if (heat->n < BUSY) heat->n++;
    return heat->n == BUSY;
}

/* INT64_MAX: it holds units, or will. */
static int64_t asked_last_us(const void *entry)
{
    const struct unit_lease *lease = entry;
    return lease->units > 0 || lease->is_asking ? INT64_MAX : lease->seen_us;
}

/* An entry for a key that has none, once it is busy; else NULL. */
static struct unit_lease *find_or_add(struct unit_leases *leases, struct op_member *member)
{
    struct unit_lease *found = counter_table_find(&leases->keys, member);
    if (found != NULL && asked_last_us(found) > leases->clock->mono_us - member->limit->lease_us) return found;
    if (found != NULL) forget(leases, found);
    if (!counter_table_reserve(&leases->keys) || !is_busy(leases, member)) return NULL;

    struct unit_lease *chosen = counter_table_add(&leases->keys, member, asked_last_us);
    if (chosen == NULL) return NULL;

    *chosen = (struct unit_lease){.left = -1, .next_size = BUSY, .is_unsure = true};
    deadline_init(&chosen->age);
    return chosen;
}

/* ---- giving back ---- */

/* It holds nothing any more. */
static void let_go(struct unit_leases *leases, struct unit_lease *lease)
{
    lease->units = 0;
    deadlines_unset(&leases->ages, &lease->age);
    policy_set_unref(lease->set);
    lease->set = NULL;
}

static void on_given_back(struct check *errand, enum op_outcome outcome)
{
    const struct op_member *member = errand->op.members;
    int64_t returned = outcome == OP_DECIDED ? member->refunded : 0;
    engine_counters.leases_returned += (uint64_t)returned;
    engine_counters.leases_lost += (uint64_t)(member->cost - returned);
    errand_end(errand);
}

static void lose(struct unit_leases *leases, struct unit_lease *lease)
{
    engine_counters.leases_lost += (uint64_t)lease->units;
    let_go(leases, lease);
}

/* Apart, so that a tick without leases saves no registers. */
static __attribute__((noinline)) void lose_all(struct unit_leases *leases)
{
    struct deadline *first;
    while ((first = deadlines_first(&leases->ages)) != NULL) lose(leases, CONTAINER_OF(first, struct unit_lease, age));
}

/* What another server has charged counts there alone. */
static void follow_server(struct unit_leases *leases)
{
    if (leases->server == store_server(leases->errands->store)) return;
    leases->server = store_server(leases->errands->store);
    lose_all(leases);
}

/* The store's state as of now_us, its time, and what of the lease may still be used. */
static int64_t view_at(struct view *view, struct unit_lease *lease, const struct op_member *member, int64_t now_us)
{
    limit_here(view, member->limit, member->key, member->max_wait_us, now_us);
    limit_view(view, &lease->state);
    view->state = NULL;
    int64_t most = lease->now_us < view->since_us ? 0 : view->used / view->step;
    return lease->units < most ? lease->units : most;
}

/* Time has taken back all but `units`. What a bucket drains, a larger lease has to outlast. */
static void keep(struct unit_lease *lease, int64_t units)
{
    int64_t lost = lease->units - units;
    engine_counters.leases_lost += (uint64_t)lost;
    if (!limit_is_bucket(lease->limit)) lease->size -= lost;
    lease->units = units;
}

/* The charge that the units are of. Those of a bucket go back only if it has the level that it would have if only
 * this daemon had been charged since the grant: what the leases of others count on is below that, less these units. */
static struct op_reservation charge_of(const struct unit_leases *leases, struct unit_lease *lease)
{
    struct op_reservation charge = {.made_us = lease->now_us};
    if (!limit_is_bucket(lease->limit)) return charge;

    const struct op_member member = {.limit = lease->limit, .key = counter_table_key(&leases->keys, lease)};
    struct view view;
    charge.made_us += leases->clock->mono_us - lease->asked_us;
    keep(lease, view_at(&view, lease, &member, charge.made_us));
    charge.level = view.used;
    limit_charge(&view, -lease->units);
    limit_ops(lease->limit)->save(&view, &lease->state);
    return charge;
}

/* In the order of the client's ops. */
static void give_back(struct unit_leases *leases, struct unit_lease *lease, uint64_t client)
{
    struct op_reservation charge = charge_of(leases, lease);
    struct slice key = counter_table_key(&leases->keys, lease);
    int64_t gone = lease->size - lease->units;
    lease->next_size = gone > SIZE_MIN ? gone : SIZE_MIN;
    struct check *errand =
        lease->units > 0 ? errand_new(leases->errands, ERRAND_LEASE, OP_REFUND, lease->set, client) : NULL;
    uint8_t *bytes = errand != NULL ? check_make_bytes(errand, key.len) : NULL;
    if (bytes == NULL) {
        if (errand != NULL) errand_end(errand);
        lose(leases, lease);
        return;
    }

    key.data = memcpy(bytes, key.data, key.len);
    errand_about(errand, &(const struct op_member){.limit = lease->limit, .key = key, .cost = lease->units});
    errand->reservation = charge;
    errand->op.reservation = &errand->reservation;
    errand->op.is_bound = true;
    errand->op.server = leases->server;
    let_go(leases, lease);
    errand_submit(errand, on_given_back);
}

static int64_t end_us(const struct unit_lease *lease)
{
    return lease->asked_us + lease->limit->lease_us;
}

/* With as many under way as may be, the next one is due when the store has answered one of them. */
int64_t unit_leases_next_us(const struct unit_leases *leases)
{
    const struct deadline *first = deadlines_first(&leases->ages);
    if (first == NULL || leases->errands->of[ERRAND_LEASE].n >= ERRAND_LEASES_MAX) return INT64_MAX;
    return leases->is_over ? leases->clock->mono_us : first->at_us;
}

/* It has its age. A key that has hardly used it takes no other one. */
static void end_lease(struct unit_leases *leases, struct unit_lease *lease, uint64_t client)
{
    give_back(leases, lease, client);
    if (lease->used < SIZE_MIN) forget(leases, lease);
}

void unit_leases_run(struct unit_leases *leases)
{
    follow_server(leases);
    for (int n = 0; n < ENDS_PER_TICK && unit_leases_next_us(leases) <= leases->clock->mono_us; n++)
        end_lease(leases, CONTAINER_OF(deadlines_first(&leases->ages), struct unit_lease, age), 0);
}

void unit_leases_stop(struct unit_leases *leases)
{
    leases->is_over = true;
}

bool unit_leases_are_held(const struct unit_leases *leases)
{
    return leases->errands->of[ERRAND_LEASE].n > 0 || deadlines_first(&leases->ages) != NULL;
}

void unit_leases_end(struct unit_leases *leases)
{
    struct deadline *first;
    leases->is_over = true;
    follow_server(leases);
    while ((first = deadlines_first(&leases->ages)) != NULL)
        give_back(leases, CONTAINER_OF(first, struct unit_lease, age), 0);
}

/* ---- using ---- */

/* The next lease is to last half of its age. */
static void use_up(struct unit_leases *leases, struct unit_lease *lease)
{
    int64_t lasted_us = leases->clock->mono_us - lease->asked_us + 1, most = lease->size * GROWTH;
    __int128 size = (__int128)lease->size * (lease->limit->lease_us / 2) / lasted_us;
    lease->next_size = size > most ? most : size < SIZE_MIN ? SIZE_MIN : (int64_t)size;
    let_go(leases, lease);
}

bool unit_leases_decide(struct unit_leases *leases, struct check *check)
{
    struct op *op = &check->op;
    struct op_member *member = &op->members[0];
    follow_server(leases);
    struct unit_lease *lease = is_plain(check) ? counter_table_find(&leases->keys, member) : NULL;
    if (lease == NULL || lease->units == 0) return false;
    bool is_its = lease->version == member->limit->policy->version && member->limit->full >= lease->full;
    if (!is_its || leases->clock->mono_us >= end_us(lease)) return false;

    struct view view;
    op->now_us = lease->now_us + leases->clock->mono_us - lease->asked_us;
    int64_t units = view_at(&view, lease, member, op->now_us);
    keep(lease, units);
    view.used -= units * view.step;
    if (units < member->cost || limit_fits(&view, member->cost, 1) == 0) {
        if (units == 0) use_up(leases, lease);
        return false;
    }

    lease->seen_us = leases->clock->mono_us;
    lease->units -= member->cost;
    lease->used += member->cost;
    if (lease->units == 0) use_up(leases, lease);
    op_decide_one(op, &view);
    op->source = SOURCE_LEASE;
    engine_counters.decided_by_lease++;
    return true;
}

/* ---- asking ---- */

/* Will the store take the units back? A bucket that others are charged in keeps them until they are used. */
static bool is_sole(const struct unit_lease *lease)
{
    return lease->is_alone || !limit_is_bucket(lease->limit);
}

/* A plain check that no unit was left for. */
static void submit_plain(struct unit_leases *leases, struct check *check)
{
    struct op *op = &check->op;
    struct op_member *member = &op->members[0];
    struct unit_lease *lease = find_or_add(leases, member);
    if (lease == NULL) return;

    check->is_busy = true;
    lease->seen_us = leases->clock->mono_us;
    if (lease->units > 0) { /* too few for it, or another version's or limit's */
        bool is_old = leases->clock->mono_us >= end_us(lease);
        bool is_others = lease->version != member->limit->policy->version;
        if (is_old)
            end_lease(leases, lease, op->client);
        else if (is_others || is_sole(lease))
            give_back(leases, lease, op->client);
        return;
    }
    if (lease->is_asking || member->cost != 1 || lease->left < 0 || leases->is_over) return;
    int64_t size = lease->left / PART < lease->next_size ? lease->left / PART : lease->next_size;
    if (size > member->limit->max_cost - 1) size = member->limit->max_cost - 1;
    if (size < SIZE_MIN) return;

    op->at_most = 1 + size;
    check->asks_lease = lease->is_asking = true;
    lease->asked_us = leases->clock->mono_us;
    lease->is_unwanted = lease->is_forgotten = false;
}

/* After the op units that are held may not be charged any more. A bucket's level falls below what its leases count on
 * by whatever takes a charge back: a reservation that has ended, a check_all that is undone in one of several places.
 */
static bool forgets(const struct check *check, const struct limit *limit)
{
    const struct op *op = &check->op;
    if (!limit_is_bucket(limit)) return op->kind == OP_RESET;
    return gives_back(op) || op->kind == OP_RESERVE || check->n_all > 1;
}

void unit_leases_submit(struct unit_leases *leases, struct check *check)
{
    const struct op *op = &check->op;
    follow_server(leases);
    if (is_plain(check)) {
        submit_plain(leases, check);
        return;
    }

    for (uint16_t i = 0; i < op->n_members; i++) {
        struct unit_lease *lease = counter_table_find(&leases->keys, &op->members[i]);
        if (lease == NULL) continue;
        const struct limit *limit = op->members[i].limit;
        bool is_forgotten = forgets(check, limit);
        check->n_leased += lease->units;
        if (lease->units > 0 && (is_sole(lease) || is_forgotten)) give_back(leases, lease, op->client);
        lease->is_unwanted |= lease->is_asking && !limit_is_bucket(limit);
        lease->is_forgotten |= lease->is_asking && is_forgotten;
        lease->is_unsure |= op->kind != OP_PEEK;
    }
}

/* What the store has granted beyond the check's own unit; `view` is as before. */
static void begin(struct unit_leases *leases, struct unit_lease *lease, struct check *check, struct view view,
                  int64_t granted)
{
    const struct op *op = &check->op;
    const struct op_member *member = &op->members[0];
    limit_charge(&view, granted);
    limit_ops(member->limit)->save(&view, &lease->state);

    lease->set = policy_set_ref(check->set);
    lease->limit = member->limit;
    lease->version = member->limit->policy->version;
    lease->full = member->limit->full;
    lease->units = lease->size = granted - 1;
    lease->used = 0;
    lease->now_us = op->now_us;
    engine_counters.leases_taken++;
    engine_counters.leases_units += (uint64_t)lease->units;
    bool is_kept = deadlines_set(&leases->ages, &lease->age, leases->clock->mono_us, lease->limit->lease_us) == 0;
    if (lease->is_forgotten || op->server != leases->server)
        lose(leases, lease);
    else if (lease->is_unwanted || leases->is_over || !is_kept)
        give_back(leases, lease, op->client);
}

/* What the store's answer shows of a bucket, before this daemon's own notes of it change. */
static void watch(struct unit_lease *lease, const struct op *op)
{
    const struct op_member *member = &op->members[0];
    struct view view;
    if (!limit_is_bucket(member->limit)) return;

    (void)view_at(&view, lease, member, op->now_us);
    lease->is_alone = lease->is_unsure || view.used == member->used;
    lease->is_unsure = false;
    if (lease->units > 0) return;
    limit_report(&view, member->used, member->extra, 0);
    limit_charge(&view, member->decision.granted);
    limit_ops(member->limit)->save(&view, &lease->state);
}

/* The store has decided a check behind the grant, by a state in which the units that are held count as used. One that
 * was denied may have some of them, if its owner still waits. One that was admitted has its answer as if they were
 * free, and its own charge counts in the lease's answers from now on. */
static void answer_behind(struct unit_leases *leases, struct unit_lease *lease, struct check *check)
{
    struct op *op = &check->op;
    struct op_member *member = &op->members[0];
    if (!member->decision.allowed) {
        if (check->state == CHECK_WAITING) (void)unit_leases_decide(leases, check);
        return;
    }
    bool is_behind = op->now_us >= lease->now_us; /* else a level that is too high would keep units alive */
    if (!is_behind || lease->version != member->limit->policy->version) return;

    struct view view, seen;
    keep(lease, view_at(&view, lease, member, op->now_us));
    limit_charge(&view, member->cost);
    limit_ops(member->limit)->save(&view, &lease->state);

    limit_here(&seen, member->limit, member->key, member->max_wait_us, op->now_us);
    limit_report(&seen, member->used, member->extra, 0);
    seen.used -= lease->units * seen.step;
    if (seen.used >= 0) op_decide_one(op, &seen);
    if (lease->units == 0) let_go(leases, lease);
}

void unit_leases_answered(struct unit_leases *leases, struct check *check, enum op_outcome outcome)
{
    struct op *op = &check->op;
    struct op_member *member = &op->members[0];
    bool asked = check->asks_lease, is_stores = outcome == OP_DECIDED && op->source != SOURCE_DENY_CACHE;
    int64_t granted = asked && is_stores ? member->decision.granted : 0;
    if (asked) op->at_most = 0;
    check->asks_lease = false;
    follow_server(leases);
    bool is_denied = is_stores && is_plain(check) && !member->decision.allowed;
    if (!check->is_busy && !is_denied) return;

    struct unit_lease *lease = counter_table_find(&leases->keys, member); /* the one that is asking stays */
    CHECK(!asked || (lease != NULL && lease->is_asking));
    if (is_stores && lease != NULL) watch(lease, op);
    if (granted > 1) { /* its own answer is that of one unit */
        struct view view;
        limit_here(&view, member->limit, member->key, member->max_wait_us, op->now_us);
        limit_report(&view, member->used, member->extra, 0);
        begin(leases, lease, check, view, granted);
        op_decide_one(op, &view);
    }
    if (asked) lease->is_asking = false;
    if (!is_stores || lease == NULL) return;

    lease->left = member->decision.remaining - (asked ? lease->units : 0);
    if (lease->left < 0) lease->left = 0;
    if (!asked && lease->units > 0) answer_behind(leases, lease, check);
}
