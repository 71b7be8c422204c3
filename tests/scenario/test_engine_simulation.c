/*
 * test_engine_simulation.c: exactly one answer, whatever happens in whatever order.
 *
 * First every schedule of five events over two checks, then thousands of long random ones, in
 * which clients also ask and leave from within `done`, memory fails now and then, and policies and
 * caps change. A failing run prints its seed; RL_SIM_SEED=n runs that one alone.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/random.h"
#include "fakes/all_counters.h"
#include "fakes/engine_fixture.h"

#define SECOND_US INT64_C(1000000)

static const struct policy_spec specs[] = {
    {.name = "allow", .on_failure = ON_FAILURE_ALLOW, .deadline_ms = 5, .limits = {{.limit = 5, .window_us = 1000000}}},
    {.name = "deny", .on_failure = ON_FAILURE_DENY, .limits = {{.limit = 5, .window_us = SECOND_US}}},
    {.name = "error", .on_failure = ON_FAILURE_ERROR, .limits = {{.limit = 5, .window_us = SECOND_US}}},
    {.name = "local",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.algo = ALGO_SLIDING_LOG, .limit = 20, .window_us = SECOND_US}}},
    {.name = "nothing", .limits = {{.limit = 0, .window_us = SECOND_US}}},
    {.name = "several",
     .on_failure = ON_FAILURE_LOCAL,
     .limits = {{.name = "a", .algo = ALGO_BUCKET, .limit = 2, .window_us = SECOND_US},
                {.name = "b", .algo = ALGO_FIXED_WINDOW, .limit = 3, .window_us = SECOND_US},
                {.name = "c", .algo = ALGO_SLIDING_LOG, .limit = 9, .window_us = SECOND_US}}},
};
enum { N_SPECS = sizeof specs / sizeof specs[0], N_SLOTS = 48, N_STEPS = 300, N_RUNS = 3000 };

/* What became of a check, as the test wants it. */
struct place {
    struct asked asked;
    bool used;
    bool left; /* before done */
    int64_t due_us;
};

static struct engine_fixture fixture;
static struct place slots[N_SLOTS];
static struct {
    size_t n_made, n_answered, n_left;
} sum;
static uint64_t seed;
static uint64_t random_state;

static uint64_t below(uint64_t n)
{
    return random_below(&random_state, n);
}

static void print_seed(int signo)
{
    char text[64];
    int len = snprintf(text, sizeof text, "RL_SIM_SEED=%" PRIu64 "\n", seed);
    if (write(STDERR_FILENO, text, (size_t)len) < 0) _exit(1);
    signal(signo, SIG_DFL);
    raise(signo);
}

static void must(bool holds, const char *what)
{
    if (holds) return;
    print_message("RL_SIM_SEED=%" PRIu64 ": %s\n", seed, what);
    fail();
}

static void ask(struct place *slot);
static void leave(struct place *slot);

/* What a client does when it is answered: it may ask again at once, or somebody else may go. */
static void on_answered(struct asked *asked)
{
    struct place *slot = CONTAINER_OF(asked, struct place, asked);
    must(slot->used && !slot->left && asked->n_done == 1, "done ran twice, or after the client had left");
    sum.n_answered++;
    if (asked->check == NULL) slot->used = false;
    if (seed == 0) return;
    if (below(8) == 0) ask(&slots[below(N_SLOTS)]);
    if (below(8) == 0) leave(&slots[below(N_SLOTS)]);
}

static void ask_for(struct place *slot, enum op_kind kind, const char *policy, const char *key, int64_t cost, bool keep)
{
    *slot = (struct place){.asked = {.keep = keep, .then = on_answered}};
    slot->asked.check = fixture_check_new(&fixture, key);
    if (slot->asked.check == NULL) return;
    if (!fixture_seal(&fixture, slot->asked.check, kind, policy, cost)) {
        fixture_leave(&slot->asked);
        return;
    }
    slot->used = true;
    uint32_t deadline_ms = policies_get(engine_policies(fixture.engine), policy)->deadline_ms;
    slot->due_us = fixture.clock.mono_us + 1000 * (fixture.deadline_ms > 0 ? fixture.deadline_ms : deadline_ms);
    sum.n_made++;
    fixture_submit(&fixture, &slot->asked, kind, policy, cost);
}

