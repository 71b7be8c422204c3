/*
 * test_split_traces.c: checks over several places on random traces, against one server.
 *
 * Clients ask for several limits in several places, whose replies come in random order, late, or not at all; clients
 * leave, and time passes. Afterwards each counter is replayed on a store of its own, with those charges alone that were
 * kept. In it every admission must be one, and no state may ever be above that which was seen. A denial must be one,
 * and the states equal, unless a charge was open then, that is, still to be taken back; or was lost. RL_SPLIT_SEED=n
 * runs one trace alone.
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

static const struct policy_spec specs[] = {
    {.name = "window",
     .on_failure = ON_FAILURE_ALLOW,
     .deadline_ms = 50,
     .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 7, .window_us = SECOND_US}}},
    {.name = "bucket",
     .on_failure = ON_FAILURE_DENY,
     .deadline_ms = 50,
     .limits = {{.algo = ALGO_BUCKET, .limit = 20, .window_us = SECOND_US, .burst = 6}}},
    {.name = "log",
     .on_failure = ON_FAILURE_ALLOW,
     .deadline_ms = 50,
     .limits = {{.algo = ALGO_SLIDING_LOG, .limit = 6, .window_us = SECOND_US / 2}}},
    {.name = "counter",
     .on_failure = ON_FAILURE_DENY,
     .deadline_ms = 50,
     .limits = {{.algo = ALGO_SLIDING_COUNTER, .limit = 8, .window_us = SECOND_US}}},
    {.name = "slow",
     .on_failure = ON_FAILURE_ERROR,
     .deadline_ms = 50,
     .limits = {{.algo = ALGO_BUCKET, .limit = 3, .window_us = SECOND_US, .burst = 9}}},
};
enum {
    N_POLICIES = sizeof specs / sizeof specs[0],
    N_PLACES = 3,
    N_COUNTERS = N_POLICIES * N_PLACES,
    N_WHOLES = 600,
    N_OPEN = 8,
    N_RUNS = 150,
    EVENTS_MAX = 8 * N_WHOLES,
};

enum event_kind { CHARGED, DENIED, GIVEN_BACK, LOST };

struct event {
    enum event_kind kind;
    uint32_t whole;
    int64_t at_us, cost, used, refunded;
};

struct whole {
    struct check *check; /* NULL: answered, or left */
    bool is_allowed, is_left, is_single;
    uint32_t n_parts, n_admitted;
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

static void on_done(struct check *check)
{
    struct whole *whole = &wholes[check->op.client];
    whole->is_allowed = check->error == ERROR_NONE;
    CHECK_FOREACH (one, check) whole->is_allowed &= check->error == ERROR_NONE && one->decision.allowed;
    whole->check = NULL;
    n_open--;
    release_all(check);
}

/* In a trace that ends in the middle memory fails now and then. */
static bool fails(void)
{
    return is_cut && below(20) == 0;
}

static void ask(void)
{
    static const char *const keys[N_PLACES] = {"a", "b", "c"};
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
        check->cost = (int64_t)(1 + below(3));
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
    if (fails()) mem_fail_nth(1 + below(6));
    if (check_seal(first) == 0) {
        engine_submit(engine, first);
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

static size_t counter_of(const struct op_member *member)
{
    size_t policy = 0;
    while (strcmp(specs[policy].name, member->limit->policy->name) != 0) policy++;
    return policy * N_PLACES + (size_t)(member->key.data[0] - 'a');
}

static void note(const struct op *op, const struct op_member *member, enum event_kind kind)
{
    size_t at = counter_of(member);
    assert_true(n_events[at] < EVENTS_MAX);
    events[at][n_events[at]++] = (struct event){.kind = kind,
                                                .whole = (uint32_t)op->client,
                                                .at_us = clock_.wall_us,
                                                .cost = member->cost,
                                                .used = member->used,
                                                .refunded = member->refunded};
}

/* Decides the oldest op of a place, whose reply may be lost. */
static void reply(void)
{
    uint32_t place = (uint32_t)below(N_PLACES);
    for (size_t i = 0; i < placed.n_held; i++) {
        struct op *op = placed_held(&placed, i);
        if ((uint32_t)(op->members[0].key.data[0] - 'a') != place) continue;

        bool is_lost = below(40) == 0, is_refund = op->kind == OP_REFUND;
        placed_decide(&placed, i);
        bool is_admitted = !is_refund;
        for (uint16_t k = 0; k < op->n_members; k++) is_admitted &= op->members[k].decision.allowed;
        for (uint16_t k = 0; k < op->n_members; k++) {
            const struct op_member *member = &op->members[k];
            if (is_refund)
                note(op, member, GIVEN_BACK);
            else if (is_admitted)
                note(op, member, is_lost ? LOST : CHARGED);
            else if (!member->decision.allowed)
                note(op, member, DENIED);
        }
        wholes[op->client].n_admitted += is_admitted && !is_lost;
        placed_end(&placed, i, is_lost ? OP_DOWN : OP_DECIDED);
        return;
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
        bool stays = is_kept(&wholes[event->whole]);
        struct op_member member = {.limit = limit, .key = slice_of("a"), .cost = event->cost};
        struct op op = {
            .kind = event->kind == CHARGED && stays ? OP_CHECK : OP_PEEK, .n_members = 1, .members = &member};
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
    }
    while (!is_cut && placed.n_held > 0) reply();
    assert_true(is_cut || (n_open == 0 && engine_n_live(engine) == 0));
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
