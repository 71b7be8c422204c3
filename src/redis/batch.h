/*
 * batch.h: ops that one event loop iteration gathered, as one script call, and the script's reply as their answers;
 * pure functions over bytes. lua/batch.lua draws the format, which batch_pack.c writes and batch_reply.c reads.
 *
 *   batch_add(op) ... batch_add(op)   until it says "full", or the iteration ends
 *   batch_args()                      the EVALSHA's numkeys, KEYS and ARGV
 *   batch_replay(reply)               fills every op's results in the order they were added
 *
 * Ops on one key share one place in KEYS whatever their policies, costs and order; equal checks of one key are counted
 * together if `merge` allows it. All kinds of ops may share a batch, but for resets, which have batches of their own:
 * they work while Redis is full, when the write of a check ends the whole call. So of a client that checks and resets
 * in turns, a batch has one op, as of one that asks for the same key with other settings each time: its calls take
 * effect in their order (PROTOCOL.md). A batch is reused: batch_clear() keeps its memory.
 */
#ifndef RL_REDIS_BATCH_H
#define RL_REDIS_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "store/store.h"
#include "store/store_key.h"

enum {
    BATCH_KEYS_MAX = 64,     /* of states */
    BATCH_OP_KEYS_MAX = 128, /* keys that belong to some ops alone: idempotency records, lists of reservations */
    BATCH_REPLY_MAX = 8192,  /* integers of a reply */
    BATCH_WEIGHT_MAX = 4096, /* of all ops; bounds the script's time to a millisecond or so */
    BATCH_ARGS_MAX = 1 + 2 * BATCH_KEYS_MAX + BATCH_OP_KEYS_MAX + 1, /* numkeys, KEYS with pauses, ARGV[1] */
};

struct batch;

struct batch *batch_new(const struct store_key_scheme *scheme, uint32_t max_keys, bool merge); /* NULL without memory */
void batch_free(struct batch *batch);
void batch_clear(struct batch *batch); /* must hold no ops */
void batch_set_merge(struct batch *batch, uint32_t max_keys, bool merge);
/* Its keys, two at least, lie in several hash slots of one node: they go as arguments, not declared as KEYS. The ops on
 * those that are not there, or that the user may not read, end with OP_AWAY or OP_BARRED. Until batch_clear(). */
void batch_set_undeclared(struct batch *batch);

/* How much work the op is for Redis: 1 is an element of a log, BATCH_WEIGHT_MAX (a millisecond or so) the most. A plain
 * check is 1, too: it takes some 32 times as long, but the number of keys bounds these. Kept in op->weight. */
uint32_t batch_weight(struct op *op);

enum batch_status {
    BATCH_NO_MEMORY = -1, /* nothing changed */
    BATCH_ADDED,          /* the op is inside (its link is used, in order) */
    BATCH_FULL,           /* there is no space for it: send this one first */
    BATCH_CLASHES,        /* what is inside and it cannot go together (resets, a key's settings); other ops may */
};
enum batch_status batch_add(struct batch *batch, struct op *op);
/* Has a batch that is full an equal check, so that batch_add() takes the op, and Redis has nothing more to do? A
 * question, but the op keeps the hash and the weight. */
bool batch_would_merge(const struct batch *batch, struct op *op);
size_t batch_n_ops(const struct batch *batch);
const struct list *batch_ops(const struct batch *batch); /* those inside, in order */
/* Of an answered batch: did it charge anything, or change anything otherwise? */
bool batch_has_written(const struct batch *batch);
size_t batch_n_keys(const struct batch *batch); /* of states */
/* A number of the member's key, equal in every batch; that of the n-th key inside. */
uint64_t batch_key_hash(struct op_member *member);
uint64_t batch_hash_of(const struct batch *batch, size_t nth);

/* KEYS and ARGV in the order of EVALSHA after the digest: ret_args[0] is numkeys in decimal. Valid until the batch
 * changes. `nonce` comes back as the last integer; `wall_us` is the host's clock, from which a calendar's edges follow;
 * a script that begins later than latest_us by its own clock (0 = never too late) does nothing. Returns their number, 0
 * without memory. A test may append the time in us, in decimal. An empty batch is fine: the script answers that it
 * works. */
size_t batch_args(struct batch *batch, uint32_t nonce, int64_t wall_us, int64_t latest_us,
                  const struct slice **ret_args);

/*
 * Give every op its answer from the n integers of the reply to the last batch_args(): op->outcome is OP_DECIDED,
 * OP_STORE_ERROR if one of the op's keys holds a foreign type (nothing was charged then, and the other ops are
 * fine), or that of batch_set_undeclared(). 0; 1 when the script began too late: nothing was done, no op has an answer;
 * -1 when the integers make no sense (no op has an answer then either). Counts redis_bad_values.
 */
int batch_replay(struct batch *batch, const int64_t *reply, size_t n, uint32_t nonce);

/* The server's time in the last reply that made sense; 0 before. */
int64_t batch_now_us(const struct batch *batch);

/* Take the ops out, in order, onto `to` (for done, or for a resend). */
void batch_take_ops(struct batch *batch, struct list *to);
/* Those with this outcome. */
void batch_take_ended(struct batch *batch, enum op_outcome outcome, struct list *to);

/* The script's text and lower-case SHA1, embedded at build time. */
extern const char batch_script[];
extern const size_t batch_script_len;
extern const char batch_script_sha1[41];

#endif
