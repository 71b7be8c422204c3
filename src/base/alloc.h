/*
 * alloc.h: the one door to the heap.
 *
 * Everything of ours that lives on the heap comes through here, so that a test can count
 * allocations (none on the hot path after warm-up) and can let the n-th one fail. Libraries
 * (libuv, hiredis, msgpack-c, libyaml) keep their own allocators.
 */
#ifndef RL_BASE_ALLOC_H
#define RL_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* Each returns NULL when memory is short; callers answer, they do not abort. Sizes in bytes. */
void *mem_alloc(size_t size);
void *mem_zalloc(size_t size);
void *mem_realloc(void *ptr, size_t size); /* ptr stays valid and owned by the caller on failure */
char *mem_strdup(const char *text);
void mem_free(void *ptr); /* NULL is fine */

/* Successful mem_alloc/zalloc/realloc/strdup calls of this thread so far. */
uint64_t mem_n_allocs(void);

/* Bytes that are allocated through here now, by all threads. */
uint64_t mem_in_use(void);

/* Tests: the n-th allocation from now (1 = the next) and none after it fails; 0 = off. */
void mem_fail_nth(uint64_t n);

#endif
