/*
 * twins.c: the C algorithms and the script, held against each other at the speed of both: random turns, each decided by
 * the script in a real Redis (through turn.c and turn_replay.c) and, while Redis works, by the memory store at the same
 * `now`; every field of every limit's decision is compared here.
 *
 *   twins SOCKET SEED SECONDS [TRACES]     the seeds from SEED on, for that long, or only that many
 *
 * A seed is a trace: policies of every native algorithm, some with several limits, a few keys, and some tens of turns
 * whose clock mostly goes forward; some traces go in steps. The store begins empty: it is flushed, so it must be nobody
 * else's. Where the two differ, the seed, turn and step are printed with both decisions, and the exit status is 1;
 * `twins SOCKET SEED 0 1` does the same again. What neither side gets right is not found here: that is the model's part
 * (tests/model).
 *
 * Fixed windows keep their number mod 2^16 (a key's expiry, which a test's clock does not drive, tells the others
 * apart), so a trace is never as long as 2^15 of its shortest windows.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <hiredis/hiredis.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "limit/calendar.h"
#include "limit/policy.h"
#include "store/memory_store.h"
#include "store/turn.h"

enum {
    N_POLICIES = 14,
    LIMITS_MAX = 3,
    MEMBERS_MAX = 2 * LIMITS_MAX,
    N_KEYS = 4,
    STEPS_MAX = 2048,
    TURNS_MAX = 60,
    PATIENCE_S = 600,
};

#define START_US INT64_C(4000000000000000) /* in the future, so that no key's expiry has passed */

/* One op, for either store. */
struct step {
    struct op op;
    struct op_member members[MEMBERS_MAX];
};

static struct policy *policies[N_POLICIES]; /* owned, of the present trace */
static int64_t window_us;                   /* all windows of the trace are near this */
static struct step *in_redis, *in_memory;   /* owned; the steps of a turn, twice */
static size_t n_steps;
static int64_t skew_us;      /* of the trace: how far the host's clock is ahead of Redis'; moves no calendar's edge */
static int64_t turn_wait_us; /* what most checks of a turn bring: checks that bring another cut the call */

static struct clock twin_clock = {.manual = true, .frozen = true};
static struct memory_store *memory; /* owned, of the present trace */
static struct store memory_handle;
static redisContext *redis; /* owned */
static struct turn *turn;   /* owned, of the present trace */

static uint64_t seed, random_state;
static int turn_number;
static uint64_t n_decisions, n_calls;

static void die(const char *what)
{
    fprintf(stderr, "twins: %s\n", what);
    exit(2);
}

/* splitmix64 */
static uint64_t random64(void)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int64_t below(int64_t n)
{
    return (int64_t)(random64() % (uint64_t)n);
}

static bool once_in(int64_t n)
{
    return below(n) == 0;
}

#define ONE_OF(...)                                                                                                    \
    ((const int64_t[]){__VA_ARGS__})[below((int64_t)(sizeof(const int64_t[]){__VA_ARGS__} / sizeof(int64_t)))]

/* ---- policies -------------------------------------------------------------------------------------------------- */

static const enum algo algos[] = {ALGO_BUCKET,          ALGO_FIXED_WINDOW, ALGO_FIRST_HIT,      ALGO_SLIDING_LOG,
                                  ALGO_SLIDING_COUNTER, ALGO_LEAKY_BUCKET, ALGO_CALENDAR_WINDOW};
enum { N_NATIVE = sizeof algos / sizeof algos[0] };

static bool is_bucket(enum algo algo)
{
    return algo == ALGO_BUCKET || algo == ALGO_LEAKY_BUCKET;
}

/* Windows near the others' length, as far as the calendar has such. */
static struct calendar *random_calendar(void)
{
    static const char *const zones[] = {"UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York"};
    struct calendar *calendar;
    int64_t units = window_us < 86400000000 ? CALENDAR_WEEK : CALENDAR_YEAR + 1;
    if (calendar_get(zones[below(4)], (enum calendar_unit)below(units), (int)below(7), true, &calendar) != 0)
        die("no time zones here");
    return calendar;
}

