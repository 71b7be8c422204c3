/*
 * test_split_traces.c: checks over several places on random traces, against one server.
 *
 * Clients ask for several limits in several places, whose replies come in random order, late, or not at all; clients
 * leave, and time passes. What the store is asked, what is answered and what is counted must follow from what it replied.
 * Afterwards each counter is replayed on a store of its own, with those charges alone that were kept. In it every
 * admission must be one, and no state may ever be above that which was seen. A denial must be one, and the states equal,
 * unless a charge was open then, that is, still to be taken back; or was lost. RL_SPLIT_SEED=n runs one trace alone.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/random.h"
#include "engine/engine.h"
#include "engine/engine_counters.h"
#include "fakes/all_counters.h"
#include "fakes/placed_store.h"
#include "fakes/policies.h"

#define SECOND_US INT64_C(1000000)

enum { DEADLINE_MS = 50 };

static const struct policy_spec specs[] = {
    {.name = "window",
     .on_failure = ON_FAILURE_ALLOW,
     .deadline_ms = DEADLINE_MS,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 7, .window_us = SECOND_US}}},
    {.name = "bucket",
     .on_failure = ON_FAILURE_DENY,
     .deadline_ms = DEADLINE_MS,
     .limits = {{.algo = ALGO_BUCKET, .limit = 20, .window_us = SECOND_US, .burst = 6}}},
    {.name = "log",
     .on_failure = ON_FAILURE_ALLOW,
     .deadline_ms = DEADLINE_MS,
     .limits = {{.algo = ALGO_SLIDING_LOG, .limit = 6, .window_us = SECOND_US / 2}}},
    {.name = "counter",
     .on_failure = ON_FAILURE_DENY,
     .deadline_ms = DEADLINE_MS,
     .limits = {{.algo = ALGO_SLIDING_COUNTER, .limit = 8, .window_us = SECOND_US}}},
    {.name = "slow",
     .on_failure = ON_FAILURE_ERROR,
     .deadline_ms = DEADLINE_MS,
     .limits = {{.algo = ALGO_BUCKET, .limit = 3, .window_us = SECOND_US, .burst = 9}}},
    {.name = "counts",
     .on_failure = ON_FAILURE_ALLOW,
     .deadline_ms = DEADLINE_MS,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 12, .window_us = SECOND_US, .count_denied = true}}},
    {.name = "foreign",
     .on_failure = ON_FAILURE_DENY,
     .deadline_ms = DEADLINE_MS,
     .limits = {{.algo = ALGO_COMPAT_FIRST_HIT, .limit = 30, .window_us = SECOND_US}}},
};
enum {
    N_POLICIES = sizeof specs / sizeof specs[0],
    N_PLACES = 3,
    N_COUNTERS = N_POLICIES * N_PLACES,
    N_WHOLES = 600,
    N_OPEN = 8,
    N_RUNS = 70,
    EVENTS_MAX = 8 * N_WHOLES,
};

/* 120 letters, for which a check has to ask for memory. */
#define KEY_OF(a) a a a a a a a a a a a a
static const char *const keys[N_PLACES] = {KEY_OF("aaaaaaaaaa"), KEY_OF("bbbbbbbbbb"), KEY_OF("cccccccccc")};

enum event_kind { CHARGED, DENIED, GIVEN_BACK, LOST };

struct event {
    enum event_kind kind;
    uint32_t whole;
    int64_t at_us, cost, used, refunded;
};

struct whole {
    struct check *check; /* NULL: answered, or left */
    bool is_allowed, is_left, is_single;
    uint32_t n_parts, n_admitted, n_lost;
    struct {
        bool is_decided; /* while the client waited: */
        int64_t before, after;
    } left[N_COUNTERS];
};

