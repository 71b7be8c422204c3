/*
 * differential.c: compares the C algorithms with the script at full speed. The script in a real Redis decides random
 * batches (through batch.c and batch_reply.c), and the memory store decides the same ops at the same `now`. This
 * program compares every field of every limit's answer.
 *
 *   differential SOCKET SEED SECONDS [TRACES]     the seeds from SEED on, for SECONDS, or TRACES of them
 *
 * A seed gives a trace (random_traces.h): policies of every native algorithm, and some tens of ticks with ops of all
 * kinds, merged or one after another; one trace in four with the cache of denials before Redis, where a kept denial
 * answers in place of the script. The program flushes the Redis, so nobody else may use it. At a difference it
 * prints the seed, tick and step with both answers, and exits with status 1; `differential SOCKET SEED 0 1` repeats
 * that trace. Otherwise its last two lines report the number of compared decisions, in total and of each kind. It does
 * not find faults that both sides share; the reference model does (tests/model).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "redis/deny_cache.h"
#include "replay/random_traces.h"
#include "replay/script_call.h"
#include "store/memory_store.h"

enum {
    CACHED_ONE_IN = 4,
    DENIED_MAX = 4096,
    TICKS_MAX = 60,
    MEMORY_KEYS = 100000, /* nothing is evicted */
};

static struct trace_step *in_redis, *in_memory; /* owned; the steps of a tick, once for each side */
static size_t n_steps;

static struct clock trace_clock = {.manual = true, .frozen = true};
static struct memory_store *memory; /* owned, of the present trace */
static struct store memory_handle;
static redisContext *redis; /* owned */
static struct batch *batch; /* owned, of the present trace */
static struct trace trace;
static struct deny_cache denied; /* owned; off in most traces */
static uint64_t n_cached;

static uint64_t seed;
static int tick_number;
static uint64_t n_decisions, n_calls;
static uint64_t n_of[N_TRACE_KINDS], n_counted[N_TRACE_KINDS]; /* the second: those with the outcome in kind_counts */

#define KIND(id, name, counted) [TRACE_##id] = name,
static const char *const kind_names[] = {TRACE_KINDS(KIND)};
#undef KIND
#define KIND(id, name, counted) [TRACE_##id] = counted,
static const char *const kind_counts[] = {TRACE_KINDS(KIND)};
#undef KIND

/* ---- decide on both sides -------------------------------------------------------------------------------------- */

/* Sends the batch and does not wait: Redis decides it while the memory store decides the same ops. */
static void send_batch(uint32_t nonce)
{
    int done = 0;
    script_append(redis, batch, nonce, trace_clock.wall_us + trace.skew_us, trace_clock.wall_us);
    while (!done)
        if (redisBufferWrite(redis, &done) != REDIS_OK) die("lost Redis");
    n_calls++;
}

static void print_answer(const char *store, const struct trace_step *step, uint16_t i)
{
    const struct op_member *member = &step->members[i];
    const struct decision *decision = &member->decision;
    const struct op_reservation *reservation = &step->reservation;
    printf("  %s: allowed %d limit %" PRId64 " remaining %" PRId64 " retry %" PRId64 " reset %" PRId64 " delay %" PRId64
           " granted %" PRId64 " window %" PRId64 " own reset %" PRId64,
           store, decision->allowed, decision->limit, decision->remaining, decision->retry_after_ms,
           decision->reset_after_ms, decision->delay_ms, decision->granted, decision->window_ms, decision->of_reset_ms);
    if (step->op.kind == OP_CHECK || step->op.kind == OP_PEEK)
        printf(" (seen %" PRId64 " %" PRId64 ", pause %" PRId64 " to %" PRId64 ")", member->used, member->extra,
               member->pause.level, member->pause.end_ms);
    if (step->op.kind == OP_RESET) printf(" removed %d", member->removed);
    if (step->op.kind == OP_REFUND) printf(" refunded %" PRId64, member->refunded);
    if (step->op.kind == OP_RESERVE) printf(" held %d made_us %" PRId64, reservation->held, reservation->made_us);
    if (step->op.kind == OP_SETTLE)
        printf(" refunded %" PRId64 " charged %" PRId64 " ended %d", reservation->refunded, reservation->charged,
               reservation->ended);
    if (step->op.slot != NULL) printf(" found %d", member->found);
    puts("");
}

