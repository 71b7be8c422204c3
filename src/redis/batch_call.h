/*
 * batch_call.h: one EVALSHA: the batch that it brings, and what is known of both until the reply. redis/batches.c sends
 * it, and decides what becomes of its ops.
 */
#ifndef RL_REDIS_BATCH_CALL_H
#define RL_REDIS_BATCH_CALL_H

#include "redis/batch.h"
#include "redis/link.h"

struct policy;
struct redis_batches;

/* Policies whose ops Redis has refused (a right that the user lacks for their keys), or others together with them:
 * their ops go in batches of their own until Redis takes one of the policy, so that a good policy is not refused with a
 * bad one. Bounded: the oldest is forgotten, and found out again. */
enum { DOUBTFUL_POLICIES_MAX = 64 };

struct doubtful_policies {
    uint64_t names[DOUBTFUL_POLICIES_MAX]; /* hashes, oldest first */
    uint32_t n;
};

void doubtful_policies_add(struct doubtful_policies *doubtful, const struct op *op);    /* Redis refused it */
void doubtful_policies_remove(struct doubtful_policies *doubtful, const struct op *op); /* Redis has taken it */

struct batch_call {
    struct list link; /* in idle or in_flight; in none while it is filled */
    struct redis_call redis_call;
    struct redis_batches *batches;            /* whose it is; not owned, as the next two */
    const struct doubtful_policies *doubtful; /* whose ops go in batches of their own */
    const struct clock *clock;
    struct batch *batch; /* owned */
    uint32_t nonce;
    uint16_t n_slots;                   /* of a cluster: its ops' hash slots; else 0 */
    uint16_t slots[BATCH_KEYS_MAX];     /* these */
    bool is_alone;                      /* of a cluster: it has one op, whose hash slot is moving */
    bool is_asking;                     /* and ASKING goes before it */
    bool is_asking_refused, is_cut_off; /* ASKING was refused; it was sent, and the call was not */
    struct redis_call asking;
    size_t n_keys;            /* of a cluster, once it is sent: that count in its node's window */
    int64_t longest_us;       /* of its ops, from submit to deadline */
    int64_t last_deadline_us; /* of its ops; CLOCK_MONOTONIC, as the next two */
    int64_t sent_us;
    int64_t until_us;            /* it certainly does not begin any later */
    bool is_sent;                /* it may have run */
    bool is_doubtful;            /* Redis may refuse it: it has only ops of `policy`, or one op of several policies */
    const struct policy *policy; /* is_doubtful: that one, alive while its ops are here; NULL: one op has several */
};

/* NULL without memory. */
struct batch_call *batch_call_new(struct redis_batches *batches, const struct redis_options *options,
                                  const struct doubtful_policies *doubtful, const struct clock *clock);
void batch_call_free(struct batch_call *call);
/* It has no ops: for another batch, under these options. */
void batch_call_begin(struct batch_call *call, const struct redis_options *options, uint32_t nonce);

/* As batch_add() and batch_would_merge(), and an op of a doubtful policy goes only with others of that policy. */
enum batch_status batch_call_add(struct batch_call *call, struct op *op);
bool batch_call_would_merge(const struct batch_call *call, struct op *op);

/* 0, unless the server is late: all its ops have been answered by their deadlines, and it would be the same had they
 * not waited here, and had each been given least_us. Then: what the server has missed, the longest of these times. */
int64_t batch_call_missed_us(const struct batch_call *call, int64_t least_us);

/* Clients and keys that ops have asked for, as bits: two of one number are one here. */
enum { ASKED_BITS = 1 << 16 };
struct batch_call_asked {
    uint64_t bits[ASKED_BITS / 64];
};
void batch_call_asked(const struct batch_call *call, struct batch_call_asked *ret);
/* Has the op, which was in a batch once, client and key of one of them? */
bool batch_call_asked_has(const struct batch_call_asked *asked, const struct op *op);

#endif