static void fill_limit(struct limit *limit, enum algo algo)
{
    char message[256];
    bool in_us = is_bucket(algo) || algo == ALGO_SLIDING_LOG;
    limit->algo = algo;
    limit->limit = ONE_OF(1, 2, 3, 5, 7, 10, 30, 100, 1000);
    limit->window_us = window_us * ONE_OF(1, 1, 2, 3, 7);
    if (in_us && once_in(4)) limit->window_us += 1 + below(999);
    if (is_bucket(algo)) limit->burst = ONE_OF(0, 0, 1, limit->limit, 2 * limit->limit, 1 + below(40));
    if (algo == ALGO_LEAKY_BUCKET)
        limit->max_wait_us = ONE_OF(0, 1, 1000, limit->window_us / limit->limit, 3 * limit->window_us);
    else if (algo == ALGO_FIXED_WINDOW || algo == ALGO_FIRST_HIT || algo == ALGO_SLIDING_LOG)
        limit->count_denied = once_in(4);
    if (algo == ALGO_CALENDAR_WINDOW) limit->calendar = random_calendar();
    if (algo == ALGO_FIXED_WINDOW) limit->phase = once_in(4);
    const char *wrong = limit_prepare(limit, NULL, message, sizeof message);
    if (wrong != NULL) die(wrong);
}

/* Each algorithm alone once, and policies of several. */
static void make_policies(void)
{
    skew_us = once_in(2) ? 0 : below(1200000000) - 600000000;
    window_us = ONE_OF(1000, 7000, 1000000, 10000000, 3600000000, 86400000000);
    for (size_t i = 0; i < N_POLICIES; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%zu", i);
        uint16_t n_limits = (uint16_t)(i < N_NATIVE ? 1 : 1 + below(LIMITS_MAX));
        policies[i] = policy_new(name, n_limits);
        if (policies[i] == NULL) die("no memory");
        for (uint16_t j = 0; j < n_limits; j++) {
            struct limit *limit = &policies[i]->limits[j];
            if (n_limits > 1) snprintf(limit->name, sizeof limit->name, "l%u", (unsigned)j);
            fill_limit(limit, i < N_NATIVE ? algos[i] : algos[below(N_NATIVE)]);
        }
        policy_seal(policies[i]);
    }
}

/* ---- turns ----------------------------------------------------------------------------------------------------- */

static int64_t random_cost(const struct limit *limit)
{
    int64_t cost = ONE_OF(1, 1, 1, 1, 1, 2, 3, 0, limit->full, limit->full + 1, below(2 * limit->full));
    return cost <= limit->full && cost > limit->max_cost ? limit->max_cost : cost;
}

static int64_t random_wait(void)
{
    return once_in(3) ? ONE_OF(0, 1000, below(2 * window_us)) : INT64_MAX;
}

static void add_members(struct step *step, const struct policy *policy)
{
    static const char *const keys[N_KEYS] = {"a", "b", "c", "d"};
    struct slice key = slice_of(keys[once_in(2) ? 0 : below(N_KEYS)]);
    int64_t cost = random_cost(&policy->limits[below(policy->n_limits)]);
    int64_t max_wait_us = once_in(50) ? random_wait() : turn_wait_us;
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        const struct limit *limit = &policy->limits[i];
        int64_t own = cost <= limit->full && cost > limit->max_cost ? limit->max_cost : cost;
        step->members[step->op.n_members++] = (struct op_member){
            .limit = limit, .key = key, .cost = own, .max_wait_us = limit_max_wait(limit, max_wait_us)};
    }
}

static void on_done(struct op *op, enum op_outcome outcome)
{
    op->outcome = outcome;
}

static void copy_step(struct step *to, const struct step *from)
{
    *to = *from;
    to->op.members = to->members;
    list_init(&to->op.link);
}

static void random_step(struct step *step, enum op_kind kind)
{
    *step = (struct step){.op = {.kind = kind, .done = on_done}};
    int64_t first = below(N_POLICIES);
    add_members(step, policies[first]);
    if (kind == OP_CHECK && once_in(10)) add_members(step, policies[(first + 1 + below(N_POLICIES - 1)) % N_POLICIES]);
}

/* Some steps come many times in a row, as they do from a busy client: those are what the turn merges. */
static void make_steps(void)
{
    bool resets = once_in(12);
    turn_wait_us = random_wait();
    size_t wanted = (size_t)ONE_OF(1, 3, 40, 400, STEPS_MAX);
    for (n_steps = 0; n_steps < wanted;) {
        struct step step;
        random_step(&step, resets && once_in(4) ? OP_RESET : once_in(12) ? OP_PEEK : OP_CHECK);
        for (int64_t n = ONE_OF(1, 1, 2, 4, 40); n > 0 && n_steps < wanted; n--, n_steps++) {
            copy_step(&in_redis[n_steps], &step);
            copy_step(&in_memory[n_steps], &step);
        }
    }
}

