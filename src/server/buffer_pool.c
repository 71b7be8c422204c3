#include "server/buffer_pool.h"

#include "base/check.h"

void buffer_pool_init(struct buffer_pool *buffer_pool)
{
    buffer_pool->n = buffer_pool->n_bytes = 0;
}

void buffer_pool_fini(struct buffer_pool *buffer_pool)
{
    while (buffer_pool->n > 0) buffer_fini(&buffer_pool->kept[--buffer_pool->n]);
    buffer_pool->n_bytes = 0;
}

void buffer_pool_borrow(struct buffer_pool *buffer_pool, struct buffer *buf)
{
    CHECK(buf->bytes == NULL);
    if (buffer_pool->n == 0) return;
    *buf = buffer_pool->kept[--buffer_pool->n];
    buffer_pool->n_bytes -= buf->cap;
}

void buffer_pool_return(struct buffer_pool *buffer_pool, struct buffer *buf)
{
    CHECK(buffer_len(buf) == 0);
    if (buf->bytes == NULL) return;

    if (buffer_pool->n == SPARES_MAX || buf->cap > SPARE_CAP_MAX ||
        buffer_pool->n_bytes + buf->cap > SPARES_BYTES_MAX) {
        buffer_fini(buf);
        return;
    }

    buffer_pool->n_bytes += buf->cap;
    buffer_pool->kept[buffer_pool->n++] = *buf;
    buffer_init(buf, 0);
}

void buffer_pool_take_back(struct buffer_pool *buffer_pool, struct buffer *buf)
{
    buffer_consume(buf, buffer_len(buf));
    buffer_pool_return(buffer_pool, buf);
}
