/*
 * buffer_pool.h: buffers that sessions borrow while they have bytes to keep, so that ten thousand idle connections keep
 * none and a busy daemon allocates none.
 *
 * The last one given back is the first one lent: its memory is warm. What the pool keeps is bounded; a buffer beyond
 * that, or one that grew large for once, is freed instead.
 */
#ifndef RL_SERVER_BUFFER_POOL_H
#define RL_SERVER_BUFFER_POOL_H

#include <stddef.h>

#include "base/buffer.h"

enum {
    KEPT_MAX = 1024,
    KEPT_CAP_MAX = 128 * 1024,       /* bytes of one buffer that is kept */
    KEPT_BYTES_MAX = 4 * 1024 * 1024 /* of all that are kept */
};

struct buffer_pool {              /* {0}: empty */
    struct buffer kept[KEPT_MAX]; /* empty, with memory */
    size_t n;
    size_t n_bytes;
};

void buffer_pool_fini(struct buffer_pool *pool);
void buffer_pool_borrow(struct buffer_pool *pool, struct buffer *buf); /* buf has no memory yet, and may get none */
void buffer_pool_return(struct buffer_pool *pool, struct buffer *buf); /* buf is empty, and has no memory afterwards */
void buffer_pool_take_back(struct buffer_pool *pool, struct buffer *buf); /* the same, whatever it holds */

#endif