static void print_limit(const struct op_member *member)
{
    const struct limit *limit = member->limit;
    printf("%s on %s%.*s, limit %" PRId64 " window_us %" PRId64 " burst %" PRId64 " max_wait_us %" PRId64
           " count_denied %d phase %d debt %d penalty %" PRId64 "ms * %" PRId64 " to %" PRId64 ", forget %" PRId64,
           limit_ops(limit)->name, limit->key_head, (int)member->key.len, (const char *)member->key.data, limit->limit,
           limit->window_us, limit->burst, limit->max_wait_us, limit->count_denied, limit->phase, limit->debt,
           limit->penalty.time_ms, limit->penalty.factor, limit->penalty.max_ms, limit->penalty.forget_ms);
}

static void complain(size_t i, uint16_t member)
{
    const struct trace_step *step = &in_memory[i];
    printf("differential: seed %" PRIu64 ", tick %d, step %zu, member %u of %u: %s ", seed, tick_number, i,
           (unsigned)member, (unsigned)step->op.n_members, kind_names[step->kind]);
    print_limit(&step->members[member]);
    printf(", now %" PRId64 ", cost %" PRId64, trace_clock.wall_us, step->members[member].cost);
    if (step->op.at_most > 0) printf(", at_most %" PRId64, step->op.at_most);
    if (step->op.record.len > 0) printf(", %s, kept for %" PRIu32 " ms", step->record, step->op.record_ms);
    if (step->op.reservation != NULL)
        printf(", reservation %" PRIx64 " units %" PRId64 " made_us %" PRId64 " ttl_ms %" PRId64 " actual %" PRId64
               " level %" PRId64,
               step->reservation.id, step->reservation.units, step->reservation.made_us, step->reservation.ttl_ms,
               step->reservation.actual, step->reservation.level);
    if (step->op.slot != NULL) printf(", slot %.*s", SLOT_ID_LEN, step->slot);
    puts("");
    print_answer("script", &in_redis[i], member);
    print_answer("memory", step, member);
    exit(1);
}

static bool same_decision(const struct decision *a, const struct decision *b)
{
    return a->allowed == b->allowed && a->limit == b->limit && a->remaining == b->remaining &&
           a->retry_after_ms == b->retry_after_ms && a->reset_after_ms == b->reset_after_ms &&
           a->delay_ms == b->delay_ms && a->granted == b->granted && a->of == b->of && a->window_ms == b->window_ms &&
           a->of_reset_ms == b->of_reset_ms && a->reason == b->reason;
}

/* The answer comes from a record: then the store did not view the state. */
static bool is_answered_again(const struct op *by_c)
{
    return by_c->record.len > 0 && by_c->now_us < 0;
}

static bool is_kept_denial(const struct op *by_script)
{
    return by_script->source == SOURCE_DENY_CACHE;
}

static bool same_reservation(const struct op *a, const struct op *b)
{
    if (a->kind == OP_RESERVE)
        return a->reservation->held == b->reservation->held && a->reservation->is_known == b->reservation->is_known &&
               (!a->reservation->held ||
                (a->reservation->made_us == b->reservation->made_us && a->reservation->id == b->reservation->id &&
                 a->reservation->units == b->reservation->units && a->reservation->ttl_ms == b->reservation->ttl_ms));
    return a->reservation->refunded == b->reservation->refunded && a->reservation->charged == b->reservation->charged &&
           a->reservation->ended == b->reservation->ended;
}

