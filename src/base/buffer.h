/*
 * buffer.h: a growing run of bytes with a ceiling; append at the end, consume at the front.
 *
 * The session keeps one for what it has read and one for what it will write, the store one for
 * the batch it packs. Growth doubles; what is consumed is moved away only when space is needed.
 */
#ifndef RL_BASE_BUFFER_H
#define RL_BASE_BUFFER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"

struct buffer {
    uint8_t *bytes; /* owned; NULL while nothing was ever appended */
    size_t start;   /* first byte not consumed */
    size_t end;     /* one past the last byte */
    size_t cap;     /* allocated bytes */
    size_t max;     /* the content may never be longer; 0 = no ceiling */
};

void buffer_init(struct buffer *buf, size_t max);
void buffer_fini(struct buffer *buf); /* frees the bytes; may be called twice */

static inline size_t buffer_len(const struct buffer *buf)
{
    return buf->end - buf->start;
}

static inline uint8_t *buffer_data(const struct buffer *buf)
{
    return buf->bytes + buf->start;
}

uint8_t *buffer_make_space(struct buffer *buf, size_t len); /* as buffer_reserve(), if space must be made first */

/* Space for `len` more bytes at the end: where to write them, or NULL (ceiling, or no memory).
 * Follow it with buffer_grew(). The pointer is valid until the next call on this buffer. */
static inline uint8_t *buffer_reserve(struct buffer *buf, size_t len)
{
    if (len >= buf->cap - buf->end || buf->max > 0) return buffer_make_space(buf, len);
    return buf->bytes + buf->end;
}

static inline void buffer_grew(struct buffer *buf, size_t len)
{
    CHECK(len <= buf->cap - buf->end);
    buf->end += len;
}

/* 0, or -1 with the buffer unchanged (ceiling, or no memory). */
static inline int buffer_append(struct buffer *buf, const void *bytes, size_t len)
{
    if (len == 0) return 0;
    uint8_t *to = buffer_reserve(buf, len);
    if (to == NULL) return -1;
    memcpy(to, bytes, len);
    buf->end += len;
    return 0;
}

void buffer_consume(struct buffer *buf, size_t len);  /* drop `len` bytes at the front */
void buffer_truncate(struct buffer *buf, size_t len); /* keep only the first `len` bytes */
void buffer_shrink(struct buffer *buf, size_t keep);  /* free the bytes if empty and cap > keep */

#endif
