/* line.c: writes a text in parts, for those who explain something to people. */
#include "base/line.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"

struct line line_of(char *out, size_t size)
{
    CHECK(size > 0);
    out[0] = '\0';
    return (struct line){.out = out, .size = size};
}

void line_add(struct line *line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line->out + line->len, line->size - line->len, format, args);
    va_end(args);
    CHECK(n >= 0);
    line->len += (size_t)n;
    if (line->len < line->size) return;
    line->len = line->size - 1;
    line->is_cut = true;
}
