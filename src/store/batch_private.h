/*
 * batch_private.h: the inside of a batch, shared by batch.c (gathering), batch_pack.c (the call) and batch_reply.c (the
 * answers).
 */
#ifndef RL_STORE_BATCH_PRIVATE_H
#define RL_STORE_BATCH_PRIVATE_H

#include "base/buffer.h"
#include "base/decimal.h"
#include "store/batch.h"
#include "store/store_key.h"

enum {
    BATCH_TABLE = 4 * BATCH_KEYS_MAX, /* hash table of the keys: a power of two */
    BATCH_WEIGHT_MAX = 4096,          /* of all ops; bounds the script's time to a millisecond or so */
    BATCH_WEIGHT_OWN = 64,            /* of an op's limit, where it is no plain check: some ten us each */
    BATCH_N_LAST = 3,                 /* integers of a reply behind the ops' */
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
};

/* A limit's constants in this batch: of one wait and one phase. */
struct batch_limit {
    const struct limit *limit;
    int64_t phase_ms;           /* limit_phase() */
    int64_t max_wait_us;        /* of its checks */
    uint32_t stem_at, stem_len; /* in key_bytes: what its keys begin with, but for the shard */
    struct constants constants; /* set by packing */
};

/* A state's key. */
struct batch_key {
    const struct limit *limit;
    uint64_t hash;
    uint32_t start, len; /* the whole Redis key, in key_bytes */
    uint32_t last_script_op;
    uint16_t limit_no; /* in limits */
    bool is_loaded;    /* else its only op is one plain check, or a reset */
    bool may_be_charged;

    /* Set by packing: */
    uint8_t rank;       /* which keys come first */
    uint16_t place;     /* in KEYS, from 1 */
    uint16_t n_of_span; /* of the first of a span: its keys */
    bool has_state;     /* it is loaded as it is by now */
    bool is_pending;    /* and may have been charged since */
};

/* A key of the op being added. */
struct batch_wanted {
    uint64_t hash;
    uint32_t at;   /* in the table: where it stands, or could */
    uint8_t found; /* index into keys + 1; 0 = it is not there yet */
};

/* A key that belongs to some ops alone: an idempotency record, or a list of reservations. */
struct batch_own {
    uint64_t hash;
    uint32_t start, len; /* in key_bytes */
    bool is_record;
    uint16_t place; /* set by packing */
};

/* A state as the script saw it, before any charge. */
struct batch_seen {
    int64_t s1, s2;
    int64_t wait;  /* what a denial's retry needs (logs) */
    int64_t units; /* charged then, or given back now */
};

/* What the script is asked for: an op, or equal checks of one key. The ops of a KIND_CHECK (one limit, nothing of its
 * own) are answered one after the other from the state that the one before has left. */
struct script_op {
    enum batch_kind kind;  /* KIND_CHECK goes as KIND_CHECK_ALL where its key is loaded */
    const struct op *op;   /* the first that charges, else the first; alive until it is answered */
    int64_t count;         /* so many times its costs; 0 = a peek */
    uint32_t keys_at;      /* its limits' keys in op_keys */
    uint16_t record, list; /* its own keys: index + 1; 0 = none */

    uint32_t n_integers; /* of the reply */
    uint32_t reply_at;   /* set by packing */

    /* Set by the reply: */
    struct batch_seen seen; /* of KIND_CHECK */
    bool is_foreign;
    bool is_implausible; /* it says of a state what no script leaves */
};

/* A growing array; the element's size is given with every call. */
struct vec {
    void *at; /* owned */
    size_t n, cap;
};

struct batch {
    char *prefix; /* owned */
    size_t prefix_len;
    uint32_t max_keys;
    bool merge;

    struct list ops;
    size_t n_ops;
    bool resets;     /* all of them, else none */
    bool has_loaded; /* some key is loaded */
    uint32_t weight;
    size_t n_integers; /* of the reply, but for the last three */

    struct batch_key keys[BATCH_KEYS_MAX];
    uint32_t n_keys;
    struct batch_wanted wanted[BATCH_KEYS_MAX];
    uint8_t table[BATCH_TABLE]; /* index into keys + 1, by hash, linear probing; 0 = empty */
    struct batch_limit limits[BATCH_KEYS_MAX];
    uint32_t n_limits;
    struct batch_own owns[BATCH_OWN_MAX];
    uint32_t n_owns;
    struct buffer key_bytes;
    struct vec script_ops; /* struct script_op */
    struct vec op_keys;    /* uint16_t: index into keys */

    /* Set by packing: */
    bool packed;
    int64_t latest_us;
    uint16_t order[BATCH_KEYS_MAX];        /* keys in the order of KEYS */
    struct buffer packet;                  /* ARGV[1] */
    struct slice args[BATCH_ARGS_MAX + 1]; /* and space for a test's time */
    char numkeys[DECIMAL_MAX];

    int64_t now_us; /* of the last reply */
};

static inline struct script_op *batch_script_op(const struct batch *batch, size_t i)
{
    return (struct script_op *)batch->script_ops.at + i;
}

static inline uint16_t *batch_op_keys(const struct batch *batch, size_t i)
{
    return (uint16_t *)batch->op_keys.at + i;
}

/* The key of a script op's i-th limit. */
static inline struct batch_key *batch_key_of(const struct batch *batch, const struct script_op *asked, uint16_t i)
{
    return (struct batch_key *)&batch->keys[*batch_op_keys(batch, asked->keys_at + i)];
}

/* Has the op a check's answer, with waits? */
static inline bool kind_is_check(enum batch_kind kind)
{
    return kind == KIND_CHECK || (kind >= KIND_CHECK_ALL && kind <= KIND_RESERVE);
}

#endif
