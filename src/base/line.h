/* line.h: a text that is written in parts into the space of a caller; what does not fit is cut off at the end. */
#ifndef RL_BASE_LINE_H
#define RL_BASE_LINE_H

#include <stdbool.h>
#include <stddef.h>

struct line {
    char *out;        /* not owned; always ends with a NUL */
    size_t size, len; /* bytes of out; without the NUL */
    bool is_cut;
};

struct line line_of(char *out, size_t size); /* size: at least 1 */
void line_add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