static struct clock clock_;
static struct placed_store placed;
static struct engine *engine;
static bool is_closed;
static bool is_cut;                       /* the daemon stops in the middle of the trace: nothing is compared */
static struct whole wholes[N_WHOLES + 1]; /* by op->client */
static uint32_t n_wholes, n_open;
static struct event events[N_COUNTERS][EVENTS_MAX];
static size_t n_events[N_COUNTERS];
static uint64_t seed, random_state;
static struct {
    uint64_t n_late, n_refunds, n_lost;
} counted;
static struct {
    uint64_t n_admitted, n_denied, n_falsely, n_given_back;
} sum;

static uint64_t below(uint64_t n)
{
    return random_below(&random_state, n);
}

static void must(bool holds, const char *what, size_t counter)
{
    if (holds) return;
    print_message("RL_SPLIT_SEED=%" PRIu64 ": %s %c: %s\n", seed, specs[counter / N_PLACES].name,
                  (char)('a' + counter % N_PLACES), what);
    fail();
}

static void on_closed(void *arg)
{
    (void)arg;
    is_closed = true;
}

/* ---- clients --------------------------------------------------------------------------------------------------- */

static void release_all(struct check *check)
{
    for (uint8_t n = check->n_all; n > 0; n--) check_release(check);
}

static size_t counter_of(const struct limit *limit, struct slice key)
{
    size_t policy = 0;
    while (strcmp(specs[policy].name, limit->policy->name) != 0) policy++;
    return policy * N_PLACES + (size_t)(key.data[0] - 'a');
}

/* Does a charge of the limit come back? */
static bool comes_back(const struct limit *limit)
{
    return !limit->count_denied && limit_ops(limit)->refunds;
}

/* What the client sees of a check that the store has decided: the units that it was charged only if they stay. */
static void check_answer(const struct whole *whole, const struct check *one)
{
    const struct limit *limit = &one->plan->limits[0];
    size_t at = counter_of(limit, one->key);
    const struct decision *answer = &one->decision;
    if (!whole->is_allowed) must(answer->granted == 0 && answer->delay_ms == 0, "a denied check grants units", at);
    if (whole->is_single || !whole->left[at].is_decided) return;
    bool is_charged = whole->is_allowed || limit->count_denied;
    must(answer->source == SOURCE_REDIS, "it was decided by the store", at);
    must(answer->remaining == (is_charged ? whole->left[at].after : whole->left[at].before), "another rest is left",
         at);
}

static void on_done(struct check *check)
{
    struct whole *whole = &wholes[check->op.client];
    whole->is_allowed = check->error == ERROR_NONE;
    CHECK_FOREACH (one, check) whole->is_allowed &= check->error == ERROR_NONE && one->decision.allowed;
    if (check->error == ERROR_NONE)
        CHECK_FOREACH (one, check) check_answer(whole, one);
    whole->check = NULL;
    n_open--;
    release_all(check);
}

/* In a trace that ends in the middle memory fails now and then. */
static bool fails(void)
{
    return is_cut && below(20) == 0;
}

/* A split check has sent these ops, each in its place. */
static void check_sent(const struct whole *whole, size_t n_before, uint32_t work)
{
    uint64_t units = 0;
    must(placed.n_held == n_before + whole->n_parts, "not every place is asked at once", 0);
    for (size_t i = n_before; i < placed.n_held; i++) {
        const struct op *op = placed_held(&placed, i);
        must(op->is_all && op->deadline_us == clock_.mono_us + DEADLINE_MS * 1000, "a part is no part", 0);
        units += op_units(op);
    }
    must(work == units, "its work is not counted", 0);
}

