/*
 * fuzz_redis.c: any bytes as what a server sends, in any pieces, to a few commands that wait.
 *
 * No reply comes through that no command waits for; arrays of integers go on to a batch,
 * which either refuses them whole or gives every op an answer that makes sense; errors are classified.
 * The first two bytes of the input choose how many commands wait and the size of the pieces. With its highest bit set
 * the first byte chooses a batch instead, and the rest are the integers of a reply to it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fakes/natives.h"
#include "limit/calendar.h"
#include "policy/policy.h"
#include "redis/batch_private.h"
#include "redis/handshake.h"
#include "redis/reader.h"

enum { N_CONTROL = 2, NUMBERS = 0x80, NONCE = 1, N_PLAIN = 2 * N_ALGOS, N_SPECIAL = 8 };

#define NOW_US INT64_C(1700000000000000)

/* A batch whose reply is to be read. */
struct asked {
    struct batch *batch;
    struct op ops[N_PLAIN];
    struct op_member members[N_PLAIN];
    struct op_reservation reserved[N_SPECIAL];
    int n_ops;
};

static struct asked plain, special;

static void on_done(struct op *op, enum op_outcome outcome)
{
    (void)op, (void)outcome;
}

static const struct limit *make_limit(enum algo algo)
{
    struct diag diag;
    char name[3];
    snprintf(name, sizeof name, "%d", (int)algo);
    struct policy *policy = policy_new(name, 1);
    CHECK(policy != NULL);

    struct limit *limit = &policy->limits[0];
    limit->algo = algo;
    limit->limit = 5;
    limit->burst = limit_is_bucket(limit) ? 5 : 0;
    limit->max_wait_us = algo == ALGO_LEAKY_BUCKET ? 300000 : 0;
    limit->window_us = 1000000;
    if (algo == ALGO_CALENDAR_WINDOW) CHECK(calendar_get("UTC", CALENDAR_DAY, 0, true, &limit->calendar) == 0);
    CHECK(policy_prepare_limit(limit, NULL, &diag) == 0);
    return limit;
}

static struct op *add(struct asked *batch, enum op_kind kind, const struct limit *limit)
{
    int i = batch->n_ops++;
    struct op *op = &batch->ops[i];
    int64_t cost = limit->max_cost < 3 ? 1 : 3;
    batch->members[i] = (struct op_member){.limit = limit,
                                           .key = slice_of("k"),
                                           .reservations_key = slice_of("k"),
                                           .cost = cost,
                                           .max_wait_us = limit->max_wait_us};
    *op = (struct op){.kind = kind, .n_members = 1, .members = &batch->members[i], .done = on_done};
    return op;
}

static void pack(struct asked *batch)
{
    const struct slice *args;
    batch->batch = batch_new(&(struct store_key_scheme){"rl", STORE_SHARDS}, BATCH_KEYS_MAX, true);
    CHECK(batch->batch != NULL);
    for (int i = 0; i < batch->n_ops; i++) CHECK(batch_add(batch->batch, &batch->ops[i]) == 0);
    CHECK(batch_args(batch->batch, NONCE, NOW_US, 0, &args) > 0);
}

static struct op *remembered(struct op *op)
{
    op->record = slice_of("n");
    op->record_ms = 60000;
    return op;
}

static struct op *held(struct op *op, struct op_reservation *reservation, int64_t actual)
{
    *reservation =
        (struct op_reservation){.id = 1, .units = 3, .made_us = NOW_US - 1000, .ttl_ms = 1000, .actual = actual};
    op->reservation = reservation;
    return op;
}

/* Two ops on a key of each algorithm that counts units, the second a peek; and ops of every other kind that reports
 * states. */
static void make_batches(void)
{
    enum algo algos[N_ALGOS];
    static char slot[SLOT_ID_LEN];
    const struct limit *limits[N_ALGOS];
    size_t n = natives(algos);
    algos[n++] = ALGO_COMPAT_FIRST_HIT;
    algos[n++] = ALGO_COMPAT_RLAAS_SLIDING;
    for (size_t i = 0; i < n; i++) limits[i] = make_limit(algos[i]);
    for (size_t i = 0; i < 2 * n; i++) add(&plain, i < n ? OP_CHECK : OP_PEEK, limits[i % n]);
    pack(&plain);

    const struct limit *bucket = make_limit(ALGO_BUCKET), *log = make_limit(ALGO_SLIDING_LOG);
    const struct limit *counter = make_limit(ALGO_SLIDING_COUNTER), *calendar = make_limit(ALGO_CALENDAR_WINDOW);
    const struct limit *hit = make_limit(ALGO_FIRST_HIT), *slots = make_limit(ALGO_CONCURRENCY);
    remembered(add(&special, OP_CHECK, hit));
    add(&special, OP_CHECK, counter)->at_most = 4;
    special.members[1].cost = 1;
    add(&special, OP_REFUND, log);
    held(add(&special, OP_RESERVE, bucket), &special.reserved[0], 0);
    held(add(&special, OP_SETTLE, calendar), &special.reserved[1], 5);
    add(&special, OP_ACQUIRE, slots)->slot = slot;
    add(&special, OP_PEEK, slots);
    add(&special, OP_CHECK, log);
    CHECK(special.n_ops == N_SPECIAL);
    pack(&special);
}

