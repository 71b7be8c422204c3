/* heap.c: a binary heap in an array, for the deadlines of engine/ and of the client's calls. */
#include "base/heap.h"

#include <stdbool.h>

#include "base/alloc.h"
#include "base/assert.h"

void heap_init(struct heap *heap)
{
    *heap = (struct heap){0};
}

void heap_fini(struct heap *heap)
{
    CHECK(heap->n == 0);
    mem_free(heap->nodes);
    heap_init(heap);
}

static bool is_before(const struct heap_node *a, const struct heap_node *b)
{
    return a->at_us < b->at_us || (a->at_us == b->at_us && a->order < b->order);
}

static void set_node(struct heap *heap, size_t i, struct heap_node *node)
{
    heap->nodes[i - 1] = node;
    node->index = i;
}

static void sift_up(struct heap *heap, size_t i, struct heap_node *node)
{
    for (; i > 1 && is_before(node, heap->nodes[i / 2 - 1]); i /= 2) set_node(heap, i, heap->nodes[i / 2 - 1]);
    set_node(heap, i, node);
}

static void sift_down(struct heap *heap, size_t i, struct heap_node *node)
{
    for (size_t child; (child = 2 * i) <= heap->n; i = child) {
        if (child < heap->n && is_before(heap->nodes[child], heap->nodes[child - 1])) child++;
        if (is_before(node, heap->nodes[child - 1])) break;
        set_node(heap, i, heap->nodes[child - 1]);
    }
    set_node(heap, i, node);
}

int heap_reserve(struct heap *heap)
{
    if (heap->n < heap->cap) return 0;
    size_t cap = heap->cap > 0 ? 2 * heap->cap : 64;
    struct heap_node **nodes = mem_realloc(heap->nodes, cap * sizeof *nodes);
    if (nodes == NULL) return -1;
    heap->nodes = nodes;
    heap->cap = cap;
    return 0;
}

int heap_push(struct heap *heap, struct heap_node *node, int64_t at_us)
{
    CHECK(node->index == 0);
    if (heap_reserve(heap) < 0) return -1;
    node->at_us = at_us;
    node->order = heap->n_pushed++;
    sift_up(heap, ++heap->n, node);
    return 0;
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    size_t i = node->index;
    if (i == 0) return;

    CHECK(i <= heap->n && heap->nodes[i - 1] == node);
    struct heap_node *last = heap->nodes[--heap->n];
    node->index = 0;
    if (last == node) return;

    if (i > 1 && is_before(last, heap->nodes[i / 2 - 1]))
        sift_up(heap, i, last);
    else
        sift_down(heap, i, last);
}

struct heap_node *heap_min(const struct heap *heap)
{
    return heap->n > 0 ? heap->nodes[0] : NULL;
}
