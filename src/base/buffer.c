/* buffer.c: what the inline functions of buffer.h leave over: growing, and moving bytes to the front. */
#include "base/buffer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

enum { BUFFER_FIRST_CAP = 256 };

void buffer_init(struct buffer *buf, size_t max)
{
    *buf = (struct buffer){.max = max};
}

void buffer_fini(struct buffer *buf)
{
    mem_free(buf->bytes);
    *buf = (struct buffer){.max = buf->max};
}

uint8_t *buffer_make_space(struct buffer *buf, size_t len)
{
    size_t used = buffer_len(buf), need = used + len;
    if (need < len || (buf->max > 0 && need > buf->max)) return NULL;
    if (buf->end + len <= buf->cap && buf->bytes != NULL) return buf->bytes + buf->end;

    if (need > buf->cap || buf->bytes == NULL) {
        size_t cap = buf->cap > 0 ? buf->cap : BUFFER_FIRST_CAP;
        while (cap < need) cap *= 2;
        uint8_t *bytes = mem_realloc(buf->bytes, cap);
        if (bytes == NULL) return NULL;
        buf->bytes = bytes;
        buf->cap = cap;
    }
    if (buf->start > 0) memmove(buf->bytes, buffer_data(buf), used);
    buf->start = 0;
    buf->end = used;
    return buf->bytes + used;
}

void buffer_consume(struct buffer *buf, size_t len)
{
    CHECK(len <= buffer_len(buf));
    buf->start += len;
    if (buf->start == buf->end) buf->start = buf->end = 0;
}

void buffer_truncate(struct buffer *buf, size_t len)
{
    CHECK(len <= buffer_len(buf));
    buf->end = buf->start + len;
}

void buffer_shrink(struct buffer *buf, size_t keep)
{
    if (buffer_len(buf) == 0 && buf->cap > keep) buffer_fini(buf);
}
