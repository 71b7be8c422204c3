/*
 * top_keys.h: which keys count most, in memory of a fixed size: Space-Saving (A. Metwally, D. Agrawal and A. El Abbadi,
 * Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005).
 *
 * A table counts up to m keys. When it is full, a new key takes the place of the one with the smallest count, and goes
 * on with that count, which is its error: its true count is from count - error to count. After N units in all no error
 * is greater than N / m, and every key with more than N / m units is in the table.
 *
 * Two tables take turns: the running one counts for a window, then it is the complete one until the next window ends.
 * So there is always a whole window to look at, and what is over disappears.
 *
 * Rows stay where they are while their key is counted. So a reader that comes back for one part after another finds
 * each key that is there all the time once; it begins anew if the window has ended meanwhile.
 */
#ifndef RL_SERVER_TOP_KEYS_H
#define RL_SERVER_TOP_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/kept.h"

enum { TOP_KEYS_MAX = 4096 };

struct top_row {
    uint64_t hash; /* of policy and key */
    uint64_t count, error;
    uint16_t next; /* the next row of the same head, from 1; 0: none */
    uint16_t at;   /* its place in the heap */
    struct kept_names names;
    struct kept_key key;
};

struct top_table {
    uint32_t max, n;
    uint32_t n_heads;     /* a power of two */
    struct top_row *rows; /* owned */
    uint16_t *heap;       /* owned; rows, the smallest count first */
    uint16_t *heads;      /* owned; by hash: the first row, from 1 */
};

enum top_window { TOP_RUNNING, TOP_COMPLETE, N_TOP_WINDOWS };

/* Zeroed, it is off. */
struct top_keys {
    struct top_table tables[N_TOP_WINDOWS];
    unsigned running;  /* which of them */
    int64_t window_us; /* its length */
    int64_t began_us;  /* CLOCK_MONOTONIC: the running window; 0: none has begun */
    uint64_t number;   /* of that window */
};

/* With another number of keys the tables begin anew; 0: there are none. 0, or -1 without memory: it stays as it was. */
int top_keys_set(struct top_keys *top, uint32_t n_keys, int64_t window_us);
void top_keys_fini(struct top_keys *top);

static inline bool top_keys_is_on(const struct top_keys *top)
{
    return top->tables[0].max > 0;
}

/* Counts `units` for the key with this hash. The caller fills in names and key of a row that *ret_is_new. It is on. */
struct top_row *top_keys_add(struct top_keys *top, uint64_t hash, uint64_t units, int64_t now_us, bool *ret_is_new);
/* Ends the window if its time is over; a table that is looked at, too, must have been. */
void top_keys_look(struct top_keys *top, int64_t now_us);

const struct top_table *top_keys_table(const struct top_keys *top, enum top_window which);

#endif
