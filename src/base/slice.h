/*
 * slice.h: bytes that another part owns.
 *
 * A slice is valid as long as the buffer it points into; every function that hands one out says
 * how long that is. Bytes are opaque: not NUL-terminated, any value, possibly invalid UTF-8.
 */
#ifndef RL_BASE_SLICE_H
#define RL_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct slice {
    const uint8_t *data; /* NULL only if len is 0 */
    size_t len;          /* bytes */
};

static inline struct slice slice_of(const char *text)
{
    return (struct slice){(const uint8_t *)text, strlen(text)};
}

static inline bool slice_eq(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Copies the bytes to `to`, and returns where they end. */
static inline uint8_t *slice_put(uint8_t *to, struct slice from)
{
    if (from.data != NULL) memcpy(to, from.data, from.len);
    return to + from.len;
}

static inline bool slice_is(struct slice a, const char *text)
{
    return slice_eq(a, slice_of(text));
}

#endif
