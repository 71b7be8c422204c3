/*
 * rows.h: rows out of several answers of the daemon, to be put in order and printed.
 */
#ifndef RL_CTL_ROWS_H
#define RL_CTL_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "proto/pull.h"

struct row {
    int64_t number; /* by which they are put in order */
    size_t at, len; /* in the rows' bytes */
};

/* Zeroed, there are none. */
struct rows {
    struct row *items; /* owned */
    size_t n, cap;
    struct buffer bytes; /* owned; packed values */
    bool is_cut;         /* without memory for all of them */
};

/* The values of `list`, each a map, with its number of that name. */
void rows_add(struct rows *rows, struct pull list, const char *number);
void rows_clear(struct rows *rows);
void rows_sort(struct rows *rows); /* the largest number first; equal ones as they came */
struct pull rows_at(const struct rows *rows, size_t i);
void rows_fini(struct rows *rows);

#endif
