/*
 * assert.h: assertions for our own bugs, in every build.
 *
 * CHECK() states what a function believes at its door. It never guards what a peer, a file or a
 * server can break: those get an answer (see ARCHITECTURE.md, "Errors").
 */
#ifndef RL_BASE_ASSERT_H
#define RL_BASE_ASSERT_H

#include <stdio.h>
#include <stdlib.h>

/* Not inlined, so that functions with a CHECK() stay small and fast. */
__attribute__((__noreturn__, cold, noinline, unused)) static void check_failed(const char *file, int line,
                                                                               const char *function, const char *text)
{
    fprintf(stderr, "ratelimitd: BUG: %s:%d: %s: %s\n", file, line, function, text);
    abort();
}

#define CHECK(expr)                                                                                                    \
    do {                                                                                                               \
        if (__builtin_expect(!(expr), 0)) check_failed(__FILE__, __LINE__, __func__, #expr);                           \
    } while (0)

/* The object of type `type` whose field `field` is at `ptr`. */
#define CONTAINER_OF(ptr, type, field) ((type *)(void *)((char *)(ptr)-offsetof(type, field)))

/* How many entries an array has. */
#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif
