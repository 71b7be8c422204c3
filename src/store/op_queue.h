/*
 * op_queue.h: ops that wait to be sent, a fair share for each client.
 *
 * A client is what the ops are asked for (op->client: a connection's number; 0 is the daemon itself). The clients are
 * served round robin, OP_QUEUE_SHARE of weight at a time, so that a client with thousands of ops waiting delays
 * another's next op by no more than that. What the last op of a turn weighs beyond the share is taken from its client's
 * next turns. (Not one op at a time: the answers to a batch would then go to as many connections as it has ops, each
 * with a system call of its own.) Each client's ops keep their order. Every call but op_queue_list() is O(1), if the
 * turns that pass because of a heavy op are counted with that op.
 */
#ifndef RL_STORE_OP_QUEUE_H
#define RL_STORE_OP_QUEUE_H

#include "base/list.h"
#include "base/map.h"
#include "store/store.h"

enum { OP_QUEUE_SHARE = 16 }; /* of op->weight */

struct op_queue {
    struct list ring;   /* struct client: those with ops waiting; the first is next */
    struct list passed; /* struct client: those that op_queue_pass() left out, in their order */
    struct list idle;   /* struct client: kept for later */
    size_t n_idle;
    struct map by_number; /* those with ops waiting */
    struct client *last;  /* the one that an op was added for last; NULL = none */
    size_t n;             /* ops */
};

int op_queue_init(struct op_queue *queue);  /* 0, or -1 without memory */
void op_queue_fini(struct op_queue *queue); /* must be empty */

/* At the end of its client's ops, by op->weight, at least 1; op->link is the queue's until it is taken, and
 * op->is_queued is true. 0, or -1 without memory. */
int op_queue_add(struct op_queue *queue, struct op *op);
/* Back where it was taken from: before its client's other ops, and the client is next. 0, or -1 without memory. */
int op_queue_put_back(struct op_queue *queue, struct op *op);
/* The op that is next, which stays; NULL if none waits. Clients that owe go to the end. */
struct op *op_queue_next(struct op_queue *queue);
/* The first client's ops are left out, as if none waited, until op_queue_resume(): then the clients that were left out
 * are next, in their order. */
void op_queue_pass(struct op_queue *queue);
void op_queue_resume(struct op_queue *queue);
/* The first ops of every client, OP_QUEUE_SHARE of them, the client that is next first; at most `max`. Returns their
 * number. */
size_t op_queue_list(const struct op_queue *queue, struct op **ret_ops, size_t max);
/* Take out an op that waits; of the first client it counts to its share. */
void op_queue_take(struct op_queue *queue, struct op *op);

#endif