static void ask(void)
{
    struct check *first = NULL;
    bool is_used[N_COUNTERS] = {false};
    uint32_t places = 0;
    if (n_open == N_OPEN || n_wholes == N_WHOLES) return;

    uint32_t id = ++n_wholes;
    for (uint64_t n = 1 + below(4); n > 0; n--) {
        size_t at = below(N_COUNTERS);
        if (is_used[at]) continue;
        is_used[at] = true;
        struct check *check = engine_check_new(engine, OP_CHECK, id);
        assert_non_null(check);
        check->plan = &policies_get(engine_policies(engine), specs[at / N_PLACES].name)->plan;
        check->key = slice_of(keys[at % N_PLACES]);
        check->cost = (int64_t)(below(12) == 0 ? 0 : 1 + below(3));
        places |= 1U << at % N_PLACES;
        if (first == NULL)
            first = check;
        else
            check_join(first, check);
    }
    first->done = on_done;
    wholes[id] = (struct whole){
        .check = first, .is_single = (places & (places - 1)) == 0, .n_parts = (uint32_t)__builtin_popcount(places)};
    n_open++;
    size_t n_held = placed.n_held;
    (void)engine_take_work(engine);
    if (fails()) mem_fail_nth(1 + below(12));
    if (check_seal(first) == 0) {
        engine_submit(engine, first);
        if (!wholes[id].is_single && wholes[id].check != NULL)
            check_sent(&wholes[id], n_held, (uint32_t)engine_take_work(engine));
    } else {
        wholes[id].check = NULL;
        n_open--;
        release_all(first);
    }
    mem_fail_nth(0);
}

static void leave(void)
{
    struct whole *whole = &wholes[1 + below(n_wholes)];
    struct check *check = whole->check;
    if (check == NULL) return;
    whole->check = NULL;
    whole->is_left = true;
    n_open--;
    release_all(check);
}

/* ---- the store ------------------------------------------------------------------------------------------------- */

static void note(const struct op *op, const struct op_member *member, enum event_kind kind)
{
    size_t at = counter_of(member->limit, member->key);
    if (member->cost == 0) return;
    assert_true(n_events[at] < EVENTS_MAX);
    events[at][n_events[at]++] = (struct event){.kind = kind,
                                                .whole = (uint32_t)op->client,
                                                .at_us = clock_.wall_us,
                                                .cost = member->cost,
                                                .used = member->used,
                                                .refunded = member->refunded};
}

/* What is taken back from the server that was charged, if that is still the one. */
static void check_refund(const struct op *op)
{
    must(op->client > 0 && op->is_bound && op->server == placed.server && op->deadline_us == 0, "a refund is no refund",
         0);
    for (uint16_t k = 0; k < op->n_members; k++) {
        const struct op_member *member = &op->members[k];
        must(member->cost > 0 && comes_back(member->limit) && member->reservations_key.len == 0, "it gives back more",
             0);
    }
}

/* What is left of the counters of an op. */
static void note_left(const struct op *op, bool is_before)
{
    struct whole *whole = &wholes[op->client];
    for (uint16_t k = 0; k < op->n_members && whole->check != NULL; k++) {
        struct op_member member = op->members[k];
        struct op peek = {.kind = OP_PEEK, .n_members = 1, .members = &member};
        size_t at = counter_of(member.limit, member.key);
        member.cost = 0;
        assert_int_equal(store_submit(&placed.inside, &peek), SUBMIT_DECIDED);
        whole->left[at].is_decided = true;
        *(is_before ? &whole->left[at].before : &whole->left[at].after) = member.decision.remaining;
    }
}

