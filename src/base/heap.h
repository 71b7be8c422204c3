/*
 * heap.h: an intrusive binary heap of deadlines, earliest first; of equal ones, the one pushed first.
 *
 * The array grows by doubling and never shrinks, so that a warmed-up daemon does not allocate.
 */
#ifndef RL_BASE_HEAP_H
#define RL_BASE_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct heap_node {
    int64_t at_us;  /* CLOCK_MONOTONIC */
    uint64_t order; /* the order of pushes, for equal deadlines */
    size_t index;   /* 1-based place in the heap; 0 = not in a heap */
};

struct heap {
    struct heap_node **nodes; /* owned array; the nodes belong to their objects */
    size_t n;
    size_t cap;
    uint64_t n_pushed;
};

void heap_init(struct heap *heap);
void heap_fini(struct heap *heap); /* must be empty */

int heap_reserve(struct heap *heap); /* makes space, so that the next push cannot fail; 0, or -1 without memory */
int heap_push(struct heap *heap, struct heap_node *node, int64_t at_us); /* 0, or -1 without memory */
void heap_remove(struct heap *heap, struct heap_node *node);             /* a node that is not inside is fine */
struct heap_node *heap_min(const struct heap *heap);                     /* NULL when empty */

#endif
