/* rows.c: keeps packed rows and sorts them, for top.c and views.c. */
#include "ctl/rows.h"

#include <stdlib.h>

#include "base/assert.h"
#include "ctl/words.h"

enum { ROWS_BYTES_MOST = 1 << 30, ROWS_FIRST = 64 };

static bool has_place(struct rows *rows)
{
    if (rows->n < rows->cap) return true;
    size_t cap = rows->cap == 0 ? ROWS_FIRST : 2 * rows->cap;
    struct row *items = realloc(rows->items, cap * sizeof *items);
    if (items == NULL) return false;
    rows->items = items;
    rows->cap = cap;
    return true;
}

void rows_add(struct rows *rows, struct pull list, const char *number)
{
    uint32_t n = 0;
    rows->bytes.max = ROWS_BYTES_MOST;
    for (pull_array(&list, &n); n > 0; n--) {
        const struct pull map = list;
        if (pull_skip(&list) != 0) return;

        struct row row = {words_number(map, number, 0), buffer_len(&rows->bytes), (size_t)(list.at - map.at)};
        if (!has_place(rows) || buffer_append(&rows->bytes, map.at, row.len) != 0) {
            rows->is_cut = true;
            return;
        }
        rows->items[rows->n++] = row;
    }
}

void rows_clear(struct rows *rows)
{
    rows->n = 0;
    buffer_truncate(&rows->bytes, 0);
}

static int compare(const void *a_, const void *b_)
{
    const struct row *a = a_, *b = b_;
    if (a->number != b->number) return a->number > b->number ? -1 : 1;
    return a->at < b->at ? -1 : 1;
}

void rows_sort(struct rows *rows)
{
    if (rows->n > 0) qsort(rows->items, rows->n, sizeof rows->items[0], compare);
}

struct pull rows_at(const struct rows *rows, size_t i)
{
    const uint8_t *bytes = buffer_data(&rows->bytes);
    CHECK(i < rows->n);
    return pull_of(bytes + rows->items[i].at, rows->items[i].len);
}

void rows_fini(struct rows *rows)
{
    free(rows->items);
    buffer_fini(&rows->bytes);
    *rows = (struct rows){0};
}
