/* cursor.c: numbers as text and back, for views.c and find.c. */
#include "server/cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"

void cursor_print(const uint64_t *numbers, size_t n, char out[CURSOR_TEXT_MAX])
{
    size_t len = 0;
    CHECK(n >= 1 && n <= CURSOR_NUMBERS_MAX);
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(out + len, CURSOR_TEXT_MAX - len, "%s%" PRIu64, i > 0 ? "." : "", numbers[i]);
}

int cursor_read(const struct params *params, struct slice next, uint64_t *ret, size_t n)
{
    char text[CURSOR_TEXT_MAX] = "", again[CURSOR_TEXT_MAX];
    if (next.len < sizeof text) snprintf(text, sizeof text, "%.*s", (int)next.len, (const char *)next.data);
    char *at = text;
    for (size_t i = 0; i < n; i++) {
        ret[i] = strtoull(at, &at, 10);
        at += *at == '.';
    }

    cursor_print(ret, n, again);
    if (next.len == 0 || slice_is(next, again)) return 0;
    return cursor_fail(params);
}

int cursor_fail(const struct params *params)
{
    return params_fail(params, ERROR_BAD_REQUEST, "next: must be the str `next` of the answer before");
}
