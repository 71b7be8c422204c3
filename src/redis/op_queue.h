/*
 * op_queue.h: ops that wait to be sent, a fair share for each client.
 *
 * A client is what the ops are asked for (op->client: a connection's number; 0 is the daemon itself). The clients are
 * served in rounds, OP_QUEUE_SHARE of weight each, so that a client with thousands of ops waiting delays another's next
 * op by no more than that. What the last op of a turn weighs beyond the share is taken from its client's next turns.
 * (Not one op at a time: the answers to a batch would then go to as many connections as it has ops, each with a system
 * call of its own.)
 *
 * A client that had less than its share in this round when an op comes is fresh: it is served before the others, so a
 * polite client does not wait for the turns of all those that have more than Redis can do (T. Hoeiland-Joergensen et
 * al., RFC 8290, section 4: new queues). Now and then one of the others has its turn before the fresh ones, so that
 * they cannot be kept waiting by clients that come and go.
 *
 * Each client's ops keep their order. Every call is O(1), if the turns that pass because of a heavy op are counted with
 * that op, and the end of a round with the clients that came in it.
 *
 * The checks of one limit are found by their keys, too: those that merge with one in a batch go with it at no cost,
 * before their clients' turns.
 */
#ifndef RL_REDIS_OP_QUEUE_H
#define RL_REDIS_OP_QUEUE_H

#include "base/list.h"
#include "base/map.h"
#include "store/store.h"

enum { OP_QUEUE_SHARE = 16 }; /* of op->weight */

struct op_queue {
    /* Of struct client, in the order in which they are served: */
    struct list fresh;  /* had less than their share in this round */
    struct list ring;   /* their turn in this round is to come */
    struct list done;   /* had their share, and have or owe more */
    struct list passed; /* those that op_queue_pass() left out, in their order */
    /* Without ops: */
    struct list recent; /* had something, but less than their share in this round */
    struct list idle;   /* kept for later */
    size_t n_idle;
    struct map by_number;  /* all but the idle ones */
    struct client *last;   /* the one that an op was added for last; NULL = none */
    struct op *next;       /* what op_queue_next() returned, if nothing was taken since; else NULL */
    struct client *served; /* its client */
    bool is_fresh;         /* which is */
    uint32_t round;        /* its number */
    uint32_t n_fresh;      /* weight of the fresh ones' ops that the ring's have not paid for */
    size_t n;              /* ops */
    struct list *by_key;   /* of struct op, by batch_key_hash(): the single checks that wait, oldest first; owned */
};

int op_queue_init(struct op_queue *queue);  /* 0, or -1 without memory */
void op_queue_fini(struct op_queue *queue); /* must be empty */

/* At the end of its client's ops, by op->weight, at least 1; op->link is the queue's until it is taken, and
 * op->is_queued is true. 0, or -1 without memory. */
int op_queue_add(struct op_queue *queue, struct op *op);
/* Back where it was taken from: before its client's other ops, and the client is next if it has not had its share. 0,
 * or -1 without memory. */
int op_queue_put_back(struct op_queue *queue, struct op *op);
/* The op that is next, which stays; NULL if none waits. The turns of clients that owe pass. */
struct op *op_queue_next(struct op_queue *queue);
/* The ops of this op's client, which waits, are left out, as if none waited, until op_queue_resume(): then the clients
 * that were left out are next, in their order. */
void op_queue_pass(struct op_queue *queue, const struct op *op);
void op_queue_resume(struct op_queue *queue);
/* Of struct op (same_key): the single checks (op_is_single_check()) that wait, by their first member's
 * batch_key_hash(). Those of one key are in their order; some have another hash. */
struct list *op_queue_checks_of(const struct op_queue *queue, uint64_t hash);
/* Has the op's client ops that wait and are not among these? One of them may ask for the same key before it. */
bool op_queue_has_others(const struct op_queue *queue, const struct op *op);
/* True at each hash slot that an op has. O(n). */
void op_queue_mark_slots(const struct op_queue *queue, bool *has_ops);
/* Take out an op that waits; the one of op_queue_next() counts to its client's share. */
void op_queue_take(struct op_queue *queue, struct op *op);
/* Those whose hash slot is wanted, to the end of `to`, each client's in their order. O(n). */
void op_queue_take_slots(struct op_queue *queue, const bool *is_wanted, struct list *to);

#endif
