/*
 * batch_private.h: the inside of a batch, shared by batch.c (gathering), batch_pack.c (the call) and batch_reply.c (the
 * answers).
 */
#ifndef RL_REDIS_BATCH_PRIVATE_H
#define RL_REDIS_BATCH_PRIVATE_H

#include "base/buffer.h"
#include "base/decimal.h"
#include "redis/batch.h"
#include "store/store_key.h"

enum {
    BATCH_TABLE = 4 * BATCH_KEYS_MAX,       /* hash table of the keys: a power of two */
    BATCH_WEIGHT_HEAVY = 128,               /* of each limit of an op that is no plain check: some thirty us each */
    BATCH_N_LAST = 3,                       /* integers of a reply behind the ops' */
    BATCH_LIST_HEAD_MAX = 8 + KEY_HEAD_MAX, /* "hold1:POLICY:", or "merge1:" and a limit's head */
};

/* The script's kinds of ops, in the order of their numbers; lua/stitch.py reads them. */
enum batch_kind {
    /* the same on consecutive keys of one limit */
    KIND_CHECK,
    KIND_LOAD,
    KIND_SAVE,
    KIND_RESET,
    KIND_RELEASE,
    KIND_RENEW,
    /* on loaded states, all limits or none */
    KIND_CHECK_ALL,
    KIND_ACQUIRE,
    KIND_RESERVE,
    KIND_SETTLE,
    KIND_REFUND,
    KIND_SWEEP,
    /* the pauses of consecutive keys' penalties; no op is one */
    KIND_PAUSE,
};

/* A limit with its constants in this batch. A limit whose checks wait differently, or whose keys have other phases, is
 * several of these. */
struct batch_limit {
    const struct limit *limit;
    int64_t phase_ms;           /* limit_phase() */
    int64_t max_wait_us;        /* of its checks */
    struct constants constants; /* set by packing */
};

/* A state's key. */
struct batch_key {
    const struct op_member *member; /* of the first op that asked for it: its limit and id; alive as that */
    uint64_t hash;
    uint32_t last_script_op;
    uint16_t at;       /* in the table */
    uint16_t limit_no; /* in limits */
    bool is_loaded;    /* else its only op is one plain check, or a reset */
    bool may_be_charged;

    /* Set by packing: */
    struct batch_span *span;
    uint16_t keys_index;  /* in KEYS, from 1 */
    uint16_t pause_index; /* that of its pause; 0: its limit has no penalty */
    bool has_state;       /* it is loaded as it is by now */
    bool is_pending;      /* and may have been charged since */
};

/* Keys that follow one another in KEYS and are asked the same: they go as one op of the script. */
struct batch_span {
    int64_t count, cost; /* of a check; count of a LOAD: may some of them be charged? */
    uint16_t limit_no;
    bool is_loaded;
    uint8_t rank;        /* which keys come first */
    uint16_t first, n;   /* the first of its keys; and how many there are */
    uint16_t next_index; /* of its keys, in KEYS */
    uint16_t next_pause; /* of their pauses, if the limit has a penalty */
    uint8_t n_integers;  /* of the reply, for each key that is checked directly */
    uint32_t reply_at;   /* of the next of these */
    struct slice stem;   /* what its keys begin with, but for the shard */
};

/* An op key, which belongs to some ops alone: an idempotency record, or a list of reservations or of merges. */
struct batch_op_key {
    const char *head;  /* of a list: the policy's name, or the limit's head; "" = a record; alive as `name` */
    struct slice name; /* alive as the first op that named it */
    uint16_t shard;
    bool is_record;
    bool is_of_merges;
    uint16_t keys_index; /* set by packing */
};

/* A state as the script saw it, before any charge. */
struct batch_seen {
    int64_t used; /* -1: of a foreign type; of RELEASE and RENEW 1: the lease was there */
    int64_t extra;
    int64_t wait;       /* what a denial's retry needs (logs) */
    int64_t units;      /* charged then, or given back now */
    struct pause pause; /* of a limit with a penalty */
};

/* What the script is asked for: an op, or equal checks of one key. The ops of a KIND_CHECK (one limit, nothing of its
 * own) are answered one after the other from the state that the one before has left. */
struct script_op {
    enum batch_kind kind;  /* KIND_CHECK goes as KIND_CHECK_ALL if its key is loaded */
    const struct op *op;   /* the first that charges, else the first; alive until it is answered */
    int64_t count;         /* so many times its costs; 0 = a peek */
    uint16_t record, list; /* its op keys: index + 1; 0 = none */

    uint32_t n_integers; /* of the reply */
    uint32_t reply_at;   /* set by packing */

    /* Set by the reply: */
    struct batch_seen seen; /* of KIND_CHECK */
    bool is_foreign;
    enum op_outcome undone; /* OP_AWAY or OP_BARRED: the script has left it out; else OP_DECIDED */
    bool is_checked;        /* the state of a KIND_CHECK; what our own charges make of it is not */
    bool is_implausible;    /* it says of a state what no script leaves */
};

struct batch {
    char *prefix; /* owned */
    size_t prefix_len;
    uint32_t n_shards;
    uint32_t max_keys;
    bool merge;

    struct list ops;
    size_t n_ops;
    bool resets;        /* all of them, else none */
    bool is_undeclared; /* its keys */
    bool has_loaded;    /* some key is loaded */
    uint32_t n_pauses;  /* keys whose limit has a penalty: each has one more key for its pause */
    uint32_t weight;
    size_t n_integers; /* of the reply, but for the last three */

    struct batch_key keys[BATCH_KEYS_MAX];
    uint32_t n_keys;
    uint8_t table[BATCH_TABLE]; /* index into keys + 1, by hash, linear probing; 0 = empty */
    struct batch_limit limits[BATCH_KEYS_MAX];
    uint32_t n_limits;
    struct batch_op_key op_keys[BATCH_OP_KEYS_MAX];
    uint32_t n_op_keys;
    size_t keys_len;              /* bytes of KEYS, at most */
    struct script_op *script_ops; /* owned */
    uint32_t n_script_ops, script_ops_cap;
    uint32_t n_members; /* of all of them */

    /* Set by packing: */
    bool packed;
    int64_t latest_us;
    struct batch_span spans[BATCH_KEYS_MAX];
    uint32_t n_spans;
    uint8_t order[BATCH_KEYS_MAX];         /* spans in the order of KEYS */
    struct buffer bytes;                   /* space for KEYS and ARGV[1] */
    struct slice args[BATCH_ARGS_MAX + 1]; /* and space for a test's time */
    char numkeys[DECIMAL_MAX];

    int64_t now_us; /* of the last reply */
};

/* The key of a script op's i-th limit. */
static inline struct batch_key *batch_key_of(const struct batch *batch, const struct script_op *asked, uint16_t i)
{
    return (struct batch_key *)&batch->keys[asked->op->members[i].batch_key];
}

/* Has the op a check's answer, with waits? */
static inline bool kind_is_check(enum batch_kind kind)
{
    return kind == KIND_CHECK || (kind >= KIND_CHECK_ALL && kind <= KIND_RESERVE);
}

#endif