static int64_t random_pause_us(void)
{
    if (once_in(16)) return -ONE_OF(1, 1000, below(window_us), below(3 * window_us));
    int64_t to_edge = window_us - twin_clock.wall_us % window_us;
    return ONE_OF(0, 1, 1000, below(1 + window_us / 30), below(window_us), window_us - 1, window_us, window_us + 1,
                  to_edge, to_edge - 1, below(8 * window_us));
}

/* ---- deciding, twice ------------------------------------------------------------------------------------------- */

static void send_turn(uint32_t nonce)
{
    const struct slice *args;
    const char *argv[3 + TURN_ARGS_MAX];
    size_t lens[3 + TURN_ARGS_MAX], argc = 0;
    char now_text[24];
    size_t n = turn_args(turn, nonce, twin_clock.wall_us + skew_us, &args);
    argv[argc] = "EVALSHA", lens[argc++] = 7;
    argv[argc] = turn_script_sha1, lens[argc++] = 40;
    for (size_t i = 0; i < n; i++) argv[argc] = (const char *)args[i].data, lens[argc++] = args[i].len;
    lens[argc] = (size_t)snprintf(now_text, sizeof now_text, "%" PRId64, twin_clock.wall_us);
    argv[argc++] = now_text;
    int done = 0;
    if (redisAppendCommandArgv(redis, (int)argc, argv, lens) != REDIS_OK) die("no memory");
    while (!done)
        if (redisBufferWrite(redis, &done) != REDIS_OK) die("lost Redis");
    n_calls++;
}

static void receive_turn(uint32_t nonce)
{
    static int64_t integers[3 * TURN_KEYS_MAX + 4 * MEMBERS_MAX * STEPS_MAX];
    redisReply *reply;
    if (redisGetReply(redis, (void **)&reply) != REDIS_OK) die("lost Redis");
    if (reply->type != REDIS_REPLY_ARRAY) die(reply->str != NULL ? reply->str : "no array");
    if (reply->elements > sizeof integers / sizeof integers[0]) die("too long a reply");
    for (size_t i = 0; i < reply->elements; i++) integers[i] = reply->element[i]->integer;
    if (turn_replay(turn, integers, reply->elements, nonce) < 0) die("a reply that makes no sense");
    freeReplyObject(reply);
    struct list done;
    list_init(&done);
    turn_take_ops(turn, &done);
    while (list_pop_front(&done) != NULL) continue;
    turn_clear(turn);
}

static void print_decision(const char *name, const struct decision *decision)
{
    printf("  %s: allowed %d limit %" PRId64 " remaining %" PRId64 " retry %" PRId64 " reset %" PRId64 " delay %" PRId64
           " granted %" PRId64 "\n",
           name, decision->allowed, decision->limit, decision->remaining, decision->retry_after_ms,
           decision->reset_after_ms, decision->delay_ms, decision->granted);
}

static void complain(size_t i, uint16_t member)
{
    const struct op_member *by_script = &in_redis[i].members[member], *by_c = &in_memory[i].members[member];
    const struct limit *limit = by_c->limit;
    printf("twins: seed %" PRIu64 ", turn %d, step %zu, member %u of %u: %s %s on %s, limit %" PRId64
           " window_us %" PRId64 " burst %" PRId64 " max_wait_us %" PRId64 " count_denied %d phase %d, now %" PRId64
           ", cost %" PRId64 "\n",
           seed, turn_number, i, (unsigned)member, (unsigned)in_memory[i].op.n_members,
           in_memory[i].op.kind == OP_PEEK ? "peek" : "check", limit_ops(limit)->name, limit->key_head, limit->limit,
           limit->window_us, limit->burst, limit->max_wait_us, limit->count_denied, limit->phase, twin_clock.wall_us,
           by_c->cost);
    print_decision("script", &by_script->decision);
    print_decision("memory", &by_c->decision);
    exit(1);
}