/* Decides the oldest op of a place, whose reply may be lost. */
static void reply(void)
{
    uint32_t place = (uint32_t)below(N_PLACES);
    size_t i = 0;
    while (i < placed.n_held && (uint32_t)(placed_held(&placed, i)->members[0].key.data[0] - 'a') != place) i++;
    if (i == placed.n_held) return;

    struct op *op = placed_held(&placed, i);
    struct whole *whole = &wholes[op->client];
    bool is_refund = op->kind == OP_REFUND, is_lost = below(40) == 0, is_down = below(2) == 0;
    if (is_refund) check_refund(op);
    counted.n_late += !is_refund && whole->check == NULL && !whole->is_left && !(is_lost && is_down);
    if (!is_refund && is_lost && below(3) == 0) { /* nothing was done */
        counted.n_late += whole->check == NULL && !whole->is_left && is_down;
        placed_end(&placed, i, OP_STORE_ERROR);
        return;
    }

    if (!is_lost && !is_refund) note_left(op, true);
    placed_decide(&placed, i);
    if (!is_lost && !is_refund) note_left(op, false);
    op->is_doubtful = is_lost && !is_down;
    bool is_admitted = !is_refund;
    for (uint16_t k = 0; k < op->n_members; k++) is_admitted &= op->members[k].decision.allowed;
    for (uint16_t k = 0; k < op->n_members; k++) {
        const struct op_member *member = &op->members[k];
        if (is_refund)
            note(op, member, GIVEN_BACK);
        else if (is_admitted || (member->decision.allowed && member->limit->count_denied))
            note(op, member, is_lost ? LOST : CHARGED);
        else if (!member->decision.allowed)
            note(op, member, DENIED);
    }
    whole->n_admitted += is_admitted && !is_lost;
    whole->n_lost += !is_refund && is_lost;
    counted.n_refunds += is_refund && !is_lost;
    counted.n_lost += is_refund && is_lost;
    placed_end(&placed, i, !is_lost ? OP_DECIDED : is_down ? OP_DOWN : OP_STORE_ERROR);
}

/* An owner waits for each check of a client that waits, and for nothing else. */
static void check_awaited(void)
{
    for (size_t i = 0; i < placed.n_held; i++) {
        const struct op *op = placed_held(&placed, i);
        must(op->is_awaited == (op->kind == OP_CHECK && wholes[op->client].check != NULL), "it is not awaited", 0);
    }
}

static void pass(int64_t us)
{
    clock_.mono_us += us;
    clock_.wall_us += us;
    engine_expire(engine);
}

/* ---- the model ------------------------------------------------------------------------------------------------- */

/* Do the charges of the check stay? One that is not split is left as it is, even if its answer was another. */
static bool is_kept(const struct whole *whole)
{
    return whole->is_single || whole->is_allowed || (whole->is_left && whole->n_admitted == whole->n_parts);
}

static void replay(size_t at)
{
    struct clock model_clock = clock_;
    const struct memory_options options = {.max_keys = 10};
    struct memory_store *memory = memory_store_new(&model_clock, &options);
    struct store model = memory_store_handle(memory);
    const struct limit *limit = &policies_get(engine_policies(engine), specs[at / N_PLACES].name)->limits[0];
    bool is_bucket = limit_is_bucket(limit), is_lossy = false;
    int64_t slack = 0, charged_us[N_WHOLES + 1] = {0};
    uint32_t n_taken = 0; /* charges that are still to be given back */

    for (size_t i = 0; i < n_events[at]; i++) {
        const struct event *event = &events[at][i];
        bool stays = is_kept(&wholes[event->whole]) || !comes_back(limit);
        bool is_charged = (event->kind == CHARGED && stays) || (limit->count_denied && event->kind != LOST);
        struct op_member member = {.limit = limit, .key = slice_of("a"), .cost = event->cost};
        struct op op = {.kind = is_charged ? OP_CHECK : OP_PEEK, .n_members = 1, .members = &member};
        model_clock.wall_us = event->at_us;
        assert_int_equal(store_submit(&model, &op), SUBMIT_DECIDED);

        if (event->kind == GIVEN_BACK) {
            int64_t passed_us = event->at_us - charged_us[event->whole];
            if (is_bucket) slack += passed_us * limit->constants.bucket.tokens;
            if (limit->algo == ALGO_SLIDING_COUNTER) is_lossy |= event->refunded < event->cost;
            sum.n_given_back++;
            n_taken--;
            continue;
        }
        if (is_lossy && limit->algo == ALGO_COMPAT_FIRST_HIT) break; /* a lost charge may have begun its window */
        must(member.used <= event->used, "the state was below that of one server", at);
        bool is_exact = n_taken == 0 && !is_lossy;
        if (is_exact && !is_bucket) must(member.used == event->used, "the state was not that of one server", at);
        charged_us[event->whole] = event->at_us;

        if (event->kind == CHARGED && stays) {
            must(member.decision.allowed, "more was admitted than by one server", at);
            sum.n_admitted++;
        }
        if (event->kind == CHARGED && !stays) n_taken++;
        if (event->kind == LOST) is_lossy = true; /* it stays, although nobody knows */
        if (event->kind != DENIED) continue;
        bool denies = !member.decision.allowed;
        if (!denies && is_exact && is_bucket) {
            int64_t step = limit->constants.bucket.per_us;
            denies = member.used + event->cost * step + slack > limit->constants.bucket.admitted;
        }
        must(denies || !is_exact, "it was denied without a reason", at);
        sum.n_denied++;
        sum.n_falsely += !denies;
    }
    must(n_taken == 0, "a charge did not come back", at);
    memory_store_free(memory);
}

