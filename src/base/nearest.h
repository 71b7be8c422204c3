/*
 * nearest.h: the known name that is most like the one that was written.
 */
#ifndef RL_BASE_NEAREST_H
#define RL_BASE_NEAREST_H

#include <stddef.h>

#include "base/slice.h"

struct nearest {
    struct slice written; /* not owned */
    const char *name;     /* the best so far; NULL while none is near enough */
    size_t distance;      /* a better one has fewer edits than this */
};

/* Half of the letters may be wrong: for people who have a file in front of them. */
struct nearest nearest_to(const char *written);
/* At most `most` edits as well, so that each name offered costs little: for what a peer sends. */
struct nearest nearest_within(struct slice written, size_t most);
void nearest_offer(struct nearest *nearest, const char *name); /* `name` lives as long as `nearest` is used */

#endif
