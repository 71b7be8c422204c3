/* names.c: puts the program's name for an inline policy into a decision, for request.c and exchange.c. */
#include "client/names.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define GENERATED "inline-"

enum { DIGITS = 16, GENERATED_LEN = sizeof GENERATED - 1 + DIGITS };

int names_note(struct buffer *names, size_t *n, size_t i, const char *name)
{
    CHECK(i >= *n);
    for (; *n < i; ++*n) {
        if (buffer_append(names, "", 1) != 0) return -1;
    }
    if (buffer_append(names, name, strlen(name) + 1) != 0) return -1;
    ++*n;
    return 0;
}

/* Does `of`, "policy/limit" or "policy", begin with a name that the daemon made? */
static bool is_generated(const char *of)
{
    return strncmp(of, GENERATED, strlen(GENERATED)) == 0 &&
           strspn(of + strlen(GENERATED), "0123456789abcdef") == DIGITS &&
           (of[GENERATED_LEN] == '\0' || of[GENERATED_LEN] == '/');
}

static void put_name(const char *name, char of[static RATELIMIT_BOUND_BY_SIZE])
{
    char limit[RATELIMIT_BOUND_BY_SIZE];
    if (!is_generated(of)) return;
    snprintf(limit, sizeof limit, "%s", of + GENERATED_LEN);
    snprintf(of, RATELIMIT_BOUND_BY_SIZE, "%s%s", name, limit);
}

void names_put(const struct buffer *names, struct ratelimit_decision *decision)
{
    if (buffer_len(names) == 0) return;
    const char *name = (const char *)buffer_data(names);
    put_name(name, decision->of);
    put_name(name, decision->bound_by);
}

/* If the daemon gave it the same name as in `other`. */
static void put_name_if_same(const char *name, char of[static RATELIMIT_BOUND_BY_SIZE], const char *other)
{
    if (is_generated(of) && is_generated(other) && strncmp(of, other, GENERATED_LEN) == 0) put_name(name, of);
}

void names_put_members(const struct buffer *names, struct ratelimit_decision *members, size_t n,
                       struct ratelimit_decision *whole)
{
    if (buffer_len(names) == 0) return;
    const char *name = (const char *)buffer_data(names), *end = name + buffer_len(names);
    for (size_t i = 0; i < n && name < end; i++, name += strlen(name) + 1) {
        if (name[0] == '\0') continue;
        struct ratelimit_decision *member = &members[i];
        if (whole != NULL) {
            put_name_if_same(name, whole->of, member->of);
            put_name_if_same(name, whole->of, member->bound_by);
            put_name_if_same(name, whole->bound_by, member->of);
            put_name_if_same(name, whole->bound_by, member->bound_by);
        }
        put_name(name, member->of);
        put_name(name, member->bound_by);
    }
}
