/*
 * op_queue.h: ops that wait to be sent, a fair share for each party.
 *
 * A party is whoever the ops are asked for (op->party: a connection's number; 0 is the daemon itself). The parties are
 * served round robin, OP_QUEUE_SHARE ops at a time, so that a party with thousands of ops waiting delays another's next
 * op by no more than that. (Not one op at a time: the answers to a batch would then go to as many connections as it has
 * ops, each with a system call of its own.) Each party's ops keep their order. Every call but op_queue_list() is O(1).
 */
#ifndef RL_STORE_OP_QUEUE_H
#define RL_STORE_OP_QUEUE_H

#include "base/list.h"
#include "base/map.h"
#include "store/store.h"

enum { OP_QUEUE_SHARE = 16 };

struct op_queue {
    struct list ring; /* struct party: those with ops waiting; the first is next */
    struct list idle; /* struct party: kept for later */
    size_t n_idle;
    struct map by_number; /* those in the ring */
    struct party *last;   /* the one that an op was added for last; NULL = nobody */
    uint32_t n_taken;     /* of the first party's share */
    size_t n;             /* ops */
};

int op_queue_init(struct op_queue *queue);  /* 0, or -1 without memory */
void op_queue_fini(struct op_queue *queue); /* must be empty */

/* At the end of its party's ops; op->link is the queue's until it is taken, and op->is_queued is true. 0, or -1 without
 * memory. */
int op_queue_add(struct op_queue *queue, struct op *op);
/* Back where it was taken from: before its party's other ops, and the party is next. 0, or -1 without memory. */
int op_queue_put_back(struct op_queue *queue, struct op *op);
struct op *op_queue_first(const struct op_queue *queue); /* the op that is next; NULL where none waits */
/* The first ops of every party, OP_QUEUE_SHARE of each, the party that is next first; at most `max`. Returns their
 * number. */
size_t op_queue_list(const struct op_queue *queue, struct op **ret_ops, size_t max);
/* Take out an op that waits. With the last of its share, the first party goes behind the others. */
void op_queue_take(struct op_queue *queue, struct op *op);

#endif
