/*
 * nearest.h: the known name that is most similar to a written one.
 */
#ifndef RL_BASE_NEAREST_H
#define RL_BASE_NEAREST_H

#include <stddef.h>

#include "base/slice.h"

struct nearest {
    struct slice written; /* not owned */
    const char *name;     /* the best so far; NULL: none is near enough */
    size_t distance;      /* a better one has fewer edits than this */
};

/* Half of the letters may be wrong: for a configuration file. */
struct nearest nearest_to(const char *written);
/* The same with at most `most` edits, so that each offered name costs little: for names from a peer. */
struct nearest nearest_within(struct slice written, size_t most);
void nearest_offer(struct nearest *nearest, const char *name); /* `name` lives as long as `nearest` is used */

#endif