static void ask(struct place *slot)
{
    static const enum op_kind kinds[] = {OP_CHECK, OP_CHECK, OP_CHECK, OP_PEEK, OP_RESET};
    char key[200];
    if (slot->used) return;
    memset(key, 'k', sizeof key);
    key[0] = (char)('a' + below(3));
    key[below(4) == 0 ? sizeof key - 1 : 5] = '\0';
    fixture.deadline_ms = (uint32_t)(below(2) * below(30));
    enum op_kind kind = kinds[below(sizeof kinds / sizeof kinds[0])];
    ask_for(slot, kind, specs[below(N_SPECS)].name, key, (int64_t)below(4), below(4) == 0);
}

static void leave(struct place *slot)
{
    if (!slot->used || slot->asked.check == NULL) return;
    if (slot->asked.n_done == 0) {
        slot->left = true;
        sum.n_left++;
    }
    slot->used = false;
    fixture_leave(&slot->asked);
}

static void reload(void)
{
    struct policy_spec changed[N_SPECS];
    memcpy(changed, specs, sizeof specs);
    for (size_t i = 0; i < N_SPECS; i++) {
        changed[i].on_failure = (enum on_failure)below(4);
        changed[i].deadline_ms = (uint32_t)(1 + below(20));
    }
    mem_fail_nth(0);
    engine_set_policies(fixture.engine, policies_make(changed, N_SPECS));
}

static void advance(int64_t ms)
{
    fixture_advance_ms(&fixture, ms);
    must(engine_next_deadline(fixture.engine) > fixture.clock.mono_us, "a deadline has passed and is still there");
    for (size_t i = 0; i < N_SLOTS; i++)
        must(!slots[i].used || slots[i].asked.n_done == 1 || slots[i].due_us > fixture.clock.mono_us,
             "a check is past its deadline and has no answer");
}

static void end_one(enum op_outcome outcome)
{
    if (fixture.scripted.n_held > 0) scripted_end(&fixture.scripted, below(fixture.scripted.n_held), outcome);
}

static void step(void)
{
    switch (below(16)) {
    case 0: fixture.scripted.mode = (enum scripted_mode)below(4); break;
    case 1: fixture.scripted.mode = SCRIPTED_HOLD; break;
    case 2: scripted_end_all(&fixture.scripted, OP_DOWN); break;
    case 3: end_one(OP_STORE_ERROR); break;
    case 4: advance((int64_t)below(30)); break;
    case 5: leave(&slots[below(N_SLOTS)]); break;
    case 6: engine_flush(fixture.engine); break;
    case 7: mem_fail_nth(1 + below(6)); break;
    case 8:
        if (below(10) == 0) reload();
        break;
    case 9:
        engine_set_options(fixture.engine, &(struct engine_options){.max_inflight = (uint32_t)(1 + below(40)),
                                                                    .local_max_keys = 1 + below(20)});
        break;
    case 10:
    case 11: end_one(OP_DECIDED); break;
    default: ask(&slots[below(N_SLOTS)]); break;
    }
}

static void check_sums(void)
{
    size_t n_askers = 0, n_waiting = 0;
    for (size_t i = 0; i < N_SLOTS; i++) {
        n_askers += slots[i].used;
        n_waiting += slots[i].used && slots[i].asked.n_done == 0;
    }
    size_t n_live = engine_n_live(fixture.engine);
    must(sum.n_made == sum.n_answered + sum.n_left + n_waiting, "made is not answered, left or waiting");
    must(n_live >= n_askers && n_live >= fixture.scripted.n_held, "a check that somebody owns went back");
    must(n_live <= n_askers + fixture.scripted.n_held, "a check that nobody owns did not go back");
    must(fixture_n_inflight(&fixture) == n_askers, "the gauge does not show those who wait");
}