static bool same(const struct decision *a, const struct decision *b)
{
    return a->allowed == b->allowed && a->limit == b->limit && a->remaining == b->remaining &&
           a->retry_after_ms == b->retry_after_ms && a->reset_after_ms == b->reset_after_ms &&
           a->delay_ms == b->delay_ms && a->granted == b->granted;
}

static void compare(size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (in_redis[i].op.outcome != OP_DECIDED) die("the script did not decide");
        for (uint16_t j = 0; j < in_memory[i].op.n_members && in_memory[i].op.kind != OP_RESET; j++)
            if (!same(&in_redis[i].members[j].decision, &in_memory[i].members[j].decision)) complain(i, j);
    }
    n_decisions += to - from;
}

/* The steps that fit one call, decided by both; returns the first that did not fit. */
static size_t run_call(size_t from)
{
    static uint32_t nonce;
    size_t to = from;
    int status = 0;
    while (to < n_steps && (status = turn_add(turn, &in_redis[to].op)) == 0) to++;
    if (status < 0 || to == from) die("an op that fits no turn");
    send_turn(++nonce);
    for (size_t i = from; i < to; i++)
        if (store_submit(&memory_handle, &in_memory[i].op) != SUBMIT_DECIDED) die("memory did not decide");
    receive_turn(nonce);
    compare(from, to);
    return to;
}

/* ---- traces ---------------------------------------------------------------------------------------------------- */

static void forget_all(void)
{
    redisReply *reply = redisCommand(redis, "FLUSHALL");
    if (reply == NULL || reply->type != REDIS_REPLY_STATUS) die("Redis does not flush");
    freeReplyObject(reply);
}

static void run_trace(void)
{
    random_state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    make_policies();
    forget_all();
    memory = memory_store_new(&twin_clock, &(struct memory_options){.max_keys = 10000});
    if (memory == NULL) die("no memory");
    memory_handle = memory_store_handle(memory);
    uint32_t max_keys = (uint32_t)ONE_OF(TURN_KEYS_MAX, TURN_KEYS_MAX, TURN_KEYS_MAX, MEMBERS_MAX);
    turn = turn_new("rl", max_keys, !once_in(6));
    if (turn == NULL) die("no memory");
    if (once_in(6)) turn_set_steps(turn);
    twin_clock.wall_us = START_US + below(2 * window_us);
    for (turn_number = 0; turn_number < TURNS_MAX; turn_number++) {
        make_steps();
        for (size_t from = 0; from < n_steps;) from = run_call(from);
        int64_t later = twin_clock.wall_us + random_pause_us();
        twin_clock.wall_us = later > START_US ? later : START_US;
    }
    memory_store_free(memory);
    turn_free(turn);
    for (size_t i = 0; i < N_POLICIES; i++) policy_free(policies[i]);
}

static void open_redis(const char *socket)
{
    redis = redisConnectUnixWithTimeout(socket, (struct timeval){.tv_sec = PATIENCE_S});
    if (redis == NULL || redis->err) die("cannot connect to Redis");
    redisReply *reply = redisCommand(redis, "SCRIPT LOAD %b", turn_script, turn_script_len);
    if (reply == NULL || reply->type != REDIS_REPLY_STRING) die(reply == NULL ? "lost Redis" : reply->str);
    freeReplyObject(reply);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    if (argc < 4) die("usage: twins SOCKET SEED SECONDS [TRACES]");
    double seconds = atof(argv[3]), started = seconds_now(), passed;
    uint64_t first = seed = strtoull(argv[2], NULL, 10), most = argc > 4 ? strtoull(argv[4], NULL, 10) : UINT64_MAX;
    in_redis = mem_zalloc(STEPS_MAX * sizeof *in_redis);
    in_memory = mem_zalloc(STEPS_MAX * sizeof *in_memory);
    if (in_redis == NULL || in_memory == NULL) die("no memory");
    open_redis(argv[1]);
    do {
        run_trace();
        seed++;
        passed = seconds_now() - started;
    } while (seed - first < most && (passed < seconds || argc > 4));
    printf("%" PRIu64 " decisions of %" PRIu64 " traces (seeds %" PRIu64 " to %" PRIu64
           ") in %.1f s, %.0f a second, %" PRIu64 " calls\n",
           n_decisions, seed - first, first, seed - 1, passed, (double)n_decisions / passed, n_calls);
    redisFree(redis);
    mem_free(in_redis);
    mem_free(in_memory);
    return 0;
}
