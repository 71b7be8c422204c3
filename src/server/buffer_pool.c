/* buffer_pool.c: a stack of warm buffers, for session_input.c and session_output.c. */
#include "server/buffer_pool.h"

#include "base/assert.h"

void buffer_pool_fini(struct buffer_pool *pool)
{
    while (pool->n > 0) buffer_fini(&pool->kept[--pool->n]);
    pool->n_bytes = 0;
}

void buffer_pool_borrow(struct buffer_pool *pool, struct buffer *buf)
{
    CHECK(buf->bytes == NULL);
    if (pool->n == 0) return;
    *buf = pool->kept[--pool->n];
    pool->n_bytes -= buf->cap;
}

void buffer_pool_return(struct buffer_pool *pool, struct buffer *buf)
{
    CHECK(buffer_len(buf) == 0);
    if (buf->bytes == NULL) return;

    if (pool->n == KEPT_MAX || buf->cap > KEPT_CAP_MAX || pool->n_bytes + buf->cap > KEPT_BYTES_MAX) {
        buffer_fini(buf);
        return;
    }

    pool->n_bytes += buf->cap;
    pool->kept[pool->n++] = *buf;
    buffer_init(buf, 0);
}

void buffer_pool_take_back(struct buffer_pool *pool, struct buffer *buf)
{
    buffer_consume(buf, buffer_len(buf));
    buffer_pool_return(pool, buf);
}