/* Everything ends: clients go and the store closes, in any order. */
static void close_all(void)
{
    mem_fail_nth(0);
    fixture.scripted.holds_close = true;
    engine_close(fixture.engine, fixture_mark_closed, &fixture);
    for (size_t i = 0; i < N_SLOTS; i++)
        must(!slots[i].used || slots[i].asked.n_done == 1, "closing left a check without an answer");
    check_sums();
    size_t n_first = below(N_SLOTS + 1);
    for (size_t i = 0; i < n_first; i++) leave(&slots[i]);
    scripted_finish_close(&fixture.scripted);
    for (size_t i = n_first; i < N_SLOTS; i++) leave(&slots[i]);
    must(fixture.closed, "the engine did not close");
    must(sum.n_made == sum.n_answered + sum.n_left, "made is not answered or left");
}

static void start(void)
{
    struct engine_options options = {.max_inflight = 30, .local_max_keys = 20};
    memset(slots, 0, sizeof slots);
    memset(&sum, 0, sizeof sum);
    all_counters_reset();
    fixture_open(&fixture, specs, N_SPECS, &options);
}

static void run_random(uint64_t which)
{
    seed = which;
    random_state = seed;
    start();
    for (int i = 0; i < N_STEPS; i++) {
        step();
        check_sums();
    }
    close_all();
}

static void random_schedules_answer_each_check_once(void **state)
{
    (void)state;
    const char *wanted = getenv("RL_SIM_SEED");
    if (wanted != NULL) {
        run_random(strtoull(wanted, NULL, 10));
        return;
    }
    for (uint64_t i = 1; i <= N_RUNS; i++) run_random(i);
    print_message("seeds 1 to %d\n", N_RUNS);
}

enum event { ASK_A, ASK_B, REPLY_FIRST, REPLY_LAST, ERROR_FIRST, LOSE, DEADLINE, LEAVE_A, LEAVE_B, N_EVENTS };

static void happen(enum event event)
{
    size_t n_held = fixture.scripted.n_held;
    switch (event) {
    case ASK_A:
        if (!slots[0].used) ask_for(&slots[0], OP_CHECK, "deny", "alice", 1, false);
        break;
    case ASK_B:
        if (!slots[1].used) ask_for(&slots[1], OP_CHECK, "local", "alice", 1, true);
        break;
    case REPLY_FIRST:
        if (n_held > 0) scripted_end(&fixture.scripted, 0, OP_DECIDED);
        break;
    case REPLY_LAST:
        if (n_held > 0) scripted_end(&fixture.scripted, n_held - 1, OP_DECIDED);
        break;
    case ERROR_FIRST:
        if (n_held > 0) scripted_end(&fixture.scripted, 0, OP_STORE_ERROR);
        break;
    case LOSE: scripted_end_all(&fixture.scripted, OP_DOWN); break;
    case DEADLINE: advance(20); break;
    case LEAVE_A: leave(&slots[0]); break;
    case LEAVE_B: leave(&slots[1]); break;
    case N_EVENTS: break;
    }
}

/* Begun with both asked, so that no schedule is spent on saying so. */
static void all_short_schedules_answer_each_check_once(void **state)
{
    (void)state;
    enum { N_ALL = N_EVENTS * N_EVENTS * N_EVENTS * N_EVENTS * N_EVENTS };
    seed = 0;
    random_state = 1;
    for (int schedule = 0; schedule < N_ALL; schedule++) {
        start();
        happen(ASK_A);
        happen(ASK_B);
        for (int rest = schedule; rest > 0; rest /= N_EVENTS) happen((enum event)(rest % N_EVENTS));
        check_sums();
        close_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_short_schedules_answer_each_check_once),
        cmocka_unit_test(random_schedules_answer_each_check_once),
    };
    signal(SIGABRT, print_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
