/*
 * buffer_pool.h: buffers that sessions borrow while they have bytes to reservation, so that ten thousand idle
 * connections keep none and a busy daemon allocates none.
 *
 * The last one given back is the first one lent: its memory is warm. What is kept is bounded; a
 * buffer beyond that, or one that grew large for once, is freed instead.
 */
#ifndef RL_SERVER_BUFFER_POOL_H
#define RL_SERVER_BUFFER_POOL_H

#include <stddef.h>

#include "base/buffer.h"

enum {
    SPARES_MAX = 1024,
    SPARE_CAP_MAX = 128 * 1024,        /* bytes of one buffer that is kept */
    SPARES_BYTES_MAX = 4 * 1024 * 1024 /* of all that are kept */
};

struct buffer_pool {
    struct buffer kept[SPARES_MAX]; /* empty, with memory */
    size_t n;
    size_t n_bytes;
};

void buffer_pool_init(struct buffer_pool *buffer_pool);
void buffer_pool_fini(struct buffer_pool *buffer_pool);
void buffer_pool_borrow(struct buffer_pool *buffer_pool,
                        struct buffer *buf); /* buf has no memory yet, and may get none */
void buffer_pool_return(struct buffer_pool *buffer_pool,
                        struct buffer *buf); /* buf is empty, and has no memory afterwards */
void buffer_pool_take_back(struct buffer_pool *buffer_pool, struct buffer *buf); /* the same, whatever it holds */

#endif
