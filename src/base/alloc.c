/* alloc.c: malloc(), counted, and failing if a test asks for it; for every folder. */
#include "base/alloc.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Per thread: libratelimit's users may have a client in each. */
static _Thread_local uint64_t n_allocs;
static _Thread_local uint64_t fail_in; /* allocations until one fails; 0 = never */

/* One for all threads: what one allocates another may free. */
static _Atomic uint64_t bytes_in_use;

static bool must_fail(void)
{
    return fail_in > 0 && --fail_in == 0;
}

static void count_bytes(size_t n)
{
    atomic_fetch_add_explicit(&bytes_in_use, n, memory_order_relaxed);
}

static void *count_new(void *ptr)
{
    if (ptr == NULL) return NULL;
    n_allocs++;
    count_bytes(malloc_usable_size(ptr));
    return ptr;
}

void *mem_alloc(size_t size)
{
    return count_new(must_fail() ? NULL : malloc(size > 0 ? size : 1));
}

void *mem_zalloc(size_t size)
{
    return count_new(must_fail() ? NULL : calloc(1, size > 0 ? size : 1));
}

void *mem_realloc(void *ptr, size_t size)
{
    if (must_fail()) return NULL;
    size_t before = malloc_usable_size(ptr);
    void *moved = realloc(ptr, size > 0 ? size : 1);
    if (moved != NULL) count_bytes(-before);
    return count_new(moved);
}

char *mem_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = mem_alloc(size);
    if (copy != NULL) memcpy(copy, text, size);
    return copy;
}

void mem_free(void *ptr)
{
    if (ptr != NULL) count_bytes(-malloc_usable_size(ptr));
    free(ptr);
}

uint64_t mem_in_use(void)
{
    return atomic_load_explicit(&bytes_in_use, memory_order_relaxed);
}

uint64_t mem_n_allocs(void)
{
    return n_allocs;
}

void mem_fail_nth(uint64_t n)
{
    fail_in = n;
}