static void run(void)
{
    const struct engine_options options = {
        .max_inflight = 1000, .local_max_keys = 10, .slots = {.max = 10, .max_per_owner = 5}};
    all_counters_reset();
    clock_ = (struct clock){.frozen = true, .mono_us = 5000000, .wall_us = 1700000000000000};
    random_state = seed;
    n_wholes = n_open = 0;
    memset(n_events, 0, sizeof n_events);
    memset(&counted, 0, sizeof counted);
    placed_init(&placed, &clock_);
    is_closed = false;
    engine = engine_new(&clock_, placed_handle(&placed), policies_make(specs, N_POLICIES), &options);
    assert_non_null(engine);

    bool is_calm = below(2) == 0; /* replies come soon */
    is_cut = seed % 5 == 0;
    uint32_t n = is_cut ? 1 + (uint32_t)below(N_WHOLES) : N_WHOLES;
    while (n_wholes < n) {
        switch (below(is_calm ? 12 : 6)) {
        case 0: ask(); break;
        case 1: pass((int64_t)below(below(4) == 0 ? 30000 : 3000)); break;
        case 2:
            if (n_wholes > 0 && below(20) == 0) leave();
            break;
        default: reply(); break;
        }
        check_awaited();
        if (below(300) == 0) engine_set_policies(engine, policies_make(specs, N_POLICIES));
    }
    uint64_t may_wait = below(2); /* a cut one ends with the checks that are open, or at rest */
    while ((!is_cut || may_wait == 0) && placed.n_held > 0) reply();
    assert_true(placed.n_held > 0 || (n_open == 0 && engine_n_live(engine) == 0));
    for (uint32_t id = 1; id <= n_wholes && !is_cut; id++)
        if (!is_kept(&wholes[id])) counted.n_lost += wholes[id].n_lost;
    if (!is_cut) {
        must(engine_counters.late_replies == counted.n_late, "late replies are not counted", 0);
        must(engine_counters.split_refunds == counted.n_refunds, "refunds are not counted", 0);
        must(engine_counters.split_refunds_lost == counted.n_lost, "lost charges are not counted", 0);
    }
    for (size_t at = 0; at < N_COUNTERS && !is_cut; at++) replay(at);
    engine_close(engine, on_closed, NULL);
    assert_true(is_closed && n_open == 0);
}

static void no_trace_admits_more_than_one_server(void **state)
{
    (void)state;
    const char *only = getenv("RL_SPLIT_SEED");
    uint64_t first = only != NULL ? strtoull(only, NULL, 10) : 1, last = only != NULL ? first : N_RUNS;
    for (seed = first; seed <= last; seed++) run();
    print_message("%" PRIu64 " admitted, %" PRIu64 " denied, %" PRIu64 " of them falsely, %" PRIu64 " given back\n",
                  sum.n_admitted, sum.n_denied, sum.n_falsely, sum.n_given_back);
    if (only == NULL) assert_true(sum.n_falsely > 0 && sum.n_falsely < sum.n_denied && sum.n_given_back > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_trace_admits_more_than_one_server)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