/* In a merged batch `used` includes all counted denials, although a log only keeps `limit` of them. With a count of 0
 * `extra` has no meaning, except for the sliding counter. */
static bool same_seen(const struct op_member *a, const struct op_member *b)
{
    int64_t most = b->limit->count_denied ? b->limit->limit : INT64_MAX;
    bool has_extra = b->used > 0 || b->limit->algo == ALGO_SLIDING_COUNTER;
    if (a->pause.level != b->pause.level || a->pause.end_ms != b->pause.end_ms) return false;
    return (a->used == b->used || (a->used >= most && b->used >= most)) && (!has_extra || a->extra == b->extra);
}

static bool same_member(const struct op *a, const struct op *b, uint16_t i)
{
    const struct op_member *by_script = &a->members[i], *by_c = &b->members[i];
    if (b->kind == OP_RESET) return by_script->removed == by_c->removed;
    if (b->kind == OP_RELEASE || b->kind == OP_RENEW) return by_script->found == by_c->found;
    if (b->kind == OP_REFUND && by_script->refunded != by_c->refunded) return false;
    if (b->reservation != NULL && !same_reservation(a, b)) return false;
    bool looked = (b->kind == OP_CHECK || b->kind == OP_PEEK) && !is_answered_again(b) && !is_kept_denial(a);
    if (looked && !same_seen(by_script, by_c)) return false;
    return same_decision(&by_script->decision, &by_c->decision);
}

static bool counts(const struct trace_step *step)
{
    bool all = true, any = false;
    for (uint16_t i = 0; i < step->op.n_members; i++) {
        const struct op_member *member = &step->members[i];
        bool is_found = step->op.kind == OP_RELEASE || step->op.kind == OP_RENEW;
        all &= is_found ? member->found : member->decision.allowed;
        any |= step->op.kind == OP_RESET ? member->removed : member->refunded > 0;
    }
    switch (step->kind) {
    case TRACE_RESET:
    case TRACE_UNDO:
    case TRACE_RETURN:
    case TRACE_REFUND: return any;
    case TRACE_ONCE: return is_answered_again(&step->op);
    case TRACE_RESERVE: return step->reservation.held;
    case TRACE_SETTLE:
    case TRACE_CANCEL: return step->reservation.ended;
    default: return all;
    }
}

static void compare(size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (in_redis[i].op.outcome != OP_DECIDED) die("the script did not decide");
        if (in_redis[i].redis_only) continue;
        for (uint16_t j = 0; j < in_memory[i].op.n_members; j++)
            if (!same_member(&in_redis[i].op, &in_memory[i].op, j)) complain(i, j);
        bool counted = counts(&in_memory[i]);
        n_of[in_memory[i].kind]++;
        n_counted[in_memory[i].kind] += counted;
        (counted ? trace_allowed : trace_denied)(&in_memory[i]);
        n_decisions++;
    }
}

static void decide_in_memory(size_t i)
{
    if (in_memory[i].redis_only) return;
    if (store_submit(&memory_handle, &in_memory[i].op) != SUBMIT_DECIDED) die("memory did not decide");
}

/* One step, which the cache of denials may answer. */
static void run_cached(size_t i)
{
    static uint32_t nonce;
    struct op *op = &in_redis[i].op;
    op->outcome = OP_DECIDED;
    bool is_kept = deny_cache_decide(&denied, op, &trace_clock);
    if (!is_kept) {
        deny_cache_submitted(&denied, op);
        if (batch_add(batch, op) != 0) die("an op does not fit a batch");
        send_batch(++nonce);
        script_answer(redis, batch, nonce);
        if (op->outcome == OP_DECIDED) deny_cache_learn(&denied, op, trace_clock.mono_us, trace_clock.wall_us);
        deny_cache_ended(&denied, op);
    }
    n_cached += is_kept;
    decide_in_memory(i);
    compare(i, i + 1);
}

