/*
 * turn_private.h: the inside of a turn, shared by turn.c (gathering), turn_pack.c (the call) and
 * turn_replay.c (the answers).
 */
#ifndef RL_STORE_TURN_PRIVATE_H
#define RL_STORE_TURN_PRIVATE_H

#include "base/buffer.h"
#include "store/store_key.h"
#include "store/turn.h"

enum {
    TURN_SLOTS = 4 * TURN_KEYS_MAX, /* of the table of keys */
    TURN_MEMBERS_MAX = 4096,        /* of all items; beyond: the next turn; bounds the script's time and its reply */
    TURN_STEP_MEMBERS_MAX = 512,    /* the same of a turn in steps */
    TURN_EXTRAS_MAX = TURN_ARGS_MAX - TURN_KEYS_MAX - 2, /* keys that belong to one step alone */
    TURN_TAG_LEN = STORE_TAG_LEN,                        /* ":{b017}:" */
    NO_ITEM = UINT32_MAX,
};

#define TURN_EXACT_MAX (INT64_C(1) << 53) /* of the script's integers */

/* How a key stands in the script's runs; the numbers are the wire's. */
enum form { FORM_ONES, FORM_COUNTS, FORM_GROUPS, FORM_RESET };

struct turn_key {
    const struct limit *limit;
    int64_t phase_ms;    /* limit_phase() */
    int64_t max_wait_us; /* of its checks */
    uint64_t hash;
    size_t start, len; /* the whole Redis key, in key_bytes */
    uint32_t n_items;
    uint32_t last_item; /* meaningless while n_items is 0 */
    bool alone;         /* its items have one member only */
    uint16_t run;       /* set by packing: index into runs */
};

/* What the script is asked for: `count` checks of all members, all or nothing; 0 = a peek. */
struct turn_item {
    uint32_t count;
    uint32_t first_member;
    uint16_t n_members;
};

struct turn_member {
    uint16_t key;
    int64_t cost;
    int64_t wait; /* set by the replay: what a denial's retry needs (logs) */
    uint16_t run; /* in steps: index into runs */
};

/* One op: its item, and its keys from keys_at in op_keys. */
struct turn_entry {
    uint32_t item; /* NO_ITEM: a peek that needs nothing but its key's state; in steps: its first member */
    uint32_t keys_at;
    uint16_t extra; /* in steps: the first of its own keys */
};

struct turn_run {
    const struct limit *limit;
    int64_t phase_ms, max_wait_us; /* set in steps: what tells it from the limit's other runs */
    struct constants constants;    /* set by packing */
    enum form form;
    uint16_t n_keys;
};

/* A key that belongs to one step alone. */
struct turn_extra {
    uint32_t start, len; /* in key_bytes */
};

/* A growing array; the element's size is given with every call. */
struct vec {
    void *at; /* owned */
    size_t n, cap;
};

struct turn {
    char *prefix; /* owned */
    size_t prefix_len;
    uint32_t max_keys;
    bool merge;

    struct list ops;
    size_t n_ops;
    bool resets;   /* all of them, else none */
    bool in_steps; /* see turn_steps.h */
    bool always_in_steps;

    struct turn_key keys[TURN_KEYS_MAX];
    uint32_t n_keys;
    uint64_t hashes[TURN_KEYS_MAX]; /* of the keys of the op being added */
    uint8_t slots[TURN_SLOTS];      /* index into keys + 1, by hash, linear probing; 0 = empty */
    struct buffer key_bytes;
    struct vec items;   /* struct turn_item */
    struct vec members; /* struct turn_member */
    struct vec entries; /* struct turn_entry, one per op, in their order */
    struct vec op_keys; /* uint16_t */

    struct turn_extra extras[TURN_EXTRAS_MAX];
    uint32_t n_extras;

    int64_t now_us; /* the server's, at the last reply that made sense */

    /* Set by packing (in steps the runs are by gathering): */
    bool packed;
    uint16_t order[TURN_KEYS_MAX]; /* keys in KEYS' order */
    uint16_t place[TURN_KEYS_MAX]; /* a key's place in it */
    struct turn_run runs[TURN_KEYS_MAX];
    uint32_t n_runs;
    bool waits;                           /* an algorithm among them may send waits */
    struct buffer packet;                 /* ARGV[1] */
    struct slice args[TURN_ARGS_MAX + 1]; /* and room for a test's time */
    char numkeys[8];
};

static inline struct turn_item *turn_item(const struct turn *turn, size_t i)
{
    return (struct turn_item *)turn->items.at + i;
}

static inline struct turn_member *turn_member(const struct turn *turn, size_t i)
{
    return (struct turn_member *)turn->members.at + i;
}

static inline struct turn_entry *turn_entry(const struct turn *turn, size_t i)
{
    return (struct turn_entry *)turn->entries.at + i;
}

static inline uint16_t turn_op_key(const struct turn *turn, size_t i)
{
    return ((const uint16_t *)turn->op_keys.at)[i];
}

/* A key with several items, or with one of several members, is charged by groups. */
static inline bool turn_key_in_groups(const struct turn_key *key)
{
    return key->n_items > 1 || (key->n_items == 1 && !key->alone);
}

/* Of turn.c and turn_pack.c, for turn_steps.c too: */
size_t turn_key_bytes(const struct turn *turn, const struct op *op); /* of its members' keys */
/* prefix:{bNNN}: of the member's keys; returns its end. */
uint8_t *turn_put_tag(const struct turn *turn, uint8_t *to, const struct op_member *member);
uint8_t *turn_put(uint8_t *to, uint64_t value, size_t size); /* little-endian; returns its end */
uint8_t *turn_put_constants(uint8_t *to, const struct turn_run *run);
uint64_t turn_cost(const struct limit *limit, int64_t cost); /* as it goes to the script */
/* n values were malformed or of a foreign type: redis_bad_values, at most the batch's keys. */
void turn_count_bad_values(const struct turn *turn, uint64_t n);
struct slice turn_numkeys(struct turn *turn, uint32_t n);

#endif