/* What comes through is an answer that a client can act upon. */
static void replay(struct asked *batch, const int64_t *integers, size_t n)
{
    if (batch_replay(batch->batch, integers, n, NONCE) != 0) return;
    for (int i = 0; i < batch->n_ops; i++) {
        const struct decision *decision = &batch->members[i].decision;
        const enum op_kind kind = batch->ops[i].kind;
        if (batch->ops[i].outcome != OP_DECIDED) continue;
        CHECK(decision->remaining >= 0 && decision->retry_after_ms >= RETRY_NEVER && decision->reset_after_ms >= 0);
        CHECK(decision->of == batch->members[i].limit && decision->of_reset_ms >= 0 && decision->window_ms >= 0);
        CHECK(decision->delay_ms >= 0 && (decision->allowed || decision->delay_ms == 0));
        CHECK(decision->allowed || decision->retry_after_ms != 0);
        if (kind == OP_CHECK && batch->ops[i].record.len == 0) CHECK(decision->allowed == (decision->granted > 0));
    }
}

/* ---- Numbers, with a shape that fits: else random bytes hardly come as far as an algorithm ---- */

static const uint8_t *take(const uint8_t **data, const uint8_t *end, size_t len)
{
    const uint8_t *at = *data;
    if ((size_t)(end - at) < len) return NULL;
    *data += len;
    return at;
}

/* Small, near now in either unit, or anything; 0 where the input is over. */
static int64_t number(const uint8_t **data, const uint8_t *end)
{
    const uint8_t *kind = take(data, end, 1), *bytes = take(data, end, 4);
    uint32_t low;
    if (kind == NULL || bytes == NULL) return 0;
    memcpy(&low, bytes, sizeof low);
    switch (*kind % 5) {
    case 0: return low % 16;
    case 1: return NOW_US / 1000 + (int32_t)low % 5000;
    case 2: return NOW_US + (int32_t)low % 5000000;
    case 3: return (int64_t)low << (*kind / 5 % 24);
    default: return -(int64_t)(low % 3);
    }
}

static void replay_numbers(struct asked *batch, const uint8_t *data, size_t size)
{
    static int64_t integers[REDIS_INTEGERS_MAX];
    const uint8_t *end = data + size;
    const uint8_t *control = take(&data, end, 1);
    size_t n = batch->batch->n_integers + BATCH_N_LAST;
    CHECK(n <= REDIS_INTEGERS_MAX);
    for (size_t i = 0; i < n; i++) integers[i] = number(&data, end);
    if (control != NULL && *control >= 64) integers[n - 3] = NOW_US;
    integers[n - 1] = NONCE;
    batch->batch->is_undeclared = control != NULL && *control % 2 == 1; /* keys may be away then */
    replay(batch, integers, n);
}

static void look_at(const struct redis_reader *reader)
{
    struct slice text = redis_reader_text(reader);
    CHECK(text.len < REDIS_TEXTS_MAX && reader->n_integers <= REDIS_INTEGERS_MAX);
    const char *role = redis_reader_field(reader, "role");
    CHECK(role == NULL || strlen(role) < REDIS_TEXTS_MAX);
    if (redis_reader_is_error(reader)) (void)redis_error_remedy(redis_error_of(text));
    if (!redis_reader_is_integers(reader)) return;
    replay(&plain, reader->integers, reader->n_integers);
    replay(&special, reader->integers, reader->n_integers);
}

/* All whole replies at the front of the bytes; false once they were refused. */
static bool take_replies(struct redis_reader *reader, const uint8_t *bytes, size_t len, size_t *ret_used)
{
    enum redis_progress progress = REDIS_WHOLE;
    for (*ret_used = 0; progress == REDIS_WHOLE && *ret_used < len;) {
        size_t used;
        progress = redis_reader_feed(reader, bytes + *ret_used, len - *ret_used, &used);
        CHECK(used <= len - *ret_used && (progress != REDIS_WHOLE || used > 0));
        *ret_used += used;
        if (progress == REDIS_WHOLE) look_at(reader);
    }
    CHECK(progress != REDIS_BAD || reader->fault != NULL);
    return progress != REDIS_BAD;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct redis_reader reader;
    if (size < N_CONTROL) return 0;
    if (plain.batch == NULL) make_batches();
    if (data[0] & NUMBERS) {
        replay_numbers(data[0] & 1 ? &plain : &special, data + 1, size - 1);
        return 0;
    }
    /* What is not used comes again, with a piece more behind it. */
    size_t piece = 1 + data[1], from = N_CONTROL;
    reader = (struct redis_reader){0};
    for (size_t to = from; to < size;) {
        to += piece < size - to ? piece : size - to;
        size_t used;
        uint8_t *exact = malloc(to - from > 0 ? to - from : 1); /* so that a sanitizer sees a byte too far */
        CHECK(exact != NULL);
        memcpy(exact, data + from, to - from);
        bool is_fine = take_replies(&reader, exact, to - from, &used);
        free(exact);
        from += used;
        if (!is_fine) break;
    }
    return 0;
}
