/*
 * decimal.h: a number in decimal digits, for the hot paths: printf would take as long as the rest of a command.
 */
#ifndef RL_BASE_DECIMAL_H
#define RL_BASE_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

enum { DECIMAL_MAX = 20 };

/* Returns how many digits it wrote, at most DECIMAL_MAX; no NUL. */
static inline size_t decimal_put(void *to, uint64_t number)
{
    char digits[DECIMAL_MAX], *out = to;
    if (number < 10) { /* most lengths are this short */
        out[0] = (char)('0' + number);
        return 1;
    }
    if (number < 100) {
        out[0] = (char)('0' + number / 10);
        out[1] = (char)('0' + number % 10);
        return 2;
    }

    size_t n = 0;
    do digits[n++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    for (size_t i = 0; i < n; i++) out[i] = digits[n - 1 - i];
    return n;
}

#endif
