/*
 * memory_records.h: admissions that are remembered under a name (op.record), bounded in number and in bytes.
 *
 * A record counts until its time is over, by the limits' now. If there are too many, of a small
 * sample the one that ends first goes: its check would be charged again. A map finds a record by its
 * name; a list walks them for sweeping, a few per tick. Forgetting everything is one increment:
 * records of an older generation count as gone.
 */
#ifndef RL_STORE_MEMORY_RECORDS_H
#define RL_STORE_MEMORY_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "store/store.h"

/* What a member of the remembered check had before it, and what it was charged. */
struct memory_recorded {
    int64_t used, extra, units;
};

struct memory_record {
    struct map_node node;
    struct list link;
    int64_t at_us, until_us; /* of the limits' now */
    uint32_t version;        /* op_version() */
    uint32_t generation;
    uint64_t reservation_id; /* of an OP_RESERVE */
    int64_t reservation_ttl_ms;
    uint32_t name_len;
    uint16_t n_members;
    struct memory_recorded members[]; /* and the name behind them */
};

struct memory_records {
    struct map map;
    struct list records; /* owned; the next to be looked at first */
    size_t max;
    uint64_t n_bytes, max_bytes;
    uint64_t n_evicted; /* ever */
    uint32_t generation;
    bool exact; /* set by the owner: none that counts is evicted, and the new one is refused */
};

int memory_records_init(struct memory_records *records, size_t max, uint64_t max_bytes); /* 0, or -1 without memory */
void memory_records_fini(struct memory_records *records);

/* The op's record that counts at now_us: neither the time it was given nor that which the op brings is over. NULL if
 * there is none. */
const struct memory_record *memory_records_find(struct memory_records *records, const struct op *op, int64_t now_us);
/* A record for the op, in place of one of its name, at now_us; its members are the caller's to fill. NULL without
 * memory, or if none may go. */
struct memory_record *memory_records_add(struct memory_records *records, const struct op *op, int64_t now_us);

/* Look at the next n records, and free those that are over at now_us; if there are too many, because `max` was lowered,
 * some of the others, too. */
void memory_records_sweep(struct memory_records *records, size_t n, int64_t now_us);
void memory_records_forget_all(struct memory_records *records);

#endif
