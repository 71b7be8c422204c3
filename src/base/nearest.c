/*
 * nearest.c: the edit distance, computed only in the band of cells that can still be near enough.
 */
#include "base/nearest.h"

#include <stdint.h>
#include <string.h>

enum {
    NAME_LEN_MAX = 64,
    FAR = 1000, /* for a cell outside the band: more than the distance of any two names */
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The number of letters to insert, remove, replace or swap with a neighbour (optimal string alignment); some number
 * above `most` if it is more than that. */
static size_t distance(struct slice a, struct slice b, size_t most)
{
    size_t rows[3][NAME_LEN_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *here = rows[2];
    size_t least_last = 0;

    if (a.len > NAME_LEN_MAX || b.len > NAME_LEN_MAX) return FAR;
    if (a.len > b.len + most || b.len > a.len + most) return FAR;
    for (size_t j = 0; j <= b.len; j++) last[j] = before[j] = j;

    for (size_t i = 1; i <= a.len; i++) {
        size_t from = i > most ? i - most : 1, to = least(b.len, i + most), least_here = FAR;
        here[from - 1] = from == 1 ? i : FAR;
        if (to < b.len) here[to + 1] = FAR;

        for (size_t j = from; j <= to; j++) {
            size_t replaced = last[j - 1] + (a.data[i - 1] != b.data[j - 1]);
            here[j] = least(least(last[j] + 1, here[j - 1] + 1), replaced);
            if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] && a.data[i - 2] == b.data[j - 1])
                here[j] = least(here[j], before[j - 2] + 1);
            least_here = least(least_here, here[j]);
        }

        if (least_here > most && least_last > most) return FAR; /* a swap may look back over one row, not over two */
        least_last = least_here;
        size_t *free_row = before;
        before = last, last = here, here = free_row;
    }
    return last[b.len];
}

struct nearest nearest_within(struct slice written, size_t most)
{
    size_t half = written.len > 3 ? written.len / 2 : 1;
    return (struct nearest){.written = written, .distance = least(half, most) + 1};
}

struct nearest nearest_to(const char *written)
{
    return nearest_within(slice_of(written), NAME_LEN_MAX);
}

void nearest_offer(struct nearest *nearest, const char *name)
{
    if (nearest->distance == 0) return;
    size_t d = distance(nearest->written, slice_of(name), nearest->distance - 1);
    if (d >= nearest->distance) return;
    nearest->distance = d;
    nearest->name = name;
}