/* Both sides decide the steps that fit one call; returns the first step that did not fit. */
static size_t run_call(size_t from)
{
    static uint32_t nonce;
    size_t to = from;
    int status = 0;
    while (to < n_steps && (status = batch_add(batch, &in_redis[to].op)) == 0) to++;
    if (status < 0 || to == from) die("an op does not fit a batch");
    send_batch(++nonce);
    for (size_t i = from; i < to; i++) decide_in_memory(i);
    script_answer(redis, batch, nonce);
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

static void make_steps(void)
{
    n_steps = trace_tick(in_redis);
    for (size_t i = 0; i < n_steps; i++) trace_step_copy(&in_memory[i], &in_redis[i]);
}

/* The clocks of the daemon; one that steps back is among the cases in which a kept denial may be wrong. */
static void set_clock(int64_t now_us)
{
    if (now_us < trace_clock.wall_us) deny_cache_clear(&denied);
    trace_clock.wall_us = trace_clock.mono_us = now_us;
}

static void run_trace(void)
{
    bool is_cached = seed % CACHED_ONE_IN == 0;
    trace_begin(seed, &trace);
    forget_all();
    memory = memory_store_new(&trace_clock, &(struct memory_options){.max_keys = MEMORY_KEYS});
    if (memory == NULL) die("no memory");
    memory_handle = memory_store_handle(memory);
    batch = batch_new(&(struct store_key_scheme){"rl", STORE_SHARDS}, trace.max_keys, trace.merge);
    if (batch == NULL) die("no memory");
    deny_cache_set_options(&denied, is_cached ? DENIED_MAX : 0, INT64_MAX);
    if (is_cached) trace.skew_us = 0;
    set_clock(trace.now_us);
    for (tick_number = 0; tick_number < TICKS_MAX; tick_number++) {
        make_steps();
        for (size_t i = 0; i < n_steps && is_cached; i++) run_cached(i);
        for (size_t from = 0; from < n_steps && !is_cached;) from = run_call(from);
        set_clock(trace_later());
    }
    memory_store_free(memory);
    batch_free(batch);
    trace_end();
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* "check 12 (10 allowed), ..." */
static void print_kinds(void)
{
    for (size_t i = 0; i < N_TRACE_KINDS; i++)
        printf("%s%s %" PRIu64 " (%" PRIu64 " %s)", i > 0 ? ", " : "", kind_names[i], n_of[i], n_counted[i],
               kind_counts[i]);
    puts("");
}

int main(int argc, char **argv)
{
    if (argc < 4) die("usage: differential SOCKET SEED SECONDS [TRACES]");
    double seconds = atof(argv[3]), started = seconds_now(), passed;
    uint64_t first = seed = strtoull(argv[2], NULL, 10), most = argc > 4 ? strtoull(argv[4], NULL, 10) : UINT64_MAX;
    in_redis = mem_zalloc(TRACE_STEPS_MAX * sizeof *in_redis);
    in_memory = mem_zalloc(TRACE_STEPS_MAX * sizeof *in_memory);
    if (in_redis == NULL || in_memory == NULL) die("no memory");
    redis = script_connect(argv[1]);
    deny_cache_init(&denied);
    do {
        run_trace();
        seed++;
        passed = seconds_now() - started;
    } while (seed - first < most && (passed < seconds || argc > 4));
    printf("%" PRIu64 " decisions of %" PRIu64 " traces (seeds %" PRIu64 " to %" PRIu64
           ") in %.1f s, %.0f a second, %" PRIu64 " calls, %" PRIu64 " kept denials\n",
           n_decisions, seed - first, first, seed - 1, passed, (double)n_decisions / passed, n_calls, n_cached);
    print_kinds();
    deny_cache_fini(&denied);
    redisFree(redis);
    mem_free(in_redis);
    mem_free(in_memory);
    return 0;
}
