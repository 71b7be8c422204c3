/*
 * fuzz_redis.c: any bytes as what a server sends, in any pieces, to a few commands that wait.
 *
 * No reply comes through that no command waits for; arrays of integers go on to the replay of a turn,
 * which either refuses them whole or gives every op an answer that makes sense; errors are classified.
 * The first two bytes of the input choose how many commands wait and the size of the pieces.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "limit/calendar.h"
#include "limit/policy.h"
#include "store/redis_reader.h"
#include "store/redis_reply.h"
#include "store/turn.h"

enum { N_CONTROL = 2, NONCE = 1, N_LIMITS = 6, N_OPS = 12 };

static struct turn *turn;
static struct op ops[N_OPS];
static struct op_member members[N_OPS];

static void on_done(struct op *op, enum op_outcome outcome)
{
    (void)op, (void)outcome;
}

static void make_limit(struct limit *limit, const char *name, enum algo algo)
{
    char text[256];
    snprintf(limit->name, sizeof(limit->name), "%s", name);
    limit->algo = algo;
    limit->limit = 5;
    limit->burst = algo == ALGO_BUCKET || algo == ALGO_LEAKY_BUCKET ? 5 : 0;
    limit->max_wait_us = algo == ALGO_LEAKY_BUCKET ? 300000 : 0;
    limit->window_us = 1000000;
    if (algo == ALGO_CALENDAR_WINDOW) CHECK(calendar_get("UTC", CALENDAR_DAY, 0, true, &limit->calendar) == 0);
    CHECK(limit_prepare(limit, NULL, text, sizeof(text)) == NULL);
}

/* Two ops on a key of each limit, the second a peek. */
static void make_turn(void)
{
    static const enum algo algos[N_LIMITS] = {ALGO_BUCKET,          ALGO_FIXED_WINDOW, ALGO_SLIDING_LOG,
                                              ALGO_SLIDING_COUNTER, ALGO_LEAKY_BUCKET, ALGO_CALENDAR_WINDOW};
    static const char *const names[N_LIMITS] = {"a", "b", "c", "d", "e", "f"};
    struct policy *policy = policy_new("p", N_LIMITS);
    turn = turn_new("rl", TURN_KEYS_MAX, true);
    CHECK(policy != NULL && turn != NULL);
    for (int i = 0; i < N_LIMITS; i++) make_limit(&policy->limits[i], names[i], algos[i]);
    for (int i = 0; i < N_OPS; i++) {
        const struct limit *limit = &policy->limits[i % N_LIMITS];
        members[i] =
            (struct op_member){.limit = limit, .key = slice_of("k"), .cost = 3, .max_wait_us = limit->max_wait_us};
        ops[i] = (struct op){
            .kind = i < N_LIMITS ? OP_CHECK : OP_PEEK, .n_members = 1, .members = &members[i], .done = on_done};
        CHECK(turn_add(turn, &ops[i]) == 0);
    }
    const struct slice *args;
    CHECK(turn_args(turn, NONCE, 0, 0, &args) > 0);
}

static void replay(const struct redis_reader *reader)
{
    if (turn_replay(turn, reader->integers, reader->n_integers, NONCE) < 0) return;
    for (int i = 0; i < N_OPS; i++) {
        const struct decision *decision = &members[i].decision;
        if (ops[i].outcome != OP_DECIDED) continue;
        CHECK(decision->remaining >= 0 && decision->retry_after_ms >= RETRY_NEVER && decision->reset_after_ms >= 0);
        CHECK(decision->delay_ms >= 0 && (decision->allowed || decision->delay_ms == 0));
        CHECK(decision->allowed == (decision->granted > 0));
    }
}

static void look_at(const struct redis_reader *reader)
{
    struct slice text = redis_reader_text(reader);
    CHECK(text.len < REDIS_TEXT_MAX && reader->n_integers <= REDIS_INTEGERS_MAX);
    const char *role = redis_reader_field(reader, "role");
    CHECK(role == NULL || strlen(role) < REDIS_TEXT_MAX);
    if (redis_reader_is_error(reader)) (void)redis_error_remedy(redis_error_of((const char *)text.data, text.len));
    if (redis_reader_is_integers(reader)) replay(reader);
}

/* Every whole reply in the parser; false once it has failed. */
static bool take_replies(redisAsyncContext *context, const struct redis_reader *reader, int *n_waiting)
{
    void *reply;
    while (redisReaderGetReply(context->c.reader, &reply) == REDIS_OK) {
        if (reply == NULL) return true;
        CHECK(reply == reader && context->replies.head != NULL);
        look_at(reader);
        if (--*n_waiting == 0) context->replies.head = NULL;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct redis_reader reader;
    if (size < N_CONTROL) return 0;
    if (turn == NULL) make_turn();
    int n_waiting = data[0] % 4;
    size_t piece = 1 + data[1];
    redisCallback waiting = {0};
    redisAsyncContext context = {.c.reader = redisReaderCreateWithFunctions(NULL)};
    CHECK(context.c.reader != NULL);
    context.replies.head = n_waiting > 0 ? &waiting : NULL;
    redis_reader_attach(&reader, &context);
    for (size_t at = N_CONTROL; at < size; at += piece) {
        size_t len = piece < size - at ? piece : size - at;
        if (redisReaderFeed(context.c.reader, (const char *)data + at, len) != REDIS_OK) break;
        if (!take_replies(&context, &reader, &n_waiting)) break;
    }
    redisReaderFree(context.c.reader);
    return 0;
}
