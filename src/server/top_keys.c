/* top_keys.c: a table by hash with a heap of the counts, for watch.c; views.c reads the rows. */
#include "server/top_keys.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

/* ---- one table ---- */

static void table_fini(struct top_table *table)
{
    mem_free(table->rows);
    mem_free(table->heap);
    mem_free(table->heads);
    *table = (struct top_table){0};
}

static int table_init(struct top_table *table, uint32_t max)
{
    uint32_t n_heads = 1;
    while (n_heads < max) n_heads *= 2;
    *table = (struct top_table){.max = max, .n_heads = n_heads};
    table->rows = mem_zalloc(max * sizeof table->rows[0]);
    table->heap = mem_zalloc(max * sizeof table->heap[0]);
    table->heads = mem_zalloc(n_heads * sizeof table->heads[0]);
    if (table->rows != NULL && table->heap != NULL && table->heads != NULL) return 0;

    table_fini(table);
    return -1;
}

static void table_clear(struct top_table *table)
{
    table->n = 0;
    if (table->heads != NULL) memset(table->heads, 0, table->n_heads * sizeof table->heads[0]);
}

static uint16_t *head_of(struct top_table *table, uint64_t hash)
{
    return &table->heads[hash & (table->n_heads - 1)];
}

static void put_in_heap(struct top_table *table, uint32_t at, uint16_t row)
{
    table->heap[at] = row;
    table->rows[row].at = (uint16_t)at;
}

/* The row has got more: it moves away from the front, past those that have less. */
static void sink(struct top_table *table, uint16_t row)
{
    const struct top_row *rows = table->rows;
    uint32_t at = rows[row].at;
    for (uint32_t below; (below = 2 * at + 1) < table->n; at = below) {
        bool second_is_less =
            below + 1 < table->n && rows[table->heap[below + 1]].count < rows[table->heap[below]].count;
        below += second_is_less;
        if (rows[table->heap[below]].count >= rows[row].count) break;
        put_in_heap(table, at, table->heap[below]);
    }
    put_in_heap(table, at, row);
}

/* The row is new, at the end: it moves to the front, past those that have more. */
static void rise(struct top_table *table, uint16_t row)
{
    const struct top_row *rows = table->rows;
    uint32_t at = rows[row].at;
    for (; at > 0 && rows[table->heap[(at - 1) / 2]].count > rows[row].count; at = (at - 1) / 2)
        put_in_heap(table, at, table->heap[(at - 1) / 2]);
    put_in_heap(table, at, row);
}

/* A row for a new key, in the place of the least if all are taken. */
static struct top_row *take_row(struct top_table *table, uint64_t hash, uint64_t units)
{
    uint16_t index = (uint16_t)table->n;
    bool is_full = table->n == table->max;
    if (is_full) index = table->heap[0];

    struct top_row *row = &table->rows[index];
    uint64_t error = is_full ? row->count : 0;
    if (is_full) { /* the one that was there leaves its list */
        uint16_t *link = head_of(table, row->hash);
        while (*link != index + 1) link = &table->rows[*link - 1].next;
        *link = row->next;
    }

    uint16_t *head = head_of(table, hash);
    *row = (struct top_row){.hash = hash, .count = error + units, .error = error, .next = *head, .at = row->at};
    *head = index + 1;
    if (is_full) {
        sink(table, index);
    } else {
        put_in_heap(table, table->n++, index);
        rise(table, index);
    }
    return row;
}

/* ---- the windows ---- */

int top_keys_set(struct top_keys *top, uint32_t n_keys, int64_t window_us)
{
    struct top_table made[N_TOP_WINDOWS] = {0};
    CHECK(n_keys <= TOP_KEYS_MAX && window_us > 0);
    top->window_us = window_us;
    if (n_keys == top->tables[0].max) return 0;
    for (int i = 0; i < N_TOP_WINDOWS && n_keys > 0; i++) {
        if (table_init(&made[i], n_keys) == 0) continue;
        if (i > 0) table_fini(&made[0]);
        return -1;
    }

    for (int i = 0; i < N_TOP_WINDOWS; i++) {
        table_fini(&top->tables[i]);
        top->tables[i] = made[i];
    }
    top->number++;
    return 0;
}

void top_keys_fini(struct top_keys *top)
{
    for (int i = 0; i < N_TOP_WINDOWS; i++) table_fini(&top->tables[i]);
}

void top_keys_look(struct top_keys *top, int64_t now_us)
{
    if (top->began_us == 0) top->began_us = now_us;
    int64_t gone_us = now_us - top->began_us;
    if (gone_us < top->window_us) return;

    if (gone_us >= 2 * top->window_us) table_clear(&top->tables[top->running]); /* nothing came in the last one */
    top->running ^= 1;
    table_clear(&top->tables[top->running]);
    top->began_us += gone_us - gone_us % top->window_us;
    top->number++;
}

struct top_row *top_keys_add(struct top_keys *top, uint64_t hash, uint64_t units, int64_t now_us, bool *ret_is_new)
{
    top_keys_look(top, now_us);
    struct top_table *table = &top->tables[top->running];
    uint16_t at = *head_of(table, hash);
    while (at != 0 && table->rows[at - 1].hash != hash) at = table->rows[at - 1].next;
    *ret_is_new = at == 0;
    if (at == 0) return take_row(table, hash, units);

    struct top_row *row = &table->rows[at - 1];
    row->count += units;
    sink(table, (uint16_t)(row - table->rows));
    return row;
}

const struct top_table *top_keys_table(const struct top_keys *top, enum top_window which)
{
    return &top->tables[which == TOP_RUNNING ? top->running : top->running ^ 1];
}
