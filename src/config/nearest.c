#include "config/nearest.h"

#include <stdint.h>
#include <string.h>

enum { NAME_LEN_MAX = 64 };

static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Letters to insert, remove, replace or swap with their neighbour (optimal string alignment). */
static size_t distance(const char *a, const char *b)
{
    size_t rows[3][NAME_LEN_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *here = rows[2];
    size_t len_a = strlen(a), len_b = strlen(b);
    if (len_a > NAME_LEN_MAX || len_b > NAME_LEN_MAX) return SIZE_MAX;
    for (size_t j = 0; j <= len_b; j++) last[j] = before[j] = j;
    for (size_t i = 1; i <= len_a; i++) {
        here[0] = i;
        for (size_t j = 1; j <= len_b; j++) {
            here[j] = least(last[j] + 1, here[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < here[j])
                here[j] = before[j - 2] + 1;
        }
        size_t *free_row = before;
        before = last, last = here, here = free_row;
    }
    return last[len_b];
}

struct nearest nearest_to(const char *written)
{
    size_t tolerance = strlen(written) / 2;
    return (struct nearest){.written = written, .distance = (tolerance > 0 ? tolerance : 1) + 1};
}

void nearest_offer(struct nearest *nearest, const char *name)
{
    size_t d = distance(nearest->written, name);
    if (d >= nearest->distance) return;
    nearest->distance = d;
    nearest->name = name;
}
