#include "base/alloc.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Per thread: libratelimit's users may have a client in each. */
static _Thread_local uint64_t n_allocs;
static _Thread_local uint64_t fail_in; /* allocations until one fails; 0 = never */

static bool must_fail(void)
{
    return fail_in > 0 && --fail_in == 0;
}

void *mem_alloc(size_t size)
{
    void *ptr = must_fail() ? NULL : malloc(size > 0 ? size : 1);
    n_allocs += ptr != NULL;
    return ptr;
}

void *mem_zalloc(size_t size)
{
    void *ptr = must_fail() ? NULL : calloc(1, size > 0 ? size : 1);
    n_allocs += ptr != NULL;
    return ptr;
}

void *mem_realloc(void *ptr, size_t size)
{
    void *moved = must_fail() ? NULL : realloc(ptr, size > 0 ? size : 1);
    n_allocs += moved != NULL;
    return moved;
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
    free(ptr);
}

uint64_t mem_n_allocs(void)
{
    return n_allocs;
}

void mem_fail_nth(uint64_t n)
{
    fail_in = n;
}
